package gguf

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/rescue"
)

// Tensor is one tensor of a file. Views that its methods return are valid until the file
// is closed.
type Tensor struct {
	Name  string
	Type  Type
	Shape []int // outermost first, as everywhere but in the file
	File  *checkpoint.Mapping
	// Factors multiply the numbers of an NVFP4 tensor: one for all, or one for each matrix of a stack.
	// Nil: there are none.
	Factors []float32

	offset uint64 // of its data, from where data begin
	data   []byte
}

// cols is the length of a row, and rows their number, with all outer dimensions.
func (t *Tensor) cols() int { return t.Shape[len(t.Shape)-1] }

func (t *Tensor) rows() int {
	n := 1
	for _, d := range t.Shape[:len(t.Shape)-1] {
		n *= d
	}
	return n
}

// rowBytes is the size of a row in the file, 0 if the type is not one that is read.
func (t *Tensor) rowBytes() int {
	k := t.Type.kind()
	if k == nil {
		return 0
	}
	return t.cols() / k.columns * k.bytes
}

// Encoding is what Matrix returns without the bytes. Global is the first of Factors. It is an
// error if the type is not supported.
func (t *Tensor) Encoding() (dtype.Matrix, error) {
	k := t.Type.kind()
	if k == nil {
		return dtype.Matrix{}, fmt.Errorf("gguf: %s: tensor %q has the type %v, which is not supported",
			t.File.Name(), t.Name, t.Type)
	}
	if k.format == dtype.Plain {
		return dtype.Matrix{Rows: t.rows(), Cols: t.cols(), Type: k.plain}, nil
	}
	m := dtype.NewBlocks(k.format, t.rows(), t.cols())
	if t.Factors != nil {
		m.Global = t.Factors[0]
	}
	return m, nil
}

// Matrix is the tensor, a view of the file. Outer dimensions are flattened into
// rows. It is an error if a scale is NaN, which only damage
// causes.
func (t *Tensor) Matrix() (dtype.Matrix, error) {
	m, err := t.Encoding()
	if err != nil {
		return m, err
	}
	m.Data = t.data
	if m.Format == dtype.Plain {
		return m, nil
	}
	return m, t.rowwise(func(from, to int) error { return m.Sound(from, to) })
}

// rowwise deals the rows out to all processors.
func (t *Tensor) rowwise(do func(from, to int) error) error {
	const worth = 1 << 18 // bytes for a goroutine
	rows := t.rows()
	if err := rescue.Deal(rows, 1, worth*rows/(len(t.data)+1), do); err != nil {
		return fmt.Errorf("gguf: %s: tensor %q: %w", t.File.Name(), t.Name, err)
	}
	return nil
}
