package qwen35

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
	"github.com/foretoken/foretoken/internal/sampling"
	"github.com/foretoken/foretoken/internal/tokenizer"
	"github.com/foretoken/foretoken/sample"
)

// TestHeadAgreesAsTheReferences measures the head as the reference measured it: at every
// position of the greedy texts, whether the first one, two and three chained draft tokens are
// the text. Every step of the chain is fed the true token and attends to its own stream.
func TestHeadAgreesAsTheReferences(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 1,500 tokens four times")
	}
	f := golden.Load(t, "tiny")
	r := open(t, golden.Dir(t, "tiny"), 0, model.Options{Compute: backend.Float32})
	width := r.Info().Width
	var hits [3]int
	positions := 0
	for i := range f.Cases {
		c := &f.Cases[i]
		_, hidden := r.Feed(t, model.Span{State: r.Sequence(t), Tokens: c.Tokens})
		var drafts [3][]int32
		for depth := range drafts {
			rows := len(c.Tokens) - 1 - depth
			logits, out := r.FeedHead(t, r.Pairs(t), hidden[:rows*width], c.Tokens[1+depth:])
			for _, x := range logits {
				drafts[depth] = append(drafts[depth], argmax(x))
			}
			hidden = out
		}
		for row := len(c.Prompt) - 1; row+4 < len(c.Tokens); row++ {
			positions++
			for depth := range drafts {
				if drafts[depth][row] != c.Tokens[row+2+depth] {
					break
				}
				hits[depth]++
			}
		}
	}
	for depth, n := range hits {
		got, want := float64(n)/float64(positions), f.Acceptance[depth]
		t.Logf("the first %d drafts are accepted at %.4f of %d positions, the reference's at %.4f", depth+1, got, positions, want)
		if math.Abs(got-want) > golden.Tol.Acceptance {
			t.Errorf("the first %d drafts are accepted at %.4f of the positions, want %.4f", depth+1, got, want)
		}
	}
}

// record renews the figures that TestHeadAgreesWhenSampling compares with.
var record = flag.Bool("record", false, "write the figures of drawn texts anew")

// producer is the origin of those figures, as their file states it.
const producer = "go test ./model/qwen35 -run TestHeadAgreesWhenSampling -record: our float32 path, which TestModelEqualsReference holds to the reference"

// TestHeadAgreesWhenSampling measures the first draft token at every position of sampled texts:
// how often a draw from the head with the target's noise is the target's draw, and how
// often the ratio rule accepts, which is the overlap of the two distributions and the most
// any rule can reach. The int8 path draws other texts than the float32 path before long, so
// that only the shares can be compared: of some thousand positions within two tolerances. Texts
// are a quarter as long as in the long version.
func TestHeadAgreesWhenSampling(t *testing.T) {
	if testing.Short() {
		t.Skip("generates thousands of tokens")
	}
	if *record {
		data, err := json.MarshalIndent([]golden.Sampling{sampled(t, backend.Float32, usualText), sampled(t, backend.Float32, longText)}, "", "  ")
		if err == nil {
			err = os.WriteFile(golden.SamplingFile(t), append(data, '\n'), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	length := usualText
	if long {
		length = longText
	}
	got, want := sampled(t, backend.Int8, length), golden.LoadSampling(t, length)
	t.Logf("%d positions: favorite %.4f, coupled %.4f, ratio %.4f; want %+v", got.Positions, got.Favorite, got.Coupled, got.Ratio, want)
	for name, x := range map[string][2]float64{
		"favorite": {got.Favorite, want.Favorite}, "coupled": {got.Coupled, want.Coupled}, "ratio": {got.Ratio, want.Ratio},
	} {
		if math.Abs(x[0]-x[1]) > 2*golden.Tol.Acceptance {
			t.Errorf("%s: %.4f, want %.4f", name, x[0], x[1])
		}
	}
	if got.Positions != want.Positions || got.Favorite > got.Coupled || got.Coupled > got.Ratio+golden.Tol.Acceptance {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Lengths of drawn texts.
const usualText, longText = 16, 64

// sampled measures agreement with one arithmetic, over texts of a length.
func sampled(t *testing.T, compute backend.Compute, length int) golden.Sampling {
	t.Helper()
	dir := golden.Dir(t, "tiny")
	r := open(t, dir, 0, model.Options{Compute: compute})
	s := golden.Sampling{Producer: producer, Temperature: 0.8, TopK: 20, TopP: 0.95, Length: length} // docs/benchmarks.md has other temperatures
	var a agreement
	o := sample.Options{Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP}
	for _, text := range sampleTexts(t, r, encodedPrompts(t, dir), s.Length, o) {
		a.measure(t, r, text)
	}
	n := float64(a.positions)
	s.Positions, s.Favorite, s.Coupled, s.Ratio = a.positions, float64(a.favorite)/n, float64(a.coupled)/n, a.overlap/n
	return s
}

// agreement counts positions of sampled texts.
type agreement struct {
	positions, coupled, favorite int
	overlap                      float64
}

// sampledText is a text that the model has drawn, with the distributions of its tokens.
type sampledText struct {
	o      sample.Options
	tokens []int32
	prompt int         // how many of them were given
	logits [][]float32 // that each of the others was drawn from
	hidden []float32   // rows of all but the last token
}

// sampleTexts draws texts of a length after the prompts, all in one batch; the seed of each is
// its place.
func sampleTexts(t *testing.T, r *rig, prompts [][]int32, length int, o sample.Options) []sampledText {
	t.Helper()
	texts := make([]sampledText, len(prompts))
	samplers := make([]*sampling.Sampler, len(prompts))
	spans := make([]model.Span, len(prompts))
	for i, p := range prompts {
		o.Seed = uint64(i)
		texts[i] = sampledText{o: o, tokens: slices.Clone(p), prompt: len(p)}
		var err error
		if samplers[i], err = sampling.New(o, p); err != nil {
			t.Fatal(err)
		}
		spans[i] = model.Span{State: r.Sequence(t), Tokens: p, Want: 1}
	}
	for range length {
		out, err := r.Forward(spans)
		if err != nil {
			t.Fatal(err)
		}
		rows := modeltest.Rows(t, out)
		hidden := r.Host(t, out.Hidden)
		for i := range texts {
			text, n := &texts[i], len(spans[i].Tokens)*r.Info().Width
			text.logits, text.hidden, hidden = append(text.logits, rows[i]), append(text.hidden, hidden[:n]...), hidden[n:]
			id := samplers[i].Draw(samplers[i].Dist(rows[i], nil))
			samplers[i].Accept(id)
			text.tokens = append(text.tokens, id)
			spans[i].Tokens = text.tokens[len(text.tokens)-1:]
		}
	}
	return texts
}

// measure compares the head's draft tokens with a text.
func (a *agreement) measure(t *testing.T, r *rig, text sampledText) {
	t.Helper()
	s, err := sampling.New(text.o, text.tokens[:text.prompt])
	if err != nil {
		t.Fatal(err)
	}
	head := headLogits(t, r, text.hidden, text.tokens[1:])
	for j, id := range text.tokens[text.prompt:] {
		if j > 0 { // the first token has no draft token
			draft := head[text.prompt+j-2]
			p, q := s.Dist(text.logits[j], nil), s.Dist(draft, nil)
			a.positions++
			if s.Draw(p) == s.Draw(q) {
				a.coupled++
			}
			if argmax(draft) == id {
				a.favorite++
			}
			for _, id := range highest(draft, text.o.TopK) {
				a.overlap += float64(min(q.Prob(id), p.Prob(id)))
			}
		}
		s.Accept(id)
	}
}

// highest are the ids of the n highest logits.
func highest(logits []float32, n int) []int32 {
	var ids []int32
	for i, x := range logits {
		at := len(ids)
		for at > 0 && logits[ids[at-1]] < x {
			at--
		}
		if at < n {
			ids = slices.Insert(ids, at, int32(i))
			ids = ids[:min(len(ids), n)]
		}
	}
	return ids
}

// encodedPrompts are the benchmark prompts as ids, in the model's own chat format.
func encodedPrompts(t *testing.T, dir string) [][]int32 {
	t.Helper()
	data := filetest.Read(t, filepath.Join(dir, "tokenizer.json"))
	tok, err := tokenizer.New(data)
	if err != nil {
		t.Fatal(err)
	}
	var list [][]int32
	classes := golden.Prompts(t)
	for _, class := range []string{"math", "story", "dialogue", "define", "code"} {
		for _, p := range classes[class] {
			if class != "code" {
				p = "<|im_start|>user\n" + p + "<|im_end|>\n<|im_start|>assistant\n"
			}
			list = append(list, tok.Encode(p))
		}
	}
	return list
}
