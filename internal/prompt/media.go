package prompt

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/picture"
	"github.com/foretoken/foretoken/internal/rescue"
)

const (
	// defaultMaxPixels of an image are a thousand tokens, which a CPU computes in some
	// seconds. Models allow 16 times as many.
	defaultMaxPixels = 1 << 20
	defaultMaxMedia  = 32
	// videoShare is the maximum number of pixels of a video, in multiples of that of an image.
	videoShare = 4
	// resizeThreads is the number of threads that resize one image.
	resizeThreads = 2
)

// decoding limits how many images the process decodes at a time: each may take a gigabyte.
var decoding = make(chan struct{}, 2)

// imageProcessor prepares the images and videos of prompts for the vision tower.
type imageProcessor struct {
	tower          model.Tower
	images, videos picture.Config
	files          picture.Options
	maxMedia       int
	tokens         pictureTokens

	mu     sync.Mutex // protects what follows
	recent []recent   // the last one was used last
}

// recent is a prepared image or video: every turn of a conversation sends it again.
type recent struct {
	key   [sha256.Size]byte // of what was sent
	media Media
}

// maxRecent is the maximum bytes of recent images that are kept: about twenty large ones.
const maxRecent = 64 << 20

// pictureTokens are the tokens that the template puts in place of images, and around them.
type pictureTokens struct {
	image, video, start, end pictureToken
	silent                   []int32 // all that are not for answers
}

type pictureToken struct {
	id   int32
	text string // "": there is none
}

// OpenVision sets b.processor, or b.visionErr if the model accepts no images. Such a model still takes
// text.
func (b *Builder) OpenVision(o Vision, c *checkpoint.Checkpoint, of model.Model) {
	tokens, err := b.pictureTokens(c.Config())
	b.marks = tokens
	if o.Off {
		b.visionErr = fmt.Errorf("model %s: %w: its vision tower was left out", b.name, ErrNoVision)
		return
	}
	var tower model.Tower
	if s, ok := of.(model.Multimodal); ok && err == nil {
		tower, err = s.Tower()
	}
	if tower == nil && err == nil {
		b.visionErr = fmt.Errorf("model %s: %w: its checkpoint has no vision tower", b.name, ErrNoVision)
		return
	}
	s := &imageProcessor{
		tower: tower, tokens: tokens, maxMedia: cmp.Or(o.MaxMedia, defaultMaxMedia),
		files: picture.Options{AsStored: o.AsStored, OnWhite: o.OnWhite},
	}
	if err == nil {
		err = s.configure(o, c)
	}
	if err == nil && (tokens.image.text == "" || tokens.start.text == "" || tokens.end.text == "") {
		err = errors.New("neither config.json nor tokenizer.json has the image tokens")
	}
	if err != nil {
		b.visionErr = fmt.Errorf("model %s: %w: %w", b.name, ErrNoVision, err)
		if tower != nil { // otherwise the model has said so when it was opened
			b.log.Warn(b.visionErr.Error())
		}
		return
	}
	b.processor = s
}

// configure reads the preprocessing of the tower, from the files that may have it.
func (s *imageProcessor) configure(o Vision, c *checkpoint.Checkpoint) (err error) {
	if s.images, err = readProcessor(c, "preprocessor_config.json", picture.Images(), picture.ReadImages); err != nil {
		return err
	}
	if s.videos, err = readProcessor(c, "video_preprocessor_config.json", picture.Videos(), picture.ReadVideos); err != nil {
		return err
	}
	t := s.tower.Info()
	for _, x := range []struct {
		name string
		picture.Config
	}{{"images", s.images}, {"videos", s.videos}} {
		if x.Patch != t.Patch || x.Temporal != t.Temporal || x.Merge != t.Merge {
			return fmt.Errorf("its processor configuration sets patches of %d×%d pixels and %d frames of %s, and tokens of %d×%d patches; its tower needs patches of %d×%d pixels and %d frames, and tokens of %d×%d",
				x.Patch, x.Patch, x.Temporal, x.name, x.Merge, x.Merge, t.Patch, t.Patch, t.Temporal, t.Merge, t.Merge)
		}
	}
	limit := cmp.Or(o.MaxPixels, defaultMaxPixels)
	s.images = within(s.images, limit)
	s.videos = within(s.videos, videoShare*limit)
	return nil
}

// readProcessor reads a configuration from its own file, or from the one of all of them; where
// there is neither, it is that of the releases.
func readProcessor(c *checkpoint.Checkpoint, file string, usual picture.Config, read func([]byte) (picture.Config, error)) (picture.Config, error) {
	for _, name := range []string{file, "processor_config.json"} {
		text, err := c.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			usual, err = read(text)
		}
		if err != nil {
			return picture.Config{}, fmt.Errorf("%s: %w", name, err)
		}
		break
	}
	return usual, nil
}

// within limits a configuration to pixels pixels; 0 keeps its own limit.
func within(c picture.Config, pixels int) picture.Config {
	if pixels > 0 {
		c.MaxPixels = min(c.MaxPixels, pixels)
		c.MinPixels = min(c.MinPixels, c.MaxPixels)
	}
	return c
}

// pictureTokens are those that the config names, else those of the family.
func (b *Builder) pictureTokens(config []byte) (t pictureTokens, err error) {
	var c struct {
		Image *int32 `json:"image_token_id"`
		Video *int32 `json:"video_token_id"`
		Start *int32 `json:"vision_start_token_id"`
		End   *int32 `json:"vision_end_token_id"`
	}
	if err = json.Unmarshal(config, &c); err != nil {
		return t, fmt.Errorf("config.json: %w", err)
	}
	usual := b.dialogue.Pictures
	for _, x := range []struct {
		to       *pictureToken
		id       *int32
		spelling string
	}{{&t.image, c.Image, usual.Image}, {&t.video, c.Video, usual.Video}, {&t.start, c.Start, usual.Start}, {&t.end, c.End, usual.End}} {
		if x.id != nil {
			if text, ok := b.tok.Token(*x.id); ok && b.tok.Special(*x.id) {
				*x.to = pictureToken{*x.id, text}
			}
		} else if id, ok := b.tok.ID(x.spelling); ok {
			*x.to = pictureToken{id, x.spelling}
		}
		if x.to.text != "" {
			t.silent = append(t.silent, x.to.id)
		}
	}
	for _, spelling := range usual.Others {
		if id, ok := b.tok.ID(spelling); ok {
			t.silent = append(t.silent, id)
		}
	}
	return t, nil
}

// Unsaid is a bias that keeps the tokens of images out of an answer, if the prompt has
// images. Prompts of text do not need it, and their sampling has no cost.
func (b *Builder) Unsaid(bias map[int32]float32) map[int32]float32 {
	all := maps.Clone(bias)
	if all == nil {
		all = map[int32]float32{}
	}
	for _, id := range b.marks.silent {
		if int(id) < b.vocab {
			all[id] = -math.MaxFloat32 / 2
		}
	}
	return all
}

// Tower returns the vision tower, nil if the model accepts no images, and the maximum pixels of an image.
func (b *Builder) Tower() (tower model.Tower, maxPixels int) {
	if b.processor == nil {
		return nil, 0
	}
	return b.processor.tower, b.processor.images.MaxPixels
}

// Media is an image or video that the tower can be fed.
type Media struct {
	*picture.Patches
	merge   int
	seconds []float64 // when each temporal patch of a video is shown; nil: it is an image
}

// prepareMedia decodes the images and videos of a conversation, on the caller's goroutine.
func (b *Builder) prepareMedia(ctx context.Context, c *Conversation) ([]Media, error) {
	var media []*chat.Media
	for i := range c.Messages {
		media = append(media, c.Messages[i].Content.Media()...)
	}
	if len(media) == 0 {
		return nil, nil
	}
	s := b.processor
	if s == nil {
		return nil, b.visionErr
	}
	if len(media) > s.maxMedia {
		return nil, b.mediaError(s.maxMedia, fmt.Errorf("the conversation has %d images and videos, at most %d are allowed", len(media), s.maxMedia))
	}
	list := make([]Media, len(media))
	for i, x := range media {
		var err error
		if list[i], err = s.prepare(ctx, c.CacheSalt, x); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, b.refuse(i, err)
		}
	}
	return list, nil
}

// refuse is the error for an image or video. The stack of a decoder that panicked goes to the
// log.
func (b *Builder) refuse(i int, err error) error {
	if stack := rescue.Stack(err); stack != "" {
		b.log.Error("an image cannot be decoded", "error", err.Error(), "stack", stack)
	}
	return b.mediaError(i, err)
}

// prepare makes the input of the tower from an image or video of that salt.
func (s *imageProcessor) prepare(ctx context.Context, salt string, x *chat.Media) (Media, error) {
	key := mediaKey(salt, x)
	if v, ok := s.recall(key); ok {
		return v, nil
	}
	select {
	case decoding <- struct{}{}:
	case <-ctx.Done():
		return Media{}, ctx.Err()
	}
	defer func() { <-decoding }()
	prepare := s.preparePicture
	if x.Video {
		prepare = s.prepareVideo
	}
	v, err := prepare(x)
	if err == nil {
		s.keep(recent{key, v})
	}
	return v, err
}

// mediaKey identifies media and their salt.
func mediaKey(salt string, x *chat.Media) (key [sha256.Size]byte) {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%q %v %v %d\n", salt, x.Video, x.Rate, x.MaxPixels) // a hash does not fail
	for _, file := range x.Files {
		_, _ = fmt.Fprintln(h, len(file))
		h.Write(file)
	}
	h.Sum(key[:0])
	return key
}

// recall finds recent media.
func (s *imageProcessor) recall(key [sha256.Size]byte) (Media, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.recent, func(r recent) bool { return r.key == key })
	if i < 0 {
		return Media{}, false
	}
	r := s.recent[i]
	s.recent = append(slices.Delete(s.recent, i, i+1), r)
	return r.media, true
}

// keep caches prepared media, and evicts the oldest beyond maxRecent.
func (s *imageProcessor) keep(r recent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recent = append(s.recent, r)
	bytes, first := 0, len(s.recent)
	for first > 0 {
		if bytes += s.recent[first-1].media.Bytes(); bytes > maxRecent {
			break
		}
		first--
	}
	s.recent = slices.Delete(s.recent, 0, first)
}

// preparePicture decodes an image and cuts it into patches.
func (s *imageProcessor) preparePicture(x *chat.Media) (v Media, err error) {
	if len(x.Files) != 1 {
		return v, fmt.Errorf("%w: an image of %d files, want one", picture.ErrFormat, len(x.Files))
	}
	c := within(s.images, x.MaxPixels)
	m, err := picture.Decode(x.Files[0], s.files)
	if err == nil {
		v.merge = c.Merge
		v.Patches, err = c.Prepare(m, resizeThreads)
	}
	return v, err
}

// prepareVideo decodes the frames of a video that the model samples and cuts them into patches.
func (s *imageProcessor) prepareVideo(x *chat.Media) (v Media, err error) {
	if s.tokens.video.text == "" {
		return v, errors.New("neither config.json nor tokenizer.json has a token for videos")
	}
	c := within(s.videos, x.MaxPixels*videoShare)
	frames, indices, rate := []*picture.Image(nil), []int(nil), x.Rate
	choose := func(n int, own float64) []int {
		rate = cmp.Or(rate, own)
		indices, err = c.Sample(n, rate)
		return indices
	}
	if len(x.Files) == 1 {
		var broken error
		if frames, broken = picture.DecodeFrames(x.Files[0], s.files, choose); err == nil {
			err = broken
		}
	} else if choose(len(x.Files), 0); err == nil {
		frames, err = s.decodeFrames(x.Files, indices)
	}
	if err != nil {
		return v, err
	}
	v.merge = c.Merge
	if v.Patches, err = c.PrepareVideo(frames, resizeThreads); err == nil {
		v.seconds, err = c.Timestamps(indices, rate)
	}
	return v, err
}

// decodeFrames decodes some files of a video. Their pixels are limited like those of one
// image.
func (s *imageProcessor) decodeFrames(files [][]byte, indices []int) ([]*picture.Image, error) {
	o := s.files
	o.MaxPixels = picture.DefaultMaxPixels
	var frames []*picture.Image
	for _, i := range indices {
		m, err := picture.Decode(files[i], o)
		if err != nil {
			return nil, fmt.Errorf("frame %d: %w", i+1, err)
		}
		frames = append(frames, m)
		if o.MaxPixels -= m.Width * m.Height; o.MaxPixels <= 0 {
			o.MaxPixels = 1 // 0 would be the default
		}
	}
	return frames, nil
}
