package vulkan

import (
	"fmt"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/exactmath"
)

// maxKeys is the most numbers of a key or of a vision tower's head.
const maxKeys = 256

// deltaColumns is the columns of a workgroup of kernels/delta_recur_many.comp, deltaKeys the numbers of a key that it is used for: it is
// compiled for each, and the proof of a device runs these.
const deltaColumns = 32

var deltaKeys = []int{32, 128}

// deltaSeqs bounds the sequences whose recurrences run side by side. The number of sequences is not part of a pass's shape.
const deltaSeqs = 16

// DeltaNet runs a Gated DeltaNet layer.
func (b *Backend) DeltaNet(dst backend.Tensor, d *backend.DeltaNet, at backend.Place, in backend.DeltaInput, batch []backend.Seq) {
	backend.CheckDeltaNet(dst, d, &in)
	b.begin()
	call, rows := b.listsOf(backend.Pass{Batch: batch}), dst.Rows
	if rows == 0 {
		return
	}
	if d.KeyDim > maxKeys || rows > maxRows {
		b.missing("DeltaNet with keys of more than 256 numbers, or more than 65535 rows")
		return
	}
	neighbors := 1
	if !d.Tiled {
		neighbors = d.Share()
	}
	// The first two pieces are for the codes that delta_gate makes of its result for a product: see prepare.
	b.scratch(0)
	b.scratch(0)
	mixed := b.scratch(4 * rows * (2*d.KeyHeads*d.KeyDim + d.ValueHeads*d.ValueDim + d.KeyHeads + 2*d.ValueHeads))
	seqs := min(rows, deltaSeqs)
	few := rows <= strip && slices.Contains(deltaKeys, d.KeyDim) && d.Kernel == 4
	if !few {
		b.launch("delta_mix", [3]int{d.KeyHeads, rows, 1}, call, b.at(in.QKV), b.at(in.A), b.at(in.B), b.at(d.Conv), b.at(d.DecayRate), b.at(d.DecayBias), mixed,
			at.Delta, in.QKV.Stride, in.A.Stride, in.B.Stride, d.Conv.Stride, d.KeyHeads, d.ValueHeads, d.KeyDim, d.ValueDim, d.Kernel, rows)
	}
	if strips := (d.ValueDim + deltaColumns - 1) / deltaColumns; slices.Contains(deltaKeys, d.KeyDim) {
		mixes := 0
		if few {
			mixes = 1
		}
		b.launch(fmt.Sprintf("delta_recur_many:%d,%d", d.KeyDim, mixes), [3]int{d.ValueHeads * strips, seqs, 1}, call, b.at(dst), mixed,
			at.Delta, dst.Stride, d.KeyHeads, d.ValueHeads, neighbors, d.ValueDim, rows, in.QKV.Stride, in.A.Stride, in.B.Stride, d.Conv.Stride, exactmath.RSqrt32(float32(d.KeyDim)),
			b.at(in.QKV), b.at(in.A), b.at(in.B), b.at(d.Conv), b.at(d.DecayRate), b.at(d.DecayBias))
	} else {
		strips = (d.ValueDim + rowThreads - 1) / rowThreads
		copies := b.scratch(4 * seqs * d.ValueHeads * d.KeyDim * d.ValueDim)
		b.launch("delta_recur", [3]int{d.ValueHeads * strips, seqs, 1}, call, b.at(dst), mixed, copies,
			at.Delta, dst.Stride, d.KeyHeads, d.ValueHeads, neighbors, d.KeyDim, d.ValueDim, rows)
	}
	b.beside(true, func() {
		b.launch("delta_keep", columns(seqs, max(d.Channels(), d.ValueHeads)), call, b.at(in.QKV), mixed,
			at.Delta, in.QKV.Stride, d.KeyHeads, d.ValueHeads, d.KeyDim, d.ValueDim, d.Kernel, rows)
		codes := func(group int) string {
			if d.ValueDim > 256 || group < 16 || d.ValueDim%group != 0 {
				return ""
			}
			return "delta_gate:1"
		}
		b.launchMaking(dst, codes, "delta_gate:0", [3]int{d.ValueHeads, rows, 1}, call, b.at(dst), b.at(in.Z), b.at(d.Norm), dst.Stride, in.Z.Stride, d.ValueDim, d.SigmoidGate, d.Eps)
	})
}

// Mix is attention without mask and cache.
func (b *Backend) Mix(dst, q, k, v backend.Tensor, heads int, scale float32) {
	backend.CheckMix(dst, q, k, v, heads)
	b.begin()
	if q.Rows == 0 || q.Cols == 0 {
		return
	}
	dim := q.Cols / heads
	if dim > maxKeys {
		b.missing("a vision tower with heads of more than 256 numbers")
		return
	}
	eachRows(q.Rows, func(from, to int) {
		dst, q := dst.RowRange(from, to), q.RowRange(from, to)
		b.launch("mix", [3]int{q.Rows, heads, 1}, b.at(dst), b.at(q), b.at(k), b.at(v), dst.Stride, q.Stride, k.Stride, v.Stride, k.Rows, dim, scale)
	})
}
