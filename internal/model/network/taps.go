package network

import (
	"fmt"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Taps are copies of the residual stream where it enters some layers. The zero value has none.
type Taps struct {
	layers []int
	memory []backend.Tensor // one for each layer, for the largest call so far
	views  []backend.Tensor // the rows of the running call
}

// Set implements model.Tappable for a model of n layers.
func (t *Taps) Set(net *Network, n int, layers ...int) error {
	for i, layer := range layers {
		if layer < 0 || layer > n || slices.Contains(layers[:i], layer) {
			return fmt.Errorf("%s: tap of layer %d, want distinct layers from 0 to %d", net.Package, layer, n)
		}
	}
	t.Free(net.Backend)
	net.Free() // what a device has recorded goes with it
	*t = Taps{layers: slices.Clone(layers), views: make([]backend.Tensor, len(layers))}
	return nil
}

// Grow makes space for the call that has begun.
func (t *Taps) Grow(net *Network) error {
	if len(t.layers) == 0 || len(t.memory) > 0 && t.memory[0].Rows >= net.work.rows {
		return nil
	}
	t.Free(net.Backend)
	for range t.layers {
		x, err := net.Backend.Alloc(dtype.F32, net.work.rows, net.Width)
		if err != nil {
			t.Free(net.Backend)
			return err
		}
		t.memory = append(t.memory, x)
	}
	return nil
}

// Copy takes what enters a layer, if that is one of them.
func (t *Taps) Copy(net *Network, layer int) {
	if i := slices.Index(t.layers, layer); i >= 0 {
		net.Backend.Copy(t.memory[i].RowRange(0, net.X.Rows), net.X)
	}
}

// View is the rows of the call, nil if there are no taps.
func (t *Taps) View(rows int) []backend.Tensor {
	if len(t.layers) == 0 {
		return nil
	}
	for i, x := range t.memory {
		t.views[i] = x.RowRange(0, rows)
	}
	return t.views
}

// Free gives their memory back.
func (t *Taps) Free(b backend.Backend) {
	for _, x := range t.memory {
		b.Free(x)
	}
	t.memory = nil
}
