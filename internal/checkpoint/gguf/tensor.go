package gguf

import (
	"fmt"
	"math"
	"runtime"
	"sync"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/rescue"
)

// Tensor is one tensor of a file. What its methods return as views is valid until the file
// is closed.
type Tensor struct {
	Name  string
	Type  Type
	Shape []int // outermost first, as everywhere but in the file
	File  *checkpoint.Mapping

	offset uint64 // of its data, from where data begin
	data   []byte
}

// cols is the length of a row, and rows their number, whatever the outer dimensions are.
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

// Encoding is what Matrix returns without the bytes. The error says that the type is not
// one that is read.
func (t *Tensor) Encoding() (dtype.Matrix, error) {
	k := t.Type.kind()
	if k == nil {
		return dtype.Matrix{}, fmt.Errorf("gguf: %s: tensor %q is %v; read are %s: quantize the model to one of these",
			t.File.Name(), t.Name, t.Type, readable())
	}
	m := k.matrix
	m.Rows, m.Cols = t.rows(), t.cols()
	return m, nil
}

// Matrix is the tensor with the same numbers exactly. Outer dimensions are flattened: it
// has as many rows as all of them make. A plain one is a view of the file, others are in
// new memory.
func (t *Tensor) Matrix() (dtype.Matrix, error) {
	m, err := t.Encoding()
	if err != nil {
		return m, err
	}
	for part, b := range [...]*[]byte{&m.Data, &m.Scales, &m.Biases} {
		if *b, err = t.Read(Part(part)); err != nil {
			return m, err
		}
	}
	return m, nil
}

// Part is one of the byte slices of a dtype.Matrix.
type Part int

// The parts of a matrix. Plain ones have Data only.
const (
	Data Part = iota
	Scales
	Biases
)

// Read returns one part of Matrix. The error says that a scale is not a number of its type,
// as only damage makes one.
func (t *Tensor) Read(p Part) ([]byte, error) {
	m, err := t.Encoding()
	if err != nil {
		return nil, err
	}
	k := t.Type.kind()
	switch {
	case k.unpack == nil && p == Data:
		return t.data, nil
	case m.Format == dtype.Plain && p != Data:
		return nil, nil
	case p == Data:
		return t.decode(m.RowBytes(), k.repack)
	}
	return t.decode(m.ScaleRowBytes(), func(dst, src []byte) error { return k.rescale(dst, src, p) })
}

// decode makes each row of the file, src, one of size bytes, on all processors, and lets
// the file's pages go.
func (t *Tensor) decode(size int, do func(dst, src []byte) error) ([]byte, error) {
	const worth = 1 << 18 // bytes for a goroutine
	rows, n := t.rows(), t.rowBytes()
	threads := min(runtime.GOMAXPROCS(0), rows, 1+len(t.data)/worth)
	out := make([]byte, rows*size)
	errs := make([]error, threads)
	var wg sync.WaitGroup
	for i := range threads {
		wg.Go(func() {
			errs[i] = rescue.Do(func() error {
				for r := i * rows / threads; r < (i+1)*rows/threads; r++ {
					if err := do(out[r*size:][:size], t.data[r*n:][:n]); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
	wg.Wait()
	t.File.Release(t.data)
	for _, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("gguf: %s: tensor %q: %w", t.File.Name(), t.Name, err)
		}
	}
	return out, nil
}

// repack writes the codes of a row.
func (k *kind) repack(dst, src []byte) error {
	var q [superBlock]uint8
	size := k.columns * k.matrix.Bits / 8
	for ; len(src) > 0; src, dst = src[k.bytes:], dst[size:] {
		k.unpack(q[:k.columns], src[:k.bytes])
		dtype.Pack(dst[:size], k.matrix.Bits, q[:k.columns])
	}
	return nil
}

// rescale writes the scales or biases of a row.
func (k *kind) rescale(dst, src []byte, p Part) error {
	var scales, biases [128]float32 // of some blocks
	n, typ := k.columns/k.matrix.Group, k.matrix.ScaleType
	bound := limit(typ)
	for len(src) > 0 {
		at := 0
		for ; at < len(scales) && len(src) > 0; at, src = at+n, src[k.bytes:] {
			k.scale(scales[at:at+n], biases[at:at+n], src[:k.bytes])
		}
		use := scales[:at]
		if p == Biases {
			use = biases[:at]
		}
		for _, x := range use {
			if !(x < bound && x > -bound) {
				return fmt.Errorf("a block has scale or bias %g, which no sound file has", x)
			}
		}
		dtype.FromF32(dst[:at*typ.Size()], typ, use)
		dst = dst[at*typ.Size():]
	}
	return nil
}

// limit is the least magnitude that is infinite in a type of scales.
func limit(t dtype.Type) float32 {
	if t == dtype.F16 {
		return 65520
	}
	return float32(math.Inf(1))
}
