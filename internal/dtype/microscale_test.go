package dtype

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

var microscales = []Format{MXFP4, NVFP4, MXFP8}

// plainRow is a float32 matrix of one row.
func plainRow(w []float32) Matrix {
	m := Matrix{Rows: 1, Cols: len(w), Type: F32, Data: make([]byte, 4*len(w))}
	FromF32(m.Data, F32, w)
	return m
}

// TestMicroscaleEqualsHandWorked encodes groups whose codes can be found with a pencil.
func TestMicroscaleEqualsHandWorked(t *testing.T) {
	for _, c := range []struct {
		name   string
		format Format
		start  []float32 // the rest of the group is zero
		scale  byte
		data   []byte // of the start; the rest is zero
	}{
		// 6/6 = 1 = 2^0: every number is an element, or half way between two.
		{"elements", MXFP4, []float32{0.5, -1, 1.5, 2, -3, 4, 6, -6}, 127, []byte{0xa1, 0x43, 0x6d, 0xf7}},
		{"ties", MXFP4, []float32{0.25, 0.75, -1.25, 1.75, 2.5, -3.5, 5, 6}, 127, []byte{0x20, 0x4a, 0xe4, 0x76}},
		// 7/6 = 1.17, whose logarithm is nearer to 0 than to 1: 7 becomes 6.
		{"too large", MXFP4, []float32{7, -1}, 127, []byte{0xa7}},
		// 9/6 = 1.5 is beyond the root of two: the scale is 2, and 9/2 = 4.5 becomes 4.
		{"rounded up", MXFP4, []float32{9, 2}, 128, []byte{0x26}},
		{"zero", MXFP4, []float32{0, float32(math.Copysign(0, -1))}, 0, []byte{0x80}},
		// 12/6 = 2 is E4M3 0x40.
		{"elements", NVFP4, []float32{12, -6, 1, 2}, 0x40, []byte{0xd7, 0x21}},
		// 3000/6 = 500 is more than E4M3 has: the scale is 448, and 3000/448 = 6.7 becomes 6.
		{"saturated", NVFP4, []float32{3000, -448}, 0x7e, []byte{0xa7}},
		// The least scale is 2^-9: a group that needs less than half of it gets scale 0.
		{"vanishing", NVFP4, []float32{1e-3, -1e-3}, 0, []byte{0x80}},
		{"zero", NVFP4, []float32{0}, 0, []byte{0}},
		// 448/448 = 1.
		{"elements", MXFP8, []float32{448, -1, 0.5, 0}, 127, []byte{0x7e, 0xb8, 0x30, 0x00}},
		{"too large", MXFP8, []float32{600, -600}, 127, []byte{0x7e, 0xfe}},
		{"rounded up", MXFP8, []float32{896, 1}, 128, []byte{0x7e, 0x30}},
	} {
		t.Run(fmt.Sprintf("format=%v/group=%s", c.format, c.name), func(t *testing.T) {
			dst := valid(t)(NewMicroscale(1, 32, c.format))
			w := make([]float32, 32)
			copy(w, c.start)
			src := plainRow(w)
			if err := MicroscaleRows(&dst, &src, 0, 1); err != nil {
				t.Fatal(err)
			}
			want := make([]byte, len(dst.Data))
			copy(want, c.data)
			if dst.Scales[0] != c.scale || !slices.Equal(dst.Data, want) {
				t.Errorf("scale %#x, data %x, want %#x, %x", dst.Scales[0], dst.Data, c.scale, want)
			}
		})
	}
}

// slowMicroscale encodes a group by looking at every scale and every element there is.
func slowMicroscale(f Format, w []float32) (scale byte, codes []uint8) {
	largest := 0.0
	for _, v := range w {
		largest = max(largest, math.Abs(float64(v)))
	}
	element, count, top := func(b uint8) float32 { return e2m1[b] }, 16, 6.0
	if f == MXFP8 {
		element, count, top = FromE4M3, 256, 448.0
	}
	// The quotient is rounded to float32 before it is rounded to a scale.
	want, worst := float64(float32(largest)/float32(top)), math.Inf(1)
	for b := range 255 {
		s, d := float64(FromE8M0(uint8(b))), 0.0
		switch {
		case f != NVFP4 && want == 0:
			d = s
		case f != NVFP4:
			d = math.Abs(math.Log2(s) - math.Log2(want))
		case b > 0x7e:
			continue
		default:
			d = math.Abs(float64(FromE4M3(uint8(b))) - want)
		}
		if d < worst || d == worst && b%2 == 0 {
			scale, worst = uint8(b), d
		}
	}
	s := float64(FromE8M0(scale))
	if f == NVFP4 {
		s = float64(FromE4M3(scale))
	}
	for _, v := range w {
		x, best, worst := 0.0, uint8(0), math.Inf(1)
		if s != 0 {
			x = min(max(float64(float32(float64(v)/s)), -1e4), 1e4) // else all elements are as far away
		}
		for c := range count / 2 {
			d := math.Abs(float64(element(uint8(c))) - math.Abs(x))
			if d < worst || d == worst && c%2 == 0 {
				best, worst = uint8(c), d
			}
		}
		if math.Signbit(float64(v)) {
			best |= uint8(count / 2)
		}
		codes = append(codes, best)
	}
	return scale, codes
}

// TestMicroscaleEqualsSearch compares the encoder with a search through all codes, and the
// decoder against the definition.
func TestMicroscaleEqualsSearch(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	shapes := map[string]func(i int) float64{
		"normal":  func(int) float64 { return r.NormFloat64() * 0.02 },
		"wide":    func(int) float64 { return r.NormFloat64() * math.Exp(20*r.NormFloat64()) },
		"zero":    func(int) float64 { return 0 },
		"halves":  func(int) float64 { return float64(r.IntN(49)-24) / 4 },
		"huge":    func(int) float64 { return 3e38 * (r.Float64() - 0.5) },
		"tiny":    func(int) float64 { return 1e-40 * (r.Float64() - 0.5) },
		"outlier": func(i int) float64 { return map[bool]float64{true: 300, false: 0.001}[i%61 == 5] },
	}
	const cols = 384
	for _, f := range microscales {
		for name, shape := range shapes {
			w := make([]float32, cols)
			for i := range w {
				w[i] = float32(shape(i))
			}
			src := plainRow(w)
			dst := valid(t)(NewMicroscale(1, cols, f))
			if err := MicroscaleRows(&dst, &src, 0, 1); err != nil {
				t.Fatal(err)
			}
			if err := dst.Validate(); err != nil {
				t.Fatal(err)
			}
			codes := make([]uint8, cols)
			Unpack(codes, dst.ElementBits(), dst.Data)
			for g := range dst.Groups() {
				lo, hi := g*dst.Group, (g+1)*dst.Group
				scale, want := slowMicroscale(f, w[lo:hi])
				if dst.Scales[g] != scale || !slices.Equal(codes[lo:hi], want) {
					t.Fatalf("%v, %s, group %d of %v: scale %#x, codes %x, want %#x, %x",
						f, name, g, w[lo:hi], dst.Scales[g], codes[lo:hi], scale, want)
				}
			}
		}
	}
}

// TestMicroscaleRowsEqualsWhole encodes rows in parts.
func TestMicroscaleRowsEqualsWhole(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, f := range microscales {
		w := make([]float32, 256)
		for i := range w {
			w[i] = float32(r.NormFloat64())
		}
		src := plainRow(w)
		src.Rows, src.Cols = 4, 64
		once := valid(t)(NewMicroscale(4, 64, f))
		parts := valid(t)(NewMicroscale(4, 64, f))
		for _, cut := range [][2]int{{2, 4}, {0, 1}, {1, 2}} {
			if err := MicroscaleRows(&parts, &src, cut[0], cut[1]); err != nil {
				t.Fatal(err)
			}
		}
		if err := MicroscaleRows(&once, &src, 0, 4); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(parts.Data, once.Data) || !slices.Equal(parts.Scales, once.Scales) {
			t.Errorf("%v: rows in parts differ from the whole", f)
		}
	}
}

func TestMicroscaleRefuses(t *testing.T) {
	if _, err := NewMicroscale(1, 32, Affine); err == nil || !strings.Contains(err.Error(), "affine") {
		t.Errorf("affine: %v", err)
	}
	if _, err := NewMicroscale(1, 40, MXFP4); err == nil || !strings.Contains(err.Error(), "40 columns") {
		t.Errorf("40 columns: %v", err)
	}
	if _, err := NewMicroscale(1<<40, 1<<40, MXFP8); err == nil || !strings.Contains(err.Error(), "overflows") {
		t.Errorf("absurd size: %v", err)
	}
	for _, f := range microscales {
		for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			w := make([]float32, 32)
			w[31] = float32(bad)
			src := plainRow(w)
			dst := valid(t)(NewMicroscale(1, 32, f))
			if err := MicroscaleRows(&dst, &src, 0, 1); err == nil || !strings.Contains(err.Error(), "not finite") {
				t.Errorf("%v of %g: %v", f, bad, err)
			}
		}
	}
}

func BenchmarkMicroscale(b *testing.B) {
	r := rand.New(rand.NewPCG(13, 14))
	m := bf16Row(64*4096, func(int) float64 { return r.NormFloat64() * 0.02 })
	m.Rows, m.Cols = 64, 4096
	for _, f := range microscales {
		b.Run(fmt.Sprintf("format=%v", f), func(b *testing.B) {
			q := valid(b)(NewMicroscale(m.Rows, m.Cols, f))
			b.SetBytes(int64(len(m.Data)))
			for b.Loop() {
				if err := MicroscaleRows(&q, &m, 0, m.Rows); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
