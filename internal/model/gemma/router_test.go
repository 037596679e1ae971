package gemma

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
)

// witness is a device that records the input and the output of experts.
type witness struct {
	backend.Backend
	calls []mixture
}

// mixture is one call of Experts.
type mixture struct{ x, answer []float32 }

func (w *witness) Experts(dst, x, router backend.Tensor, e *backend.Experts) {
	host := func(t backend.Tensor) []float32 {
		v, err := w.Host(t)
		if err != nil {
			panic(err)
		}
		return slices.Clone(v)
	}
	m := mixture{x: host(x)}
	w.Backend.Experts(dst, x, router, e)
	m.answer = host(dst)
	w.calls = append(w.calls, m)
}

// TestRouterChoosesAsTheReference compares the answer of every mixture of experts, of case 1, with the answers of the experts
// that the reference chose, by its weights.
func TestRouterChoosesAsTheReference(t *testing.T) {
	const name = "gemma4_moe"
	w := &witness{Backend: backendtest.Open(t, backend.Options{Threads: 1})}
	f, files := golden.Load(t, name), fixture(t, name, single)
	r := openOn(t, w, golden.Dir(t, name), model.Options{Compute: backend.Float32})
	c := &f.Cases[1]
	r.Feed(t, model.Span{State: r.Sequence(t), Tokens: c.Tokens})
	if len(w.calls) != len(c.Router) {
		t.Fatalf("%d mixtures, want %d", len(w.calls), len(c.Router))
	}
	width := r.Info().Width
	var worst golden.Worst
	for i, choice := range c.Router {
		for row, experts := range choice.Experts {
			want := make([]float32, width)
			for rank, e := range experts {
				p := fmt.Sprintf("model.language_model.layers.%d.experts.%d.", choice.Layer, e)
				for j, y := range files.expert(p, w.calls[i].x[row*width:][:width]) {
					want[j] += choice.Weights[row][rank] * float32(y)
				}
			}
			worst.Add(fmt.Sprintf("layer %d row %d", choice.Layer, row), w.calls[i].answer[row*width:][:width], want)
		}
	}
	worst.Check(t, "what experts answer", golden.Tol.Hidden)
}

// expert is the answer of an expert, slowly.
func (f *folder) expert(p string, x []float32) []float64 {
	product := func(name string, x []float64) []float64 {
		w := f.tensors[p+name+".weight"]
		y := make([]float64, w.shape[0])
		for i := range y {
			for j := range x {
				y[i] += float64(w.values[i*len(x)+j]) * x[j]
			}
		}
		return y
	}
	wide := make([]float64, len(x))
	for i := range x {
		wide[i] = float64(x[i])
	}
	gate, up := product("gate_proj", wide), product("up_proj", wide)
	for i, g := range gate {
		gate[i] = g * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(g+0.044715*g*g*g))) / 2 * up[i]
	}
	return product("down_proj", gate)
}
