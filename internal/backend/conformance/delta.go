package conformance

import (
	"fmt"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
)

// deltaCase is a DeltaNet layer.
type deltaCase struct {
	keyHeads, share, keyDim, valueDim, kernel int
	sigmoid                                   bool
}

var deltaCases = []deltaCase{
	{2, 2, 32, 64, 4, false},
	{3, 1, 20, 48, 3, true},
	{1, 3, 7, 24, 2, false},
	{2, 1, 16, 32, 4, false},
}

// deltaDrafts is the maximum number of drafts of a call.
const deltaDrafts = 32

// layer makes the layer.
func (c *deltaCase) layer(r *rig) *backend.DeltaNet {
	values := c.keyHeads * c.share
	d := &backend.DeltaNet{
		KeyHeads: c.keyHeads, ValueHeads: values, KeyDim: c.keyDim, ValueDim: c.valueDim, Kernel: c.kernel, Eps: 1e-6, SigmoidGate: c.sigmoid,
	}
	rates := r.list(values)
	for i, x := range rates {
		rates[i] = -max(x, -x)
	}
	d.Conv, d.Norm = r.random(c.kernel, d.Channels()), r.random(1, c.valueDim)
	d.DecayRate, d.DecayBias = r.tensor(1, values, rates), r.random(1, values)
	return d
}

// empty is the state of a sequence before its first token. What the first call is not to read
// is not zero.
func (c *deltaCase) empty(r *rig, d *backend.DeltaNet) backend.Recurrent {
	zero := func(rows, cols int) backend.Tensor { return r.tensor(rows, cols, make([]float32, rows*cols)) }
	return backend.Recurrent{
		State: zero(d.ValueHeads*c.keyDim, c.valueDim), Tail: zero(c.kernel-1+deltaDrafts, d.Channels()),
		Keys: r.random(deltaDrafts, c.keyHeads*c.keyDim), Deltas: r.random(deltaDrafts, d.ValueHeads*c.valueDim), Decays: r.random(deltaDrafts, d.ValueHeads),
	}
}

// deltaText is the projections of a text: QKV, Z, B, A.
type deltaText struct {
	width [4]int
	rows  [4][]float32
}

func (c *deltaCase) text(r *rig, d *backend.DeltaNet, n int) *deltaText {
	t := &deltaText{width: [4]int{d.Channels(), d.ValueHeads * c.valueDim, d.ValueHeads, d.ValueHeads}}
	for i, w := range t.width {
		t.rows[i] = r.list(n * w)
	}
	return t
}

// of are the rows [from, to) of a text as tensors.
func (t *deltaText) of(r *rig, from, to int) backend.DeltaInput {
	var x [4]backend.Tensor
	for i, w := range t.width {
		x[i] = r.tensor(to-from, w, t.rows[i][from*w:to*w])
	}
	return backend.DeltaInput{QKV: x[0], Z: x[1], B: x[2], A: x[3]}
}

// then is the first n rows of t, followed by those of other.
func (t *deltaText) then(n int, other *deltaText) *deltaText {
	x := &deltaText{width: t.width}
	for i, w := range t.width {
		x.rows[i] = slices.Concat(t.rows[i][:n*w], other.rows[i][n*w:])
	}
	return x
}

// recurring is a sequence in a DeltaNet layer, the second of two.
type recurring struct {
	*deltaCase
	r        *rig
	layer    *backend.DeltaNet
	state    []backend.Recurrent
	n        int // tokens that were fed for good
	accepted int // of the drafts of the last call
}

func (c *deltaCase) sequence(r *rig, d *backend.DeltaNet) *recurring {
	return &recurring{deltaCase: c, r: r, layer: d, state: []backend.Recurrent{c.empty(r, d), c.empty(r, d)}}
}

// seq describes a call with rows rows, the last of them drafts, from row first on.
func (s *recurring) seq(first, rows, drafts int) backend.Seq {
	return backend.Seq{First: first, N: rows, Pos: s.n, Drafts: drafts, Accepted: s.accepted, Delta: s.state}
}

// feed feeds the next rows of a text, the last of them as drafts of which some are accepted, and
// returns the output for what was not rejected.
func (s *recurring) feed(t *deltaText, rows, drafts, accepted int) []float32 {
	dst := s.r.random(rows, s.layer.ValueHeads*s.valueDim)
	s.r.b.DeltaNet(dst, s.layer, backend.Place{Delta: 1}, t.of(s.r, s.n, s.n+rows), []backend.Seq{s.seq(0, rows, drafts)})
	s.accepted = accepted
	kept := rows - drafts + accepted
	s.n += kept
	return s.r.read(dst)[:kept*dst.Cols]
}

// deltaCalls are scripts: rows, drafts and accepted drafts of each call. The last has none, so
// that all that was accepted is in the state.
var deltaCalls = [][][3]int{
	{{5, 0, 0}, {1, 0, 0}, {4, 3, 2}, {4, 3, 0}, {3, 2, 2}, {2, 1, 1}, {1, 0, 0}},
	{{2, 1, 1}, {7, 2, 1}, {9, 8, 8}, {9, 8, 7}, {33, 32, 31}, {1, 0, 0}},
	{{9, 4, 4}, {2, 1, 1}, {33, 32, 32}, {35, 32, 17}, {3, 1, 0}, {2, 0, 0}},
	{{130, 2, 2}, {66, 5, 3}, {64, 0, 0}},
}

// script runs calls in which every draft beyond the accepted ones is wrong, and returns the
// output for the text, and the state behind it.
func (c *deltaCase) script(r *rig, d *backend.DeltaNet, t *deltaText, calls [][3]int) (out, state []float32) {
	s, wrong := c.sequence(r, d), c.text(r, d, len(t.rows[2])/t.width[2])
	for _, call := range calls {
		good := s.n + call[0] - call[1] + call[2]
		out = append(out, s.feed(t.then(good, wrong), call[0], call[1], call[2])...)
	}
	return out, r.read(s.state[1].State)
}

// deltaNet checks the recurrent layer: against the oracle; cut into any pieces; in any company;
// that accepted drafts are replayed once, and rejected ones never; and with value heads in either order.
func (c *checker) deltaNet() {
	c.on("DeltaNet")
	for i, k := range deltaCases {
		if c.brief && i%2 == 1 {
			continue
		}
		calls, n := deltaCalls[i], 0
		for _, call := range calls {
			n += call[0] - call[1] + call[2]
		}
		what := fmt.Sprintf("%+v", k)
		c.like(what, func(r *rig) [][]float32 {
			d := k.layer(r)
			out, state := k.script(r, d, k.text(r, d, n+deltaDrafts), calls)
			return [][]float32{out, state}
		})
		c.holds(what+", drafts and no drafts", func(r *rig) (got, want []float32) {
			d := k.layer(r)
			t := k.text(r, d, n+deltaDrafts)
			plain := make([][3]int, 0, n)
			for range n {
				plain = append(plain, [3]int{1, 0, 0})
			}
			out, state := k.script(r, d, t, calls)
			wantOut, wantState := k.script(r, d, t, plain)
			return append(out, state...), append(wantOut, wantState...)
		})
		rows := 150
		if c.brief {
			rows = 80
		}
		c.holds(fmt.Sprintf("%s, %d rows in pieces of 7 and 64", what, rows), func(r *rig) (got, want []float32) {
			d := k.layer(r)
			t := k.text(r, d, rows)
			whole := k.sequence(r, d).feed(t, rows, 0, 0)
			for _, piece := range []int{7, 64} {
				s := k.sequence(r, d)
				for s.n < rows {
					got = append(got, s.feed(t, min(piece, rows-s.n), 0, 0)...)
				}
				want = append(want, whole...)
			}
			return got, want
		})
		c.holds(what+", alone and in a batch", func(r *rig) (got, want []float32) { return k.batch(r) })
	}
	for _, k := range tiledCases {
		what := fmt.Sprintf("%+v", k.deltaCase)
		c.like(what+", tiled", func(r *rig) [][]float32 {
			d := k.layer(r)
			d.Tiled = true
			out, state := k.script(r, d, k.text(r, d, 200), k.calls)
			return [][]float32{out, state}
		})
		if c.brief { // follows from the oracle's bits: it has the same check
			continue
		}
		c.holds(what+", tiled and not", func(r *rig) (got, want []float32) { return k.tilings(r, k.calls) })
	}
}

// tiledCases are layers whose value heads are tiled: few rows, many, one, and drafts.
var tiledCases = []struct {
	deltaCase
	calls [][3]int
}{
	{deltaCase{3, 2, 12, 40, 3, false}, [][3]int{{70, 2, 1}, {1, 0, 0}, {6, 3, 2}, {2, 0, 0}}},
	{deltaCase{2, 2, 128, 128, 4, true}, [][3]int{{40, 0, 0}, {4, 3, 2}, {1, 0, 0}, {2, 1, 1}, {1, 0, 0}}},
}

// tilings feeds a text to a layer and to its twin, which has the value heads in the other order.
func (c *deltaCase) tilings(r *rig, calls [][3]int) (got, want []float32) {
	d := c.layer(r)
	values := 2 * c.keyHeads * c.keyDim // the first channel of values
	twin := *d
	twin.Tiled = true
	twin.Conv = r.tensor(c.kernel, d.Channels(), c.tile(r.read(d.Conv), d.Channels(), values, c.valueDim, false))
	twin.DecayRate = r.tensor(1, d.ValueHeads, c.tile(r.read(d.DecayRate), d.ValueHeads, 0, 1, false))
	twin.DecayBias = r.tensor(1, d.ValueHeads, c.tile(r.read(d.DecayBias), d.ValueHeads, 0, 1, false))
	t := c.text(r, d, 200)
	other := &deltaText{width: t.width}
	for i, first := range [4]int{values, 0, 0, 0} {
		other.rows[i] = c.tile(t.rows[i], t.width[i], first, (t.width[i]-first)/d.ValueHeads, false)
	}
	out, state := c.script(r, &twin, other, calls)
	wantOut, wantState := c.script(r, d, t, calls)
	got = append(c.tile(out, t.width[1], 0, c.valueDim, true), c.tile(state, len(state), 0, len(state)/d.ValueHeads, true)...)
	return got, append(wantOut, wantState...)
}

// tile is rows of width numbers, those from first on by value heads of dim numbers, with the heads
// tiled that were neighbors, or back.
func (c *deltaCase) tile(rows []float32, width, first, dim int, back bool) []float32 {
	out := slices.Clone(rows)
	for at := first; at < len(rows); at += width {
		for h := range c.keyHeads * c.share {
			from, to := h*dim, (h%c.share*c.keyHeads+h/c.share)*dim
			if back {
				from, to = to, from
			}
			copy(out[at+to:][:dim], rows[at+from:])
		}
	}
	return out
}

// batch feeds three sequences with drafts that are yet to be replayed in one call, and each
// alone.
func (c *deltaCase) batch(r *rig) (together, alone []float32) {
	d := c.layer(r)
	all := c.text(r, d, 0)
	var seqs []backend.Seq
	first := 0
	for _, call := range [][3]int{{5, 4, 2}, {1, 0, 0}, {70, 3, 3}} {
		t := c.text(r, d, 100)
		a, b := c.sequence(r, d), c.sequence(r, d)
		a.feed(t, call[0], call[1], call[2])
		b.feed(t, call[0], call[1], call[2])
		const rows, drafts = 5, 2
		for i, w := range t.width {
			all.rows[i] = append(all.rows[i], t.rows[i][a.n*w:(a.n+rows)*w]...)
		}
		seqs = append(seqs, b.seq(first, rows, drafts))
		first += rows
		alone = append(alone, a.feed(t, rows, drafts, drafts)...)
	}
	dst := r.random(first, d.ValueHeads*c.valueDim)
	r.b.DeltaNet(dst, d, backend.Place{Delta: 1}, all.of(r, 0, first), seqs)
	return r.read(dst), alone
}
