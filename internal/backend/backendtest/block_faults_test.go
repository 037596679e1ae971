package backendtest

import (
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// blockFaults are those of operations inside blocks, and of pages of 4 bits.
var blockFaults = []planted{
	{"Attend", "a block is causal", blocksAs(func(a *backend.Attention, _ []backend.Seq) { a.Block = false })},
	{"Attend", "the window of a block is one more", blocksAs(func(a *backend.Attention, _ []backend.Seq) {
		if a.Window > 0 {
			a.Window++
		}
	})},
	{"Attend", "the window of a block is one less", blocksAs(func(a *backend.Attention, _ []backend.Seq) {
		if a.Window > 1 {
			a.Window--
		}
	})},
	{"Attend", "a block has no window", blocksAs(func(a *backend.Attention, _ []backend.Seq) { a.Window = 0 })},
	{"Attend", "a block sees the context of another sequence", blocksAs(func(_ *backend.Attention, batch []backend.Seq) {
		if n := len(batch) - 1; n > 0 && len(batch[n].Pages) > len(batch[0].Pages) {
			batch[0].Pages = batch[n].Pages
		}
	})},
	{"Attend", "a block is behind a hole", blocksAs(func(_ *backend.Attention, batch []backend.Seq) {
		for i := range batch {
			s := &batch[i]
			if s.Pos+s.N < len(s.Pages)*backend.PageTokens {
				s.Pos++
			}
		}
	})},
	{"Attend", "a block stays in the context", func(f *faulty, b *Opaque) {
		left := map[backend.Memory]int{} // end of the last block of each sequence
		f.attend = func(dst backend.Tensor, a *backend.Attention, at backend.Place, q, k, v backend.Tensor, batch []backend.Seq) {
			batch = slices.Clone(batch)
			for i := range batch {
				s := &batch[i]
				if a.Block && q.Rows > 0 {
					s.Pos = max(s.Pos, left[s.Pages[0].Mem])
					left[s.Pages[0].Mem] = s.Pos + s.N
				}
			}
			b.Attend(dst, a, at, q, k, v, batch)
		}
	}},
	{"Attend", "a number of 4 bits is of another position", func(f *faulty, b *Opaque) {
		f.attend = func(dst backend.Tensor, a *backend.Attention, at backend.Place, q, k, v backend.Tensor, batch []backend.Seq) {
			b.Attend(dst, a, at, q, k, v, batch)
			if at.Type == dtype.I4 && dst.Rows > 1 {
				b.Copy(lastRow(dst).ColRange(0, 1), dst.RowRange(0, 1).ColRange(0, 1))
			}
		}
	}},
	{"Convolve", "it goes on from the sequence before", func(f *faulty, b *Opaque) {
		f.convolve = func(dst, x backend.Tensor, c *backend.Convolution, _ []backend.Seq) {
			b.Convolve(dst, x, c, []backend.Seq{{N: x.Rows}})
		}
	}},
	{"Convolve", "taps in reverse order", func(f *faulty, b *Opaque) {
		f.convolve = func(dst, x backend.Tensor, c *backend.Convolution, batch []backend.Seq) {
			own := *c
			if c.Base.Rows == 2 {
				own.Base.Offset, own.Base.Stride = c.Base.Offset+c.Base.Stride, -c.Base.Stride
			}
			b.Convolve(dst, x, &own, batch)
		}
	}},
	{"Convolve", "dst is always replaced", func(f *faulty, b *Opaque) {
		f.convolve = func(dst, x backend.Tensor, c *backend.Convolution, batch []backend.Seq) {
			b.Convolve(dst, x, &backend.Convolution{Base: c.Base, Delta: c.Delta}, batch)
		}
	}},
	{"Convolve", "all rows have the kernel of the first", func(f *faulty, b *Opaque) {
		f.convolve = func(dst, x backend.Tensor, c *backend.Convolution, batch []backend.Seq) {
			own := *c
			own.Delta.Stride = 0
			b.Convolve(dst, x, &own, batch)
		}
	}},
	{"Convolve", "the second group of channels has the kernel of the first", func(f *faulty, b *Opaque) {
		f.convolve = func(dst, x backend.Tensor, c *backend.Convolution, batch []backend.Seq) {
			b.Convolve(dst, x, c, batch)
			if groups := c.Delta.Cols / c.Base.Rows; groups > 1 {
				n := x.Cols / groups
				own := backend.Convolution{Base: c.Base.ColRange(n, 2*n), Delta: c.Delta.ColRange(0, c.Base.Rows), Add: c.Add}
				b.Convolve(dst.ColRange(n, 2*n), x.ColRange(n, 2*n), &own, batch)
			}
		}
	}},
}

// blocksAs has blocks computed with another layer or another batch.
func blocksAs(change func(a *backend.Attention, batch []backend.Seq)) func(f *faulty, b *Opaque) {
	return func(f *faulty, b *Opaque) {
		f.attend = func(dst backend.Tensor, a *backend.Attention, at backend.Place, q, k, v backend.Tensor, batch []backend.Seq) {
			own := *a
			if batch = slices.Clone(batch); a.Block {
				change(&own, batch)
			}
			b.Attend(dst, &own, at, q, k, v, batch)
		}
	}
}
