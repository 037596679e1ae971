package foretoken

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/png"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/prompt"
)

// pictureTemplate writes parts as the family's templates do.
const pictureTemplate = `{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' }}
{%- if m.content is string %}{{- m.content }}{%- else %}{%- for part in m.content %}
{%- if part.type == 'image' %}{{- '<|vision_start|><|image_pad|><|vision_end|>' }}
{%- elif part.type == 'video' %}{{- '<|vision_start|><|video_pad|><|vision_end|>' }}
{%- else %}{{- part.text }}{%- endif %}{%- endfor %}{%- endif %}{{- '<|im_end|>\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}`

// openPictures opens the model inside the program with that template.
func openPictures(t *testing.T) *Model {
	t.Helper()
	return openTemplate(t, pictureTemplate, Options{Vision: Vision{MaxMedia: 3}})
}

// drawn is a PNG of a size, of a color.
func drawn(t testing.TB, width, height int, shade uint8) []byte {
	t.Helper()
	m := image.NewGray(image.Rect(0, 0, width, height))
	for i := range m.Pix {
		m.Pix[i] = shade
	}
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// animated is a GIF of a size with frames of different colors, half a second each.
func animated(t testing.TB, width, height, frames int) []byte {
	t.Helper()
	var g gif.GIF
	for i := range frames {
		m := image.NewPaletted(image.Rect(0, 0, width, height), color.Palette{color.Gray{uint8(40 * i)}})
		g.Image, g.Delay = append(g.Image, m), append(g.Delay, 50)
	}
	var b bytes.Buffer
	if err := gif.EncodeAll(&b, &g); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func shown(files ...[]byte) chat.Part { return chat.Part{Media: &chat.Media{Files: files}} }

func told(parts ...chat.Part) Conversation {
	return Conversation{Messages: []chat.Message{{Role: "user", Content: chat.Parts(parts...)}}}
}

// TestPicturesHaveTheirPlaces compares prompts with those of texts in which each image is spelled
// by as many tokens as it takes.
func TestPicturesHaveTheirPlaces(t *testing.T) {
	m := openPictures(t)
	// 320×240 pixels become 128×96, 4×3 tokens; 64×64 become 96×96.
	wide, small := drawn(t, 320, 240, 1), drawn(t, 64, 64, 2)
	still := func(n int) string {
		return "<|vision_start|>" + strings.Repeat("<|image_pad|>", n) + "<|vision_end|>"
	}
	moving := func(stamps ...string) (s string) {
		for _, stamp := range stamps {
			s += "<" + stamp + " seconds><|vision_start|>" + strings.Repeat("<|video_pad|>", 6) + "<|vision_end|>"
		}
		return s
	}
	say := func(text string) chat.Part { return chat.Part{Text: text} }
	clip := shown(animated(t, 96, 64, 3))
	clip.Media.Video = true
	frames := shown(drawn(t, 96, 64, 0), drawn(t, 96, 64, 9), drawn(t, 96, 64, 7), drawn(t, 96, 64, 0), drawn(t, 96, 64, 9))
	frames.Media.Video, frames.Media.Rate = true, 2
	shrunk := shown(wide)
	shrunk.Media.MaxPixels = 4096
	for name, c := range map[string]struct {
		parts []chat.Part
		want  string
		sizes []int
	}{
		"before":          {[]chat.Part{shown(wide), say("What is it?")}, still(12) + "What is it?", []int{12}},
		"between":         {[]chat.Part{say("See"), shown(small), say(" and "), shown(wide), say(".")}, "See" + still(9) + " and " + still(12) + ".", []int{9, 12}},
		"side by side":    {[]chat.Part{shown(small), shown(small)}, still(9) + still(9), []int{9, 9}},
		"shrunk":          {[]chat.Part{shrunk}, still(2), []int{2}},
		"an animation":    {[]chat.Part{say("Look:"), clip, say("?")}, "Look:" + moving("0.2", "1.0") + "?", []int{6, 6}},
		"both kinds":      {[]chat.Part{shown(small), clip, shown(wide)}, still(9) + moving("0.2", "1.0") + still(12), []int{9, 6, 6, 12}},
		"frames":          {[]chat.Part{frames, shown(small)}, moving("0.2", "1.2", "2.0") + still(9), []int{6, 6, 6, 9}},
		"spelled":         {[]chat.Part{say("<|image_pad|>"), shown(small)}, "\x00" + still(9), []int{9}},
		"text, no string": {[]chat.Part{say("Hello")}, "Hello", nil},
	} {
		p := ask(t, m, told(c.parts...))
		body, spelled := strings.CutPrefix(c.want, "\x00")
		want := m.tok.Encode("<|im_start|>user\n")
		if spelled { // not by the template
			ids, _ := m.tok.EncodeWithin("<|image_pad|>", nil, 0)
			want = append(want, ids...)
		}
		want = append(want, m.tok.Encode(body+"<|im_end|>\n<|im_start|>assistant\n")...)
		if !slices.Equal(p.IDs, want) {
			t.Errorf("%s: %q, want %q", name, m.Decode(p.IDs), m.Decode(want))
		}
		var sizes []int
		for _, x := range p.inner().Places {
			sizes = append(sizes, x.N)
		}
		if !slices.Equal(sizes, c.sizes) {
			t.Errorf("%s: rows %d, want %d", name, sizes, c.sizes)
		}
		n, err := m.CountTokens(t.Context(), told(c.parts...))
		if err != nil || n != len(want) {
			t.Errorf("%s: counted %d, %v, want %d", name, n, err, len(want))
		}
		ids, inputs := p.inner().Inputs(len(p.IDs))
		for i, in := range inputs {
			for j := range in.N {
				if ids[in.At+j] != model.NoToken || p.IDs[in.At+j] == model.NoToken {
					t.Errorf("%s: input %d, row %d: ids %d and %d", name, i, j, ids[in.At+j], p.IDs[in.At+j])
				}
			}
		}
		if len(inputs) != len(c.sizes) {
			t.Errorf("%s: %d inputs", name, len(inputs))
		}
	}
}

// TestPicturesMayBeTooMany counts the tokens of a prompt that the context has no space for.
func TestPicturesMayBeTooMany(t *testing.T) {
	m := openTemplate(t, pictureTemplate, Options{Context: 32})
	one := shown(drawn(t, 128, 128, 2)) // 16 tokens
	for n, over := range map[int]int{1: 0, 2: 0, 4: 64, 30: 64} {
		c := told(slices.Repeat([]chat.Part{one}, n)...)
		p := ask(t, m, c)
		count, err := m.CountTokens(t.Context(), c)
		if err != nil || p.Over != over || over == 0 && len(p.IDs) != count || count < 18*n {
			t.Errorf("%d images: over %d, want %d, %d tokens counted, %v", n, p.Over, over, count, err)
		}
		if _, err := m.Generate(t.Context(), Request{Prompt: p}); (err == nil) != (n == 1) {
			t.Errorf("%d images: %v", n, err)
		}
	}
}

// TestPlacesHavePositions looks at the rows of one image, and tells others from it.
func TestPlacesHavePositions(t *testing.T) {
	m := openPictures(t)
	of := func(c Conversation) *Prompt { return ask(t, m, c) }
	wide := of(told(shown(drawn(t, 320, 240, 1)))).inner().Places[0]
	if got := fmt.Sprint(wide.Positions()); got != "[[0 0 0] [0 0 1] [0 0 2] [0 0 3] [0 1 0] [0 1 1] [0 1 2] [0 1 3] [0 2 0] [0 2 1] [0 2 2] [0 2 3]]" {
		t.Errorf("positions %s", got)
	}
	clip := shown(animated(t, 96, 64, 4))
	clip.Media.Video = true
	video := of(told(clip)).inner().Places
	if len(video) != 2 || video[0].Hash() == video[1].Hash() || fmt.Sprint(video[1].Positions()) != "[[0 0 0] [0 0 1] [0 0 2] [0 1 0] [0 1 1] [0 1 2]]" {
		t.Errorf("a video at %+v", video)
	}
	// The key of a conversation depends on its image, and not on other files of the image.
	key := func(width int, shade uint8) string {
		return m.text.Key(of(told(shown(drawn(t, width, 240, shade)))).inner(), m.salt(""))
	}
	if one, again, other := key(320, 1), key(320, 1), key(320, 2); one != again || one == other {
		t.Error("a conversation does not know its image")
	}
}

// TestNextTurnHasPictures has the prompt of the next turn begin with the images of this one.
func TestNextTurnHasPictures(t *testing.T) {
	m := openPictures(t)
	c := told(shown(drawn(t, 320, 240, 1)), chat.Part{Text: "What?"})
	p := ask(t, m, c)
	answer := chat.Message{Role: "assistant", Content: chat.Text("A wall.")}
	next := m.text.Next((*prompt.Conversation)(&c), p.inner().Media, answer)
	if next == nil || len(next.IDs) <= len(p.IDs) || !slices.Equal(next.IDs[:len(p.IDs)], p.IDs) || len(next.Places) != 1 {
		t.Fatalf("next turn %+v after %+v", next, p)
	}
	if _, inputs := next.Inputs(len(next.IDs)); len(inputs) != 1 {
		t.Errorf("inputs %+v", inputs)
	}
	c.Messages = append(c.Messages, answer, chat.Message{Role: "user", Content: chat.Parts(shown(drawn(t, 64, 64, 3)), chat.Part{Text: "And here?"})})
	if then := ask(t, m, c); !slices.Equal(then.IDs[:len(next.IDs)], next.IDs) || len(then.inner().Places) != 2 || then.inner().Places[0].Hash() != p.inner().Places[0].Hash() {
		t.Errorf("the next turn is not what was foreseen: %q, want %q", m.Decode(then.IDs), m.Decode(next.IDs))
	}
}

// TestBadPictures checks that errors name the image and the cause.
func TestBadPictures(t *testing.T) {
	m := openPictures(t)
	good := shown(drawn(t, 64, 64, 2))
	video := func(files ...[]byte) chat.Part {
		p := shown(files...)
		p.Media.Video = true
		return p
	}
	if err := (&MediaError{1, errors.New("x")}).Error(); err != "image or video 2: x" {
		t.Error(err)
	}
	for name, c := range map[string]struct {
		parts []chat.Part
		index int
		want  string
	}{
		"no file":          {[]chat.Part{good, shown()}, 1, "an image of 0 files"},
		"no bytes":         {[]chat.Part{shown(nil)}, 0, "no bytes"},
		"no image":         {[]chat.Part{good, good, shown([]byte("GIF? No."))}, 2, "it begins with"},
		"half of it":       {[]chat.Part{shown(good.Media.Files[0][:40])}, 0, "broken image"},
		"a strip":          {[]chat.Part{shown(drawn(t, 1000, 2, 0))}, 0, "no side may be more than"},
		"too many":         {[]chat.Part{good, good, good, good}, 3, "has 4 images and videos, at most 3"},
		"a video of a PNG": {[]chat.Part{video(good.Media.Files[0])}, 0, "want a GIF animation"},
		"no frame":         {[]chat.Part{video()}, 0, "video of 0 frames"},
		"sizes":            {[]chat.Part{video(good.Media.Files[0], drawn(t, 64, 65, 2))}, 0, "frame 2 of 64×65"},
		"a bad frame":      {[]chat.Part{video(good.Media.Files[0], []byte("x"))}, 0, "frame 2: "},
		"one frame":        {[]chat.Part{video(animated(t, 32, 32, 1))}, 0, "at least 2 are needed"},
	} {
		_, err := m.ChatPrompt(t.Context(), told(c.parts...))
		var e *MediaError
		if !errors.As(err, &e) || e.Index != c.index || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q of %d", name, err, c.want, c.index)
		}
	}
	rate := video(good.Media.Files[0], good.Media.Files[0])
	rate.Media.Rate = -1
	if _, err := m.CountTokens(t.Context(), told(rate)); err == nil || !strings.Contains(err.Error(), "frames per second") {
		t.Error(err)
	}
}

// TestPicturesWithoutPlaces refuses conversations whose images do not match the places in the template.
func TestPicturesWithoutPlaces(t *testing.T) {
	m := openPictures(t)
	var e *MediaError
	one := chat.Message{}
	filetest.Decode(t, `{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]}`, &one)
	if _, err := m.ChatPrompt(t.Context(), Conversation{Messages: []chat.Message{one}}); !errors.As(err, &e) || e.Index != 0 || !strings.Contains(err.Error(), "needs its bytes") {
		t.Errorf("a part without an image: %v", err)
	}
	talk := told(shown(drawn(t, 64, 64, 2)), chat.Part{Text: "Is <|image_pad|> a token?"})
	talk.Trusted = true
	if p := ask(t, m, talk); len(p.inner().Places) != 1 || p.inner().Places[0].At != 4 {
		t.Errorf("a trusted text that spells an image: %+v", p.inner().Places)
	}
	deaf := openTemplate(t, `{%- for m in messages %}{{- m.role }}{%- endfor %}`, Options{})
	if _, err := deaf.ChatPrompt(t.Context(), told(chat.Part{Text: "?"}, shown(drawn(t, 64, 64, 2)))); !errors.As(err, &e) || e.Index != 0 || !strings.Contains(err.Error(), "no placeholder for it") {
		t.Errorf("a template without images: %v", err)
	}
	text := openTemplate(t, `{%- for m in messages %}{{- m.role + m.content }}{%- endfor %}`, Options{})
	if _, err := text.ChatPrompt(t.Context(), told(shown(drawn(t, 64, 64, 2)))); err == nil || !strings.Contains(err.Error(), "the template has no placeholder for them") {
		t.Errorf("a template of texts alone: %v", err)
	}
}

// TestModelsThatCannotSee has models without a usable tower: errors name the missing part, and text is answered.
func TestModelsThatCannotSee(t *testing.T) {
	m := openTemplate(t, pictureTemplate, Options{Vision: Vision{Off: true}})
	if m.Info().Vision != nil {
		t.Errorf("%+v", m.Info().Vision)
	}
	for _, count := range []bool{false, true} {
		var err error
		if talk := told(shown(drawn(t, 64, 64, 2))); count {
			_, err = m.CountTokens(t.Context(), talk)
		} else {
			_, err = m.ChatPrompt(t.Context(), talk)
		}
		if !errors.Is(err, ErrNoVision) || !strings.Contains(err.Error(), "left out") {
			t.Errorf("count %v: %v", count, err)
		}
	}
	if p := ask(t, m, told(chat.Part{Text: "Hello"})); len(p.IDs) == 0 {
		t.Error("no prompt of text")
	}
}
