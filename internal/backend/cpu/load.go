package cpu

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Load packs the matrices of stack into one weight, on all threads.
func (b *Backend) Load(c backend.Compute, stack ...dtype.Matrix) (backend.Weight, error) {
	w, err := kernel.NewWeight(c == backend.Int8, stack)
	if err != nil {
		return nil, err
	}
	if w.Data, err = mapMemory(w.Size()); err != nil {
		return nil, err
	}
	b.weights[w] = struct{}{}
	b.used.Add(int64(len(w.Data)))
	w.Input = b.share(w.Input)
	b.pool.run(&packOp{w: w, stack: stack}, w.Count()*w.Tiles(), 1)
	b.pool.rest() // the next matrix may have to be repacked first
	return w, nil
}

// Unload frees a weight.
func (b *Backend) Unload(bw backend.Weight) {
	w := bw.(*kernel.Weight)
	if _, ok := b.weights[w]; !ok {
		return
	}
	delete(b.weights, w)
	b.used.Add(-int64(len(w.Data)))
	unmapMemory(w.Data)
	w.Data = nil
	if in := w.Input; in != nil {
		if b.inputs[in]--; b.inputs[in] == 0 {
			delete(b.inputs, in)
			b.used.Add(-in.Bytes())
		}
	}
}

// share is the transformation that other weights have too if it is equal to in, or in: products of one
// call with it then transform their rows once.
func (b *Backend) share(in *kernel.Input) *kernel.Input {
	if in == nil {
		return nil
	}
	for other := range b.inputs {
		if other.Equal(in) {
			b.inputs[other]++
			return other
		}
	}
	b.inputs[in] = 1
	b.used.Add(in.Bytes())
	return in
}

// packOp packs tiles.
type packOp struct {
	w     *kernel.Weight
	stack []dtype.Matrix
}

func (op *packOp) part(_, from, to int) { op.w.Pack(op.stack, from, to) }
