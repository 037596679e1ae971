package glm

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
)

var prompt = []int32{5, 77, 3, 40, 9, 61, 12, 12, 80}

// TestOpenLayoutsAreOneModel opens the fixtures in every layout, to the same bits.
func TestOpenLayoutsAreOneModel(t *testing.T) {
	layouts := map[string][]edit{
		"mlx":             {mlx},
		"mlx, older":      {func(_ *testing.T, f *folder) { stackExperts(f) }},
		"newer config":    {newer},
		"wrapper":         {mlx, nested},
		"sidecar":         {sidecar},
		"mlx and sidecar": {mlx, sidecar},
		"no copies":       {uncopied},
		"no promise":      {setting("num_nextn_predict_layers", 0)},
		"by architecture": {setting("model_type", nil)},
		"frequencies": {func(_ *testing.T, f *folder) {
			f.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = tensor{typ: dtype.F32, shape: []int{2}, values: []float32{1, 2}}
		}},
		"F32": {plainly(dtype.F32)},
	}
	for _, name := range golden.GLM {
		want := answers(t, golden.Dir(t, name), prompt)
		for layout, edits := range layouts {
			t.Run(name+"/"+layout, func(t *testing.T) {
				same(t, "logits", answers(t, fixture(t, name, edits...).write(t), prompt), want)
			})
		}
		t.Run(name+"/no head", func(t *testing.T) {
			same(t, "logits", answers(t, fixture(t, name, headless).write(t), prompt), want[:len(prompt)])
		})
	}
}

// TestRotatedRowsInHalves opens a checkpoint whose rotated rows were put in order for a rotation of
// halves: with rope_interleave false it is the same model, but for the order of additions.
func TestRotatedRowsInHalves(t *testing.T) {
	halves := func(t *testing.T, f *folder) {
		order := func(name string, set, rotary int) {
			x := f.tensors[name]
			cols := x.shape[1]
			v := slices.Clone(x.values)
			for r := range x.shape[0] {
				if i := r%set - (set - rotary); i >= 0 {
					from := r - i + i%(rotary/2)*2 + i/(rotary/2)
					copy(v[r*cols:(r+1)*cols], x.values[from*cols:])
				}
			}
			x.values = v
			f.tensors[name] = x
		}
		rotary := f.n("qk_rope_head_dim")
		for name := range f.tensors {
			switch {
			case strings.HasSuffix(name, "q_b_proj.weight"):
				order(name, f.n("qk_nope_head_dim")+rotary, rotary)
			case strings.HasSuffix(name, "kv_a_proj_with_mqa.weight"):
				order(name, f.n("kv_lora_rank")+rotary, rotary)
			}
		}
	}
	want := answers(t, golden.Dir(t, "glm4_moe_lite"), prompt)
	got := answers(t, fixture(t, "glm4_moe_lite", halves, setting("rope_interleave", false)).write(t), prompt)
	wrong := answers(t, fixture(t, "glm4_moe_lite", halves).write(t), prompt)
	var near, far golden.Worst
	for i := range want {
		near.Add(fmt.Sprintf("row %d", i), got[i], want[i])
		far.Add(fmt.Sprintf("row %d", i), wrong[i], want[i])
	}
	near.Check(t, "logits", golden.Tol.Logits)
	if far.Err(1) == nil {
		t.Error("the order of rotated rows makes no difference")
	}
}

// TestQueriesOfOneMatrix opens a model whose queries are not made in two steps.
func TestQueriesOfOneMatrix(t *testing.T) {
	one := func(_ *testing.T, f *folder) {
		for name, x := range maps.Clone(f.tensors) {
			p, ok := strings.CutSuffix(name, "q_b_proj.weight")
			if !ok {
				continue
			}
			rows := x.shape[0]
			for _, n := range []string{"q_a_proj.weight", "q_a_layernorm.weight", "q_b_proj.weight"} {
				delete(f.tensors, p+n)
			}
			q := tensor{typ: dtype.BF16, shape: []int{rows, f.n("hidden_size")}, values: make([]float32, rows*f.n("hidden_size"))}
			for i := range q.values {
				q.values[i] = float32(i*7919%101-50) / 400
			}
			f.tensors[p+"q_proj.weight"] = q
		}
		f.config["q_lora_rank"] = json.RawMessage("null")
	}
	f := fixture(t, "deepseek_v3", one)
	want := answers(t, f.write(t), prompt)
	same(t, "logits", answers(t, f.edit(t, mlx).write(t), prompt), want)
}

// TestHeadSharesTheModelsMatrices holds that copies are not loaded twice, and that a head's own
// matrices are used.
func TestHeadSharesTheModelsMatrices(t *testing.T) {
	shared := open(t, golden.Dir(t, "glm4_moe_lite"), 1, model.Options{})
	without := open(t, fixture(t, "glm4_moe_lite", uncopied).write(t), 1, model.Options{})
	if parts(shared.Head()).Embed != parts(shared.Model).Embed || parts(shared.Head()).Unembed != parts(shared.Model).Unembed || shared.Info().Bytes != without.Info().Bytes {
		t.Errorf("%d bytes with copies, %d without", shared.Info().Bytes, without.Info().Bytes)
	}
	own := func(part string) edit {
		return func(_ *testing.T, f *folder) {
			x := f.tensors[f.head()+part]
			x.values = slices.Clone(x.values)
			for i := range x.values {
				x.values[i] *= 2
			}
			f.tensors[f.head()+part] = x
		}
	}
	want := answers(t, golden.Dir(t, "glm4_moe_lite"), prompt)
	f := fixture(t, "glm4_moe_lite", own("shared_head.head.weight"))
	r := open(t, f.write(t), 1, model.Options{})
	if parts(r.Head()).Embed != parts(r.Model).Embed || parts(r.Head()).Unembed == parts(r.Model).Unembed {
		t.Error("the head's output matrix is not its own, or its embedding is")
	}
	got := answers(t, f.write(t), prompt)
	for i, row := range got {
		for j, x := range row {
			if i >= len(prompt) {
				x /= 2
			}
			if x != want[i][j] {
				t.Fatalf("row %d, logit %d: %v, want %v", i, j, x, want[i][j])
			}
		}
	}
	f = fixture(t, "glm4_moe_lite", own("embed_tokens.weight"))
	if r := open(t, f.write(t), 1, model.Options{}); parts(r.Head()).Embed == parts(r.Model).Embed {
		t.Error("the head's embedding is not its own")
	}
}

// TestOpenEncodedEqualsDecoded opens matrices in the encodings of releases and conversions, and
// compares with their numbers written out.
func TestOpenEncodedEqualsDecoded(t *testing.T) {
	affine := func(bits int) func(t *testing.T, f *folder, name string, x tensor) ([]float32, bool) {
		return func(t *testing.T, f *folder, name string, x tensor) ([]float32, bool) {
			cols := x.shape[len(x.shape)-1]
			if cols%32 != 0 || strings.HasSuffix(name, "mlp.gate.weight") {
				return nil, false
			}
			return quantized(t, f, name, x, bits), true
		}
	}
	for _, c := range []struct {
		name, fixture string
		layout        []edit
		encode        func(t *testing.T, f *folder, name string, x tensor) (decoded []float32, ok bool)
	}{
		{"fp8 blocks", "deepseek_v3", []edit{setting("quantization_config", map[string]any{"quant_method": "fp8", "weight_block_size": []int{48, 32}})}, fp8(48, 32, ".weight_scale_inv")},
		{"fp8 rows", "glm4_moe_air", []edit{setting("quantization_config", map[string]any{"quant_method": "compressed-tensors"})}, fp8(1, 1<<20, ".weight_scale")},
		{"mlx 4 bits", "glm4_moe_lite", []edit{mlx}, affine(4)},
		{"mlx 5 bits", "glm4_moe_lite", []edit{mlx}, affine(5)},
		{"mlx 6 bits", "deepseek_v3", []edit{mlx}, affine(6)},
		{"mlx 8 bits", "glm4_moe_air", []edit{mlx}, affine(8)},
		{"mlx with kv_b whole", "deepseek_v3", nil, affine(8)},
	} {
		t.Run(c.name, func(t *testing.T) {
			coded := fixture(t, c.fixture, append([]edit{plainly(dtype.F32)}, c.layout...)...)
			plain := coded.clone()
			delete(plain.config, "quantization_config")
			n := 0
			for name, x := range maps.Clone(coded.tensors) {
				if len(x.shape) < 2 {
					continue
				}
				if decoded, ok := c.encode(t, coded, name, x); ok {
					n++
					x.values = decoded
					plain.tensors[name] = x
				}
			}
			if n < 20 {
				t.Fatalf("%d matrices are encoded", n)
			}
			same(t, "logits", answers(t, coded.write(t), prompt), answers(t, plain.write(t), prompt))
		})
	}
}

// TestOpenForeignEqualsDecoded opens the formats of other tools, and compares with their numbers written out.
// Fixtures differ in attention, in biases, and in how kv_b is cut.
func TestOpenForeignEqualsDecoded(t *testing.T) {
	for i, l := range golden.Layouts() {
		name := golden.GLM[i%len(golden.GLM)]
		t.Run(l.Name+"/"+name, func(t *testing.T) {
			coded := fixture(t, name, plainly(dtype.F32), setting("quantization_config", l.Config))
			plain := coded.clone()
			delete(plain.config, "quantization_config")
			for name, x := range maps.Clone(coded.tensors) {
				if len(x.shape) != 2 || x.shape[0]%l.Rows != 0 || x.shape[1]%l.Cols != 0 {
					continue
				}
				parts, decoded := l.Encode(x.values, x.shape[0], x.shape[1])
				plain.tensors[name] = tensor{typ: x.typ, shape: x.shape, values: decoded}
				delete(coded.tensors, name)
				for _, p := range parts {
					part := strings.TrimSuffix(name, ".weight") + p.Suffix
					if _, ok := coded.tensors[part]; !ok { // it may have a bias
						coded.tensors[part] = tensor{typ: p.Type, shape: p.Shape, data: p.Data}
					}
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

// fp8 replaces a matrix by codes with scales for blocks of that many rows and columns.
func fp8(down, across int, suffix string) func(t *testing.T, f *folder, name string, x tensor) ([]float32, bool) {
	return func(_ *testing.T, f *folder, name string, x tensor) ([]float32, bool) {
		for _, plain := range []string{"embed_tokens", "lm_head", "shared_head.head", "mlp.gate.weight", "eh_proj"} {
			if strings.Contains(name, plain) {
				return nil, false
			}
		}
		rows, cols := x.shape[0], x.shape[1]
		high, wide := (rows+down-1)/down, (cols+across-1)/across
		scales := make([]float32, high*wide)
		for i := range scales {
			scales[i] = 0.0007 * float32(1+i%5) // near those that the weights need
		}
		data, decoded := make([]byte, rows*cols), make([]float32, rows*cols)
		for i, v := range x.values {
			s := scales[i/cols/down*wide+i%cols/across]
			data[i] = dtype.ToE4M3(v / s)
			decoded[i] = dtype.FromE4M3(data[i]) * s
		}
		f.tensors[name] = tensor{typ: dtype.F8E4M3, shape: x.shape, data: data}
		f.tensors[strings.TrimSuffix(name, ".weight")+suffix] = tensor{typ: dtype.F32, shape: []int{high, wide}, values: scales}
		return decoded, true
	}
}
