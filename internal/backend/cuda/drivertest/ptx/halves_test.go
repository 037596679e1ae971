package ptx

import (
	"math"
	"strings"
	"testing"
)

// multiplyHalves is mma of halves whose rows and columns are these, with accumulators that are all alike.
func multiplyHalves(t *testing.T, left *[16][16]float32, right *[8][16]float32, acc float32) ([]uint32, error) {
	t.Helper()
	var in [7][32]uint32 // registers of A, of B, and the accumulator
	for k := range 16 {
		shift, lane, part := k%2*16, k%8/2, k/8
		for row := range 16 {
			in[row/8+2*part][row%8*4+lane] |= narrow16(left[row][k]) << shift
		}
		for n := range 8 {
			in[4+part][n*4+lane] |= narrow16(right[n][k]) << shift
		}
	}
	var flat []uint32
	for i := range in {
		flat = append(flat, in[i][:]...)
	}
	for i := range 32 {
		flat[6*32+i] = math.Float32bits(acc)
	}
	m, err := Parse(warpText("ld.global.u32 %r4, [%rd3]; ld.global.u32 %r5, [%rd3+128]; ld.global.u32 %r6, [%rd3+256]; ld.global.u32 %r7, [%rd3+384]; ld.global.u32 %r12, [%rd3+512]; ld.global.u32 %r13, [%rd3+640]; ld.global.u32 %r14, [%rd3+768];" +
		"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r15,%r16,%r17,%r18}, {%r4,%r5,%r6,%r7}, {%r12,%r13}, {%r14,%r14,%r14,%r14};" +
		"st.global.u32 [%rd5+256], %r17; st.global.u32 [%rd5+384], %r18; mov.u32 %r9, %r15; mov.u32 %r8, %r16;"))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{TB: t, m: NewMachine(Options{}), module: m}
	out := r.zeros(128)
	err = r.try("k", 1, 32, false, r.bytes(words(flat)), out)
	if err != nil {
		return nil, err
	}
	got, sums := r.read(out, 128), make([]uint32, 128)
	for row := range 16 {
		for n := range 8 {
			sums[row*8+n] = got[(row/8*2+n%2)*32+row%8*4+n/2]
		}
	}
	return sums, nil
}

func TestMatrixOfHalves(t *testing.T) {
	var left [16][16]float32
	var right [8][16]float32
	for i := range 16 * 16 { // subnormal halves among them
		left[i/16][i%16] = float32(int(hash32(uint64(i))%25)-12) * 0x1p-15
	}
	for i := range 8 * 16 {
		right[i/16][i%16] = float32(int(hash32(uint64(9000+i))%255)-127) * 512
	}
	for _, acc := range []float32{0, -77 * 0x1p-6} {
		got, err := multiplyHalves(t, &left, &right, acc)
		if err != nil {
			t.Fatal(err)
		}
		for row := range 16 {
			for n := range 8 {
				want := acc
				for k := range 16 {
					want += left[row][k] * right[n][k]
				}
				if got[row*8+n] != math.Float32bits(want) {
					t.Fatalf("row %d, column %d: %v, want %v", row, n, f32(got[row*8+n]), want)
				}
			}
		}
	}
}

// Sums of halves that a GPU may round are faults.
func TestSumsOfHalvesThatMayBeRounded(t *testing.T) {
	for _, c := range []struct {
		left, right, acc float32
		want             string
	}{
		{1, 1, 0, ""},
		{1, 0x1p-10, 0, ""},
		{0x1p-24, 1, 0, "may not be exact"},
		{0x1p-12, 0x1p-12, 0, "may not be exact"},
		{float32(math.Inf(1)), 1, 0, "not finite"},
		{1, float32(math.NaN()), 0, "not finite"},
		{1, 1, 0.25, "accumulator"},
		{1, 1, 0x1p23, "accumulator"},
		{1, 1, float32(math.NaN()), "accumulator"},
	} {
		var left [16][16]float32
		var right [8][16]float32
		left[3][5], left[4][5], right[2][5], right[1][1] = c.left, 1, c.right, 1
		if _, err := multiplyHalves(t, &left, &right, c.acc); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v times %v plus %v: %v, want %q", c.left, c.right, c.acc, err, c.want)
		}
	}
}
