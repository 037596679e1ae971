package cuda

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
)

// deltaSeqs bounds the sequences whose recurrences run side by side. The number of sequences is no
// part of a pass's shape, so a grid is as high as there are rows, and blocks without a sequence
// end at once: prompts have many of them.
const deltaSeqs = 16

// deltaStrip is the columns of a state that a block has.
const deltaStrip = 32

// Up to deltaRows rows, none of a sequence with more than deltaLong, a layer of the usual widths is one kernel. Convolutions and norms
// of more rows take longer on the few multiprocessors that have the heads of a sequence than two more kernels do.
const (
	deltaRows = 32
	deltaLong = 16
)

// long reports whether a sequence has too many rows for one kernel, where all of them are not.
func long(batch []backend.Seq) bool {
	rows, most := 0, 0
	for i := range batch {
		rows, most = rows+batch[i].N, max(most, batch[i].N)
	}
	return rows <= deltaRows && most > deltaLong
}

// neighbors is how many value heads side by side have the same key head.
func neighbors(d *backend.DeltaNet) int {
	if d.Tiled {
		return 1
	}
	return d.Share()
}

// DeltaNet runs a Gated DeltaNet layer.
func (b *Backend) DeltaNet(dst backend.Tensor, d *backend.DeltaNet, at backend.Place, in backend.DeltaInput, batch []backend.Seq) {
	rows, channels := in.QKV.Rows, d.Channels()
	values := d.ValueHeads * d.ValueDim
	wrong := in.QKV.Cols != channels || in.Z.Cols != values || dst.Cols != values || in.A.Cols != d.ValueHeads || in.B.Cols != d.ValueHeads ||
		in.Z.Rows != rows || dst.Rows != rows || in.A.Rows != rows || in.B.Rows != rows || d.ValueHeads%d.KeyHeads != 0 || 2*rows > maxRows ||
		d.Conv.Rows != d.Kernel || d.Conv.Cols != channels || d.Norm.Cols != d.ValueDim
	if wrong {
		panic(fmt.Sprintf("cuda: DeltaNet %+v of %d×%d, %d×%d, %d×%d and %d×%d into %d×%d", *d, in.QKV.Rows, in.QKV.Cols,
			in.Z.Rows, in.Z.Cols, in.B.Rows, in.B.Cols, in.A.Rows, in.A.Cols, dst.Rows, dst.Cols))
	}
	b.begin()
	call := b.lists(backend.Pass{Batch: batch})
	if rows == 0 {
		return
	}
	if rows <= deltaRows && !long(batch) && d.KeyDim == 128 && d.ValueDim == 128 && d.Kernel == 4 {
		b.deltaFew(dst, d, at, in, call)
		return
	}
	chained := (d.KeyDim + 3) &^ 3
	mixed := b.scratch(4 * rows * (2*d.KeyHeads*chained + values + d.KeyHeads + 2*d.ValueHeads + 4))
	b.launch("delta.delta_mix", grid{x: d.KeyHeads, y: rows, threads: 256, shared: 8 * d.KeyDim},
		call, at.Delta, b.at(in.QKV), in.QKV.Stride, b.at(in.A), in.A.Stride, b.at(in.B), in.B.Stride,
		b.at(d.Conv), d.Conv.Stride, b.at(d.DecayRate), b.at(d.DecayBias), d.KeyHeads, d.ValueHeads, d.KeyDim, d.ValueDim, d.Kernel, mixed)
	strips := (d.ValueDim + deltaStrip - 1) / deltaStrip
	g := grid{x: d.ValueHeads * strips, y: min(rows, deltaSeqs), threads: 4 * deltaStrip}
	if d.KeyDim == 128 && d.ValueDim%deltaStrip == 0 {
		b.launch("delta.delta_recur128", g, call, at.Delta, b.at(dst), dst.Stride, d.KeyHeads, d.ValueHeads, neighbors(d), d.ValueDim, mixed, rows)
	} else {
		g.shared = 4 * (d.KeyDim*(deltaStrip+1) + 2*chained)
		b.launch("delta.delta_recur", g, call, at.Delta, b.at(dst), dst.Stride, d.KeyHeads, d.ValueHeads, neighbors(d), d.KeyDim, d.ValueDim, mixed, rows)
	}
	heads := (d.ValueHeads + 3) / 4
	tails := (min(rows, deltaSeqs)*((channels+127)/128) + heads - 1) / heads // rows of blocks for the last inputs
	gated := func(c quantized) {
		b.launch("delta.delta_gate", grid{x: heads, y: rows + tails, threads: 128},
			call, at.Delta, b.at(dst), dst.Stride, b.at(in.Z), in.Z.Stride, b.at(d.Norm), d.Eps, d.SigmoidGate, b.at(in.QKV), in.QKV.Stride,
			d.KeyHeads, d.ValueHeads, d.KeyDim, d.ValueDim, d.Kernel, mixed, rows, raw(c.param()))
	}
	gated(quantized{})
	if d.ValueDim <= maxCoded {
		b.passes.codable(dst, b.at(dst), d.ValueDim, gated)
	}
}

// deltaFew is DeltaNet for few rows.
func (b *Backend) deltaFew(dst backend.Tensor, d *backend.DeltaNet, at backend.Place, in backend.DeltaInput, call driver.Ptr) {
	rows := in.QKV.Rows
	arrived := b.zeros(&b.arrived, 4*deltaRows*d.KeyHeads)
	all := func(c quantized) {
		if rows == 1 {
			b.launch("deltafew.delta_one", grid{x: d.ValueHeads, threads: 512},
				call, at.Delta, b.at(dst), b.at(in.QKV), b.at(in.Z), b.at(in.A), b.at(in.B), b.at(d.Conv), d.Conv.Stride,
				b.at(d.DecayRate), b.at(d.DecayBias), b.at(d.Norm), d.Eps, d.SigmoidGate, d.KeyHeads, d.ValueHeads, neighbors(d), arrived, raw(c.param()))
			return
		}
		b.launch("deltafew.delta_few", grid{x: d.ValueHeads, y: min(rows, deltaSeqs), threads: 512},
			call, at.Delta, b.at(dst), dst.Stride, b.at(in.QKV), in.QKV.Stride, b.at(in.Z), in.Z.Stride, b.at(in.A), in.A.Stride, b.at(in.B), in.B.Stride,
			b.at(d.Conv), d.Conv.Stride, b.at(d.DecayRate), b.at(d.DecayBias), b.at(d.Norm), d.Eps, d.SigmoidGate,
			d.KeyHeads, d.ValueHeads, neighbors(d), arrived, raw(c.param()))
	}
	all(quantized{})
	b.passes.codable(dst, b.at(dst), d.ValueDim, all)
}
