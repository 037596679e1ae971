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
	memory backend.Tensor // the rows of all layers side by side, for the largest call so far
}

// Set implements model.Tappable for a model of n layers.
func (t *Taps) Set(net *Network, n int, layers ...int) error {
	for i, layer := range layers {
		if layer < 0 || layer > n+1 || slices.Contains(layers[:i], layer) {
			return fmt.Errorf("%s: tap of layer %d, want distinct layers from 0 to %d", net.Package, layer, n+1)
		}
	}
	t.Free(net.Backend)
	net.Free() // what a device has recorded goes with it
	t.layers = slices.Clone(layers)
	return nil
}

// Grow makes space for the call that has begun.
func (t *Taps) Grow(net *Network) (err error) {
	if len(t.layers) == 0 || t.memory.Rows >= net.work.rows {
		return nil
	}
	t.Free(net.Backend)
	t.memory, err = net.Backend.Alloc(dtype.F32, net.work.rows, len(t.layers)*net.Width)
	return err
}

// Copy takes x, the input of a layer, if that is one of the tapped layers.
func (t *Taps) Copy(net *Network, layer int, x backend.Tensor) {
	if i := slices.Index(t.layers, layer); i >= 0 {
		net.Backend.Copy(t.memory.RowRange(0, x.Rows).ColRange(i*net.Width, (i+1)*net.Width), x)
	}
}

// View is the rows of the call, the zero Tensor if there are no taps.
func (t *Taps) View(rows int) backend.Tensor {
	if len(t.layers) == 0 {
		return backend.Tensor{}
	}
	return t.memory.RowRange(0, rows)
}

// Free gives their memory back.
func (t *Taps) Free(b backend.Backend) {
	b.Free(t.memory)
	t.memory = backend.Tensor{}
}
