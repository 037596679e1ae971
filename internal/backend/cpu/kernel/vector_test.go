//go:build unix

package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/exactmath"
)

// vectorTrial runs kernels of one instruction set against their definitions, on buffers
// that end where memory ends.
type vectorTrial struct {
	t     *testing.T
	name  string
	v     *Vector
	rng   *rand.Rand
	guard [8][]float32 // buffers, each before a page that cannot be touched
}

const trialSize = 64 << 10 // numbers of a buffer

func newVectorTrials(t *testing.T) []*vectorTrial {
	t.Helper()
	var list []*vectorTrial
	part := func(set Set) Vector {
		set.Vector.Coded = Coded{} // has tests of its own
		return set.Vector
	}
	for _, set := range accelerated(distinct(part)) {
		list = append(list, newVectorTrial(t, &set))
	}
	return list
}

func newVectorTrial(t *testing.T, set *Set) *vectorTrial {
	t.Helper()
	x := &vectorTrial{t: t, name: set.Name, v: &set.Vector, rng: rand.New(rand.NewPCG(7, 7))}
	for i := range x.guard {
		x.guard[i] = floatsOf(guarded(t, 4*trialSize))
	}
	return x
}

// fill returns the last n numbers of buffer i, filled, and a copy on the heap.
func (x *vectorTrial) fill(i, n int, special bool) (guarded, plain []float32) {
	guarded = x.guard[i][trialSize-n:]
	for j := range guarded {
		guarded[j] = oddFloat(x.rng, special) * float32(int(1)<<x.rng.IntN(6))
	}
	return guarded, append([]float32(nil), guarded...)
}

// same fails where got and want differ.
func (x *vectorTrial) same(what string, got, want []float32) {
	x.t.Helper()
	for i := range want {
		if !sameFloat(got[i], want[i]) {
			x.t.Fatalf("%s %s, length %d: number %d is %v (%#x), want %v (%#x)", x.name, what, len(want), i,
				got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}

// lengths are all small ones and some larger ones.
func (x *vectorTrial) lengths() []int {
	var list []int
	for n := 1; n <= 100; n++ {
		list = append(list, n)
	}
	random := 30
	if testing.Short() && !long {
		random = 8
	}
	for range random {
		list = append(list, 1+x.rng.IntN(3000))
	}
	return list
}

func TestVectorRowsEqualGeneric(t *testing.T) {
	for _, x := range newVectorTrials(t) {
		for _, n := range x.lengths() {
			for _, special := range []bool{false, true} {
				x.rows(n, special)
			}
		}
	}
}

func (x *vectorTrial) rows(n int, special bool) {
	x.t.Helper()
	v, g := x.v, &vectorGeneric
	a, pa := x.fill(0, n, special)
	b, pb := x.fill(1, n, special)
	c, pc := x.fill(2, n, special)
	w := oddFloat(x.rng, special)
	x.same("dot", []float32{v.Dot(a, b)}, []float32{g.Dot(pa, pb)})
	for _, k := range []struct {
		name string
		run  func(v *Vector, a, b, c []float32)
	}{
		{"add", func(v *Vector, a, b, _ []float32) { v.Add(a, b) }},
		{"addScaled", func(v *Vector, a, b, _ []float32) { v.AddScaled(a, b, w) }},
		{"norm", func(v *Vector, a, b, c []float32) { v.Norm(c, a, b, 1e-6) }},
		{"wide norm", func(v *Vector, a, b, c []float32) { v.WideNorm(c, a, b, 1e-6) }},
		{"wide norm in place", func(v *Vector, a, b, _ []float32) { v.WideNorm(a, a, b, 1e-6) }},
		{"norm in place", func(v *Vector, a, b, _ []float32) { v.Norm(a, a, b, 1e-6) }},
		{"swiglu", func(v *Vector, a, b, c []float32) { v.SwiGLU(c, a, b) }},
		{"layer norm", func(v *Vector, a, b, c []float32) { v.LayerNorm(c, a, b, b, 1e-6) }},
		{"layer norm in place", func(v *Vector, a, b, c []float32) { v.LayerNorm(a, a, b, c, 1e-6) }},
		{"gelu", func(v *Vector, a, _, c []float32) { v.GELU(c, a) }},
		{"geluTanh", func(v *Vector, a, _, c []float32) { v.GELUTanh(c, a) }},
		{"gateSigmoid", func(v *Vector, _, b, c []float32) { v.GateSigmoid(c, b, w) }},
		{"sigmoids", func(v *Vector, _, b, c []float32) { v.Sigmoids(c, b) }},
		{"decays", func(v *Vector, a, _, c []float32) { v.Decays(c, a, -2*exactmath.Abs32(w), 0.5) }},
		{"growths", func(v *Vector, a, _, c []float32) { v.Decays(c, a, 3*w, w) }},
	} {
		copy(a, pa)
		copy(b, pb)
		copy(c, pc)
		qa, qb, qc := append([]float32(nil), pa...), append([]float32(nil), pb...), append([]float32(nil), pc...)
		k.run(v, a, b, c)
		k.run(g, qa, qb, qc)
		x.same(k.name, a, qa)
		x.same(k.name, b, qb)
		x.same(k.name, c, qc)
	}
	copy(a, pa)
	top, sum := v.Softmax(a)
	wantTop, wantSum := g.Softmax(pa)
	if top != wantTop || !sameFloat(sum, wantSum) {
		x.t.Fatalf("%s softmax: %v %v, want %v %v", x.name, top, sum, wantTop, wantSum)
	}
	x.same("softmax", a, pa)
	x.headRows(n, special)
	x.rotation(n, special)
	x.merging(n, special)
}

// TestVectorFunctionsEqualGeneric goes over all magnitudes of numbers, and densely over
// those at which something happens.
func TestVectorFunctionsEqualGeneric(t *testing.T) {
	for _, x := range newVectorTrials(t) {
		const n = 4096
		in, out, want := x.guard[0][trialSize-n:], x.guard[1][trialSize-n:], make([]float32, n)
		for trial := range 12 {
			for i := range in {
				switch trial % 3 {
				case 0:
					in[i] = math.Float32frombits(x.rng.Uint32())
				case 1:
					in[i] = 100 * (2*x.rng.Float32() - 1)
				default: // around the ends of exp
					in[i] = []float32{exactmath.ExpMin32, exactmath.ExpMax32}[i%2] * (1 + 1e-6*float32(x.rng.IntN(21)-10))
				}
			}
			x.v.Sigmoids(out, in)
			sigmoids(want, in)
			x.same("sigmoids", out, want)
			x.v.Decays(out, in, 1, 0)
			decays(want, in, 1, 0)
			x.same("decays", out, want)
			x.v.SwiGLU(out, in, in)
			swiglu(want, in, in)
			x.same("swiglu", out, want)
			for i := range in {
				if trial%3 > 0 {
					in[i] /= 7 // up to where GELU ends
				}
			}
			x.v.GELU(out, in)
			gelu(want, in)
			x.same("gelu", out, want)
			x.v.GELUTanh(out, in)
			geluTanh(want, in)
			x.same("geluTanh", out, want)
		}
	}
}

// headRows compares what comes before and after the delta rule, n being the length of a head's rows.
func (x *vectorTrial) headRows(n int, special bool) {
	x.t.Helper()
	rows, gap, step := 1+x.rng.IntN(6), x.rng.IntN(20), n+x.rng.IntN(20)
	taps, plain := make([]Tap, 1+x.rng.IntN(5)), []Tap{}
	for i := range taps {
		w, pw := x.fill(3, n, special)
		in, pin := x.fill(4, (rows-1)*step+n, special)
		if i+1 < len(taps) { // the buffers will be filled again
			w, in = pw, pin
		}
		taps[i] = Tap{&w[0], &in[0]}
		plain = append(plain, Tap{&pw[0], &pin[0]})
	}
	got, want := x.fill(5, (rows-1)*(n+gap)+n, special)
	x.v.Delta.Convolve(got, n+gap, n, rows, taps, step)
	convolve(want, n+gap, n, rows, plain, step)
	x.same("convolve", got, want)

	got, want = x.fill(5, (rows-1)*(2*n+gap)+2*n, special)
	kq, wantKQ := x.guard[6][trialSize-rows:], make([]float32, rows)
	scale := oddFloat(x.rng, special)
	x.v.Delta.Keys(got, 2*n+gap, n, scale, kq)
	keys(want, 2*n+gap, n, scale, wantKQ)
	x.same("keys", got, want)
	x.same("products of keys", kq, wantKQ)

	got, want = x.fill(5, (rows-1)*(n+gap)+n, special)
	z, pz := x.fill(4, (rows-1)*step+n, special)
	gain, pgain := x.fill(3, n, special)
	x.v.Delta.GatedNorm(got, n+gap, rows, z, step, gain, 1e-6)
	gatedNorm(want, n+gap, rows, pz, step, pgain, 1e-6)
	x.same("gatedNorm", got, want)
}

func (x *vectorTrial) rotation(n int, special bool) {
	x.t.Helper()
	a, pa := x.fill(0, 2*n, special)
	cos, pcos := x.fill(1, n, special)
	sin, psin := x.fill(2, n, special)
	x.v.Rotate(a, cos, sin)
	rotate(pa, pcos, psin)
	x.same("rotate", a, pa)
}

func (x *vectorTrial) merging(n int, special bool) {
	x.t.Helper()
	a, pa := x.fill(0, n, special)
	b, pb := x.fill(1, n, special)
	all := SoftmaxSum{oddFloat(x.rng, special), 1 + x.rng.Float32()}
	now := SoftmaxSum{oddFloat(x.rng, special), 1 + x.rng.Float32()}
	want := all
	x.v.Page.Merge(a, b, &all, &now)
	merge(pa, pb, &want, &now)
	x.same("merge", a, pa)
	if !sameFloat(all.Top, want.Top) || !sameFloat(all.Weight, want.Weight) {
		x.t.Fatalf("%s merge: %v, want %v", x.name, all, want)
	}
}

// halvesOf is the same memory as half-precision numbers.
func halvesOf(x []float32) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(x))), 2*len(x))
}

func TestVectorPagesEqualGeneric(t *testing.T) {
	for _, x := range newVectorTrials(t) {
		for i := range cases(400) {
			d := lanes * (1 + x.rng.IntN(20))
			count := 1 + x.rng.IntN(PageTokens)
			queries := 1 + x.rng.IntN(19)
			x.pageOf32(d, count, queries, i%4 == 0)
			x.pageOf16(d, count, queries, i%4 == 0)
		}
	}
}

func (x *vectorTrial) pageOf32(d, count, queries int, special bool) {
	x.t.Helper()
	q, pq := x.fill(0, queries*d, special)
	keys, pkeys := x.fill(1, count*d, special)
	values, pvalues := x.fill(2, count*d, special)
	scores, want := x.guard[3][trialSize-queries*PageTokens:], make([]float32, queries*PageTokens)
	copy(want, scores) // what lies behind count stays as it is
	x.v.Page.Scores32(scores, q, keys, values, d, count, 0.125)
	scores32(want, pq, pkeys, nil, d, count, 0.125)
	what := fmt.Sprintf("d=%d count=%d queries=%d", d, count, queries)
	x.same("scores32 "+what, scores, want)
	out, sum := x.guard[4][trialSize-queries*d:], make([]float32, queries*d)
	x.v.Page.Weigh32(out, scores, values, keys, d, count)
	weigh32(sum, want, pvalues, nil, d, count)
	x.same("weigh32 "+what, out, sum)
}

func (x *vectorTrial) pageOf16(d, count, queries int, special bool) {
	x.t.Helper()
	q, pq := x.fill(0, queries*d, special)
	var page [2][]uint16
	var plain [2][]uint16
	for i := range page {
		page[i] = halvesOf(x.guard[1+i])[2*trialSize-count*d:]
		for j := range page[i] {
			page[i][j] = dtype.ToF16(oddFloat(x.rng, special))
			if special && x.rng.IntN(50) == 0 {
				page[i][j] = uint16(x.rng.Uint32())
			}
		}
		plain[i] = append([]uint16(nil), page[i]...)
	}
	scores, want := x.guard[3][trialSize-queries*PageTokens:], make([]float32, queries*PageTokens)
	copy(want, scores)
	x.v.Page.Scores16(scores, q, page[0], page[1], d, count, 0.125)
	scores16(want, pq, plain[0], nil, d, count, 0.125)
	what := fmt.Sprintf("d=%d count=%d queries=%d", d, count, queries)
	x.same("scores16 "+what, scores, want)
	out, sum := x.guard[4][trialSize-queries*d:], make([]float32, queries*d)
	x.v.Page.Weigh16(out, scores, page[1], page[0], d, count)
	weigh16(sum, want, plain[1], nil, d, count)
	x.same("weigh16 "+what, out, sum)
}

func TestVectorNarrowEqualsGeneric(t *testing.T) {
	for _, x := range newVectorTrials(t) {
		got, want := halvesOf(x.guard[0]), make([]uint16, 2*trialSize)
		for range 40 {
			n := lanes * (1 + x.rng.IntN(200))
			in := x.guard[1][trialSize-n:]
			for i := range in {
				in[i] = math.Float32frombits(x.rng.Uint32())
				if i%2 == 0 { // near the range of halves
					in[i] = float32(math.Ldexp(x.rng.NormFloat64(), x.rng.IntN(44)-26))
				}
			}
			x.v.Narrow(got[2*trialSize-n:], in)
			narrow(want[:n], in)
			for i, h := range got[2*trialSize-n:] {
				if h != want[i] {
					t.Fatalf("%s: %v (%#x) is %#x, want %#x", x.name, in[i], math.Float32bits(in[i]), h, want[i])
				}
			}
		}
	}
}

func TestVectorDeltaEqualsGeneric(t *testing.T) {
	for _, x := range newVectorTrials(t) {
		for i := range cases(600) {
			x.delta(1+x.rng.IntN(140), lanes*(1+x.rng.IntN(4)), x.rng.IntN(3)*lanes, i%4 == 0)
		}
	}
}

func (x *vectorTrial) delta(keys, cols, gap int, special bool) {
	x.t.Helper()
	stride := cols + gap
	state, pstate := x.fill(0, (keys-1)*stride+cols, special)
	q, pq := x.fill(1, keys, special)
	k, pk := x.fill(2, keys, special)
	val, pval := x.fill(3, cols, special)
	decay, beta, kq := x.rng.Float32(), x.rng.Float32(), oddFloat(x.rng, special)
	out, delta := x.guard[4][trialSize-cols:], x.guard[5][trialSize-cols:]
	wantOut, wantDelta := make([]float32, cols), make([]float32, cols)
	x.v.Delta.Read(out, delta, state, stride, cols, q, k, val, decay, beta, kq)
	deltaRead(wantOut, wantDelta, pstate, stride, 0, pq, pk, pval, decay, beta, kq)
	x.same("delta", delta, wantDelta)
	x.same("delta out", out, wantOut)
	dst, want := x.guard[6][trialSize-keys*cols:], make([]float32, keys*cols)
	x.v.Delta.Update(dst, cols, state, stride, cols, k, delta, decay)
	deltaUpdate(want, cols, pstate, stride, 0, pk, wantDelta, decay)
	x.same("deltaUpdate", dst, want)
	x.v.Delta.Update(state, stride, state, stride, cols, k, delta, decay)
	deltaUpdate(pstate, stride, pstate, stride, 0, pk, wantDelta, decay)
	x.same("deltaUpdate in place", state, pstate)
}

func TestVectorDeltaStepsEqualGeneric(t *testing.T) {
	for _, x := range newVectorTrials(t) {
		for i := range 200 {
			x.deltaSteps(1+x.rng.IntN(9), 1+x.rng.IntN(140), lanes*(1+x.rng.IntN(4)), x.rng.IntN(40), i%4 == 0)
		}
	}
}

// deltaSteps compares tokens whose rows are gap numbers longer than they must be. Keys are small,
// so that most numbers stay finite.
func (x *vectorTrial) deltaSteps(tokens, keys, cols, gap int, special bool) {
	x.t.Helper()
	values := 2*keys + x.rng.IntN(gap+1)
	stride, outStride := values+cols+gap, cols+gap
	mixed, pmixed := x.fill(0, (tokens-1)*stride+values+cols, special)
	for i := range mixed {
		mixed[i] /= 64
		pmixed[i] = mixed[i]
	}
	state, pstate := x.fill(1, keys*cols, special)
	delta, pdelta := x.fill(2, cols, special)
	decay, pdecay := x.fill(3, tokens, special)
	beta, pbeta := x.fill(4, tokens, special)
	kq, pkq := x.fill(5, tokens, special)
	out, pout := x.fill(6, (tokens-1)*outStride+cols, special) // of the first token nothing is written
	x.v.Delta.Steps(out, outStride, delta, state, mixed, stride, keys, values, decay, beta, kq)
	deltaSteps(pout, outStride, pdelta, pstate, pmixed, stride, keys, values, pdecay, pbeta, pkq)
	x.same("deltaSteps", out, pout)
	x.same("deltaSteps, delta", delta, pdelta)
	x.same("deltaSteps, state", state, pstate)
}
