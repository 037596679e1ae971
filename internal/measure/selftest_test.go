package measure

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	_ "github.com/foretoken/foretoken/internal/model/qwen35"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/mtp"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/internal/tokenizer"
)

// prose is long enough for a self-test.
const prose = `Once upon a time there was a small dog called Max who lived with a girl in a house near the
forest. Every morning they went out to play in the garden. One day Max saw a bird with a broken
wing under the big tree. He ran to the girl and barked until she came with him. She took the bird
home and made it a warm bed. After a week the bird could fly again, and it sang for them every day.`

// editTiny is the trained model with some bytes of its head changed, in memory.
func editTiny(t *testing.T, edit func(name string, data []byte)) (c *checkpoint.Checkpoint, text []int32) {
	t.Helper()
	from := golden.Open(t, golden.Dir(t, "tiny"))
	var decls []checkpoint.Decl
	for _, name := range from.Tensors() {
		tensor, err := from.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		decls = append(decls, checkpoint.Decl{Name: name, Type: tensor.Type, Shape: tensor.Shape})
	}
	out, err := checkpoint.FileHeader(decls, from.Metadata(from.Files()[0]))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range decls {
		tensor, err := from.Tensor(d.Name)
		if err != nil {
			t.Fatal(err)
		}
		data := bytes.Clone(tensor.Data)
		if _, name, ok := strings.Cut(d.Name, "mtp."); ok {
			edit(name, data)
		}
		out = append(out, data...)
	}
	data, err := from.ReadFile("tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.New(data)
	if err != nil {
		t.Fatal(err)
	}
	c, err = checkpoint.OpenFiles("edited", map[string]string{"config.json": string(from.Config()), "model.safetensors": string(out)})
	if err != nil {
		t.Fatal(err)
	}
	return c, tok.Encode(prose)
}

// drafterOf drafts with the model's head.
func drafterOf(m model.Model) *mtp.Drafter {
	return mtp.New(m.Head(), mtp.Options{Vocab: m.Info().Vocab})
}

// open loads a checkpoint on a device whose memory only the device can read.
func open(t *testing.T, c *checkpoint.Checkpoint) (model.Model, backend.Backend) {
	t.Helper()
	b := backendtest.NewOpaque(backendtest.Open(t, backend.Options{Threads: 1}))
	m, err := model.Open(c, b, model.Options{MaxDrafts: spec.MaxDepth, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return m, b
}

// test runs the self-test of a checkpoint.
func test(t *testing.T, c *checkpoint.Checkpoint, text []int32, limit time.Duration) *SelfTestResult {
	t.Helper()
	m, b := open(t, c)
	target, head := m.Layout(), drafterOf(m).Layout()
	const pages = (TestTokens + backend.PageTokens - 1) / backend.PageTokens
	pool := state.NewPool(b, target.RecurrentBytes()+pages*(target.PageBytes()+head.PageBytes())) // as the contract says
	v, err := SelfTest(m, pool, drafterOf(m), text, SelfTestOptions{Vocab: m.Info().Vocab, Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	if n := pool.Used(); n != 0 {
		t.Errorf("%d bytes still in use", n)
	}
	t.Logf("accepted %v of %v, step %v, draft token %v, depth %d, %.2f times plain", v.Accepted, v.Drafted, v.StepTime, v.DraftTime, v.Depth, v.Speedup)
	return v
}

// limiter is a drafter that remembers which vocabulary it was left with.
type limiter struct {
	spec.Drafter
	sizes []int
	size  int
}

func (s *limiter) VocabSizes() []int   { return s.sizes }
func (s *limiter) LimitVocab(size int) { s.size = size }

// TestBestRateAndCoverage is about the choice between draft vocabularies.
func TestBestRateAndCoverage(t *testing.T) {
	for _, c := range []struct {
		name  string
		p     float64 // acceptance
		draft float64 // passes
		want  float64 // tokens per second
	}{
		{"free drafts", 1, 0, 4},
		{"drafts as dear as passes", 1, 1, 1},
		{"never accepted", 0, 0, 1},
		{"half accepted", 0.5, 0.5, 1},
	} {
		if got := bestRate(c.p, 1, c.draft); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %.3f tokens per second, want %.3f", c.name, got, c.want)
		}
	}
	text := make([]int32, 50) // half of the tokens are beyond 100, the others are frequent
	for i := range text {
		text[i] = int32(i % 2 * (1000 + i))
	}
	if all, few := coverage(text, 8192), coverage(text, 100); all != 1 || few != 0.5 {
		t.Errorf("draft vocabularies cover %.2f and %.2f of the text, want 1 and 0.5", all, few)
	}
}

// TestSelfTestLimitsVocab checks that a size the user has chosen is not changed, and that one of
// the sizes is taken otherwise.
func TestSelfTestLimitsVocab(t *testing.T) {
	c, text := editTiny(t, func(string, []byte) {})
	m, b := open(t, c)
	pool := state.NewPool(b, 1<<30)
	for _, sizes := range [][]int{nil, {1024, 4096, 8192}} {
		d := &limiter{drafterOf(m), sizes, 77}
		v, err := SelfTest(m, pool, d, text, SelfTestOptions{Vocab: m.Info().Vocab, Limit: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if chosen := len(sizes) > 0; chosen && (v.DraftVocab != d.size || !slices.Contains(sizes, d.size)) || !chosen && (v.DraftVocab != 0 || d.size != 77) {
			t.Errorf("of %v: result %d, left at %d", sizes, v.DraftVocab, d.size)
		}
	}
}

func TestSelfTestKnowsGoodHead(t *testing.T) {
	c, text := editTiny(t, func(string, []byte) {})
	v := test(t, c, text, time.Hour)
	if v.Broken() || v.Rate(0) < 0.5 || v.Drafted[0] < 60 {
		t.Errorf("a good head: accepted %v of %v", v.Accepted, v.Drafted)
	}
	for j := 1; j < testDepth; j++ {
		if v.Drafted[j] > v.Accepted[j-1] || v.Accepted[j] > v.Drafted[j] || v.Accepted[j] == 0 {
			t.Errorf("draft token %d: accepted %v of %v", j+1, v.Accepted, v.Drafted)
		}
	}
	if v.StepTime <= 0 || v.DraftTime <= 0 { // which of them is longer is for benchmarks to say
		t.Errorf("a step takes %v, a draft token of one layer %v", v.StepTime, v.DraftTime)
	}
	if v.Depth < 0 || v.Depth > testDepth || v.Speedup < 1 || v.Speedup > 1+testDepth {
		t.Errorf("best depth %d, %v times plain", v.Depth, v.Speedup)
	}
	record := &spec.Record{}
	if gain := v.Controller.Rate(record, v.Depth) / v.Controller.Rate(record, 0); gain != v.Speedup {
		t.Errorf("the controller expects %v times plain, the result %v", gain, v.Speedup)
	}
}

// TestSelfTestTellsCosts finishes self-tests of known times: the controller has the time of a step, and drafts where that pays. Half
// of the first draft tokens are accepted, and one takes a fifteenth of a step.
func TestSelfTestTellsCosts(t *testing.T) {
	const step = 0.004
	for _, c := range []struct {
		passes [testDepth + 1]float64 // by rows, in steps
		drafts bool
		close  float64 // relative, to the time of a step
	}{
		{[...]float64{1, 1, 1, 1}, true, 0.02},
		{[...]float64{1, 1.05, 1.1, 1.15}, true, 0.02},
		{[...]float64{1, 1.01, 1.02, 1.5}, true, 0.1},
		{[...]float64{1, 2, 3, 4}, false, 0.1},
		{[...]float64{1, 4, 4, 4}, false, 0.5}, // against what is assumed
	} {
		s := &selfTest{controller: spec.NewController(), record: spec.From(spec.Computed)}
		for i := range 60 {
			s.count(testDepth, []int{0, 1, 0, 2, 0, 3, 1, 0}[i%8])
		}
		for _, depth := range testDepths {
			for range 7 {
				s.passes[depth+1] = append(s.passes[depth+1], c.passes[depth]*step)
				s.draftings[depth] = append(s.draftings[depth], float64(depth)*step/15)
			}
		}
		v := s.finish()
		if steps := v.Controller.Rate(&spec.Record{}, 0) * v.StepTime.Seconds(); math.Abs(steps-1) > c.close || v.Depth > 0 != c.drafts {
			t.Errorf("passes of %v: %.3f tokens to a step, depth %d, %.2f times plain", c.passes, steps, v.Depth, v.Speedup)
		}
	}
}

func TestSelfTestKnowsBrokenHeads(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for name, edit := range map[string]func(name string, data []byte){
		"random initialization": func(name string, data []byte) {
			switch {
			case strings.Contains(name, "norm"):
				for i := 0; i < len(data); i += 4 {
					binary.LittleEndian.PutUint32(data[i:], math.Float32bits(1))
				}
			case strings.HasSuffix(name, ".weight"):
				for i := range data {
					data[i] = byte(rng.Uint32())
				}
			}
		},
		"norms shifted twice": func(name string, data []byte) {
			for i := 0; strings.Contains(name, "norm") && i < len(data); i += 4 {
				x := math.Float32frombits(binary.LittleEndian.Uint32(data[i:]))
				binary.LittleEndian.PutUint32(data[i:], math.Float32bits(x+1))
			}
		},
		"no numbers": func(name string, data []byte) {
			if name == "norm.weight" {
				binary.LittleEndian.PutUint32(data, math.Float32bits(float32(math.NaN())))
			}
		},
		"permuted fc": func(name string, data []byte) {
			// The halves of each row belong to the embedding and to the hidden state.
			const rows = 384
			for n := len(data) / rows; strings.HasPrefix(name, "fc.") && len(data) > 0; data = data[n:] {
				for i := range n / 2 {
					data[i], data[n/2+i] = data[n/2+i], data[i]
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			// If nothing is accepted a short test is enough; wrong norms need all of the text.
			limit := time.Duration(0)
			if name == "norms shifted twice" {
				limit = time.Hour
			}
			c, text := editTiny(t, edit)
			if v := test(t, c, text, limit); !v.Broken() {
				t.Errorf("accepted %v of %v, and not found broken", v.Accepted, v.Drafted)
			}
		})
	}
}

// A slow machine gets a result all the same, from fewer rounds.
func TestSelfTestKeepsItsLimit(t *testing.T) {
	c, text := editTiny(t, func(string, []byte) {})
	v := test(t, c, text, 0)
	if v.Broken() || v.Drafted[0] < testLead-testSkip || v.Drafted[0] > testLead+len(testDepths) || v.StepTime <= 0 || v.DraftTime <= 0 {
		t.Errorf("without time: accepted %v of %v, step %v, draft token %v", v.Accepted, v.Drafted, v.StepTime, v.DraftTime)
	}
}

func TestSelfTestNeedsText(t *testing.T) {
	c, _ := editTiny(t, func(string, []byte) {})
	m, b := open(t, c)
	if _, err := SelfTest(m, state.NewPool(b, 1<<30), drafterOf(m), make([]int32, 40), SelfTestOptions{Vocab: m.Info().Vocab}); err == nil || !strings.Contains(err.Error(), "43 tokens, got 40") {
		t.Errorf("40 tokens: %v", err)
	}
}
