package weights

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
)

// A vision tower is optional: a checkpoint with an unusable tower is still a text
// model. So its tensors are checked before any is loaded, and if that fails none is.

// HasTower reports whether there are tensors of a vision tower.
func (f *Files) HasTower() bool { return f.names.any(IsTower) }

// FindTower is the error of tensors of the tower that are not there, nil if all are.
func (f *Files) FindTower(table iter.Seq[*Weight]) error {
	others := f.missing
	f.missing = nil
	for w := range table {
		f.find(w)
	}
	missing := f.missing
	f.missing = others
	if len(missing) > 0 {
		return fmt.Errorf("weights: the vision tower is incomplete: %w: %s", checkpoint.ErrMissing, list(missing))
	}
	return f.twice
}

// CheckTower is the error of tensors of the tower that have another shape, or are no part of it,
// nil if it can be loaded. All of them are there.
func (f *Files) CheckTower(table iter.Seq[*Weight]) error {
	left := map[string]bool{}
	for _, name := range f.source.Tensors() {
		left[name] = f.ofTower(name) && !checkpoint.Ignored(name)
	}
	for w := range table {
		f.find(w)
		if err := w.check(); err != nil {
			return err
		}
		w.eachTensor(func(_ *checkpoint.Weights, t checkpoint.Tensor) { left[t.Name] = false })
	}
	maps.DeleteFunc(left, func(_ string, is bool) bool { return !is })
	if len(left) > 0 {
		return fmt.Errorf("weights: %d tensors are not part of the vision tower: %s", len(left), list(slices.Sorted(maps.Keys(left))))
	}
	return nil
}

// SkipTower marks the tensors of the tower as known, whether they are loaded or not.
func (f *Files) SkipTower() { f.source.Skip(f.ofTower) }

// ofTower reports whether a tensor, by its name in the files, is one of the tower.
func (f *Files) ofTower(name string) bool {
	name, needed := f.Canonical(name)
	return needed && IsTower(name)
}

// lookKernel is the encoding of a matrix of convolution kernels, by the header alone; converted reports
// that channels are innermost.
func (w *Weight) lookKernel() (m dtype.Matrix, converted bool, err error) {
	p := w.kernelPlace()
	if err := p.From.LookVector(p.Name, w.Rows*w.Cols); err != nil {
		return m, false, fmt.Errorf("weights: %w", err)
	}
	t, _ := p.From.Look(p.Name)
	k := w.Kernel
	raw := []int{w.Rows, k[0], k[1], k[2], k[3]}
	last := []int{w.Rows, k[1], k[2], k[3], k[0]}
	switch {
	case slices.Equal(t.Shape, raw):
	case slices.Equal(t.Shape, last):
		converted = true
	default:
		return m, false, fmt.Errorf("weights: %s: tensor %q of shape %v, want %v, or %v as MLX has it", t.File, p.Name, t.Shape, raw, last)
	}
	return dtype.Matrix{Rows: w.Rows, Cols: w.Cols, Type: t.Type}, converted, nil
}

// kernelPlace is where the tensor of the kernels is stored.
func (w *Weight) kernelPlace() Place {
	p := w.places[0]
	if !p.From.Has(p.Name) {
		p.Name += ".weight"
	}
	return p
}

// kernels is a matrix of convolution kernels, channels outermost: a view of the checkpoint if it
// is stored so.
func (w *Weight) kernels() ([]dtype.Matrix, error) {
	m, converted, err := w.lookKernel()
	if err != nil {
		return nil, err
	}
	p := w.kernelPlace()
	t, err := p.From.Tensor(p.Name)
	if err != nil {
		return nil, fmt.Errorf("weights: %w", err)
	}
	if m.Data = t.Data; converted {
		m.Data = channelsFirst(t.Data, t.Type.Size(), w.Kernel[0], w.Cols/w.Kernel[0])
		p.From.Release(t)
	}
	return []dtype.Matrix{m}, m.Validate()
}

// channelsFirst reorders numbers of size bytes from [pixels, channels] to [channels, pixels].
func channelsFirst(b []byte, size, channels, pixels int) []byte {
	out := make([]byte, 0, len(b))
	for ; len(b) > 0; b = b[channels*pixels*size:] {
		for c := range channels {
			for p := range pixels {
				at := (p*channels + c) * size
				out = append(out, b[at:at+size]...)
			}
		}
	}
	return out
}
