package glm

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
type mixture struct{ x, added []float32 }

func (w *witness) Experts(dst, x, router backend.Tensor, e *backend.Experts) {
	host := func(t backend.Tensor) []float32 {
		v, err := w.Host(t)
		if err != nil {
			panic(err)
		}
		return slices.Clone(v)
	}
	before := host(dst)
	m := mixture{x: host(x)}
	w.Backend.Experts(dst, x, router, e)
	m.added = host(dst)
	for i := range before {
		m.added[i] -= before[i]
	}
	w.calls = append(w.calls, m)
}

// TestRouterChoosesAsTheReference compares what every mixture of experts added, of case 1 and of its
// pairs in the head, with the answers of the experts that the reference chose, by its weights.
func TestRouterChoosesAsTheReference(t *testing.T) {
	for _, name := range golden.GLM {
		t.Run(name, func(t *testing.T) {
			w := &witness{Backend: backendtest.Open(t, backend.Options{Threads: 1})}
			f, files := golden.Load(t, name), fixture(t, name)
			r := openOn(t, w, golden.Dir(t, name), model.Options{Compute: backend.Float32})
			c := &f.Cases[1]
			_, hidden := r.Feed(t, model.Span{State: r.Sequence(t), Tokens: c.Tokens})
			width := r.Info().Width
			r.FeedHead(t, r.Pairs(t), hidden[:(len(c.Tokens)-1)*width], c.Tokens[1:])
			if len(w.calls) != len(c.Router) {
				t.Fatalf("%d mixtures, want %d", len(w.calls), len(c.Router))
			}
			var worst golden.Worst
			for i, choice := range c.Router {
				layer := fmt.Sprintf("model.layers.%d.mlp.", choice.Layer)
				for row, experts := range choice.Experts {
					x := w.calls[i].x[row*width:][:width]
					sum := files.expert(layer+"shared_experts.", x)
					for rank, e := range experts {
						for j, y := range files.expert(fmt.Sprintf("%sexperts.%d.", layer, e), x) {
							sum[j] += float64(choice.Weights[row][rank]) * y
						}
					}
					want := make([]float32, width)
					for j := range sum {
						want[j] = float32(sum[j])
					}
					worst.Add(fmt.Sprintf("layer %d row %d", choice.Layer, row), w.calls[i].added[row*width:][:width], want)
				}
			}
			worst.Check(t, "what experts add", golden.Tol.Hidden)
		})
	}
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
		gate[i] = g / (1 + math.Exp(-g)) * up[i]
	}
	return product("down_proj", gate)
}
