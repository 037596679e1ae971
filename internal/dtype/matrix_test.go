package dtype

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// example is a valid matrix of random bytes in each format.
func example(f Format, rows, cols int) Matrix {
	m := Matrix{Rows: rows, Cols: cols, Format: f, Group: 32, ScaleType: F8E8M0}
	switch f {
	case Plain:
		m.Type, m.Group, m.ScaleType = BF16, 0, Invalid
	case Affine:
		m.Bits, m.ScaleType = 4, F16
	case NVFP4:
		m.Group, m.ScaleType, m.Global = 16, F8E4M3, 1
	case FP8:
		m.Group, m.ScaleType = 48, F32
	}
	m.fill()
	return m
}

// fill gives m random bytes of the right lengths.
func (m *Matrix) fill() {
	r := rand.New(rand.NewPCG(uint64(m.Format), uint64(m.Cols)))
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	m.Data = random(m.Rows * m.RowBytes())
	if m.Format != Plain {
		m.Scales = random(m.Rows * m.ScaleRowBytes())
	}
	if m.Format == Affine {
		m.Biases = random(m.Rows * m.ScaleRowBytes())
	}
}

var formats = []Format{Plain, Affine, MXFP4, NVFP4, MXFP8, FP8}

// element is the definition of one element, bit by bit.
func element(m *Matrix, r, c int) float32 {
	if m.Format == Plain {
		return scalar(m.Type, m.Data, r*m.Cols+c)
	}
	groups := (m.Cols + m.Group - 1) / m.Group
	g := r*groups + c/m.Group
	scale := scalar(m.ScaleType, m.Scales, g)
	bits := m.ElementBits()
	row := m.Data[r*m.Cols*bits/8:]
	var q uint8
	for j := range bits {
		q |= bit(row, c*bits+j) << j
	}
	switch m.Format {
	case Affine:
		p := float32(scale * float32(q))
		return p + scalar(m.ScaleType, m.Biases, g)
	case MXFP4:
		return float32(tiny.decode(uint32(q))) * scale
	case NVFP4:
		p := float32(tiny.decode(uint32(q)) * float64(scale))
		return p * m.Global
	default:
		return float32(quarter.decode(uint32(q))) * scale
	}
}

func TestRowEqualsDefinition(t *testing.T) {
	cases := make([]Matrix, len(formats), 64)
	for i, f := range formats {
		cases[i] = example(f, 3, 96)
	}
	for _, bits := range widths {
		for _, scale := range []Type{F16, BF16, F32} {
			m := Matrix{Rows: 2, Cols: 192, Format: Affine, Bits: bits, Group: 64, ScaleType: scale}
			m.fill()
			cases = append(cases, m)
		}
	}
	for _, typ := range []Type{F32, F16, BF16} {
		m := Matrix{Rows: 2, Cols: 5, Type: typ}
		m.fill()
		cases = append(cases, m)
	}
	global := example(NVFP4, 2, 32)
	global.Global = 0.3
	short := example(FP8, 2, 100) // groups of 48, 48 and 4
	cases = append(cases, global, short)
	for _, m := range cases {
		if err := m.Validate(); err != nil {
			t.Fatal(err)
		}
		got := make([]float32, m.Cols+1)
		for r := range m.Rows {
			got[m.Cols] = 42
			m.Row(got, r)
			for c := range m.Cols {
				want := element(&m, r, c)
				if got[c] != want && !(isNaN(got[c]) && isNaN(want)) {
					t.Fatalf("%v, %d bits, scales %v: [%d,%d]: got %g, want %g", m.Format, m.ElementBits(), m.ScaleType, r, c, got[c], want)
				}
			}
			if got[m.Cols] != 42 {
				t.Fatalf("%v: wrote past the row", m.Format)
			}
		}
	}
}

func TestAffineProductIsExact(t *testing.T) {
	for _, f := range []func(uint16) float32{FromF16, FromBF16} {
		for h := range 1 << 16 {
			s := f(uint16(h))
			exact := float64(s) * 255
			if math.IsNaN(exact) || math.Abs(exact) > math.MaxFloat32 {
				continue
			}
			if p := float32(s * 255); float64(p) != exact {
				t.Fatalf("%g * 255 rounds to %g", s, p)
			}
		}
	}
}

func TestRowRangeAndGatherEqualRows(t *testing.T) {
	for _, f := range formats {
		m := example(f, 6, 96)
		want, got := make([]float32, 96), make([]float32, 96)
		same := func(what string, v *Matrix, i, r int) {
			t.Helper()
			v.Row(got, i)
			m.Row(want, r)
			for c := range want {
				if math.Float32bits(got[c]) != math.Float32bits(want[c]) {
					t.Fatalf("%v: %s: row %d differs from row %d at %d", f, what, i, r, c)
				}
			}
		}
		v := m.RowRange(2, 5)
		if err := v.Validate(); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			same("RowRange", &v, i, 2+i)
		}
		if &v.Data[0] != &m.Data[2*m.RowBytes()] {
			t.Errorf("%v: RowRange copies", f)
		}
		rows := []int{5, 0, 0, 3}
		g := m.Gather(rows)
		if err := g.Validate(); err != nil {
			t.Fatal(err)
		}
		for i, r := range rows {
			same("Gather", &g, i, r)
		}
		for _, empty := range []Matrix{m.RowRange(6, 6), m.Gather(nil)} {
			if err := empty.Validate(); err != nil || empty.Bytes() != 0 {
				t.Errorf("%v: empty matrix: %v, %d bytes", f, err, empty.Bytes())
			}
		}
		if got, want := m.Bytes(), int64(len(m.Data)+len(m.Scales)+len(m.Biases)); got != want {
			t.Errorf("%v: %d bytes, want %d", f, got, want)
		}
	}
}

func TestValidateRefuses(t *testing.T) {
	change := func(f Format, edit func(*Matrix)) Matrix {
		m := example(f, 4, 96)
		edit(&m)
		return m
	}
	for want, m := range map[string]Matrix{
		"of -1×96":                                     change(Plain, func(m *Matrix) { m.Rows = -1 }),
		"of 4×0":                                       change(Plain, func(m *Matrix) { m.Cols = 0 }),
		"plain matrix of U32":                          change(Plain, func(m *Matrix) { m.Type = U32 }),
		"data has 767 bytes, want 768":                 change(Plain, func(m *Matrix) { m.Data = m.Data[1:] }),
		"scales has 3 bytes, want 0":                   change(Plain, func(m *Matrix) { m.Scales = make([]byte, 3) }),
		"7 bits":                                       change(Affine, func(m *Matrix) { m.Bits = 7 }),
		"affine matrix in groups of 24":                change(Affine, func(m *Matrix) { m.Group = 24 }),
		"affine matrix in groups of 0":                 change(Affine, func(m *Matrix) { m.Group = 0 }),
		"not a whole number of groups of 64":           change(Affine, func(m *Matrix) { m.Group = 64 }),
		"scales of U8":                                 change(Affine, func(m *Matrix) { m.ScaleType = U8 }),
		"biases has 0 bytes, want 24":                  change(Affine, func(m *Matrix) { m.Biases = nil }),
		"mxfp4 matrix in groups of 16, want":           change(MXFP4, func(m *Matrix) { m.Group = 16 }),
		"nvfp4 matrix with scales of F8_E8M0":          change(NVFP4, func(m *Matrix) { m.ScaleType = F8E8M0 }),
		"mxfp8 matrix of 4×96: biases":                 change(MXFP8, func(m *Matrix) { m.Biases = make([]byte, 1) }),
		"fp8 matrix in groups of -3":                   change(FP8, func(m *Matrix) { m.Group = -3 }),
		"fp8 matrix with scales of BF16":               change(FP8, func(m *Matrix) { m.ScaleType = BF16 }),
		"unknown format Format(77)":                    change(FP8, func(m *Matrix) { m.Format = 77 }),
		"overflows":                                    change(Plain, func(m *Matrix) { m.Cols = math.MaxInt / 2 }),
		fmt.Sprintf("%d×96 overflows", math.MaxInt/16): change(Plain, func(m *Matrix) { m.Rows = math.MaxInt / 16 }),
	} {
		if err := m.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestMatrixRefusesOurMistakes(t *testing.T) {
	m := example(Affine, 4, 96)
	for name, f := range map[string]func(){
		"row":      func() { m.Row(make([]float32, 96), 4) },
		"short":    func() { m.Row(make([]float32, 95), 0) },
		"range":    func() { m.RowRange(2, 5) },
		"gather":   func() { m.Gather([]int{-1}) },
		"quantize": func() { _ = QuantizeRows(&m, &m, 3, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}

func TestNames(t *testing.T) {
	names := make([]string, len(formats))
	for i, f := range formats {
		names[i] = f.String()
	}
	if want := []string{"plain", "affine", "mxfp4", "nvfp4", "mxfp8", "fp8"}; !slices.Equal(names, want) {
		t.Errorf("formats %v, want %v", names, want)
	}
	for typ := F64; typ <= Bool; typ++ {
		if got, err := Parse(typ.String()); err != nil || got != typ || typ.Size() < 1 {
			t.Errorf("%v: parsed as %v, %v", typ, got, err)
		}
	}
	for _, name := range []string{"", "invalid", "f32", "F4"} {
		if typ, err := Parse(name); err == nil {
			t.Errorf("%q parsed as %v", name, typ)
		}
	}
	if got := Type(200).String(); got != "Type(200)" {
		t.Errorf("unknown type is %q", got)
	}
}

func BenchmarkRow(b *testing.B) {
	dst := make([]float32, 4096)
	for _, f := range formats {
		for _, bits := range widths {
			m := Matrix{Rows: 1, Cols: 4096, Format: f, Bits: bits, Group: 64, ScaleType: F16}
			if f != Affine {
				if bits != 8 {
					continue
				}
				m = example(f, 1, 4096)
			} else {
				m.fill()
			}
			b.Run(fmt.Sprintf("format=%v/bits=%d", f, m.ElementBits()), func(b *testing.B) {
				b.SetBytes(m.Bytes())
				for b.Loop() {
					m.Row(dst, 0)
				}
			})
		}
	}
}
