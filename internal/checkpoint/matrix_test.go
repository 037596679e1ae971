package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
)

// quantized is the tensors of the module m, of rows × cols (n of them when n > 0).
func quantized(bits, group int, scale dtype.Type, n, rows, cols int) []tensor {
	shape := func(last int) []int {
		if n > 0 {
			return []int{n, rows, last}
		}
		return []int{rows, last}
	}
	ts := []tensor{
		random("m.weight", dtype.U32, shape(cols*bits/32)...),
		random("m.scales", scale, shape(cols/group)...),
	}
	if scale != dtype.U8 {
		ts = append(ts, random("m.biases", scale, shape(cols/group)...))
	}
	return ts
}

// readable are modules m of 4 × 128 in every encoding, and the expected matrices.
var readable = []struct {
	name    string
	config  string
	tensors []tensor
	want    dtype.Matrix // without rows, columns and bytes
}{
	{"f32", `{}`, []tensor{random("m.weight", dtype.F32, 4, 128)}, dtype.Matrix{Type: dtype.F32}},
	{"f16", `{}`, []tensor{random("m.weight", dtype.F16, 4, 128)}, dtype.Matrix{Type: dtype.F16}},
	{"bf16 without suffix", `{}`, []tensor{random("m", dtype.BF16, 4, 128)}, dtype.Matrix{Type: dtype.BF16}},
	{"plain by the config", `{"quantization":{"bits":4,"m":false}}`, []tensor{random("m.weight", dtype.BF16, 4, 128)}, dtype.Matrix{Type: dtype.BF16}},
	{
		"as the globals say", `{"quantization":{"bits":4,"group_size":64}}`,
		quantized(4, 64, dtype.BF16, 0, 4, 128),
		dtype.Matrix{Format: dtype.Affine, Bits: 4, Group: 64, ScaleType: dtype.BF16},
	},
	{
		"globals do not fit", `{"quantization":{"bits":4,"group_size":64,"mode":"affine"}}`,
		quantized(6, 32, dtype.F16, 0, 4, 128),
		dtype.Matrix{Format: dtype.Affine, Bits: 6, Group: 32, ScaleType: dtype.F16},
	},
	{
		"no config", `{}`, quantized(3, 128, dtype.F32, 0, 4, 128),
		dtype.Matrix{Format: dtype.Affine, Bits: 3, Group: 128, ScaleType: dtype.F32},
	},
	{
		"override", `{"quantization_config":{"bits":4,"group_size":64,"m":{"group_size":32,"bits":8}}}`,
		quantized(8, 32, dtype.BF16, 0, 4, 128),
		dtype.Matrix{Format: dtype.Affine, Bits: 8, Group: 32, ScaleType: dtype.BF16},
	},
	{
		"override true", `{"text_config":{"quantization":{"bits":4,"group_size":64,"m":true}}}`,
		quantized(4, 64, dtype.BF16, 0, 4, 128),
		dtype.Matrix{Format: dtype.Affine, Bits: 4, Group: 64, ScaleType: dtype.BF16},
	},
	{
		"mxfp4", `{"quantization":{"mode":"mxfp4","bits":4,"group_size":32}}`, quantized(4, 32, dtype.U8, 0, 4, 128),
		dtype.Matrix{Format: dtype.MXFP4, Group: 32, ScaleType: dtype.F8E8M0},
	},
	{
		"mxfp8", `{"quantization":{"m":{"mode":"mxfp8"}}}`, quantized(8, 32, dtype.U8, 0, 4, 128),
		dtype.Matrix{Format: dtype.MXFP8, Group: 32, ScaleType: dtype.F8E8M0},
	},
	{
		"nvfp4", `{"quantization":{"mode":"nvfp4"}}`, quantized(4, 16, dtype.U8, 0, 4, 128),
		dtype.Matrix{Format: dtype.NVFP4, Group: 16, ScaleType: dtype.F8E4M3, Global: 1},
	},
	{
		"nvfp4 with a global scale", `{}`,
		append(quantized(4, 16, dtype.U8, 0, 4, 128), numbers("m.global_scale", dtype.F32, nil, 1344)),
		dtype.Matrix{Format: dtype.NVFP4, Group: 16, ScaleType: dtype.F8E4M3, Global: 0.5},
	},
}

func TestMatrixReadsEveryFormat(t *testing.T) {
	for _, c := range readable {
		t.Run(c.name, func(t *testing.T) {
			k := single(t, c.config, c.tensors...)
			m, err := k.Matrix("m", 4, 128)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Validate(); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(m.Data, c.tensors[0].data) || len(c.tensors) > 1 && !bytes.Equal(m.Scales, c.tensors[1].data) {
				t.Error("data or scales are not the file's")
			}
			if c.want.Format == dtype.Affine && !bytes.Equal(m.Biases, c.tensors[2].data) {
				t.Error("biases are not the file's")
			}
			c.want.Rows, c.want.Cols = 4, 128
			m.Data, m.Scales, m.Biases = nil, nil, nil
			if got, want := fmt.Sprintf("%+v", m), fmt.Sprintf("%+v", c.want); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if unused := k.Unused(); len(unused) > 0 {
				t.Errorf("unused %q", unused)
			}
		})
	}
}

func TestMatrixStackCutsEveryFormat(t *testing.T) {
	const n, rows, cols = 3, 2, 64
	fp8 := func(name, scale string) []tensor {
		return []tensor{random(name, dtype.F8E4M3, n, rows, cols), random(scale, dtype.BF16, n, 1, 2)}
	}
	for _, c := range []struct {
		name    string
		tensors []tensor
	}{
		{"fused", []tensor{random("m", dtype.BF16, n, rows, cols)}},
		{"affine", quantized(5, 32, dtype.F16, n, rows, cols)},
		{"nvfp4", append(quantized(4, 16, dtype.U8, n, rows, cols), numbers("m.global_scale", dtype.F32, []int{n}, 1, 2, 3))},
		{"fp8", fp8("m.weight", "m.weight_scale_inv")},
		{"fp8 fused", fp8("m", "m_scale_inv")},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := single(t, `{"quantization_config":{"quant_method":"fp8","weight_block_size":[16,32]}}`, c.tensors...)
			ms, err := k.MatrixStack("m", n, rows, cols)
			if err != nil {
				t.Fatal(err)
			}
			var data []byte
			for i := range ms {
				if err := ms[i].Validate(); err != nil {
					t.Fatal(err)
				}
				data = append(data, ms[i].Data...)
				if ms[i].Format == dtype.NVFP4 && ms[i].Global != float32(i+1)/2688 {
					t.Errorf("matrix %d: global %g", i, ms[i].Global)
				}
			}
			if len(ms) != n || !bytes.Equal(data, c.tensors[0].data) {
				t.Errorf("%d matrices, want %d that are the tensor together", len(ms), n)
			}
			if unused := k.Unused(); len(unused) > 0 {
				t.Errorf("unused %q", unused)
			}
			_, err = k.Matrix("m", rows, cols)
			contains(t, err, "model.safetensors", "[3, 2, ", "want [2, ")
		})
	}
}

func TestMatrixSpreadsBlockScales(t *testing.T) {
	const rows, cols = 5, 7
	weight := random("m.weight", dtype.F8E4M3, rows, cols)
	blocks := numbers("m.weight_scale_inv", dtype.BF16, []int{3, 2}, 1, 2, 4, 8, 16, 32)
	for _, c := range []struct {
		name  string
		scale tensor
		want  func(r, c int) float32
	}{
		{"blocks", blocks, func(r, c int) float32 { return []float32{1, 2, 4, 8, 16, 32}[r/2*2+c/4] }},
		{"scalar", numbers("m.weight_scale_inv", dtype.F32, nil, 0.5), func(int, int) float32 { return 0.5 }},
		{"rows", numbers("m.weight_scale", dtype.BF16, []int{rows, 1}, 1, 2, 4, 8, 16), func(r, _ int) float32 { return []float32{1, 2, 4, 8, 16}[r] }},
		{"list of rows", numbers("m.weight_scale", dtype.F32, []int{rows}, 1, 2, 4, 8, 16), func(r, _ int) float32 { return []float32{1, 2, 4, 8, 16}[r] }},
		{"one", numbers("m.weight_scale_inv", dtype.F16, []int{1}, 3), func(int, int) float32 { return 3 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := single(t, `{"quantization_config":{"quant_method":"fp8","weight_block_size":[2,4]}}`, weight, c.scale)
			m, err := k.Matrix("m", rows, cols)
			if err != nil {
				t.Fatal(err)
			}
			row := make([]float32, cols)
			for r := range rows {
				m.Row(row, r)
				for i, got := range row {
					if want := dtype.FromE4M3(weight.data[r*cols+i]) * c.want(r, i); got != want {
						t.Fatalf("[%d,%d]: got %g, want %g", r, i, got, want)
					}
				}
			}
			if unused := k.Unused(); len(unused) > 0 {
				t.Errorf("unused %q", unused)
			}
		})
	}
}

func TestMatrixRefuses(t *testing.T) {
	q := func() []tensor { return quantized(4, 32, dtype.BF16, 0, 4, 128) }
	fp8 := random("m.weight", dtype.F8E4M3, 4, 128)
	const says4 = `{"quantization":{"bits":4,"group_size":32,"m":{"bits":4,"group_size":32}}}`
	for _, c := range []struct {
		name    string
		config  string
		tensors []tensor
		want    []string
	}{
		{"absent", `{}`, nil, []string{"test", `"m.weight"`, "missing"}},
		{"double", `{}`, []tensor{random("m.weight", dtype.F64, 4, 128)}, []string{"model.safetensors", `"m.weight"`, "type F64"}},
		{"integers", `{}`, []tensor{random("m.weight", dtype.I8, 4, 128)}, []string{"type I8"}},
		{"transposed", `{}`, []tensor{random("m.weight", dtype.F32, 128, 4)}, []string{"model.safetensors", `"m.weight"`, "F32 of shape [128, 4], want [4, 128]"}},
		{"flat", `{}`, []tensor{random("m.weight", dtype.F32, 512)}, []string{"[512], want [4, 128]"}},
		{"scalar", `{}`, []tensor{random("m.weight", dtype.U32), random("m.scales", dtype.F16)}, []string{`"m.weight"`}},
		{"no scales", `{}`, q()[:1], []string{`"m.weight"`, `type U32 needs "m.scales" beside it`, "missing"}},
		{"no biases", `{}`, q()[:2], []string{`"m.scales"`, `type BF16 needs "m.biases"`}},
		{"columns", `{}`, []tensor{random("m.weight", dtype.U32, 4, 17), q()[1], q()[2]}, []string{`"m.weight"`, "[4, 17]", "17 words are too short for 128 columns"}},
		{"seven bits", `{}`, []tensor{random("m.weight", dtype.U32, 4, 28), q()[1], q()[2]}, []string{"7 bits"}},
		{"rows", `{}`, quantized(4, 32, dtype.BF16, 0, 5, 128), []string{"[5, 16], want [4, 16]"}},
		{"empty", `{}`, []tensor{{Decl: Decl{"m.weight", dtype.U32, []int{0, math.MaxInt / 8}}}, q()[1], q()[2]}, []string{`"m.weight"`}},
		{"groups", `{}`, []tensor{q()[0], random("m.scales", dtype.BF16, 4, 3), q()[2]}, []string{`"m.scales"`, "3 groups do not divide 128"}},
		{"no groups", `{}`, []tensor{q()[0], {Decl: Decl{"m.scales", dtype.BF16, []int{4, 0}}}, q()[2]}, []string{`"m.scales"`, "0 groups"}},
		{"group of 8", `{}`, quantized(4, 8, dtype.BF16, 0, 4, 128), []string{"groups of 8"}},
		{"biases of another type", `{}`, []tensor{q()[0], q()[1], random("m.biases", dtype.F16, 4, 4)}, []string{`"m.biases"`, "type F16, want BF16"}},
		{"biases of another shape", `{}`, []tensor{q()[0], q()[1], random("m.biases", dtype.BF16, 4, 2)}, []string{`"m.biases"`, "[4, 2], want [4, 4]"}},
		{"scales of integers", `{}`, []tensor{q()[0], random("m.scales", dtype.I16, 4, 4), random("m.biases", dtype.I16, 4, 4)}, []string{"scales of I16"}},
		{"no such mode", `{}`, quantized(8, 16, dtype.U8, 0, 4, 128), []string{`"m.scales"`, "no mode has 8 bits in groups of 16"}},
		{"global scale twice", `{}`, append(quantized(4, 16, dtype.U8, 0, 4, 128), random("m.global_scale", dtype.F32, 2)), []string{`"m.global_scale"`, "want 1 numbers"}},
		{"config says plain", `{"quantization":{"bits":4,"m":false}}`, q(), []string{`"m.weight"`, "config.json says it is not quantized"}},
		{"config says quantized", says4, []tensor{random("m.weight", dtype.BF16, 4, 128)}, []string{"config.json says it is quantized", "BF16"}},
		{"config says other bits", says4, quantized(8, 32, dtype.BF16, 0, 4, 128), []string{"affine with 4 bits in groups of 32", "affine with 8 bits"}},
		{"config says other mode", says4, quantized(4, 32, dtype.U8, 0, 4, 128), []string{"are mxfp4"}},
		{"fp8 without scales", `{}`, []tensor{fp8}, []string{`"m.weight"`, `type F8_E4M3 needs "m.weight_scale_inv"`}},
		{"fp8 scales of another shape", `{}`, []tensor{fp8, random("m.weight_scale_inv", dtype.F32, 2, 1)}, []string{`"m.weight_scale_inv"`, "[2, 1], want [1, 1] for blocks of 128×128"}},
		{"fp8 scales of integers", `{}`, []tensor{fp8, random("m.weight_scale_inv", dtype.I32, 1, 1)}, []string{`"m.weight_scale_inv"`, "type I32"}},
		{"fp8 of another shape", `{}`, []tensor{random("m.weight", dtype.F8E4M3, 2, 128), random("m.weight_scale_inv", dtype.F32, 1, 1)}, []string{"[2, 128], want [4, 128]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := single(t, c.config, c.tensors...)
			var err error
			n := allocated(func() { _, err = k.Matrix("m", 4, 128) })
			if slices.Contains(c.want, "missing") && !errors.Is(err, ErrMissing) {
				t.Errorf("%v does not wrap ErrMissing", err)
			}
			contains(t, err, c.want...)
			if n > 1<<20 {
				t.Errorf("took %d bytes of memory", n)
			}
		})
	}
}

func TestMatrixRefusesAbsurdShapes(t *testing.T) {
	k := single(t, `{}`, random("m.weight", dtype.F32, 2, 2), random("f.weight", dtype.F8E4M3, 2, 2), random("f.weight_scale_inv", dtype.F32, 1, 1))
	for _, shape := range [][2]int{{0, 2}, {2, 0}, {-1, 2}, {math.MaxInt, math.MaxInt}, {2, math.MaxInt}, {math.MinInt, math.MinInt}} {
		for _, module := range []string{"m", "f"} {
			if _, err := k.Matrix(module, shape[0], shape[1]); err == nil {
				t.Errorf("%s of %v: no error", module, shape)
			}
			if _, err := k.MatrixStack(module, shape[0], shape[1], 2); err == nil {
				t.Errorf("%s of %v: no error", module, shape)
			}
		}
	}
}

func TestMatrixOfGoldenModels(t *testing.T) {
	tiny, err := Open("../models/tiny")
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, tiny)
	m, err := tiny.Matrix("language_model.model.embed_tokens", 8256, 384)
	if err != nil {
		t.Fatal(err)
	}
	if m.Format != dtype.Affine || m.Bits != 8 || m.Group != 64 || m.ScaleType != dtype.F16 {
		t.Errorf("embedding is %v of %d bits in groups of %d with %v scales", m.Format, m.Bits, m.Group, m.ScaleType)
	}
	var square float64
	row := make([]float32, 384)
	for r := range 8256 {
		m.Row(row, r)
		for _, v := range row {
			square += float64(v) * float64(v)
		}
	}
	// A trained embedding has numbers of an ordinary size; a wrong bit order or group has not.
	if rms := math.Sqrt(square / (8256 * 384)); rms < 0.01 || rms > 1 {
		t.Errorf("embedding has root mean square %g", rms)
	}
}
