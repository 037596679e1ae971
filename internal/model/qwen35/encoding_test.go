package qwen35

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
)

// encoding is a way to store a matrix in fewer bits.
type encoding struct {
	name string
	cols int // the number of columns must be a multiple of it
	rows int // likewise; 0: any number will do
	// encode returns the tensors that stand for a matrix, named by what follows the
	// module's name, and the values they stand for. Shapes are of one matrix.
	encode func(t *testing.T, values []float32, rows, cols int) (parts []tensor, decoded []float32)
	// worst allowed difference of the logits from those of the decoded weights. Zero but
	// where the kernels round in another place than the format's definition.
	tolerance float64
}

// encodings are the formats of spec sections 1.4 and 1.5.
func encodings() []encoding {
	return []encoding{
		affine(2, 32, dtype.BF16),
		affine(3, 64, dtype.F16),
		affine(4, 64, dtype.BF16),
		affine(4, 32, dtype.F16),
		affine(5, 32, dtype.F32),
		affine(6, 64, dtype.BF16),
		affine(8, 64, dtype.BF16),
		affine(8, 128, dtype.F32),
		{name: "mxfp4", cols: 32, encode: mxfp4},
		{name: "mxfp8", cols: 32, encode: mxfp8},
		{name: "nvfp4", cols: 16, encode: nvfp4(0)},
		// 2⁷ times the 2688 that the number is divided by.
		{name: "nvfp4 with a global scale", cols: 16, encode: nvfp4(2688 * 128)},
		{name: "nvfp4 with an uneven global scale", cols: 16, encode: nvfp4(1000), tolerance: golden.Tol.Spec},
		{name: "fp8", cols: 1, encode: fp8(48, 64, dtype.F32)},
		{name: "fp8 with bf16 scales", cols: 1, encode: fp8(48, 64, dtype.BF16)},
	}
}

// coding says which matrices have an encoding.
type coding struct {
	encoding
	match func(name string) bool
}

// encodedPrompt is short: there are many encodings.
var encodedPrompt = []int32{3, 14}

// encodedModels are the fixtures to encode. The one with experts has every kind of
// matrix that the other has, save those of its dense models.
func encodedModels(t *testing.T) map[string]*folder {
	t.Helper()
	list := map[string]*folder{"moe": smallFixture(t, "moe")}
	if long {
		list["dense"] = smallFixture(t, "dense")
	}
	return list
}

// TestOpenEncodedEqualsDecoded stores models in every encoding and, decoded, as float32.
// On the float path both must give the same bits.
func TestOpenEncodedEqualsDecoded(t *testing.T) {
	block := configure(func(_, top map[string]any) {
		top["quantization_config"] = map[string]any{"quant_method": "fp8", "weight_block_size": []int{48, 64}}
	})
	for name, fixture := range encodedModels(t) {
		for _, e := range encodings() {
			t.Run(fmt.Sprintf("model=%s/encoding=%s", name, e.name), func(t *testing.T) {
				layout := []edit{mlx, switchExperts}
				if strings.HasPrefix(e.name, "fp8") {
					layout = []edit{block, in(released, separateExperts)}
				}
				compareEncoded(t, fixture.clone().edit(t, layout...), coding{e, everything})
			})
		}
	}
}

// layoutOf is the layout of another tool with that name.
func layoutOf(name string) encoding {
	all := golden.Layouts()
	return foreign(all[slices.IndexFunc(all, func(l golden.Layout) bool { return l.Name == name })])
}

// foreign is a layout of another tool.
func foreign(l golden.Layout) encoding {
	e := encoding{name: l.Name, rows: l.Rows, cols: l.Cols}
	if l.Rounds {
		e.tolerance = golden.Tol.Spec
	}
	e.encode = func(_ *testing.T, values []float32, rows, cols int) (list []tensor, decoded []float32) {
		parts, decoded := l.Encode(values, rows, cols)
		for _, p := range parts {
			list = append(list, tensor{p.Suffix, p.Type, p.Shape, p.Data})
		}
		return list, decoded
	}
	return e
}

// TestOpenForeignEqualsDecoded is TestOpenEncodedEqualsDecoded for the formats of other tools, head included.
func TestOpenForeignEqualsDecoded(t *testing.T) {
	for name, fixture := range encodedModels(t) {
		fixture = fixture.clone().edit(t, separateExperts)
		for _, l := range golden.Layouts() {
			t.Run(fmt.Sprintf("model=%s/format=%s", name, l.Name), func(t *testing.T) {
				config := configure(func(_, top map[string]any) { top["quantization_config"] = l.Config })
				compareEncoded(t, fixture.clone().edit(t, config), coding{foreign(l), everything})
			})
		}
	}
}

// TestOpenMixedEncodings stores parts of a model in different ways, as converters do.
func TestOpenMixedEncodings(t *testing.T) {
	four, eight, block := affine(4, 64, dtype.BF16), affine(8, 64, dtype.BF16), encoding{encode: fp8(128, 128, dtype.F32), cols: 1}
	isRouter := func(name string) bool {
		return strings.HasSuffix(name, "mlp.gate.weight") || strings.HasSuffix(name, "shared_expert_gate.weight")
	}
	rest := func(name string) bool { return !isRouter(name) && !strings.HasSuffix(name, "mtp.fc.weight") }
	quantization := map[string]any{
		"group_size": 64, "bits": 4,
		"language_model.model.layers.0.mlp.gate": map[string]any{"group_size": 64, "bits": 8},
		"language_model.mtp.fc":                  false,
	}
	atTop := configure(func(_, top map[string]any) {
		top["quantization"], top["quantization_config"] = quantization, quantization
	})
	inText := configure(func(text, _ map[string]any) { text["quantization"] = quantization })
	mlpOfModel := func(name string) bool { return strings.Contains(name, ".mlp.") && inModel(name) && rest(name) }
	gptq := configure(func(_, top map[string]any) {
		top["quantization_config"] = map[string]any{"quant_method": "auto-round", "packing_format": "auto_round:auto_gptq"}
	})
	const gamma = `{"rmsnorm_weight_format": "mlx_gamma"}`
	models := encodedModels(t)
	for _, c := range []struct {
		name    string
		layout  []edit
		codings []coding
	}{
		{"routers in 8 bits, fc plain", []edit{switchExperts, mlx, atTop}, []coding{{eight, isRouter}, {four, rest}}},
		{"quantization in the text config", []edit{switchExperts, mlx, inText}, []coding{{eight, isRouter}, {four, rest}}},
		{"plain raw head beside", []edit{switchExperts, mlx, unshifted(inHead), sidecar("mtp.safetensors")}, []coding{{four, inModel}}},
		{"quantized head beside a plain model", []edit{mlx, sidecar("mtp/weights.safetensors"), manifest(gamma)}, []coding{{four, inHead}}},
		{"separate experts in the head", []edit{in(released, switchExperts), in("mtp.", separateExperts), mlx}, []coding{{four, everything}}},
		{"fused experts", []edit{mlx}, []coding{{four, everything}}},
		{"fused projections", []edit{qwen3Next}, []coding{{four, everything}}},
		{"fused projections in fp8", []edit{qwen3Next}, []coding{{block, rest}}},
		{"fp8 and plain in mtp.safetensors", []edit{separateExperts, sidecar("mtp.safetensors")}, []coding{{block, rest}}},
		{"fused experts in fp8", nil, []coding{{block, rest}}},
		{"nvfp4 and fp8 of compressed-tensors, plain head", []edit{separateExperts}, []coding{
			{layoutOf("nvfp4 of compressed-tensors"), mlpOfModel}, {layoutOf("fp8 by row"), inModel},
		}},
		{"nvfp4 and fp8 of ModelOpt, quantized head", []edit{separateExperts}, []coding{
			{layoutOf("nvfp4 of ModelOpt"), mlpOfModel}, {layoutOf("fp8 by matrix"), rest},
		}},
		{"awq, plain head beside", []edit{separateExperts, sidecar("mtp.safetensors")}, []coding{{layoutOf("awq"), inModel}}},
		{"auto-round in two widths", []edit{separateExperts, gptq}, []coding{{layoutOf("gptq"), mlpOfModel}, {layoutOf("gptq, first version"), everything}}},
	} {
		for name, fixture := range models {
			t.Run(fmt.Sprintf("model=%s/mix=%s", name, c.name), func(t *testing.T) {
				compareEncoded(t, fixture.clone().edit(t, c.layout...), c.codings...)
			})
		}
	}
}

// compareEncoded encodes matrices of a folder, and compares it with its decoded twin.
func compareEncoded(t *testing.T, f *folder, codings ...coding) {
	t.Helper()
	plain := f.clone()
	for _, key := range []string{"quantization", "quantization_config"} {
		delete(plain.config, key) // they would contradict the tensors
		delete(plain.text(), key)
	}
	count := 0
	for name, w := range f.files {
		plain.files[name].tensors = nil
		var coded []tensor
		for _, x := range w.tensors {
			i := slices.IndexFunc(codings, func(c coding) bool { return c.fits(&x) })
			if i < 0 {
				coded = append(coded, x)
				plain.files[name].add(x)
				continue
			}
			count++
			parts, values := codings[i].stack(t, &x)
			coded = append(coded, parts...)
			plain.files[name].add(numbers(x.name, x.typ, x.shape, values))
		}
		w.tensors = coded
	}
	if count < 8 { // a dense head's
		t.Fatalf("only %d matrices are encoded", count)
	}
	got, want := answers(t, f.write(t), encodedPrompt), answers(t, plain.write(t), encodedPrompt)
	tolerance := codings[0].tolerance
	if tolerance == 0 {
		same(t, "logits", got, want)
		return
	}
	var worst golden.Worst
	for i := range want {
		worst.Add(fmt.Sprintf("row %d", i), got[i], want[i])
	}
	worst.Check(t, "logits", tolerance)
}

// fits reports whether x is to be encoded: a matrix, or a stack of them.
func (c coding) fits(x *tensor) bool {
	n := len(x.shape)
	return (n == 2 || n == 3 && !strings.HasSuffix(x.name, "conv1d.weight")) && x.shape[n-1]%c.cols == 0 &&
		x.shape[n-2]%max(c.rows, 1) == 0 && c.match(x.name)
}

// smallFixture is a fixture's checkpoint in float32, cut to two layers, 64 tokens and a
// quarter of its experts, those of the head fused too.
func smallFixture(t *testing.T, name string) *folder {
	t.Helper()
	c := golden.Open(t, golden.Dir(t, name))
	f := newFolder(t, c.Config())
	const vocab, experts = 64, 4
	text := f.text()
	text["vocab_size"], text["num_hidden_layers"], text["layer_types"] = vocab, 2, []string{"linear_attention", "full_attention"}
	if text["num_experts"] != nil {
		text["num_experts"], text["num_experts_per_tok"] = experts, 2
	}
	for _, name := range c.Tensors() {
		s, err := c.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		x := tensor{name: name, typ: s.Type, shape: s.Shape, data: s.Data}
		switch {
		case strings.HasSuffix(name, "embed_tokens.weight"), name == "lm_head.weight":
			x = x.rows(vocab)[0]
		case strings.HasSuffix(name, "mlp.gate.weight"), strings.Contains(name, "mlp.experts.") && len(x.shape) == 3:
			x = x.rows(experts)[0]
		}
		f.main().add(numbers(name, dtype.F32, x.shape, x.values()))
	}
	f.main().take(func(name string) bool {
		return strings.Contains(name, ".layers.1.") || strings.Contains(name, ".layers.2.") || strings.HasPrefix(name, "model.visual.")
	})
	f.edit(t, rename(released+"layers.3.", released+"layers.1."))
	fuseHead(f, experts)
	return f
}

// fuseHead joins the first of the head's separate experts, if it has any.
func fuseHead(f *folder, experts int) {
	const p = "mtp.layers.0.mlp.experts."
	parts := map[string]tensor{}
	for _, x := range f.main().take(func(name string) bool { return strings.HasPrefix(name, p) }) {
		parts[strings.TrimPrefix(x.name, p)] = x
	}
	if len(parts) == 0 {
		return
	}
	var both, down []tensor
	for e := range experts {
		gate, up := parts[fmt.Sprintf("%d.gate_proj.weight", e)], parts[fmt.Sprintf("%d.up_proj.weight", e)]
		both = append(both, joined("", append(gate.rows(1), up.rows(1)...)))
		down = append(down, parts[fmt.Sprintf("%d.down_proj.weight", e)])
	}
	f.main().add(stacked(p+"gate_up_proj", both), stacked(p+"down_proj", down))
}

// stack encodes a matrix or a stack of them.
func (e encoding) stack(t *testing.T, x *tensor) (parts []tensor, values []float32) {
	t.Helper()
	n := len(x.shape)
	rows, cols := x.shape[n-2], x.shape[n-1]
	all := x.values()
	for from := 0; from < len(all); from += rows * cols {
		one, v := e.encode(t, all[from:from+rows*cols], rows, cols)
		values = append(values, v...)
		if parts == nil {
			parts = one
			continue
		}
		for i := range parts {
			parts[i].data = append(parts[i].data, one[i].data...)
		}
	}
	module, named := strings.CutSuffix(x.name, ".weight")
	for i := range parts {
		switch p := &parts[i]; {
		case p.name == ".weight" && !named:
			p.name = x.name // a fused tensor has no suffix
		case p.name == ".weight_scale_inv" && !named:
			p.name = x.name + "_scale_inv"
		default:
			p.name = module + p.name
		}
		if n == 3 {
			parts[i].shape = append([]int{x.shape[0]}, parts[i].shape...)
		}
	}
	return parts, values
}

// affine is MLX's integer quantization.
func affine(bits, group int, scale dtype.Type) encoding {
	e := encoding{name: fmt.Sprintf("affine %d bits, groups of %d, scales %v", bits, group, scale), cols: group}
	e.encode = func(t *testing.T, values []float32, rows, cols int) ([]tensor, []float32) {
		t.Helper()
		x := numbers("", dtype.F32, []int{rows, cols}, values)
		q, err := dtype.Quantize(&dtype.Matrix{Rows: rows, Cols: cols, Type: dtype.F32, Data: x.data}, bits, group, scale)
		if err != nil {
			t.Fatal(err)
		}
		decoded := make([]float32, len(values))
		for r := range rows {
			q.Row(decoded[r*cols:], r)
		}
		return []tensor{
			{".weight", dtype.U32, []int{rows, cols * bits / 32}, q.Data},
			{".scales", scale, []int{rows, cols / group}, q.Scales},
			{".biases", scale, []int{rows, cols / group}, q.Biases},
		}, decoded
	}
	return e
}

// e2m1 are the magnitudes of the 4-bit floats.
var e2m1 = [8]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6}

// nearest is the code of the 4-bit float nearest to x.
func nearest(x float32) (code uint8, value float32) {
	magnitude := max(x, -x)
	for int(code) < len(e2m1)-1 && 2*magnitude > e2m1[code]+e2m1[code+1] {
		code++
	}
	if x < 0 {
		return code | 8, -e2m1[code]
	}
	return code, e2m1[code]
}

// exponent is the power of two by which a group is divided so that its largest magnitude
// is below top, as a scale byte.
func exponent(group []float32, top float32) (scale byte, factor float32) {
	factor = 1
	e := 127
	m := largest(group)
	for ; m < top*factor/2 && e > 0; e-- {
		factor /= 2
	}
	for ; m > top*factor; e++ {
		factor *= 2
	}
	return byte(e), factor
}

// largest is the largest magnitude of a group.
func largest(group []float32) float32 {
	return max(slices.Max(group), -slices.Min(group))
}

func mxfp4(_ *testing.T, values []float32, rows, cols int) (parts []tensor, decoded []float32) {
	var data, scales []byte
	for from := 0; from < len(values); from += 32 {
		group := values[from : from+32]
		s, f := exponent(group, 6)
		scales = append(scales, s)
		data, decoded = nibbles(data, decoded, group, f)
	}
	return []tensor{{".weight", dtype.U32, []int{rows, cols / 8}, data}, {".scales", dtype.U8, []int{rows, cols / 32}, scales}}, decoded
}

// nibbles appends a group as pairs of 4-bit floats of the given scale, and their values.
func nibbles(data []byte, decoded, group []float32, scale float32) ([]byte, []float32) {
	for i := 0; i < len(group); i += 2 {
		a, x := nearest(group[i] / scale)
		b, y := nearest(group[i+1] / scale)
		data = append(data, a|b<<4)
		decoded = append(decoded, x*scale, y*scale)
	}
	return data, decoded
}

func mxfp8(_ *testing.T, values []float32, rows, cols int) (parts []tensor, decoded []float32) {
	var data, scales []byte
	for from := 0; from < len(values); from += 32 {
		group := values[from : from+32]
		s, f := exponent(group, 448)
		scales = append(scales, s)
		for _, v := range group {
			c := dtype.ToE4M3(v / f)
			data = append(data, c)
			decoded = append(decoded, dtype.FromE4M3(c)*f)
		}
	}
	return []tensor{{".weight", dtype.U32, []int{rows, cols / 4}, data}, {".scales", dtype.U8, []int{rows, cols / 32}, scales}}, decoded
}

// nvfp4 has a scale for the whole matrix unless global is 0.
func nvfp4(global float32) func(*testing.T, []float32, int, int) ([]tensor, []float32) {
	return func(_ *testing.T, values []float32, rows, cols int) (parts []tensor, decoded []float32) {
		factor := float32(1)
		if global != 0 {
			factor = global / 2688
		}
		var data, scales []byte
		for from := 0; from < len(values); from += 16 {
			group := values[from : from+16]
			code := dtype.ToE4M3(largest(group) / 6 / factor)
			scale := dtype.FromE4M3(code)
			scales = append(scales, code)
			at := len(decoded)
			data, decoded = nibbles(data, decoded, group, max(scale, 1e-9)*factor)
			for i := range decoded[at:] { // element by scale is exact; the factor rounds
				c := data[(at+i)/2] >> (4 * (i & 1)) & 15
				v := e2m1[c&7]
				if c&8 != 0 {
					v = -v
				}
				decoded[at+i] = v * scale * factor
			}
		}
		parts = []tensor{{".weight", dtype.U32, []int{rows, cols / 8}, data}, {".scales", dtype.U8, []int{rows, cols / 16}, scales}}
		if global != 0 {
			parts = append(parts, numbers(".global_scale", dtype.F32, []int{1}, []float32{global}))
		}
		return parts, decoded
	}
}

// fp8 has one scale for a block of down×across elements; blocks at the borders are cut.
func fp8(down, across int, scaleType dtype.Type) func(*testing.T, []float32, int, int) ([]tensor, []float32) {
	return func(_ *testing.T, values []float32, rows, cols int) ([]tensor, []float32) {
		high, wide := (rows+down-1)/down, (cols+across-1)/across
		data := make([]byte, rows*cols)
		decoded := make([]float32, rows*cols)
		scales := make([]float32, high*wide)
		for i := range scales {
			// Any scales near those that the weights need will do.
			scales[i] = dtype.FromBF16(dtype.ToBF16(float32(0.0007) * float32(1+i%5)))
		}
		for i, v := range values {
			s := scales[i/cols/down*wide+i%cols/across]
			data[i] = dtype.ToE4M3(v / s)
			decoded[i] = dtype.FromE4M3(data[i]) * s
		}
		return []tensor{
			{".weight", dtype.F8E4M3, []int{rows, cols}, data},
			numbers(".weight_scale_inv", scaleType, []int{high, wide}, scales),
		}, decoded
	}
}
