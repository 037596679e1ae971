package ptx

import (
	"encoding/binary"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/exactmath"
)

// The results of golden.bin, in its order.
const (
	goldenProduct4 = iota
	goldenProduct8
	goldenNorm
	goldenSwiGLU
	goldenDelta // three calls
	_
	_
	goldenState
	goldenTail
	goldenUpdates
	goldenAttention
)

func TestNormEqualsCPU(t *testing.T) {
	r := newRig(t, Options{})
	y := r.zeros(3 * 5120)
	r.launch("norm", [3]int{3, 2, 1}, [3]int{256, 1, 1}, 5120*4, r.floats(values(3*5120, 1, 3)), r.floats(values(5120, 2, 1)), y, r.acts(3, 5120), 5120, float32(1e-6))
	r.same("norm", goldenNorm, y, 3*5120)
}

func TestSwiGLUEqualsCPU(t *testing.T) {
	r := newRig(t, Options{})
	g, u := values(2*2048, 31, 30), values(2*2048, 32, 1)
	y := r.zeros(2 * 2048)
	r.launch("swigluQ", [3]int{4, 2, 1}, [3]int{256, 1, 1}, 0, r.floats(slices.Concat(g[:2048], u[:2048], g[2048:], u[2048:])), r.acts(2, 2048), 2048, y)
	r.same("SwiGLU", goldenSwiGLU, y, 2*2048)
}

func TestDeltaEqualsCPU(t *testing.T) {
	const kh, vh, channels = 16, 32, 8192
	r := newRig(t, Options{})
	rates := values(vh, 5, 1)
	for i := range rates {
		rates[i] = -1 - rates[i]
	}
	conv, rate, bias, norm := r.floats(values(4*channels, 4, 0.5)), r.floats(rates), r.floats(values(vh, 6, 1)), r.floats(values(128, 7, 1))
	state, tail := r.floats(values(vh*128*128, 8, 0.1)), r.floats(values(11*channels, 9, 1))
	keys, deltas, decays := r.zeros(8*kh*128), r.zeros(8*vh*128), r.zeros(8*vh)
	q, k, v := r.zeros(8*kh*128), r.zeros(8*kh*128), r.zeros(8*vh*128)
	kq, decay, beta, out := r.zeros(8*kh), r.zeros(8*vh), r.zeros(8*vh), r.zeros(8*vh*128)
	y, acts := r.zeros(7*4096), r.acts(8, 4096)
	for call, n := range []int{4, 4, 7} {
		seed := uint64(100 * (call + 1))
		kept := min(call, 1) * 2
		d := fields{
			kh, vh, n, 3, kept,
			r.floats(values(n*channels, seed, 1)), channels,
			r.floats(values(n*4096, seed+1, 2)), r.floats(values(n*vh, seed+2, 3)), r.floats(values(n*vh, seed+3, 3)), 4096, vh,
			conv, rate, bias, norm, state, tail, keys, deltas, decays, uint64(vh * 128 * 128), q, k, v, kq, decay, beta, out,
		}
		r.after("deltaMix", [3]int{kh, n, 1}, [3]int{256, 1, 1}, 0, d)
		r.launch("deltaRecur", [3]int{vh * 4, 1, 1}, [3]int{128, 1, 1}, 0, d)
		r.launch("deltaGate", [3]int{vh/4 + 2*kh + vh, n, 1}, [3]int{128, 1, 1}, 0, d, acts, float32(1e-6), y)
		r.same("delta rule", goldenDelta+call, y, n*4096)
	}
	r.same("state", goldenState, state+5*128*128*4, 128*128)
	r.same("tail", goldenTail, tail, 6*channels)
	r.same("updates", goldenUpdates, deltas, 3*4096)
}

// Rows before the last five are only appended: nobody asks what they attend to.
func TestAttentionEqualsCPU(t *testing.T) {
	const heads, kv = 16, 4
	r := newRig(t, Options{})
	data, err := os.ReadFile("testdata/golden.bin")
	if err != nil {
		t.Fatal(err)
	}
	freqs := r.bytes(data[len(data)-128:])
	var table []byte
	for range 4 {
		table = binary.LittleEndian.AppendUint64(table, r.zeros(kv*64*256))
	}
	pages := r.bytes(table)
	qnorm, knorm := r.floats(values(256, 20, 1)), r.floats(values(256, 21, 1))
	queries, sums, mid := r.zeros(200*4096), r.zeros(4*kv*20*2), r.zeros(4*kv*20*256)
	rot, y := r.zeros(200*64), r.zeros(5*4096)
	pos := 0
	for call, n := range []int{190, 5} {
		seed := uint64(1000 * (call + 1))
		at := make([]uint32, n)
		for i := range at {
			at[i] = uint32(pos + i)
		}
		a := fields{
			pages, 0, kv, heads / kv, n, pos, 4, r.floats(values(n*heads*512, seed, 2)), heads * 512,
			r.floats(values(n*kv*256, seed+1, 2)), r.floats(values(n*kv*256, seed+2, 2)), kv * 256, qnorm, knorm, freqs, float32(1e-6), queries, mid, sums,
		}
		r.launch("rotations", [3]int{n, 1, 1}, [3]int{32, 1, 1}, 0, freqs, r.bytes(words(at)), rot)
		r.launch("attPrep", [3]int{(heads + 2*kv + 3) / 4, n, 1}, [3]int{128, 1, 1}, 0, a, rot)
		pos += n
		if call == 0 {
			continue
		}
		r.launch("attPage4", [3]int{4, kv, 5}, [3]int{128, 1, 1}, 0, a, float32(0.0625))
		r.launch("attJoin", [3]int{20, kv, 4}, [3]int{64, 1, 1}, 0, a, r.acts(5, 4096), y)
	}
	r.same("attention", goldenAttention, y, 5*4096)
}

// product is one, with its operands on the device.
type product struct {
	bits, rows, n, k                int
	codes, scales, acts, tails, out uint64
}

// product makes the operands of golden.bin, for any number of rows and outputs. Pairs are scales in the
// order of the relay kernels: outputs o and o+8 together.
func (r *rig) product(bits, rows, n, k int, pairs bool) *product {
	r.Helper()
	groups := k / 64
	vectors := bits / 4
	codes, scales := make([]byte, n/16*groups*512*vectors), make([]uint32, n*groups)
	for o := range n {
		for g := range groups {
			block := o/16*groups + g
			h := hash32(7000 + uint64(o*groups+g))
			at := block*16 + o%16
			if pairs {
				at = block*16 + o%8*2 + o%16/8
			}
			scales[at] = 0x3b00 + h&0x7f | (0xbc00+h>>8&0x7f)<<16
			for i := range 64 {
				c := byte(hash32(1000+uint64(o*k+g*64+i)) & (1<<bits - 1))
				kk, half := i&31, i>>5
				lane, j := o&7*4+kk&15/4, o>>3&1+2*(kk>>4)
				if bits == 4 {
					codes[block*512+lane*16+j*4+kk&3] |= c << (4 * half)
				} else {
					codes[block*1024+half*512+lane*16+j*4+kk&3] = c
				}
			}
		}
	}
	a := r.acts(rows, k)
	r.after("quantizeRows", [3]int{(k + 511) / 512, rows, 1}, [3]int{256, 1, 1}, 0, r.floats(values(rows*k, 13, 1)), a, k)
	return &product{bits, rows, n, k, r.bytes(codes), r.bytes(words(scales)), a[0].(uint64), a[1].(uint64), r.zeros(rows * n)}
}

func (p *product) params() fields {
	return fields{p.codes, p.scales, p.acts, p.tails, p.out, p.k / 64, p.n / 16, p.rows, p.n, 0}
}

const (
	ring4 = 8 * 3 * (2*512 + 2*64)
	ring8 = 8 * 3 * (2*1024 + 2*64)
)

func TestRelayEqualsCPU(t *testing.T) {
	for _, c := range []struct {
		kernel            string
		bits, ring, tiles int
		want              int
	}{{"relay4", 4, ring4, 2, goldenProduct4}, {"relay8", 8, ring8, 2, goldenProduct8}, {"persistent4", 4, ring4, 1, goldenProduct4}} {
		t.Run(c.kernel, func(t *testing.T) {
			r := newRig(t, Options{Seed: 3})
			p := r.product(c.bits, 5, 64, 2048, true)
			r.launch(c.kernel, [3]int{c.tiles, 1, 1}, [3]int{256, 1, 1}, c.ring, p.params())
			r.same(c.kernel, c.want, p.out, 5*64)
		})
	}
}

// want computes a product in the CPU's order from what the device has quantized: sums of a group
// are exact, then scale and bias, groups ascending.
func (r *rig) want(p *product) []float32 {
	r.Helper()
	groups := p.k / 64
	strips := (p.rows + 7) / 8
	codes, tails := r.read(p.acts, strips*groups*128), r.read(p.tails, strips*groups*16)
	out := make([]float32, p.rows*p.n)
	for row := range p.rows {
		for o := range p.n {
			acc := float32(0)
			for g := range groups {
				block := row/8*groups + g
				sum := 0
				for i := range 64 {
					w := int(hash32(1000+uint64(o*p.k+g*64+i)) & (1<<p.bits - 1))
					word := codes[block*128+(row&7*4+i&15/4)*4+i>>4]
					sum += w * int(int8(word>>(8*(i&3))))
				}
				h := hash32(7000 + uint64(o*groups+g))
				scale, bias := f32((0x3b00+h&0x7f)<<16), f32((0xbc00+h>>8&0x7f)<<16)
				t := float32(sum) * f32(tails[block*16+row&7*2])
				acc = exactmath.FMA32(t, scale, acc)
				acc = exactmath.FMA32(bias, f32(tails[block*16+row&7*2+1]), acc)
			}
			out[row*p.n+o] = acc
		}
	}
	return out
}

func (r *rig) equal(what string, got []uint32, want []float32) {
	r.Helper()
	for i, x := range got {
		if f32(x) != want[i] {
			r.Fatalf("%s: number %d is %g, want %g", what, i, f32(x), want[i])
		}
	}
}

const tileShared = 3 * (8*512 + 512 + 16*512 + 1024)

func TestTileEqualsReference(t *testing.T) {
	r := newRig(t, Options{Seed: 5})
	p := r.product(4, 100, 128, 256, false)
	// The kernel copies whole strips: rows beyond the last are memory that nobody asks for.
	p.acts, p.tails = r.pad(p.acts, 13*4*512, 16*4*512), r.pad(p.tails, 13*4*64, 16*4*64)
	r.after("tile4", [3]int{1, 1, 1}, [3]int{256, 1, 1}, tileShared, p.params())
	r.equal("tile4", r.read(p.out, 100*128), r.want(p))
}

// pad copies memory into a larger piece.
func (r *rig) pad(p uint64, from, to int) uint64 {
	r.Helper()
	q := r.zeros(to / 4)
	if err := r.m.Copy(q, p, int64(from)); err != nil {
		r.Fatal(err)
	}
	return q
}

// Logits of at least the k-th highest maximum of a block of 64 are listed, each once.
func TestCandidatesAreTheHighest(t *testing.T) {
	const n, k, room = 4096, 20, 512
	r := newRig(t, Options{Seed: 9})
	z := values(n, 77, 12)
	logits, maxima, list, count := r.floats(z), r.zeros(n/64), r.zeros(2*room), r.zeros(1)
	r.launch("maxima", [3]int{n / 512, 1, 1}, [3]int{256, 1, 1}, 0, logits, maxima, n)
	r.launch("candidates", [3]int{1, 1, 1}, [3]int{1024, 1, 1}, 0, logits, maxima, list, count, n, k, room)
	var tops []float32
	for i := range n / 64 {
		tops = append(tops, slices.Max(z[i*64:(i+1)*64]))
	}
	slices.Sort(tops)
	floor := tops[len(tops)-k]
	want := map[uint32]uint32{}
	for i, x := range z {
		if x >= floor {
			want[uint32(i)] = math.Float32bits(x)
		}
	}
	got := r.read(list, 2*len(want))
	if c := r.read(count, 1)[0]; int(c) != len(want) {
		t.Fatalf("%d listed, want %d", c, len(want))
	}
	for i := 0; i < len(got); i += 2 {
		if want[got[i]] != got[i+1] {
			t.Fatalf("logit %d is listed as %g", got[i], f32(got[i+1]))
		}
		delete(want, got[i])
	}
}

// Results do not depend on the order of warps and blocks, nor on how many run at once.
func TestOrderChangesNothing(t *testing.T) {
	var first []uint32
	for seed := range uint64(4) {
		r := newRig(t, Options{Seed: seed, Threads: 1 + int(seed)%3})
		p := r.product(4, 3, 128, 1024, true)
		r.launch("relay4", [3]int{4, 1, 1}, [3]int{256, 1, 1}, ring4, p.params())
		got := r.read(p.out, 3*128)
		if first == nil {
			first = got
			r.equal("relay4", got, r.want(p))
		}
		if !slices.Equal(got, first) {
			t.Errorf("seed %d: other results", seed)
		}
	}
}
