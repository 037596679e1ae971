package gguf

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint/gguf/gguftest"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
)

// write puts a file into a new folder and returns its path.
func write(t testing.TB, name string, data []byte) string {
	t.Helper()
	return filetest.Write(t, filepath.Join(t.TempDir(), name), data)
}

// opened opens a file and closes it at the end of the test.
func opened(t testing.TB, path string) *File {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// numbers are the values of a tensor.
func numbers(t testing.TB, x *Tensor) (dtype.Matrix, []float32) {
	t.Helper()
	m, err := x.Matrix()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	v := make([]float32, m.Rows*m.Cols)
	for r := range m.Rows {
		m.Row(v[r*m.Cols:], r)
	}
	return m, v
}

// handWorked are blocks written out byte by byte, and some of the numbers they stand for.
var handWorked = []struct {
	typ   string
	block string // hex; a dot is filler between fields, N*xx is a byte N times
	want  map[int]float32
}{
	{"F32", "0000c03f", map[int]float32{0: 1.5}},
	{"F16", "003e", map[int]float32{0: 1.5}},
	{"BF16", "c0bf", map[int]float32{0: -1.5}},
	// d = 0.5. Byte 0: elements 0 and 16; byte 15: elements 15 and 31.
	{"Q4_0", "0038.f0.14*88.3c", map[int]float32{0: -4, 16: 3.5, 1: 0, 17: 0, 15: 2, 31: -2.5}},
	// d = 0.5, m = -1.
	{"Q4_1", "0038.00bc.f0.14*22.3c", map[int]float32{0: -1, 16: 6.5, 1: 0, 17: 0, 15: 5, 31: 0.5}},
	// d = 2. Fifth bits: elements 0 and 31.
	{"Q5_0", "0040.01000080.f0.14*00.3c", map[int]float32{0: 0, 16: -2, 1: -32, 15: -8, 31: 6}},
	// d = 2, m = 0.25. Fifth bits: elements 4 and 16.
	{"Q5_1", "0040.0034.10000100.f0.14*00.3c", map[int]float32{0: 0.25, 16: 62.25, 4: 32.25, 15: 24.25, 31: 6.25}},
	// d = -0.25.
	{"Q8_0", "00b4.80.7f.ff.29*00", map[int]float32{0: 32, 1: -31.75, 2: 0.25, 3: 0}},
	// d = 0.5, dmin = 2. Group 0: factors 1 and 0. Group 1: 63 and 3. Group 4: low bits 5 and
	// 9, high bits 1 and 2: 21 and 41. Group 7: low bits 15 and 15, high bits 3 and 3.
	{
		"Q4_K", "0038.0040.41.3f.00.c0.80.03.00.c0.95.00.00.ff.21.31*00.21.31*00.21.31*00.21.31*00",
		map[int]float32{0: 0.5, 1: 0, 32: 2*31.5 - 6, 33: -6, 64: 0, 128: 10.5 - 82, 129: -82, 224: 2*31.5 - 126, 225: -126},
	},
	// As before, with the fifth bit of element 0 of groups 0 and 7, and of element 1 of group 4.
	{
		"Q5_K", "0038.0040.41.3f.00.c0.80.03.00.c0.95.00.00.ff.81.10.30*00.21.31*00.21.31*00.21.31*00.21.31*00",
		map[int]float32{0: 8.5, 1: 0, 32: 2*31.5 - 6, 33: -6, 128: 10.5 - 82, 129: 16*10.5 - 82, 224: 18*31.5 - 126, 225: -126},
	},
	// d = 0.5, factors -2 for group 0, 4 for group 15, 1 for others. Elements 0 and 64 share the
	// byte 0xd3 of low bits, and with 32 and 96 the byte 0xe4 of high ones: 0, 1, 2 and 3.
	{
		"Q6_K", "d3.63*00.64*00.e4.31*00.32*00.fe.14*01.04.0038",
		map[int]float32{0: -(3 - 32), 64: 0.5 * (13 + 2*16 - 32), 32: 0.5 * (1*16 - 32), 96: 0.5 * (3*16 - 32), 1: 32, 16: -16, 255: -64, 239: -16},
	},
	// d = 0.5. Byte 0: codes 0 and 15, elements 0 and 16; byte 15: codes 12 and 3.
	{"IQ4_NL", "0038.f0.14*88.3c", map[int]float32{0: -63.5, 16: 56.5, 1: 0.5, 17: 0.5, 15: 26.5, 31: -32.5}},
	// d = 2. Group 0: low bits 1, high bits 2: 33 - 32. Group 1: low bits 15, high bits 3. Group
	// 7: low bits 0, high bits 0: -32. Others: 2*16 - 32 is nothing.
	{
		"IQ4_XS", "0040.ae2a.f1.000000.80.14*88.8f.80.15*88.80*88.08.15*88",
		map[int]float32{0: -254, 1: 2, 15: 226, 16: 2, 31: 2, 32: 2 * 31 * -127, 33: 62, 64: 0, 224: -64, 240: -64 * -127},
	},
}

// unhex reads the notation of handWorked.
func unhex(t *testing.T, s string) []byte {
	t.Helper()
	var out []byte
	for _, field := range strings.Split(s, ".") {
		n := 1
		if count, one, ok := strings.Cut(field, "*"); ok {
			if _, err := fmt.Sscan(count, &n); err != nil {
				t.Fatal(err)
			}
			field = one
		}
		b, err := hex.DecodeString(field)
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			out = append(out, b...)
		}
	}
	return out
}

func TestBlocksByHand(t *testing.T) {
	for _, c := range handWorked {
		t.Run("type="+c.typ, func(t *testing.T) {
			block := unhex(t, c.block)
			n := gguftest.Columns(c.typ)
			var w gguftest.File
			w.AddRaw("x", gguftest.Types[c.typ], []int{2, n}, append(block, block...))
			x := opened(t, write(t, "x.gguf", w.Bytes())).Tensor("x")
			if x.Type.String() != c.typ {
				t.Errorf("type %v", x.Type)
			}
			_, got := numbers(t, x)
			for i, want := range c.want {
				if got[i] != want || got[n+i] != want {
					t.Errorf("element %d is %g and %g, want %g", i, got[i], got[n+i], want)
				}
			}
		})
	}
}

// TestBlocksEqualSlowEncoder: every type decodes to the bits that the test's encoder, which
// computes in float64 from the definitions, returns.
func TestBlocksEqualSlowEncoder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for typ := range gguftest.Types {
		t.Run("type="+typ, func(t *testing.T) {
			v := make([]float32, 3*5*512)
			for i := range v {
				v[i] = float32(r.NormFloat64() * math.Exp2(float64(r.IntN(8)-4)))
			}
			clear(v[512:1024]) // blocks of zeros
			var w gguftest.File
			want := w.Add("x", typ, []int{3, 5, 512}, v)
			m, got := numbers(t, opened(t, write(t, "x.gguf", w.Bytes())).Tensor("x"))
			if m.Rows != 15 || m.Cols != 512 {
				t.Fatalf("%d×%d", m.Rows, m.Cols)
			}
			worst := 0.0
			for i, x := range got {
				if math.Float32bits(x) != math.Float32bits(want[i]) && (x != 0 || want[i] != 0) {
					t.Fatalf("element %d is %g, want %g", i, x, want[i])
				}
				worst = max(worst, math.Abs(float64(x-v[i])))
			}
			if limit := 64.0; worst > limit { // the encoder is plausible
				t.Errorf("element off by %g", worst)
			}
		})
	}
}

// TestBlocksEqualGoldens: every number of a matrix is that of ggml.
func TestBlocksEqualGoldens(t *testing.T) {
	for _, g := range golden.Blocks(t) {
		var w gguftest.File
		w.AddRaw("x", g.Type, []int{g.Rows, g.Cols}, g.Data)
		x := opened(t, write(t, "x.gguf", w.Bytes())).Tensor("x")
		if x.Type.String() != g.Kind {
			t.Errorf("%s: type %v", g.Kind, x.Type)
		}
		_, v := numbers(t, x)
		for i := range v {
			v[i] += 0 // negative zeros become positive
		}
		data := make([]byte, 4*len(v))
		dtype.FromF32(data, dtype.F32, v)
		if sum := fmt.Sprintf("%x", sha256.Sum256(data)); sum != g.Sum {
			t.Errorf("%s: numbers have the sum %s, want %s", g.Kind, sum, g.Sum)
		}
	}
}

// TestMatrixIsAView: no block is copied, and each has the format of its type.
func TestMatrixIsAView(t *testing.T) {
	for typ := range gguftest.Types {
		var w gguftest.File
		w.Add("x", typ, []int{2, 256}, make([]float32, 512))
		f := opened(t, write(t, "x.gguf", w.Bytes()))
		m, err := f.Tensor("x").Matrix()
		if err != nil || m.Rows != 2 || m.Cols != 256 {
			t.Errorf("%s: %d×%d, %v", typ, m.Rows, m.Cols, err)
			continue
		}
		if name := m.Format.String(); name != typ && (m.Format != dtype.Plain || m.Type.String() != typ) {
			t.Errorf("%s: is %s", typ, name)
		}
		if file := f.Parts[0].Bytes(); &m.Data[0] != &file[len(file)-(len(m.Data)+31)&^31] { // it is padded
			t.Errorf("%s: was copied", typ)
		}
	}
}

// TestFactorsOfNVFP4: tensors beside those of NVFP4 multiply them, and scales of activations are skipped.
func TestFactorsOfNVFP4(t *testing.T) {
	data, _ := gguftest.Encode("NVFP4", make([]float32, 3*2*64))
	add := func(edit func(w *gguftest.File)) (*File, error) {
		var w gguftest.File
		w.AddRaw("a.weight", gguftest.Types["NVFP4"], []int{2, 64}, data[:2*36])
		w.AddRaw("b_exps.weight", gguftest.Types["NVFP4"], []int{3, 2, 64}, data)
		w.Add("a.input_scale", "F32", []int{1}, []float32{5})
		w.Add("c.scale", "F32", []int{1}, []float32{5})
		edit(&w)
		return Open(write(t, "x.gguf", w.Bytes()))
	}
	f, err := add(func(w *gguftest.File) {
		w.Add("a.scale", "F32", []int{1}, []float32{0.75})
		w.Add("b_exps.scale", "F32", []int{3}, []float32{1, 2, 3})
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	m, err := f.Tensor("a.weight").Matrix()
	if err != nil || m.Global != 0.75 || !slices.Equal(f.Tensor("b_exps.weight").Factors, []float32{1, 2, 3}) {
		t.Errorf("factors %g and %g: %v", m.Global, f.Tensor("b_exps.weight").Factors, err)
	}
	if len(f.Tensors) != 3 || f.Tensor("c.scale") == nil || f.Tensor("a.scale") != nil || f.Tensor("a.input_scale") != nil {
		t.Errorf("%d tensors are left, want 3", len(f.Tensors))
	}
	for _, c := range []struct {
		name, typ string
		values    []float32
		want      string
	}{
		{"b_exps.scale", "F32", []float32{1, 2}, `tensor "b_exps.scale" has 2 numbers, want one, or one for each of 3 matrices of "b_exps.weight"`},
		{"a.scale", "F16", []float32{1}, `tensor "a.scale" has the type F16 and the shape [1], want F32 and one dimension`},
		{"a.scale", "F32", []float32{float32(math.NaN())}, `tensor "a.scale": number 0 is NaN: the file is damaged`},
	} {
		_, err := add(func(w *gguftest.File) { w.Add(c.name, c.typ, []int{len(c.values)}, c.values) })
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

func TestReadRefusesDamagedScales(t *testing.T) {
	for _, c := range []struct {
		typ string
		at  int    // where a half is put
		bad uint16 // it
	}{
		{"Q4_0", 0, 0x7c00},
		{"Q5_1", 2, 0x7e00},
		{"Q8_0", 0, 0xfc00},
		{"Q4_K", 0, 0x7e00},
		{"Q5_K", 2, 0xfc00},
		{"Q6_K", 208, 0x7e01},
		{"IQ4_NL", 0, 0xfe00},
		{"IQ4_XS", 0, 0x7c00},
		{"Q2_K", 80, 0x7c00},
		{"Q2_K", 82, 0xfe00},
		{"Q3_K", 108, 0x7e00},
		{"TQ1_0", 52, 0xfc00},
		{"TQ2_0", 64, 0x7c00},
		{"Q1_0", 0, 0x7e00},
		{"Q2_0", 0, 0x7c00},
		{"IQ1_S", 0, 0x7c00},
		{"IQ1_M", 54, 0x7000}, // the highest bits of its half
		{"IQ2_XXS", 0, 0x7e00},
		{"IQ2_XS", 0, 0xfc00},
		{"IQ2_S", 0, 0x7c00},
		{"IQ3_XXS", 0, 0x7c01},
		{"IQ3_S", 0, 0x7c00},
	} {
		data, _ := gguftest.Encode(c.typ, make([]float32, 512))
		binary.LittleEndian.PutUint16(data[len(data)/2+c.at:], c.bad)
		if c.typ == "IQ1_M" {
			binary.LittleEndian.PutUint16(data[len(data)/2+c.at-2:], 0xf000)
		}
		var w gguftest.File
		w.AddRaw("x", gguftest.Types[c.typ], []int{1, 512}, data)
		_, err := opened(t, write(t, "x.gguf", w.Bytes())).Tensor("x").Matrix()
		if err == nil || !strings.Contains(err.Error(), `x.gguf: tensor "x": row 0: a block has scale or bias`) {
			t.Errorf("%s with %#x: %v", c.typ, c.bad, err)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	for _, typ := range []string{"Q4_0", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "Q2_K", "Q3_K", "MXFP4", "NVFP4"} {
		b.Run("type="+typ, func(b *testing.B) {
			data, _ := gguftest.Encode(typ, make([]float32, 1<<20))
			var w gguftest.File
			w.AddRaw("x", gguftest.Types[typ], []int{512, 2048}, data)
			x := opened(b, write(b, "x.gguf", w.Bytes())).Tensor("x")
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if _, err := x.Matrix(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
