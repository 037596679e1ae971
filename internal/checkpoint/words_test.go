package checkpoint

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
)

// stored is a GPTQ module m of 32 × 32 in one group, of bits, all of whose stored zero points are z.
func stored(name string, bits, z int) []tensor {
	codes := slices.Repeat([]uint8{uint8(z)}, 32)
	zeros := tensor{Decl{name + ".qzeros", dtype.I32, []int{1, bits}}, make([]byte, 4*bits)}
	dtype.Pack(zeros.data, bits, codes)
	return []tensor{random(name+".qweight", dtype.I32, bits, 32), zeros, random(name+".scales", dtype.F16, 1, 32)}
}

// TestZeroPointsOfGPTQ has the versions of zero points: the first stores them less one. Symmetric files are
// recognized by their numbers.
func TestZeroPointsOfGPTQ(t *testing.T) {
	for _, c := range []struct {
		says    string
		bits, z int
		want    int // 0 stands for half of the range, which is not stored
	}{
		{``, 4, 7, 0},
		{``, 4, 8, 9},
		{``, 4, 15, -1}, // all ones are a zero point of zero
		{``, 8, 127, 0},
		{`,"checkpoint_format":"gptq"`, 3, 4, 5},
		{`,"checkpoint_format":"gptq_v2"`, 4, 8, 0},
		{`,"checkpoint_format":"gptq_v2"`, 4, 7, 7},
		{`,"format":"gptq_v2"`, 2, 3, 3},
		{`,"sym":true`, 4, 8, 0},
		{`,"sym":true,"checkpoint_format":"gptq_v2"`, 4, 7, 0},
		{`,"sym":true,"checkpoint_format":"gptq_v2"`, 8, 127, 0},
		{`,"sym":true`, 4, 3, 4},
		{`,"packing_format":"auto_round:auto_gptq"`, 4, 3, 4},
		{`,"packing_format":"auto_round"`, 4, 3, 3},
		{`,"packing_format":"auto_round:gptqmodel"`, 4, 3, 3},
	} {
		t.Run(fmt.Sprintf("%d of %d bits%s", c.z, c.bits, c.says), func(t *testing.T) {
			k := single(t, `{"quantization_config":{"quant_method":"gptq"`+c.says+`}}`, stored("m", c.bits, c.z)...)
			m, err := k.Matrix("m", 32, 32)
			if err != nil {
				t.Fatal(err)
			}
			if c.want == 0 && m.Zeros != nil || c.want != 0 && !uniform(m.Zeros, byte(max(c.want, 0))) {
				t.Errorf("zero points %d, want %d", m.Zeros, c.want)
			}
		})
	}
}

// TestQuantizationBesideTheConfig has GPTQ's parameters in a separate file, which counts if the config has none.
func TestQuantizationBesideTheConfig(t *testing.T) {
	weights := encode(t, nil, stored("m", 4, 3)...)
	for _, c := range []struct {
		config, beside string
		want           byte
	}{
		{`{}`, `{"bits":4,"checkpoint_format":"gptq_v2"}`, 3},
		{`{}`, `{"bits":4}`, 4},
		{`{"quantization_config":{"quant_method":"gptq"}}`, `{"checkpoint_format":"gptq_v2"}`, 4},
	} {
		k, err := OpenFiles("test", files{"config.json": c.config, "quantize_config.json": c.beside, "model.safetensors": weights})
		if err != nil {
			t.Fatal(err)
		}
		m, err := k.Matrix("m", 32, 32)
		if err != nil {
			t.Fatal(err)
		}
		if !uniform(m.Zeros, c.want) {
			t.Errorf("%s: zero points %d, want %d", c.beside, m.Zeros, c.want)
		}
		closed(t, k)
	}
	_, err := OpenFiles("test", files{"config.json": `{}`, "quantize_config.json": `{"bits"`, "model.safetensors": weights})
	contains(t, err, "quantize_config.json")
}

// TestOrderIsShared has modules with the same act-order, with another, with one that is not set, and with none.
func TestOrderIsShared(t *testing.T) {
	var list []tensor
	order := func(f func(i int) int64) []int64 {
		groups := make([]int64, 128)
		for i := range groups {
			groups[i] = f(i)
		}
		return groups
	}
	for name, f := range map[string]func(i int) int64{
		"a": func(i int) int64 { return int64(i % 4) },
		"b": func(i int) int64 { return int64(i % 4) },
		"c": func(i int) int64 { return int64(3 - i%4) },
		"d": func(i int) int64 { return int64(i / 32) },
		"e": func(int) int64 { return -1 },
	} {
		for _, x := range with(module32("packed"), whole("m.weight_g_idx", dtype.I32, order(f)...)) {
			x.Name = name + x.Name[1:]
			list = append(list, x)
		}
	}
	k := single(t, `{}`, list...)
	got := map[string]dtype.Matrix{}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		var err error
		if got[name], err = k.Matrix(name, 32, 128); err != nil {
			t.Fatal(err)
		}
	}
	if a, b, c := got["a"].Input, got["b"].Input, got["c"].Input; a == nil || a != b || c == nil || c == a {
		t.Errorf("inputs %p, %p and %p, want two equal ones", a, b, c)
	}
	if got["d"].Input != nil || got["e"].Input != nil {
		t.Error("columns in the order of their groups have an input")
	}
	if order := got["a"].Input.Order; order[1] != 4 || order[32] != 1 || order[127] != 127 {
		t.Errorf("order %d is not by group and column", order)
	}
	if unused := k.Unused(); len(unused) > 0 {
		t.Errorf("unused %q", unused)
	}
}

// TestStacksOfFormats reads experts that are stored as one tensor.
func TestStacksOfFormats(t *testing.T) {
	for _, format := range formats32[:7] {
		var stack []tensor
		for _, x := range module32(format) {
			if x.Name == "m.weight_shape" {
				continue
			}
			x.Shape, x.data = append([]int{2}, x.Shape...), slices.Concat(x.data, x.data)
			stack = append(stack, x)
		}
		k := single(t, `{}`, stack...)
		ms, err := k.MatrixStack("m", 2, 32, 128)
		if err != nil {
			t.Errorf("%s: %v", format, err)
			continue
		}
		one, err := single(t, `{}`, module32(format)...).Matrix("m", 32, 128)
		if err != nil {
			t.Fatal(err)
		}
		want, got := make([]float32, 128), make([]float32, 128)
		for r := range 64 {
			one.Row(want, r%32)
			if ms[r/32].Row(got, r%32); !slices.Equal(got, want) {
				t.Fatalf("%s: row %d of matrix %d differs", format, r%32, r/32)
			}
		}
		if unused := k.Unused(); len(unused) > 0 {
			t.Errorf("%s: unused %q", format, unused)
		}
	}
	k := single(t, `{}`, random("m.qweight", dtype.I32, 2, 128, 4))
	_, err := k.MatrixStack("m", 2, 32, 128)
	contains(t, err, `"m.qweight"`, "a stack of matrices in 32-bit words is not supported")
}

// TestScalesOfActivationsAreSkipped has the tensors of engines that quantize activations ahead of time.
func TestScalesOfActivationsAreSkipped(t *testing.T) {
	list := append(module32("modelopt"), random("m.input_scale", dtype.F32), random("m.k_scale", dtype.F32), random("a.self_attn.v_scale", dtype.F32),
		random("m.output_scale", dtype.F32), random("m.input_global_scale", dtype.F32, 1), random("m.q_scale", dtype.F32), random("m.other_scale", dtype.F32))
	k := single(t, `{}`, list...)
	if _, err := k.Matrix("m", 32, 128); err != nil {
		t.Fatal(err)
	}
	if unused := k.Unused(); !slices.Equal(unused, []string{"m.other_scale"}) {
		t.Errorf("unused %q", unused)
	}
}

// TestZeroBiasIsSkipped leaves a bias that is not zero to the architecture.
func TestZeroBiasIsSkipped(t *testing.T) {
	for _, c := range []struct {
		first float32
		want  int
	}{{0, 0}, {1, 1}} {
		bias := numbers("m.bias", dtype.F16, []int{32}, append(make([]float32, 31), c.first)...)
		k := single(t, `{}`, append(module32("awq"), bias)...)
		for _, look := range []bool{true, false} {
			if _, err := k.matrices("m", shape{rows: 32, cols: 128, look: look}); err != nil {
				t.Fatal(err)
			}
			if unused := k.Unused(); len(unused) > c.want {
				t.Errorf("unused %q", unused)
			}
		}
		if unused := k.Unused(); len(unused) != c.want {
			t.Errorf("unused %q, want %d", unused, c.want)
		}
	}
}

// TestRepackOddSizes compares matrices that end within tiles, the last on several threads, with a decoder that takes
// one bit at a time.
func TestRepackOddSizes(t *testing.T) {
	bit := func(b []byte, at int) int { return int(b[at/8]) >> (at % 8) & 1 }
	for _, size := range [][2]int{{8, 16}, {24, 144}, {264, 272}, {520, 48}, {1032, 528}} {
		rows, cols := size[0], size[1]
		for _, awq := range []bool{true, false} {
			if !awq && rows%32 != 0 {
				rows += 32 - rows%32
			}
			groups := cols / 16
			list := []tensor{random("m.qweight", dtype.I32, cols/8, rows), random("m.qzeros", dtype.I32, groups, rows/8), random("m.scales", dtype.BF16, groups, rows)}
			if awq {
				list[0] = random("m.qweight", dtype.I32, cols, rows/8)
			}
			m, err := single(t, `{}`, list...).Matrix("m", rows, cols)
			if err != nil {
				t.Fatal(err)
			}
			q := make([]uint8, cols)
			for r := range rows {
				dtype.Unpack(q, 4, m.Data[r*m.RowBytes():])
				for c, got := range q {
					want := 0
					for b := range 4 {
						at := 32*(c/8*rows+r) + c%8*4 + b
						if awq {
							at = 32*(c*rows/8+r/8) + [8]int{0, 4, 1, 5, 2, 6, 3, 7}[r%8]*4 + b
						}
						want |= bit(list[0].data, at) << b
					}
					if int(got) != want {
						t.Fatalf("%d×%d, awq %v: [%d,%d] is %d, want %d", rows, cols, awq, r, c, got, want)
					}
				}
			}
		}
	}
}

// TestSortNibbles: columns of 4-bit codes are sorted like those of other widths, in place and elsewhere.
func TestSortNibbles(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	for _, rows := range []int{16, 40, 64} {
		x := dtype.Matrix{Rows: rows, Cols: 48, Format: dtype.ZeroPoint, Bits: 4}
		x.Data = make([]byte, rows*x.RowBytes())
		for i := range x.Data {
			x.Data[i] = byte(r.Uint32())
		}
		order := make([]int32, x.Cols)
		for i, at := range r.Perm(x.Cols) {
			order[i] = int32(at)
		}
		want, got := make([]byte, len(x.Data)), make([]byte, len(x.Data))
		sortCodes(want, &x, order, 0, rows)
		n := sortNibbles(got, &x, order, 0, rows)
		if n != rows/16*16 {
			t.Errorf("%d of %d rows", n, rows)
		}
		sortCodes(got, &x, order, n, rows)
		if !bytes.Equal(got, want) {
			t.Errorf("%d rows: codes differ", rows)
		}
		sortCodes(x.Data, &x, order, sortNibbles(x.Data, &x, order, 0, rows), rows)
		if !bytes.Equal(x.Data, want) {
			t.Errorf("%d rows in place: codes differ", rows)
		}
	}
}
