package cpu

import (
	"github.com/foretoken/foretoken/backend"
)

// deltaOp is a Gated DeltaNet layer. It runs twice over the pool: first convolution and
// gates, a part being a row; then the recurrence, a part being a sequence's value head.
type deltaOp struct {
	b         *Backend
	d         *backend.DeltaNet
	layer     int
	dst       backend.Tensor
	in        backend.DeltaInput
	batch     []backend.Seq
	owner     []int32
	mixed     []float32 // [rows, channels]: convolved; queries and keys normalised
	decay     []float32 // [rows, value heads]
	beta      []float32 // [rows, value heads]
	convolved bool      // which of the two runs
}

// DeltaNet runs a Gated DeltaNet layer.
func (b *Backend) DeltaNet(dst backend.Tensor, d *backend.DeltaNet, layer int, in backend.DeltaInput, batch []backend.Seq) {
	op := &b.delta
	op.b, op.d, op.layer, op.dst, op.in, op.batch = b, d, layer, dst, in, batch
	rows := in.QKV.Rows
	op.owner = owners(op.owner, batch, rows)
	op.mixed = grow(op.mixed, rows*d.Channels())
	op.decay = grow(op.decay, rows*d.ValueHeads)
	op.beta = grow(op.beta, rows*d.ValueHeads)
	op.convolved = false
	b.pool.run(op, rows, 1)
	op.convolved = true
	b.pool.run(op, len(batch)*d.ValueHeads, 1)
	for i := range batch {
		op.remember(&batch[i])
	}
}

func (op *deltaOp) part(worker, from, to int) {
	for i := from; i < to; i++ {
		if op.convolved {
			op.head(worker, &op.batch[i/op.d.ValueHeads], i%op.d.ValueHeads)
		} else {
			op.mix(i)
		}
	}
}

// mix convolves row r, normalises its queries and keys, and computes its gates.
func (op *deltaOp) mix(r int) {
	d, seq := op.d, &op.batch[op.owner[r]]
	n := d.Channels()
	y := op.mixed[r*n:][:n]
	for j := range d.Kernel {
		x, w := op.input(seq, r-seq.First-(d.Kernel-1)+j), row(d.Conv, j)
		if j == 0 {
			for c := range y {
				y[c] = w[c] * x[c]
			}
			continue
		}
		for c := range y {
			y[c] = fma32(w[c], x[c], y[c])
		}
	}
	for c, v := range y {
		y[c] = silu(v)
	}
	queries, keys := d.KeyHeads*d.KeyDim, 2*d.KeyHeads*d.KeyDim
	scale := rsqrt(float32(d.KeyDim))
	for i := 0; i < keys; i += d.KeyDim {
		s := float32(1)
		if i < queries {
			s = scale
		}
		normalise(y[i:][:d.KeyDim], s)
	}
	a, b := row(op.in.A, r), row(op.in.B, r)
	rate, bias := row(d.DecayRate, 0), row(d.DecayBias, 0)
	for h := range d.ValueHeads {
		op.decay[r*d.ValueHeads+h] = exp(rate[h] * softplus(a[h]+bias[h]))
		op.beta[r*d.ValueHeads+h] = sigmoid(b[h])
	}
}

// input is the unconvolved row of a sequence's token i of this call; tokens before the
// first are in the tail.
func (op *deltaOp) input(seq *backend.Seq, i int) []float32 {
	if i >= 0 {
		return row(op.in.QKV, seq.First+i)
	}
	return row(seq.Delta[op.layer].Tail, seq.Kept+op.d.Kernel-1+i)
}

// head runs the recurrence of one value head over a sequence's tokens.
func (op *deltaOp) head(worker int, seq *backend.Seq, h int) {
	d, mem := op.d, &seq.Delta[op.layer]
	dk, dv := d.KeyDim, d.ValueDim
	m := h / (d.ValueHeads / d.KeyHeads)
	s := &op.b.workers[worker]
	s.floats = grow(s.floats, dk*dv+9*dv)
	spare, buf := s.floats[:dk*dv], s.floats[dk*dv:]
	at := mem.State.Offset + h*dk*mem.State.Stride
	state := mem.State.Mem.(*memory).f32[at : at+dk*dv]
	for i := range seq.Kept {
		deltaUpdate(state, row(mem.Keys, i)[m*dk:][:dk], row(mem.Deltas, i)[h*dv:][:dv], row(mem.Decays, i)[h])
	}
	sure := seq.N - seq.Guesses
	for t := range seq.N {
		if t == sure { // from here on the state must stay as it is
			copy(spare, state)
			state = spare
		}
		r := seq.First + t
		y := op.mixed[r*d.Channels():][:d.Channels()]
		q, k := y[m*dk:][:dk], y[(d.KeyHeads+m)*dk:][:dk]
		v := y[2*d.KeyHeads*dk+h*dv:][:dv]
		decay := op.decay[r*d.ValueHeads+h]
		out := row(op.dst, r)[h*dv:][:dv]
		delta := deltaRead(out, state, q, k, v, decay, op.beta[r*d.ValueHeads+h], buf)
		deltaUpdate(state, k, delta, decay)
		if t >= sure {
			copy(row(mem.Deltas, t-sure)[h*dv:][:dv], delta)
			row(mem.Decays, t-sure)[h] = decay
		}
		op.gate(out, row(op.in.Z, r)[h*dv:][:dv])
	}
}

// gate normalises one head's output and multiplies it with its gate.
func (op *deltaOp) gate(out, z []float32) {
	rmsNorm(out, out, row(op.d.Norm, 0), op.d.Eps)
	for i, x := range z {
		if op.d.SigmoidGate {
			out[i] *= sigmoid(x)
		} else {
			out[i] *= silu(x)
		}
	}
}

// remember keeps what the next call needs of this one: the last input rows, and the
// guesses' keys. It runs after all heads, which still read the former ones.
func (op *deltaOp) remember(seq *backend.Seq) {
	d, mem := op.d, &seq.Delta[op.layer]
	n, sure := d.KeyHeads*d.KeyDim, seq.N-seq.Guesses
	for g := range seq.Guesses {
		at := (seq.First+sure+g)*d.Channels() + n
		copy(row(mem.Keys, g), op.mixed[at:at+n])
	}
	// Tail row i becomes the input of token sure-(Kernel-1)+i. Rows move towards the front
	// only, so ascending order never overwrites a row that is still needed.
	for i := range d.Kernel - 1 + seq.Guesses {
		copy(row(mem.Tail, i), op.input(seq, sure-(d.Kernel-1)+i))
	}
}
