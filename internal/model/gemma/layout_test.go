package gemma

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
)

var prompt = []int32{2, 77, 13, 40, 19, 61, 12, 12, 80}

// TestOpenLayoutsAreOneModel opens the fixtures in every layout, to the same bits.
func TestOpenLayoutsAreOneModel(t *testing.T) {
	layouts := map[string][]edit{
		"mlx":              {mlx},
		"text alone":       {textOnly},
		"mlx, text alone":  {mlx, func(_ *testing.T, f *folder) { f.config = f.text() }},
		"single experts":   {single},
		"heads by layer":   {newer(false)},
		"heads by kind":    {newer(true)},
		"towers":           {otherParts},
		"F32":              {plainly(dtype.F32)},
		"no kinds of rope": {setting("rope_parameters", nil)},
		"by architecture":  {textOnly, setting("model_type", nil), func(_ *testing.T, f *folder) { f.config["architectures"] = []string{"Gemma4ForCausalLM"} }},
		"output matrix": {func(_ *testing.T, f *folder) {
			f.tensors["lm_head.weight"] = f.tensors["model.language_model.embed_tokens.weight"]
		}},
		"frequencies": {stores(map[string][]int{"model.language_model.rotary_emb.sliding_attention_inv_freq": {8}})},
	}
	for _, name := range golden.Gemma {
		want := answers(t, golden.Dir(t, name), prompt)
		for layout, edits := range layouts {
			if name == "gemma4_unified" && (layout == "by architecture") {
				continue // which is that of the other line
			}
			t.Run(name+"/"+layout, func(t *testing.T) {
				same(t, "logits", answers(t, fixture(t, name, edits...).write(t), prompt), want)
			})
		}
	}
	t.Run("surplus", func(t *testing.T) {
		want := answers(t, golden.Dir(t, "gemma4_ple"), prompt)
		same(t, "logits", answers(t, fixture(t, "gemma4_ple", surplus).write(t), prompt), want)
	})
	t.Run("untied", func(t *testing.T) {
		own := func(_ *testing.T, f *folder) {
			x := f.tensors["model.language_model.embed_tokens.weight"]
			x.values = slices.Clone(x.values)
			slices.Reverse(x.values)
			f.tensors["lm_head.weight"] = x
		}
		tied := answers(t, golden.Dir(t, "gemma4_dense"), prompt)
		got := answers(t, fixture(t, "gemma4_dense", own, setting("tie_word_embeddings", false)).write(t), prompt)
		if slices.Equal(got[0], tied[0]) {
			t.Error("the output matrix is not the stored one")
		}
	})
}

// TestOpenEncodedEqualsDecoded opens matrices in the encodings of conversions, and compares with their numbers written out.
func TestOpenEncodedEqualsDecoded(t *testing.T) {
	for i, bits := range []int{4, 8, 6, 4} {
		name := golden.Gemma[i]
		t.Run(fmt.Sprintf("%s/mlx %d bits", name, bits), func(t *testing.T) {
			coded := fixture(t, name, mlx, plainly(dtype.F32))
			plain := coded.clone()
			n := 0
			for name, x := range maps.Clone(coded.tensors) {
				if len(x.shape) < 2 || x.shape[len(x.shape)-1]%32 != 0 {
					continue
				}
				width := bits
				if strings.Contains(name, "router.proj") {
					width = 8
				}
				n++
				x.values = quantized(t, coded, name, x, width)
				plain.tensors[name] = x
			}
			if n < 15 {
				t.Fatalf("%d matrices are encoded", n)
			}
			same(t, "logits", answers(t, coded.write(t), prompt), answers(t, plain.write(t), prompt))
		})
	}
}

// TestOpenForeignEqualsDecoded opens the formats of other tools, and compares with their numbers written out. Among them is
// pack-quantized, of the QAT files of Google.
func TestOpenForeignEqualsDecoded(t *testing.T) {
	for i, l := range golden.Layouts() {
		name := golden.Gemma[i%len(golden.Gemma)]
		t.Run(l.Name+"/"+name, func(t *testing.T) {
			coded := fixture(t, name, plainly(dtype.F32), single)
			coded.config["quantization_config"] = l.Config
			plain := coded.clone()
			delete(plain.config, "quantization_config")
			for name, x := range maps.Clone(coded.tensors) {
				if len(x.shape) != 2 || x.shape[0]%l.Rows != 0 || x.shape[1]%l.Cols != 0 || strings.Contains(name, "embed_tokens") {
					continue
				}
				parts, decoded := l.Encode(x.values, x.shape[0], x.shape[1])
				plain.tensors[name] = tensor{typ: x.typ, shape: x.shape, values: decoded}
				delete(coded.tensors, name)
				for _, p := range parts {
					coded.tensors[strings.TrimSuffix(name, ".weight")+p.Suffix] = tensor{typ: p.Type, shape: p.Shape, data: p.Data}
				}
			}
			got, want := answers(t, coded.write(t), prompt), answers(t, plain.write(t), prompt)
			if !l.Rounds {
				same(t, "logits", got, want)
				return
			}
			var worst golden.Worst
			for i := range want {
				worst.Add(fmt.Sprintf("row %d", i), got[i], want[i])
			}
			worst.Check(t, "logits", golden.Tol.Spec)
		})
	}
}

// quantized replaces a matrix, or a stack of them, by codes of MLX.
func quantized(t *testing.T, f *folder, name string, x tensor, bits int) []float32 {
	t.Helper()
	cols := x.shape[len(x.shape)-1]
	rows := len(x.values) / cols
	m := dtype.Matrix{Rows: rows, Cols: cols, Type: dtype.F32, Data: make([]byte, 4*len(x.values))}
	dtype.FromF32(m.Data, dtype.F32, x.values)
	q, err := dtype.Quantize(&m, bits, 32, dtype.BF16)
	if err != nil {
		t.Fatal(err)
	}
	shape := func(last int) []int { return append(slices.Clone(x.shape[:len(x.shape)-1]), last) }
	module := strings.TrimSuffix(name, ".weight")
	f.tensors[name] = tensor{typ: dtype.U32, shape: shape(cols * bits / 32), data: q.Data}
	f.tensors[module+".scales"] = tensor{typ: dtype.BF16, shape: shape(cols / 32), data: q.Scales}
	f.tensors[module+".biases"] = tensor{typ: dtype.BF16, shape: shape(cols / 32), data: q.Biases}
	decoded := make([]float32, len(x.values))
	for r := range rows {
		q.Row(decoded[r*cols:], r)
	}
	return decoded
}
