package gemma

import (
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/remote"
	"github.com/foretoken/foretoken/internal/backend/split"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/state"
)

// rowsOf is the rows that products were computed for.
type rowsOf struct {
	backend.Backend
	rows int
}

func (b *rowsOf) MatMul(x backend.Tensor, products ...backend.Product) {
	b.rows += x.Rows * len(products)
	b.Backend.MatMul(x, products...)
}

// TestShortSpansChangeNothing feeds random batches of prompts, tokens with drafts and both, once with all hidden rows and once with those
// that are needed. Logits, these rows and states have the same bits.
func TestShortSpansChangeNothing(t *testing.T) {
	cpu := backendtest.Open(t, backend.Options{Threads: 1})
	far := backendtest.Remote(t, backend.Options{Threads: 1}, remote.Options{})
	parts, err := split.New(func(p backend.Part) int { return p.Layer % 2 }, backendtest.NewOpaque(cpu), far)
	if err != nil {
		t.Fatal(err)
	}
	counted := &rowsOf{Backend: cpu}
	for i, b := range []backend.Backend{counted, backendtest.Open(t, backend.Options{}), parts} {
		testShort(t, b, counted, i == 0)
	}
}

func testShort(t *testing.T, b backend.Backend, counted *rowsOf, counts bool) {
	t.Helper()
	r := openOn(t, b, golden.Dir(t, "gemma4_ple"), model.Options{Quantize: 8, MaxDrafts: 4})
	rng := rand.New(rand.NewPCG(5, 6))
	var states [2][3]*state.State
	for k := range states {
		for i := range states[k] {
			states[k][i] = r.Sequence(t)
		}
	}
	saved := 0 // rows of products
	for range 12 {
		var spans [2][]model.Span
		for i := range states[0] {
			n := 1 + rng.IntN(4)
			if rng.IntN(3) > 0 {
				n = 1 + rng.IntN(60)
			}
			s := model.Span{Tokens: make([]int32, n), Want: rng.IntN(min(n, 4) + 1), Short: true}
			if s.Want > 0 {
				s.Drafts = rng.IntN(s.Want)
			}
			for j := range s.Tokens {
				s.Tokens[j] = rng.Int32N(int32(r.Info().Vocab))
			}
			if rng.IntN(4) == 0 {
				continue
			}
			for k := range spans {
				s.State, s.Short = states[k][i], k == 1
				spans[k] = append(spans[k], s)
			}
		}
		if len(spans[0]) == 0 {
			continue
		}
		var logits [2][][]float32
		var hidden [2][]float32
		var rows [2]int
		for k := range spans {
			counted.rows = 0
			out, err := r.Forward(spans[k])
			if err != nil {
				t.Fatal(err)
			}
			logits[k], hidden[k], rows[k] = modeltest.Rows(t, out), r.Host(t, out.Hidden), counted.rows
		}
		saved += rows[0] - rows[1]
		same(t, "logits", logits[1], logits[0])
		end, width := 0, r.Info().Width
		for i := range spans[0] {
			s := &spans[0][i]
			end += len(s.Tokens)
			at := (end - max(s.Want, 1)) * width
			same(t, "hidden rows", [][]float32{hidden[1][at : end*width]}, [][]float32{hidden[0][at : end*width]})
			accepted := rng.IntN(s.Drafts + 1)
			for k := range spans {
				spans[k][i].State.Commit(accepted)
			}
		}
	}
	for i := range states[0] {
		if string(modeltest.Saved(t, states[0][i])) != string(modeltest.Saved(t, states[1][i])) {
			t.Errorf("state %d has other bytes", i)
		}
	}
	if counts != (saved > 0) {
		t.Errorf("%d rows of products less", saved)
	}
}

// TestMatricesOfPromptRows counts the multiplications of a row with the matrices of a model, in millions: for a row with results without
// the output matrix, and for one of the others in a prompt.
func TestMatricesOfPromptRows(t *testing.T) {
	for _, c := range []struct {
		name          string
		whole, prompt int
	}{
		{"gemma-4-e2b", 1876, 577},
		{"gemma-4-e4b", 3972, 2313},
		{"gemma-4-31b", 29286, 29286},
	} {
		cfg := ofShape(t, c.name).resolved()
		layout := cfg.Layout(model.Options{}, false)
		total, prompt := 0, 0
		for i, y := range cfg.Layers(&network.Network{Settings: *cfg.Common()}, false) {
			for _, w := range y.Weights(nil, "") {
				if w.IsMatrix() && w.Rows < cfg.Common().Vocab {
					total += w.Rows * w.Cols
				}
			}
			if layout.Layers[i] != nil {
				prompt = total
			}
		}
		if total/1e6 != c.whole || prompt/1e6 != c.prompt {
			t.Errorf("%s: %d and %d million, want %d and %d", c.name, total/1e6, prompt/1e6, c.whole, c.prompt)
		}
	}
}
