package cpu

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
	"github.com/foretoken/foretoken/internal/exactmath"
)

// deltaOp is a Gated DeltaNet layer. Its parts are the key heads of each sequence: a key
// head's channels, and its value heads' with their states, concern no other part, so one
// run over the pool does all from the convolution to the gated norm.
type deltaOp struct {
	b       *Backend
	vector  *kernel.Vector // for rows of any length
	strip   *kernel.Vector // for strips of a state
	d       *backend.DeltaNet
	at      backend.Place
	dst     backend.Tensor
	in      backend.DeltaInput
	batch   []backend.Seq
	buffers []deltaBuffers // one per thread
}

// deltaBuffers are the working memory of one thread. Rows are those of a chunk.
type deltaBuffers struct {
	mixed []float32 // [rows, query, key, values]: convolved; query and key normalized
	kq    []float32 // [rows]: key·query
	gate  []float32 // [rows]: input of a gate
	decay []float32 // [value heads of the key head, rows]
	beta  []float32 // likewise
	delta []float32 // [columns of a strip]
	state []float32 // [key dim, columns of a strip]
	taps  []kernel.Tap
}

const (
	// deltaRows is how many rows are convolved before the recurrence runs over them: few
	// enough for the second cache, enough to make up for bringing the state in.
	deltaRows = 64
	// stripWidth is how many columns of a state are kept in the L1 cache while tokens change
	// it: 16 KB with 128 keys. Twice as many would be a little faster in an unshared cache of 48 KB,
	// and much slower in any other.
	stripWidth = 32
)

// DeltaNet runs a Gated DeltaNet layer.
func (b *Backend) DeltaNet(dst backend.Tensor, d *backend.DeltaNet, at backend.Place, in backend.DeltaInput, batch []backend.Seq) {
	backend.CheckDeltaNet(dst, d, &in)
	op := &b.delta
	op.b, op.d, op.at, op.dst, op.in, op.batch = b, d, at, dst, in, batch
	op.vector, op.strip = &b.isa.Vector, b.isa.Vector.ForWidth(d.ValueDim)
	op.buffers = kernel.Grow(op.buffers, b.pool.size())
	b.pool.run(op, len(batch)*d.KeyHeads, 1)
}

func (op *deltaOp) part(worker, from, to int) {
	for i := from; i < to; i++ {
		op.head(&op.buffers[worker], &op.batch[i/op.d.KeyHeads], i%op.d.KeyHeads)
	}
}

// head runs a sequence's tokens through key head m and its value heads.
func (op *deltaOp) head(buf *deltaBuffers, seq *backend.Seq, m int) {
	certain := seq.N - seq.Drafts
	for from := 0; from < seq.N; {
		to := from + deltaRows
		if to >= certain {
			to = seq.N // drafts stay together: their state is only in buf
		}
		op.mix(buf, seq, m, from, to)
		for i := range op.d.Share() {
			for c := 0; c < op.d.ValueDim; c += stripWidth {
				op.recur(buf, seq, m, i, from, to, c, min(stripWidth, op.d.ValueDim-c))
			}
			op.gate(seq, op.d.ValueHead(m, i), from, to)
		}
		if to == seq.N {
			op.remember(buf, seq, m, from)
		}
		from = to
	}
}

// ranges is how many ranges the channels of a key head are: query, key, and values, where heads that
// are no neighbors have one each.
func (op *deltaOp) ranges() int {
	if op.d.Tiled {
		return 2 + op.d.Share()
	}
	return 3
}

// channels is range i of the channels of key head m.
func (op *deltaOp) channels(m, i int) (first, n int) {
	d := op.d
	if i < 2 {
		return (i*d.KeyHeads + m) * d.KeyDim, d.KeyDim
	}
	first = 2*d.KeyHeads*d.KeyDim + d.ValueHead(m, i-2)*d.ValueDim
	if d.Tiled {
		return first, d.ValueDim
	}
	return first, d.Share() * d.ValueDim
}

// width is the number of channels of a key head.
func (op *deltaOp) width() int { return 2*op.d.KeyDim + op.d.Share()*op.d.ValueDim }

// mix convolves tokens [from, to), normalizes their queries and keys, and computes the
// gates of key head m.
func (op *deltaOp) mix(buf *deltaBuffers, seq *backend.Seq, m, from, to int) {
	d, n, width := op.d, to-from, op.width()
	buf.mixed = kernel.Grow(buf.mixed, n*width)
	buf.kq, buf.gate = kernel.Grow(buf.kq, n), kernel.Grow(buf.gate, n)
	buf.decay, buf.beta = kernel.Grow(buf.decay, n*d.Share()), kernel.Grow(buf.beta, n*d.Share())
	buf.taps = kernel.Grow(buf.taps, d.Kernel)
	at := 0
	for i := range op.ranges() {
		c, w := op.channels(m, i)
		op.convolve(buf, seq, c, w, from, to, at)
		at += w
	}
	op.vector.Delta.Keys(buf.mixed, width, d.KeyDim, exactmath.RSqrt32(float32(d.KeyDim)), buf.kq)
	rate, bias := row(d.DecayRate, 0), row(d.DecayBias, 0)
	for i := range d.Share() {
		h := d.ValueHead(m, i)
		column(buf.gate, op.in.A, seq.First+from, h)
		op.vector.Decays(buf.decay[i*n:][:n], buf.gate, rate[h], bias[h])
		column(buf.gate, op.in.B, seq.First+from, h)
		op.vector.Sigmoids(buf.beta[i*n:][:n], buf.gate)
	}
}

// column copies column c of rows of t, the first of them first.
func column(dst []float32, t backend.Tensor, first, c int) {
	rows := rowsOf(t)
	for i := range dst {
		dst[i] = rows.Data[(first+i)*rows.Stride+c]
	}
}

// convolve convolves w channels from channel c on of tokens [from, to), into columns at, … of mixed.
func (op *deltaOp) convolve(buf *deltaBuffers, seq *backend.Seq, c, w, from, to, at int) {
	width, before := op.width(), op.d.Kernel-1
	for t := from; t < to; {
		rows := to - t
		if t < before { // some of its inputs are in the tail
			rows = 1
		}
		for j := range buf.taps {
			buf.taps[j] = kernel.Tap{W: &row(op.d.Conv, j)[c], X: &op.input(seq, t-before+j)[c]}
		}
		op.vector.Delta.Convolve(buf.mixed[(t-from)*width+at:], width, w, rows, buf.taps, op.in.QKV.Stride)
		t += rows
	}
}

// input is the unconvolved row of a sequence's token i of this call; tokens before the
// first are in the tail.
func (op *deltaOp) input(seq *backend.Seq, i int) []float32 {
	if i >= 0 {
		return row(op.in.QKV, seq.First+i)
	}
	return row(seq.Delta[op.at.Delta].Tail, seq.Accepted+op.d.Kernel-1+i)
}

// stateStrip is some columns of a head's state, wherever they are at the moment.
type stateStrip struct {
	data          []float32
	stride, ahead int
}

// recur runs the recurrence of w columns of value head i of key head m, from column c on, over
// tokens [from, to). The strip is read from memory once, stays in buf while tokens change
// it, and the state before the first draft is written back.
func (op *deltaOp) recur(buf *deltaBuffers, seq *backend.Seq, m, i, from, to, c, w int) {
	d, mem, kernels := op.d, &seq.Delta[op.at.Delta], &op.strip.Delta
	h := d.ValueHead(m, i)
	home := op.home(mem, h, c, w)
	buf.state, buf.delta = kernel.Grow(buf.state, d.KeyDim*w), kernel.Grow(buf.delta, w)
	away := stateStrip{buf.state, w, 0}
	now := home
	sure := min(to, seq.N-seq.Drafts) // tokens before it cannot be rejected
	left := max(0, sure-from)         // changes that cannot
	if from == 0 {
		left += seq.Accepted
	}
	change := func(k, delta []float32, decay float32) {
		next := away
		if left--; left == 0 {
			next = home
		}
		kernels.Update(next.data, next.stride, now.data, now.stride, now.ahead, k, delta, decay)
		now = next
	}
	if from == 0 {
		for j := range seq.Accepted {
			change(row(mem.Keys, j)[m*d.KeyDim:][:d.KeyDim], row(mem.Deltas, j)[h*d.ValueDim+c:][:w], row(mem.Decays, j)[h])
		}
	}
	width, values := op.width(), 2*d.KeyDim+i*d.ValueDim+c
	decay, beta, kq := buf.decay[i*(to-from):][:to-from], buf.beta[i*(to-from):][:to-from], buf.kq
	key := func(j int) []float32 { return buf.mixed[j*width+d.KeyDim:][:d.KeyDim] }
	for j := 0; j < to-from; j++ {
		out, delta := row(op.dst, seq.First+from+j)[h*d.ValueDim+c:][:w], buf.delta
		if g := from + j - (seq.N - seq.Drafts); g >= 0 {
			delta = row(mem.Deltas, g)[h*d.ValueDim+c:][:w]
		}
		kernels.Read(out, delta, now.data, now.stride, now.ahead, buf.mixed[j*width:][:d.KeyDim], key(j), buf.mixed[j*width+values:][:w], decay[j], beta[j], kq[j])
		if more := sure - from - j; more > 1 && now.stride == w { // all that are sure, in one go
			all := rowsOf(op.dst)
			kernels.Steps(all.Data[(seq.First+from+j)*all.Stride+h*d.ValueDim+c:], all.Stride, delta, now.data,
				buf.mixed[j*width:], width, d.KeyDim, values, decay[j:][:more], beta[j:], kq[j:])
			j += more - 1
			left -= more - 1
		}
		if left > 0 || from+j+1 < seq.N {
			change(key(j), delta, decay[j])
		}
	}
}

// home is the memory of columns [c, c+w) of head h's state. The next reads
// are the next columns, or the first of the key head's next value head.
func (op *deltaOp) home(mem *backend.Recurrent, h, c, w int) stateStrip {
	d, stride := op.d, mem.State.Stride
	at := mem.State.Offset + h*d.KeyDim*stride + c
	s := stateStrip{data: mem.State.Mem.(*memory).f32[at : at+(d.KeyDim-1)*stride+w], stride: stride, ahead: w}
	if c+w == d.ValueDim {
		s.ahead = d.ValueHead(0, 1)*d.KeyDim*stride - c
	}
	return s
}

// gate normalizes head h's outputs and multiplies them with their gates.
func (op *deltaOp) gate(seq *backend.Seq, h, from, to int) {
	d, first, c := op.d, seq.First+from, h*op.d.ValueDim
	if !d.SigmoidGate {
		dst, z := rowsOf(op.dst), rowsOf(op.in.Z)
		op.vector.Delta.GatedNorm(dst.Data[first*dst.Stride+c:], dst.Stride, to-from, z.Data[first*z.Stride+c:], z.Stride, row(d.Norm, 0), d.Eps)
		return
	}
	for r := first; r < seq.First+to; r++ {
		out, z := row(op.dst, r)[c:][:d.ValueDim], row(op.in.Z, r)[c:][:d.ValueDim]
		op.vector.Norm(out, out, row(d.Norm, 0), d.Eps)
		op.vector.GateSigmoid(out, z, 1)
	}
}

// remember stores the inputs of the next call for key head m: the last input rows, and the
// drafts' keys and decays. It runs after the head's recurrences, which still read the
// former ones. buf has the tokens from token from on.
func (op *deltaOp) remember(buf *deltaBuffers, seq *backend.Seq, m, from int) {
	d, mem := op.d, &seq.Delta[op.at.Delta]
	certain, n := seq.N-seq.Drafts, seq.N-from
	for g := range seq.Drafts {
		t := certain + g - from
		copy(row(mem.Keys, g)[m*d.KeyDim:][:d.KeyDim], buf.mixed[t*op.width()+d.KeyDim:])
		for i := range d.Share() {
			row(mem.Decays, g)[d.ValueHead(m, i)] = buf.decay[i*n+t]
		}
	}
	// Tail row i becomes the input of token certain-(Kernel-1)+i. Rows move towards the front
	// only, so ascending order never overwrites a row that is still needed.
	for i := range d.Kernel - 1 + seq.Drafts {
		x, tail := op.input(seq, certain-(d.Kernel-1)+i), row(mem.Tail, i)
		for j := range op.ranges() {
			c, n := op.channels(m, j)
			copy(tail[c:c+n], x[c:])
		}
	}
}
