package qwen35

import (
	"fmt"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// taps are copies of the residual stream where it enters some layers.
type taps struct {
	layers []int
	memory []backend.Tensor // one for each layer, for the largest call so far
	views  []backend.Tensor // the rows of the running call
}

// Tap implements model.Tappable.
func (m *Model) Tap(layers ...int) error {
	for i, layer := range layers {
		if layer < 0 || layer > len(m.layers) || slices.Contains(layers[:i], layer) {
			return fmt.Errorf("qwen35: tap of layer %d, want different ones from 0 to %d", layer, len(m.layers))
		}
	}
	m.taps.free(m.b)
	m.work.free(m.b) // what a device has recorded goes with it
	m.taps = taps{layers: slices.Clone(layers), views: make([]backend.Tensor, len(layers))}
	return nil
}

// grow makes space for calls of a number of rows.
func (t *taps) grow(b backend.Backend, rows, width int) error {
	if len(t.layers) == 0 || len(t.memory) > 0 && t.memory[0].Rows >= rows {
		return nil
	}
	t.free(b)
	for range t.layers {
		x, err := b.Alloc(dtype.F32, rows, width)
		if err != nil {
			t.free(b)
			return err
		}
		t.memory = append(t.memory, x)
	}
	return nil
}

// copy takes what enters a layer, if that is one of them.
func (t *taps) copy(b backend.Backend, layer int, x backend.Tensor) {
	if i := slices.Index(t.layers, layer); i >= 0 {
		b.Copy(t.memory[i].RowRange(0, x.Rows), x)
	}
}

// view is the rows of a call, nil if there are no taps.
func (t *taps) view(rows int) []backend.Tensor {
	if len(t.layers) == 0 {
		return nil
	}
	for i, x := range t.memory {
		t.views[i] = x.RowRange(0, rows)
	}
	return t.views
}

func (t *taps) free(b backend.Backend) {
	for _, x := range t.memory {
		b.Free(x)
	}
	t.memory = nil
}
