package foretoken

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/prompt"
	"github.com/foretoken/foretoken/sample"
)

// TestTinySees asks the embedded model about six images. Prompts equal those of the reference, and so do
// answers if the reference is certain. It computes on a device whose passes the CPU computes again.
func TestTinySees(t *testing.T) {
	m := openTiny(t, Options{Device: "opaque", VerifyDevice: 1})
	info := m.Info().Vision
	if info == nil || info.Layers != 4 || info.Patch != 16 || info.Merge != 2 || info.MaxPixels != 16384 || info.Parameters != 1482496 || info.Bytes == 0 {
		t.Errorf("%+v", info)
	}
	f := golden.LoadTinyVision(t)
	for _, x := range f.Examples {
		p := ask(t, m, told(shown(x.Picture), chat.Part{Text: x.Question}))
		if got, want := fmt.Sprint(p.IDs), fmt.Sprint(x.Prompt); got != want {
			t.Errorf("%s: prompt %s, want %s", x.File, got, want)
		}
		a := collect(t, m, Request{Prompt: p, MaxTokens: len(x.Tokens) - len(x.Prompt), Sampling: &sample.Options{}})
		if strings.HasPrefix(x.Question, "Tell me a story") { // which goes on beyond what it has learned
			if got := a.Text(); !strings.HasPrefix(got, strings.TrimSuffix(x.Truth, ".")) {
				t.Errorf("%s: %q, want it to begin with %q", x.File, got, x.Truth)
			}
		} else if a.Text() != x.Answer || a.Text() != x.Truth {
			t.Errorf("%s: %q, want %q", x.File, a.Text(), x.Answer)
		}
		if a.Result.Prompt != len(x.Prompt) {
			t.Errorf("%s: %d tokens of prompt reported, want %d", x.File, a.Result.Prompt, len(x.Prompt))
		}
	}
	if s := m.Stats().Vision; s.Pictures != int64(len(f.Examples)) || s.Bytes == 0 || s.Took == 0 {
		t.Errorf("%+v", s)
	}
}

// TestPicturesAreFoundAgain counts the computed rows of a cached image: none in the next turn, in another
// conversation and in the next process. Another image of the same size is computed.
func TestPicturesAreFoundAgain(t *testing.T) {
	f := golden.LoadTinyVision(t)
	house, star := f.Examples[0].Picture, f.Examples[3].Picture // of equal size for the model
	dir := t.TempDir()
	o := Options{PrefixCache: PrefixCache{Dir: dir}, Speculation: Speculation{NoSelfTest: true}, KVMemory: 64 << 20, Log: silent}
	greedy := func(m *Model, c Conversation) (*Answer, *Prompt) {
		t.Helper()
		p := ask(t, m, c)
		a := collect(t, m, Request{Prompt: p, MaxTokens: 30, Sampling: &sample.Options{}, Hash: true})
		m.warming.Wait()
		return a, p
	}
	about := func(file []byte, question string) Conversation { return told(shown(file), chat.Part{Text: question}) }
	first := func() map[string]uint64 {
		heard := &prefixes{known: map[string]bool{}}
		o := o
		o.observer = heard
		m, err := Open(t.Context(), Tiny, o)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := m.Close(); err != nil { // all is written then
				t.Error(err)
			}
		}()
		c := about(house, "What do you see?")
		a, p := greedy(m, c)
		end := p.inner().Places[0].At + p.inner().Places[0].N
		c.Messages = append(c.Messages, a.Message(), chat.Message{Role: "user", Content: chat.Text("And where is it?")})
		if next, _ := greedy(m, c); next.Result.Cached < len(p.IDs)+len(a.Tokens)-1 {
			t.Errorf("next turn: %d tokens found, want %d", next.Result.Cached, len(p.IDs)+len(a.Tokens)-1)
		}
		hashes := map[string]uint64{"house": a.LogitsHash()}
		if other, _ := greedy(m, about(house, "Describe the picture.")); other.Result.Cached < end {
			t.Errorf("another question: %d tokens found, want %d", other.Result.Cached, end)
		}
		if n := m.Stats().Vision.Pictures; n != 1 {
			t.Errorf("the tower has looked at %d images, want 1", n)
		}
		b, q := greedy(m, about(star, "What do you see?"))
		if len(q.IDs) != len(p.IDs) || b.Text() == a.Text() || b.Result.Cached > q.inner().Places[0].At {
			t.Errorf("another image: %q, %d tokens found", b.Text(), b.Result.Cached)
		}
		if hashes["star"] = b.LogitsHash(); m.Stats().Vision.Pictures != 2 {
			t.Errorf("%+v", m.Stats().Vision)
		}
		long := strings.Repeat("What do you see? ", PageTokens/4)
		for _, file := range [][]byte{house, star} {
			_, p := greedy(m, about(file, long))
			n := (len(p.IDs) - 1) / PageTokens * PageTokens
			if rows := p.inner().Rows(); n < rows[0].At+rows[0].N || !heard.known[fmt.Sprint(p.IDs[:n], rows)] {
				t.Errorf("the observer does not know of the first %d tokens, with rows at %d", n, rows[0].At)
			}
		}
		return hashes
	}
	hashes := first()
	m := openTiny(t, o)
	for name, file := range map[string][]byte{"house": house, "star": star} {
		a, p := greedy(m, about(file, "What do you see?"))
		if end := p.inner().Places[0].At + p.inner().Places[0].N; a.Result.Cached < end || a.LogitsHash() != hashes[name] {
			t.Errorf("%s in the next process: %d tokens found, want %d, logits %x, want %x", name, a.Result.Cached, end, a.LogitsHash(), hashes[name])
		}
	}
	if s := m.Stats().Vision; s.Pictures != 0 {
		t.Errorf("the next process: %+v", s)
	}
}

// TestPicturesAtOnce has requests with images at the same time, some with the same image. Answers and bits
// of logits equal those of requests one after another, without drafts.
func TestPicturesAtOnce(t *testing.T) {
	m := openTiny(t, Options{KVMemory: 64 << 20})
	examples := golden.LoadTinyVision(t).Examples
	if testing.Short() {
		examples = examples[:2]
	}
	answer := func(x *golden.TinyExample, r Request) (*Answer, error) {
		p, err := m.ChatPrompt(t.Context(), told(shown(x.Picture), chat.Part{Text: x.Question}))
		if err != nil {
			return nil, err
		}
		r.Prompt, r.MaxTokens, r.Sampling, r.Hash = p, 12, &sample.Options{}, true
		a, err := m.Generate(t.Context(), r)
		if err == nil {
			err = a.Wait()
		}
		return a, err
	}
	var all sync.WaitGroup
	for i := range examples {
		x := &examples[i]
		want, err := answer(x, Request{Depth: DepthOff, CacheSalt: "alone"})
		if err != nil {
			t.Fatal(err)
		}
		for depth := range Depth(3) {
			all.Go(func() {
				a, err := answer(x, Request{Depth: depth, CacheSalt: fmt.Sprint(depth % 2)})
				if err != nil || a.Text() != want.Text() || a.LogitsHash() != want.LogitsHash() {
					t.Errorf("%s at depth %v: %v", x.File, depth, err)
				}
			})
		}
	}
	all.Wait()
}

// exclaimed is a template that changes answers in the history.
var exclaimed = strings.Replace(pictureTemplate, "{{- m.content }}", "{%- if m.role == 'assistant' %}Oh! {% endif %}{{- m.content }}", 1)

// TestNextTurnIsPreparedWithPictures prefills the next turn of a conversation with an image in the
// background, with a history that differs from the answer. The tower does not encode the image again.
func TestNextTurnIsPreparedWithPictures(t *testing.T) {
	m := openTemplate(t, exclaimed, Options{KVMemory: 64 << 20})
	c := told(shown(drawn(t, 64, 64, 200)), chat.Part{Text: "What do you see?"})
	p := ask(t, m, c)
	a := collect(t, m, Request{Prompt: p, MaxTokens: 12, Sampling: &sample.Options{}})
	m.warming.Wait()
	next := m.text.Next((*prompt.Conversation)(&c), p.inner().Media, a.Message())
	c.Messages = append(c.Messages, a.Message(), chat.Message{Role: "user", Content: chat.Text("Why?")})
	b := collect(t, m, Request{Prompt: ask(t, m, c), MaxTokens: 2, Sampling: &sample.Options{}})
	if x := m.Stats(); x.Background.Completed != 1 || x.Vision.Pictures != 1 || b.Result.Cached != len(next.IDs) {
		t.Errorf("%+v, %+v, %d tokens found, want %d", x.Background, x.Vision, b.Result.Cached, len(next.IDs))
	}
}

// TestPictureTokensAreNotSaid asks for them as loudly as a request can.
func TestPictureTokensAreNotSaid(t *testing.T) {
	m := openTiny(t, Options{})
	image, _ := m.tok.ID("<|image_pad|>")
	start, _ := m.tok.ID("<|vision_start|>")
	loud := map[int32]float32{image: 100, start: 100}
	p := ask(t, m, told(shown(drawn(t, 64, 64, 200)), chat.Part{Text: "What?"}))
	for _, temperature := range []float64{0, 1.5} {
		a := collect(t, m, Request{Prompt: p, MaxTokens: 10, IgnoreEnd: true, Sampling: &sample.Options{LogitBias: loud, Temperature: temperature}})
		for _, token := range a.Tokens {
			if loud[token.ID] > 0 {
				t.Errorf("temperature %v: said %q", temperature, m.Decode([]int32{token.ID}))
			}
		}
	}
	if len(loud) != 2 || loud[image] != 100 {
		t.Error("the caller's bias was changed")
	}
}

// TestTinyTakesVideos has it look at an animation and at frames, each with its time.
func TestTinyTakesVideos(t *testing.T) {
	m := openTiny(t, Options{PrefixCache: PrefixCache{Off: true}}) // otherwise the second needs no rows
	clip := shown(animated(t, 96, 96, 4))
	clip.Media.Video = true
	p := ask(t, m, told(clip, chat.Part{Text: "What do you see?"}))
	if len(p.inner().Places) != 2 || !strings.Contains(m.Decode(p.IDs), "<0.2 seconds><|vision_start|><|video_pad|>") {
		t.Errorf("prompt %q", m.Decode(p.IDs))
	}
	a := collect(t, m, Request{Prompt: p, MaxTokens: 5, Sampling: &sample.Options{}, Hash: true})
	off := collect(t, m, Request{Prompt: p, MaxTokens: 5, Sampling: &sample.Options{}, Hash: true, Depth: DepthOff})
	if a.Text() != off.Text() || a.LogitsHash() != off.LogitsHash() || len(a.Tokens) == 0 {
		t.Errorf("%q with logits %x, without drafts %q with %x", a.Text(), a.LogitsHash(), off.Text(), off.LogitsHash())
	}
	if s := m.Stats().Vision; s.Pictures != 1 || s.Cached == 0 {
		t.Errorf("%+v", s)
	}
}

// TestProcessorsThatDoNotFit has preprocessor files that contradict the tower. Text is answered, and errors
// for images name the cause.
func TestProcessorsThatDoNotFit(t *testing.T) {
	for want, config := range map[string]string{
		"patches of 14×14 pixels":             `{"patch_size": 14, "size": {"shortest_edge": 9216, "longest_edge": 16384}}`,
		"preprocessor_config.json: ":          `{"patch_size": "wide"}`,
		"processor \"CLIP\" is not supported": `{"image_processor_type": "CLIP"}`,
	} {
		m := openWith(t, Options{}, map[string]string{"preprocessor_config.json": config})
		_, err := m.ChatPrompt(t.Context(), told(shown(drawn(t, 64, 64, 1))))
		if !errors.Is(err, ErrNoVision) || !strings.Contains(err.Error(), want) || m.Info().Vision != nil {
			t.Errorf("%v, want %q", err, want)
		}
		if a := collect(t, m, Request{Prompt: ask(t, m, say("Hello", false)), MaxTokens: 2}); len(a.Tokens) == 0 {
			t.Error("no answer to a text")
		}
	}
	m := openTiny(t, Options{Vision: Vision{MaxPixels: 4096}})
	p := ask(t, m, told(shown(drawn(t, 640, 480, 1))))
	if n := p.inner().Places[0].N; n > 4 || m.Info().Vision.MaxPixels != 4096 {
		t.Errorf("%d tokens of an image of at most 4096 pixels, %+v", n, m.Info().Vision)
	}
}
