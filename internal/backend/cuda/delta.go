package cuda

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
)

// deltaSeqs bounds the sequences whose recurrences run side by side. The number of sequences is not
// part of a pass's shape, so a grid is as high as there are rows, and blocks without a sequence
// end at once: prompts have many of them.
const deltaSeqs = 16

// deltaStrip is the columns of a state that a block has.
const deltaStrip = 32

// Up to deltaRows rows, none of a sequence with more than deltaLong, a layer of the usual widths is one kernel. Convolutions and norms
// of more rows take longer on the few multiprocessors that have the heads of a sequence than two more kernels do.
const (
	deltaRows = 64
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
	backend.CheckDeltaNet(dst, d, &in)
	atMost(maxRows/2, dst.Rows)
	b.begin()
	call := b.lists(backend.Pass{Batch: batch})
	if dst.Rows == 0 {
		return
	}
	c := deltaCall{dst, d, at, in, batch, call}
	find(b, deltaRules, &c).run(b, &c)
}

// deltaCall is a call of DeltaNet.
type deltaCall struct {
	dst   backend.Tensor
	d     *backend.DeltaNet
	at    backend.Place
	in    backend.DeltaInput
	batch []backend.Seq
	call  driver.Ptr
}

// delta128 and deltaAny are DeltaNet for any number of rows.
func (b *Backend) delta128(c *deltaCall) {
	b.deltaMany(c, func(g grid, mixed driver.Ptr) {
		b.launch("delta.delta_recur128", g, c.call, c.at.Delta, b.at(c.dst), c.dst.Stride, c.d.KeyHeads, c.d.ValueHeads, neighbors(c.d), c.d.ValueDim, mixed, c.dst.Rows)
	})
}

func (b *Backend) deltaAny(c *deltaCall) {
	b.deltaMany(c, func(g grid, mixed driver.Ptr) {
		d := c.d
		g.shared = 4 * (d.KeyDim*(deltaStrip+1) + 2*chained(d))
		b.launch("delta.delta_recur", g, c.call, c.at.Delta, b.at(c.dst), c.dst.Stride, d.KeyHeads, d.ValueHeads, neighbors(d), d.KeyDim, d.ValueDim, mixed, c.dst.Rows)
	})
}

// chained is the size of a key in numbers.
func chained(d *backend.DeltaNet) int { return (d.KeyDim + 3) &^ 3 }

// deltaMany launches the parts of single rows, the recurrence, and the gated norm.
func (b *Backend) deltaMany(c *deltaCall, recur func(g grid, mixed driver.Ptr)) {
	dst, d, at, in, call, rows := c.dst, c.d, c.at, c.in, c.call, c.dst.Rows
	mixed := b.scratch(4 * rows * (2*d.KeyHeads*chained(d) + d.ValueHeads*d.ValueDim + d.KeyHeads + 2*d.ValueHeads + 4))
	b.launch("delta.delta_mix", grid{x: d.KeyHeads, y: rows, threads: 256, shared: 8 * d.KeyDim},
		call, at.Delta, b.at(in.QKV), in.QKV.Stride, b.at(in.A), in.A.Stride, b.at(in.B), in.B.Stride,
		b.at(d.Conv), d.Conv.Stride, b.at(d.DecayRate), b.at(d.DecayBias), d.KeyHeads, d.ValueHeads, d.KeyDim, d.ValueDim, d.Kernel, mixed)
	strips := (d.ValueDim + deltaStrip - 1) / deltaStrip
	recur(grid{x: d.ValueHeads * strips, y: min(rows, deltaSeqs), threads: 4 * deltaStrip}, mixed)
	heads := (d.ValueHeads + 3) / 4
	tails := (min(rows, deltaSeqs)*((d.Channels()+127)/128) + heads - 1) / heads // rows of blocks for the last inputs
	b.deltaCodes(c, func(q quantized) {
		b.launch("delta.delta_gate", grid{x: heads, y: rows + tails, threads: 128},
			call, at.Delta, b.at(dst), dst.Stride, b.at(in.Z), in.Z.Stride, b.at(d.Norm), d.Eps, d.SigmoidGate, b.at(in.QKV), in.QKV.Stride,
			d.KeyHeads, d.ValueHeads, d.KeyDim, d.ValueDim, d.Kernel, mixed, rows, raw(q.param()))
	})
}

// deltaCodes launches the last kernel of a layer, which the next operation may have write codes.
func (b *Backend) deltaCodes(c *deltaCall, launch func(q quantized)) {
	launch(quantized{})
	if c.d.ValueDim <= maxCoded {
		b.passes.codable(c.dst, b.at(c.dst), c.d.ValueDim, launch)
	}
}

// deltaOne is DeltaNet for one row.
func (b *Backend) deltaOne(c *deltaCall) {
	d, in, arrived := c.d, &c.in, b.zeros(&b.arrived, 4*deltaRows*c.d.KeyHeads)
	b.deltaCodes(c, func(q quantized) {
		b.launch("deltafew.delta_one", grid{x: d.ValueHeads, threads: 512},
			c.call, c.at.Delta, b.at(c.dst), b.at(in.QKV), b.at(in.Z), b.at(in.A), b.at(in.B), b.at(d.Conv), d.Conv.Stride,
			b.at(d.DecayRate), b.at(d.DecayBias), b.at(d.Norm), d.Eps, d.SigmoidGate, d.KeyHeads, d.ValueHeads, neighbors(d), arrived, raw(q.param()))
	})
}

// deltaFew is DeltaNet for few rows.
func (b *Backend) deltaFew(c *deltaCall) {
	dst, d, in, arrived := c.dst, c.d, &c.in, b.zeros(&b.arrived, 4*deltaRows*c.d.KeyHeads)
	b.deltaCodes(c, func(q quantized) {
		b.launch("deltafew.delta_few", grid{x: d.ValueHeads, y: min(dst.Rows, deltaSeqs), threads: 512},
			c.call, c.at.Delta, b.at(dst), dst.Stride, b.at(in.QKV), in.QKV.Stride, b.at(in.Z), in.Z.Stride, b.at(in.A), in.A.Stride, b.at(in.B), in.B.Stride,
			b.at(d.Conv), d.Conv.Stride, b.at(d.DecayRate), b.at(d.DecayBias), b.at(d.Norm), d.Eps, d.SigmoidGate,
			d.KeyHeads, d.ValueHeads, neighbors(d), arrived, raw(q.param()))
	})
}
