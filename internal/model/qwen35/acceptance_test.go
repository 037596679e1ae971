package qwen35

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
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
		_, hidden := r.feed(t, model.Span{State: r.sequence(t), Tokens: c.Tokens})
		var drafts [3][]int32
		for depth := range drafts {
			rows := len(c.Tokens) - 1 - depth
			logits, out := r.headLogits(t, hidden[:rows*width], c.Tokens[1+depth:])
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

// producer is what the file of those figures says of its origin.
const producer = "go test ./model/qwen35 -run TestHeadAgreesWhenSampling -record: our float32 path, which TestModelEqualsReference holds to the reference"

// TestHeadAgreesWhenSampling measures the first draft token at every position of sampled texts:
// how often a draw from the head with the target's noise is the target's draw, and how
// often the ratio rule accepts, which is the overlap of the two distributions and the most
// any rule can reach. The int8 path draws other texts than the float32 path before long, so
// that only the shares can be compared: of some thousand positions within two tolerances.
func TestHeadAgreesWhenSampling(t *testing.T) {
	if testing.Short() {
		t.Skip("generates thousands of tokens")
	}
	if *record {
		data, err := json.MarshalIndent(sampled(t, backend.Float32), "", "  ")
		if err == nil {
			err = os.WriteFile(golden.SamplingFile(t), append(data, '\n'), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	got, want := sampled(t, backend.Int8), golden.LoadSampling(t)
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

// sampled measures agreement with one arithmetic.
func sampled(t *testing.T, compute backend.Compute) golden.Sampling {
	t.Helper()
	dir := golden.Dir(t, "tiny")
	r := open(t, dir, 0, model.Options{Compute: compute})
	s := golden.Sampling{Producer: producer, Temperature: 0.8, TopK: 20, TopP: 0.95, Length: 64} // docs/benchmarks.md has other temperatures
	var a agreement
	for i, p := range encodedPrompts(t, dir) {
		a.measure(t, r, p, s.Length, sample.Options{Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP, Seed: uint64(i)})
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

// measure samples a text and compares the head's draft tokens with it.
func (a *agreement) measure(t *testing.T, r *rig, prompt []int32, length int, o sample.Options) {
	t.Helper()
	s, err := sample.New(o, prompt)
	if err != nil {
		t.Fatal(err)
	}
	again, err := sample.New(o, prompt)
	if err != nil {
		t.Fatal(err)
	}
	state := r.sequence(t)
	defer state.Close()
	logits, hidden := r.feed(t, model.Span{State: state, Tokens: prompt, Want: 1})
	text, rows := prompt, [][]float32{logits[0]}
	for range length {
		id := s.Draw(s.Dist(rows[len(rows)-1], nil))
		s.Accept(id)
		text = append(text[:len(text):len(text)], id)
		more, h := r.feed(t, model.Span{State: state, Tokens: []int32{id}, Want: 1})
		rows, hidden = append(rows, more[0]), append(hidden, h...)
	}
	width := r.Info().Width
	head, _ := r.headLogits(t, hidden[:(len(text)-1)*width], text[1:])
	for j := range length {
		if j > 0 { // the first token has no draft token
			p, q := again.Dist(rows[j], nil), again.Dist(head[len(prompt)+j-2], nil)
			a.positions++
			if again.Draw(p) == again.Draw(q) {
				a.coupled++
			}
			if argmax(head[len(prompt)+j-2]) == text[len(prompt)+j] {
				a.favorite++
			}
			for id := range int32(r.Info().Vocab) {
				if x := q.Prob(id); x > 0 {
					a.overlap += float64(min(x, p.Prob(id)))
				}
			}
		}
		again.Accept(text[len(prompt)+j])
	}
}

// encodedPrompts are the benchmark prompts as ids, in the model's own chat format.
func encodedPrompts(t *testing.T, dir string) [][]int32 {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
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
