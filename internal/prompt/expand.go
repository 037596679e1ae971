package prompt

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/dialogue"
	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/prefix"
)

// Place is the range of an image, or of a temporal patch of a video, in a prompt.
type Place struct {
	At, N int
	media Media
	time  int // which temporal patch
}

// mark is the range of bytes that the template wrote for an image or video.
type mark struct {
	from, to int
	video    bool
}

// find lists the marks in a text, only in parts that the template has written: a mark from another
// source is text. The mark of a video includes the tokens around it, because every temporal
// patch has its own.
func (t *pictureTokens) find(text string, own [][2]int) (list []mark) {
	for _, r := range own {
		image, video := search(text, r[0], r[1], t.image.text), search(text, r[0], r[1], t.video.text)
		for image < r[1] || video < r[1] {
			if image < video {
				end := image + len(t.image.text)
				list = append(list, mark{image, end, false})
				image = search(text, end, r[1], t.image.text)
				continue
			}
			x := mark{video, video + len(t.video.text), true}
			video = search(text, x.to, r[1], t.video.text)
			if strings.HasSuffix(text[r[0]:x.from], t.start.text) && strings.HasPrefix(text[x.to:r[1]], t.end.text) {
				x.from, x.to = x.from-len(t.start.text), x.to+len(t.end.text)
			}
			list = append(list, x)
		}
	}
	return list
}

// search is where a token is first spelled in text[from:to], to if it is not.
func search(text string, from, to int, token string) int {
	if token == "" {
		return to
	}
	if i := strings.Index(text[from:to], token); i >= 0 {
		return from + i
	}
	return to
}

// match assigns images and videos to marks: the first mark of a kind gets the first of that
// kind.
func (b *Builder) match(marks []mark, media []Media) ([]Media, error) {
	var of [2][]int // indices of images and of videos
	kind := func(video bool) int {
		if video {
			return 1
		}
		return 0
	}
	for i := range media {
		k := kind(media[i].seconds != nil)
		of[k] = append(of[k], i)
	}
	list := make([]Media, len(marks))
	for i, x := range marks {
		k := kind(x.video)
		if len(of[k]) == 0 {
			return nil, b.mediaError(i, fmt.Errorf("the chat template has %d placeholders for images and videos, but the conversation has %d images and videos: each image or video part of a message needs its bytes", len(marks), len(media)))
		}
		list[i], of[k] = media[of[k][0]], of[k][1:]
	}
	for _, left := range of {
		if len(left) > 0 {
			return nil, b.mediaError(left[0], fmt.Errorf("the chat template has no placeholder for it: it has placeholders for %d of %d images and videos", len(marks), len(media)))
		}
	}
	return list, nil
}

// expansion is a prompt under construction: text is encoded when a token of an
// image ends it.
type expansion struct {
	b       *Builder
	limit   int // of ids; 0: none
	ids     []int32
	places  []Place
	text    string
	trusted [][2]int
	over    bool
}

// add adds a part of a text, of which some ranges are trusted.
func (x *expansion) add(text string, from, to int, trusted [][2]int) {
	for _, r := range trusted {
		if first, end := max(r[0], from), min(r[1], to); first < end {
			x.trusted = append(x.trusted, [2]int{len(x.text) + first - from, len(x.text) + end - from})
		}
	}
	x.text += text[from:to]
}

// flush encodes the pending text.
func (x *expansion) flush() {
	if x.over {
		return
	}
	limit := 0
	if x.limit > 0 {
		limit = max(x.limit-len(x.ids), 1)
	}
	ids, ok := x.b.tok.EncodeWithin(x.text, x.trusted, limit)
	if x.ids == nil {
		x.ids = ids
	} else {
		x.ids = append(x.ids, ids...)
	}
	x.over = !ok || x.limit > 0 && len(x.ids) > x.limit
	x.text, x.trusted = "", x.trusted[:0]
}

// show puts a temporal patch of an image or video in place.
func (x *expansion) show(v Media, time int, id int32) {
	x.flush()
	n := v.Grid.Height * v.Grid.Width / (v.merge * v.merge)
	if x.over = x.over || x.limit > 0 && len(x.ids)+n > x.limit; x.over {
		return
	}
	x.places = append(x.places, Place{len(x.ids), n, v, time})
	x.ids = append(x.ids, slices.Repeat([]int32{id}, n)...)
}

// showVideo inserts a video: its temporal patches, each an image with its time before it.
func (x *expansion) showVideo(v Media) {
	t := &x.b.marks
	for time, second := range v.seconds {
		stamp := fmt.Sprintf("<%.1f seconds>", second)
		x.add(stamp, 0, len(stamp), nil)
		x.flush()
		x.ids = append(x.ids, t.start.id)
		x.show(v, time, t.video.id)
		x.ids = append(x.ids, t.end.id)
	}
}

// expand is the prompt of a text with media where the template, whose ranges are own, has put
// marks. With more than limit tokens it is not made to its end; 0 for no limit.
func (b *Builder) expand(r dialogue.Rendered, own [][2]int, media []Media, limit int) (*Prompt, error) {
	marks := b.marks.find(r.Text, own)
	media, err := b.match(marks, media)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", b.name, err)
	}
	x, at := expansion{b: b, limit: limit}, 0
	for i, mark := range marks {
		x.add(r.Text, at, mark.from, r.Trusted)
		at = mark.to
		if mark.video {
			x.showVideo(media[i])
		} else {
			x.show(media[i], 0, b.marks.image.id)
		}
	}
	x.add(r.Text, at, len(r.Text), r.Trusted)
	if x.flush(); x.over {
		return &Prompt{Over: limit}, nil
	}
	return &Prompt{IDs: x.ids, Places: x.places}, nil
}

// Positions are those of a temporal patch: lines and columns of tokens.
func (p *Place) Positions() [][3]int32 {
	list := make([][3]int32, p.N)
	columns := p.media.Grid.Width / p.media.merge
	for i := range list {
		list[i] = [3]int32{0, int32(i / columns), int32(i % columns)}
	}
	return list
}

// Hash is of all that the rows are made of.
func (p *Place) Hash() [sha256.Size]byte {
	if p.media.Grid.Time == 1 {
		return p.media.Hash
	}
	return sha256.Sum256(binary.LittleEndian.AppendUint64(p.media.Hash[:], uint64(p.time)))
}

// Rows are the places of images and videos among IDs, ascending.
func (p *Prompt) Rows() []prefix.Rows {
	list := make([]prefix.Rows, len(p.Places))
	for i := range p.Places {
		x := &p.Places[i]
		list[i] = prefix.Rows{At: x.At, N: x.N, Hash: x.Hash()}
	}
	return list
}

// Inputs are the first n tokens of a prompt as engine inputs: images are rows, without tokens
// in their places.
func (p *Prompt) Inputs(n int) (ids []int32, list []engine.Input) {
	if ids = p.IDs[:n]; len(p.Places) == 0 {
		return ids, nil
	}
	ids = slices.Clone(ids)
	for i := range p.Places {
		x := &p.Places[i]
		if x.At+x.N > n {
			break
		}
		for j := range x.N {
			ids[x.At+j] = model.NoToken
		}
		list = append(list, engine.Input{
			Input: prefix.Input{At: x.At, N: x.N, Hash: x.Hash(), Positions: x.Positions(), Token: p.IDs[x.At]},
			Image: x.media.Patches, First: x.time * x.N,
		})
	}
	return ids, list
}
