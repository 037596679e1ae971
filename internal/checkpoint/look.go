package checkpoint

import (
	"slices"

	"github.com/foretoken/foretoken/internal/dtype"
)

// The methods here return what Tensor, Matrix, MatrixStack and Vector would, by the headers
// alone: no byte of a tensor is read, so the time does not depend on the size of the
// model. The tensors count as used.

// Look is the tensor of that name without its Data; ok is false when there is none. It does
// not count as use.
func (w *Weights) Look(name string) (t Tensor, ok bool) {
	e, ok := w.tensors[name]
	if !ok {
		return Tensor{}, false
	}
	return Tensor{Name: e.name, File: e.file.name, Type: e.typ, Shape: slices.Clone(e.shape), Blocks: e.blocks}, true
}

// LookMatrix is Matrix without Data, Scales and Biases.
func (w *Weights) LookMatrix(module string, rows, cols int) (dtype.Matrix, error) {
	ms, err := w.matrices(module, shape{rows: rows, cols: cols, look: true})
	if err != nil {
		return dtype.Matrix{}, err
	}
	return ms[0], nil
}

// LookStack is MatrixStack without Data, Scales and Biases.
func (w *Weights) LookStack(module string, n, rows, cols int) ([]dtype.Matrix, error) {
	return w.matrices(module, shape{n: n, rows: rows, cols: cols, stacked: true, look: true})
}

// LookVector is the error that Vector would return.
func (w *Weights) LookVector(name string, n int) error {
	_, err := w.vector(name, n)
	return err
}
