package dtype

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// bf16Row is a plain matrix of one row.
func bf16Row(n int, f func(i int) float64) Matrix {
	w := make([]float32, n)
	for i := range w {
		w[i] = float32(f(i))
	}
	m := Matrix{Rows: 1, Cols: n, Type: BF16, Data: make([]byte, 2*n)}
	FromF32(m.Data, BF16, w)
	return m
}

func TestQuantizeEqualsVectors(t *testing.T) {
	m := bf16Row(32, func(i int) float64 { return float64((37*i)%64-20) / 40 })
	for _, c := range []struct {
		bits        int
		scale, bias uint16
		data        []byte
	}{
		{4, 0xbddd, 0x3f8a, words(0xe81a4c6f, 0x5d7193c5, 0xa4d6092b, 0x1a3c6e82)},
		{8, 0xbbcb, 0x3f8a, words(0x41d669ff, 0xf38619ae, 0xa235ca5d, 0x51e67a0d, 0x009629be, 0xb245da6d, 0x61f68a1d, 0x10a639ce)},
		{3, 0xbe5d, 0x3f8a, words(0xb3f0d59f, 0x310d5d8a, 0x1567e1ab)},
	} {
		q := valid(t)(Quantize(&m, c.bits, 32, BF16))
		if err := q.Validate(); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(q.Data, c.data) {
			t.Errorf("%d bits: data %x, want %x", c.bits, q.Data, c.data)
		}
		scale, bias := uint16(q.Scales[0])|uint16(q.Scales[1])<<8, uint16(q.Biases[0])|uint16(q.Biases[1])<<8
		if scale != c.scale || bias != c.bias {
			t.Errorf("%d bits: scale %#x, bias %#x, want %#x, %#x", c.bits, scale, bias, c.scale, c.bias)
		}
	}
}

func TestQuantizeOfNegativeGroup(t *testing.T) {
	m := bf16Row(32, func(i int) float64 { return -0.5 + 0.01*float64(i) })
	q := valid(t)(Quantize(&m, 4, 32, F32))
	if s, b := number(F32, q.Scales, 0), number(F32, q.Biases, 0); s != 0.0208333340 || b != -0.5 {
		t.Errorf("scale %.9g, bias %g, want 0.0208333340, -0.5", s, b)
	}
	codes := make([]uint8, 32)
	Unpack(codes, 4, q.Data)
	if want := []uint8{13, 13, 14, 14, 15}; !slices.Equal(codes[27:], want) {
		t.Errorf("codes end %v, want %v", codes[27:], want)
	}
}

// slowGroup is the published algorithm word for word, in the order it is written.
func slowGroup(w []float32, bits int) (q []uint8, scale, bias float32) {
	mn, mx := w[0], w[0]
	for _, v := range w {
		mn, mx = min(mn, v), max(mx, v)
	}
	abs := func(f float32) float32 { return float32(math.Abs(float64(f))) }
	round := func(f float32) float32 { return float32(math.RoundToEven(float64(f))) }
	n := float32(int(1)<<bits - 1)
	scale = max((mx-mn)/n, 1e-7)
	side := abs(mn) > abs(mx)
	edge := mn
	if !side {
		scale, edge = -scale, mx
	}
	if q0 := round(edge / scale); q0 != 0 {
		scale, bias = edge/q0, edge
	}
	for _, v := range w {
		x := round((v - bias) / scale)
		if isNaN(x) { // zero over zero, in a group of one value
			x = 0
		}
		q = append(q, uint8(min(max(x, 0), n)))
	}
	return q, scale, bias
}

func TestQuantizeEqualsAlgorithm(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	shapes := map[string]func(i int) float64{
		"normal":   func(int) float64 { return r.NormFloat64() * 0.02 },
		"zero":     func(int) float64 { return 0 },
		"equal":    func(int) float64 { return -0.75 },
		"huge":     func(int) float64 { return 1e38 },
		"tiny":     func(int) float64 { return r.NormFloat64() * 1e-9 },
		"positive": func(int) float64 { return 1 + r.Float64() },
		"negative": func(int) float64 { return -1 - r.Float64() },
		"outlier":  func(i int) float64 { return map[bool]float64{true: 300, false: 0.001}[i%61 == 5] },
		"zeros":    func(i int) float64 { return math.Copysign(0, float64(i%3-1)) },
		"halves":   func(int) float64 { return float64(r.IntN(64)) / 2 },
	}
	for name, f := range shapes {
		for _, bits := range widths {
			for _, group := range []int{32, 64, 128} {
				m := bf16Row(384, f)
				w := make([]float32, 384)
				m.Row(w, 0)
				q, err := Quantize(&m, bits, group, F32)
				if err != nil {
					t.Fatalf("%s, %d bits: %v", name, bits, err)
				}
				got := make([]uint8, 384)
				Unpack(got, bits, q.Data)
				for g := range 384 / group {
					want, scale, bias := slowGroup(w[g*group:(g+1)*group], bits)
					if !slices.Equal(got[g*group:(g+1)*group], want) {
						t.Fatalf("%s, %d bits, group %d: codes %v, want %v", name, bits, g, got[g*group:(g+1)*group], want)
					}
					if s, b := number(F32, q.Scales, g), number(F32, q.Biases, g); s != scale || b != bias {
						t.Fatalf("%s, %d bits, group %d: scale %g, bias %g, want %g, %g", name, bits, g, s, b, scale, bias)
					}
				}
			}
		}
	}
}

func TestQuantizeErrorIsWithinAStep(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	m := bf16Row(4096, func(int) float64 { return r.NormFloat64() })
	w, got := make([]float32, m.Cols), make([]float32, m.Cols)
	m.Row(w, 0)
	for _, bits := range widths {
		q := valid(t)(Quantize(&m, bits, 64, F32))
		q.Row(got, 0)
		for i := range w {
			// The scale is adjusted so that zero is a code, by at most half a step at the far end.
			step := math.Abs(float64(number(F32, q.Scales, i/64)))
			if d := math.Abs(float64(got[i] - w[i])); d > 1.01*step {
				t.Fatalf("%d bits: %g became %g, step %g", bits, w[i], got[i], step)
			}
		}
	}
}

func TestQuantizeRowsEqualsWhole(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	m := bf16Row(64*7, func(int) float64 { return r.NormFloat64() })
	m.Rows, m.Cols = 7, 64
	whole := valid(t)(Quantize(&m, 5, 32, F16))
	parts := valid(t)(NewAffine(7, 64, 5, 32, F16))
	for _, cut := range [][2]int{{3, 7}, {0, 1}, {1, 3}, {2, 2}} {
		if err := QuantizeRows(&parts, &m, cut[0], cut[1]); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(parts.Data, whole.Data) || !slices.Equal(parts.Scales, whole.Scales) || !slices.Equal(parts.Biases, whole.Biases) {
		t.Error("rows in parts differ from the whole")
	}
}

func TestQuantizeRefuses(t *testing.T) {
	good := bf16Row(64, func(i int) float64 { return float64(i) })
	for _, c := range []struct {
		name        string
		m           Matrix
		bits, group int
		scale       Type
		want        string
	}{
		{"bits", good, 7, 32, F16, "7 bits"},
		{"group", good, 4, 24, F16, "groups of 24"},
		{"columns", bf16Row(65, func(int) float64 { return 1 }), 4, 32, F16, "65 columns"},
		{"scale", good, 4, 32, U8, "scales of U8"},
		{"nan", bf16Row(64, func(i int) float64 { return math.Log(float64(i - 40)) }), 4, 32, F16, "columns 0 to 31: not finite"},
		{"last nan", bf16Row(64, func(i int) float64 { return math.Sqrt(float64(62 - i)) }), 4, 64, F16, "columns 0 to 63: not finite"},
		{"infinity", bf16Row(64, math.Inf), 4, 32, F32, "not finite"},
		{"spread", bf16Row(64, func(i int) float64 { return 3e38 * float64(1-i%2*2) }), 4, 32, F32, "not finite"},
		{"range", bf16Row(64, func(i int) float64 { return 1e5 * float64(i) }), 4, 32, F16, "exceeds F16"},
	} {
		if _, err := Quantize(&c.m, c.bits, c.group, c.scale); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := NewAffine(1<<40, 1<<40, 4, 32, F16); err == nil || !strings.Contains(err.Error(), "overflows") {
		t.Errorf("absurd size: %v", err)
	}
}

// TestSymmetricGroups: every number is within half a step, zero is zero, and the largest magnitude has the
// largest code.
func TestSymmetricGroups(t *testing.T) {
	r := rand.New(rand.NewPCG(15, 16))
	m := bf16Row(256, func(i int) float64 { return r.NormFloat64() * math.Exp(float64(i/32)) * float64(min(i%32, 1)) })
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		for _, scale := range []Type{BF16, F16, F32} {
			q := valid(t)(NewSymmetric(1, m.Cols, bits, 32, scale))
			if err := QuantizeRows(&q, &m, 0, 1); err != nil {
				t.Fatal(err)
			}
			want, got, codes := make([]float32, m.Cols), make([]float32, m.Cols), make([]uint8, m.Cols)
			m.Row(want, 0)
			q.Row(got, 0)
			Unpack(codes, bits, q.Data)
			for g := 0; g < m.Cols; g += 32 {
				s := number(scale, q.Scales, g/32)
				top := 1<<(bits-1) - 1
				if low, high := int(slices.Min(codes[g:][:32])), int(slices.Max(codes[g:][:32])); high != 2*top+1 && low != 1 {
					t.Errorf("%d bits, %v: codes %d to %d, want one at an end", bits, scale, low, high)
				}
				for i, x := range want[g:][:32] {
					// A scale of few digits may be too small for the largest number.
					if d := math.Abs(float64(got[g+i] - x)); d > float64(s)*(0.5+float64(top)/256) || x == 0 && got[g+i] != 0 {
						t.Errorf("%d bits, %v: number %d is %g, want %g", bits, scale, g+i, got[g+i], x)
					}
				}
			}
		}
	}
	tiny := bf16Row(32, func(int) float64 { return 1e-9 })
	q := valid(t)(NewSymmetric(1, 32, 8, 32, F16))
	if err := QuantizeRows(&q, &tiny, 0, 1); err != nil || q.Data[0] != 128 {
		t.Errorf("numbers that are too small for their scale: %v, code %d, want the middle", err, q.Data[0])
	}
	for name, bad := range map[string]Matrix{"not finite": bf16Row(32, math.Inf), "exceeds F16": bf16Row(32, func(int) float64 { return 1e9 })} {
		if err := QuantizeRows(&q, &bad, 0, 1); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %q", err, name)
		}
	}
}

// TestSymmetricBytes: FP8 as integers has the same numbers, with every byte, factors of any sign and size, and an Input.
func TestSymmetricBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 18))
	const rows, cols = 24, 256
	for _, bits := range []int{4, 8} {
		for _, input := range []*Input{nil, {Order: identity(cols)}} {
			src := Matrix{Rows: rows, Cols: cols, Format: FP8, Group: 128, ScaleType: F32, Data: make([]byte, rows*cols), Scales: make([]byte, rows*8), Input: input}
			plain := Matrix{Rows: rows, Cols: cols, Type: F32, Data: make([]byte, rows*cols*4)}
			factors := make([]float32, rows*2)
			for i := range factors {
				factors[i] = []float32{0.01, -3, 1e-42, 0, 1e20, 0.01}[i/2/4]
			}
			FromF32(src.Scales, F32, factors)
			for i := range src.Data {
				src.Data[i] = byte(r.Uint32()) & byte(0x9f|r.Uint32())
				if src.Data[i]&127 == 127 || i/64%7 == 3 {
					src.Data[i] &= 0x80
				}
			}
			w := make([]float32, cols)
			for r := range rows {
				src.Row(w, r)
				FromF32(plain.Data[r*cols*4:][:cols*4], F32, w)
			}
			got := valid(t)(NewSymmetric(rows, cols, bits, 64, BF16))
			want, _ := NewSymmetric(rows, cols, bits, 64, BF16)
			got.Input = input
			if err := cmp.Or(QuantizeRows(&got, &src, 0, rows), QuantizeRows(&want, &plain, 0, rows)); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Data, want.Data) || !slices.Equal(got.Scales, want.Scales) {
				t.Errorf("%d bits: integers of bytes differ from those of their numbers", bits)
			}
			for _, bad := range []byte{0x7f, 0xff} {
				src.Data[5*cols+70] = bad
				if err := QuantizeRows(&got, &src, 0, rows); err == nil || !strings.Contains(err.Error(), "row 5, columns 64 to 127: not finite") {
					t.Errorf("%v, want the place of the number that is not finite", err)
				}
			}
		}
	}
}

// identity is the order of n columns that are in order.
func identity(n int) []int32 {
	order := make([]int32, n)
	for i := range order {
		order[i] = int32(i)
	}
	return order
}

func BenchmarkQuantize(b *testing.B) {
	r := rand.New(rand.NewPCG(13, 14))
	m := bf16Row(64*4096, func(int) float64 { return r.NormFloat64() * 0.02 })
	m.Rows, m.Cols = 64, 4096
	for _, bits := range []int{4, 5, 6, 8} {
		b.Run(fmt.Sprintf("bits=%d", bits), func(b *testing.B) {
			q := valid(b)(NewAffine(m.Rows, m.Cols, bits, 64, F16))
			b.SetBytes(int64(len(m.Data)))
			for b.Loop() {
				if err := QuantizeRows(&q, &m, 0, m.Rows); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// valid returns a function that returns its matrix, or ends the test if there is an error.
func valid(tb testing.TB) func(Matrix, error) Matrix {
	return func(m Matrix, err error) Matrix {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return m
	}
}
