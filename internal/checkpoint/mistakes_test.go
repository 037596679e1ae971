package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
)

// whole is a tensor of integers.
func whole(name string, typ dtype.Type, values ...int64) tensor {
	t := tensor{Decl: Decl{name, typ, []int{len(values)}}}
	for _, v := range values {
		b := binary.LittleEndian.AppendUint64(nil, uint64(v))
		t.data = append(t.data, b[:typ.Size()]...)
	}
	return t
}

// module32 are the tensors of a module m of 32 × 128 in a format.
func module32(format string) []tensor {
	scales := func(typ dtype.Type, shape ...int) tensor { return random("m.weight_scale", typ, shape...) }
	switch format {
	case "packed":
		return []tensor{random("m.weight_packed", dtype.I32, 32, 16), scales(dtype.BF16, 32, 4), whole("m.weight_shape", dtype.I64, 32, 128), random("m.weight_zero_point", dtype.I32, 4, 4)}
	case "int8":
		return []tensor{random("m.weight", dtype.I8, 32, 128), scales(dtype.BF16, 32, 1)}
	case "nvfp4":
		return []tensor{random("m.weight_packed", dtype.U8, 32, 64), scales(dtype.F8E4M3, 32, 8), numbers("m.weight_global_scale", dtype.F32, []int{1}, 2)}
	case "modelopt":
		return []tensor{random("m.weight", dtype.U8, 32, 64), scales(dtype.F8E4M3, 32, 8), numbers("m.weight_scale_2", dtype.F32, nil, 2)}
	case "mxfp4":
		return []tensor{random("m.weight_packed", dtype.U8, 32, 64), scales(dtype.U8, 32, 4)}
	case "mxfp8":
		return []tensor{random("m.weight", dtype.F8E4M3, 32, 128), scales(dtype.U8, 32, 4)}
	case "fp8":
		return []tensor{random("m.weight", dtype.F8E4M3, 32, 128), scales(dtype.F32, 32, 1)}
	case "gptq":
		groups := make([]int64, 128)
		for i := range groups {
			groups[i] = int64(i % 4)
		}
		return []tensor{random("m.qweight", dtype.I32, 16, 32), random("m.qzeros", dtype.I32, 4, 4), random("m.scales", dtype.F16, 4, 32), whole("m.g_idx", dtype.I32, groups...)}
	case "paroquant":
		return rotatedModule(32)
	default: // awq
		return []tensor{random("m.qweight", dtype.I32, 128, 4), random("m.qzeros", dtype.I32, 4, 4), random("m.scales", dtype.F16, 4, 32)}
	}
}

// formats32 are the formats of module32.
var formats32 = []string{"packed", "int8", "nvfp4", "modelopt", "mxfp4", "mxfp8", "fp8", "gptq", "awq", "paroquant"}

// with puts a tensor in the place of the one with its name, or adds it.
func with(list []tensor, x tensor) []tensor {
	list = slices.DeleteFunc(slices.Clone(list), func(y tensor) bool { return y.Name == x.Name })
	return append(list, x)
}

// changed puts bytes at a place of a tensor.
func changed(list []tensor, name string, at int, b ...byte) []tensor {
	for _, x := range list {
		if x.Name == name {
			x.data = slices.Clone(x.data)
			copy(x.data[at:], b)
			return with(list, x)
		}
	}
	panic(name)
}

func TestMatrixRefusesMistakesOfFormats(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	gptq, packed := module32("gptq"), module32("packed")
	extra := func(says string) string {
		return `{"quantization_config":{"quant_method":"auto-round","extra_config":{"m":` + says + `}}}`
	}
	for _, c := range []struct {
		name    string
		config  string
		tensors []tensor
		want    []string
	}{
		{"packed, scales of another shape", "", with(packed, random("m.weight_scale", dtype.BF16, 16, 4)), []string{`"m.weight_scale"`, "[16, 4], want [32, 4]"}},
		{"packed, groups that do not divide", "", with(packed, random("m.weight_scale", dtype.BF16, 32, 3)), []string{`"m.weight_scale"`, "3 groups do not divide 128 columns"}},
		{"packed, groups of 8", "", with(packed[:3], random("m.weight_scale", dtype.BF16, 32, 16)), []string{`"m.weight_packed"`, "groups of 8"}},
		{"packed, lying shape", "", with(packed, whole("m.weight_shape", dtype.I64, 32, 120)), []string{`"m.weight_shape"`, "[32 120], want [32 128]"}},
		{"packed, huge shape", "", with(packed, whole("m.weight_shape", dtype.I64, math.MaxInt64, math.MaxInt64)), []string{`"m.weight_shape"`, "want [32 128]"}},
		{"packed, shape of floats", "", with(packed, random("m.weight_shape", dtype.F32, 2)), []string{`"m.weight_shape"`, "type F32, want I32 or I64"}},
		{"packed, unused bits of words", "", with(packed, random("m.weight_packed", dtype.I32, 32, 22)), []string{`"m.weight_packed"`, "22 words", "newer compressed-tensors"}},
		{"packed, zero points of another shape", "", with(packed, random("m.weight_zero_point", dtype.I32, 32, 4)), []string{`"m.weight_zero_point"`, "[32, 4], want [4, 4]"}},
		{"packed, zero points of floats", "", with(packed, random("m.weight_zero_point", dtype.F16, 32, 4)), []string{`"m.weight_zero_point"`, "type F16, want I32 or I8"}},
		{"packed, zero point out of range", "", with(packed, tensor{Decl{"m.weight_zero_point", dtype.I8, []int{32, 4}}, slices.Repeat([]byte{8}, 128)}), []string{`"m.weight_zero_point"`, "zero point 8 does not fit 4 bits"}},
		{"packed, no scales", "", packed[:1], []string{`"m.weight_packed"`, `"m.weight_scale"`, "missing"}},
		{"packed, scale that is no number", "", with(packed[:3], numbers("m.weight_scale", dtype.F32, []int{32, 1}, slices.Repeat([]float32{nan}, 32)...)), []string{`"m.weight_packed"`, "the scale NaN"}},
		{"packed, scales of integers", "", with(packed, random("m.weight_scale", dtype.I32, 32, 4)), []string{"scales of I32"}},
		{"packed, group out of range", "", with(packed, whole("m.weight_g_idx", dtype.I32, slices.Repeat([]int64{4}, 128)...)), []string{`"m.weight_g_idx"`, "group 4, want one of 4"}},
		{"int8, scales of another shape", "", with(module32("int8"), random("m.weight_scale", dtype.BF16, 16, 1)), []string{`"m.weight_scale"`, "[16, 1], want [32, 1]"}},
		{"int8, no scales", "", module32("int8")[:1], []string{`type I8 needs "m.weight_scale"`, "missing"}},
		{"int8 of another shape", "", with(module32("int8"), random("m.weight", dtype.I8, 32, 64)), []string{"[32, 64], want [32, 128]"}},
		{"nvfp4, scales of another shape", "", with(module32("nvfp4"), random("m.weight_scale", dtype.F8E4M3, 32, 4)), []string{`"m.weight_scale"`, "[32, 4], want [32, 8]"}},
		{"nvfp4, scales of floats", "", with(module32("nvfp4"), random("m.weight_scale", dtype.F32, 32, 8)), []string{"type F32, want F8_E4M3 for NVFP4 or U8 for MXFP4"}},
		{"nvfp4, no factor", "", module32("nvfp4")[:2], []string{`"m.weight_global_scale"`, "missing"}},
		{"nvfp4, factor zero", "", with(module32("nvfp4"), numbers("m.weight_global_scale", dtype.F32, []int{1}, 0)), []string{`"m.weight_global_scale"`, "factor 0 of the matrix"}},
		{"nvfp4, factor infinite", "", with(module32("modelopt"), numbers("m.weight_scale_2", dtype.F32, nil, inf)), []string{`"m.weight_scale_2"`, "factor +Inf of the matrix"}},
		{"nvfp4, two factors", "", with(module32("modelopt"), numbers("m.weight_scale_2", dtype.F32, []int{2}, 1, 1)), []string{`"m.weight_scale_2"`, "[2], want 1 numbers"}},
		{"nvfp4, scale that is no number", "", changed(module32("nvfp4"), "m.weight_scale", 17, 0x7f), []string{`"m.weight_packed"`, "row 2", "the scale NaN"}},
		{"nvfp4 of another shape", "", with(module32("modelopt"), random("m.weight", dtype.U8, 32, 128)), []string{"[32, 128], want [32, 64]"}},
		{"mxfp4, exponent 255", "", changed(module32("mxfp4"), "m.weight_scale", 4, 255), []string{`"m.weight_packed"`, "row 1", "the file is damaged"}},
		{"mxfp8, exponent 255", "", changed(module32("mxfp8"), "m.weight_scale", 127, 255), []string{`"m.weight"`, "row 31", "the file is damaged"}},
		{"mxfp8, scales of another shape", "", with(module32("mxfp8"), random("m.weight_scale", dtype.U8, 32, 8)), []string{`"m.weight_scale"`, "[32, 8], want [32, 4]"}},
		{"fp8, scales of another shape", "", with(module32("fp8"), random("m.weight_scale", dtype.F32, 5, 1)), []string{`"m.weight_scale"`, "[5, 1], want [1, 1] for blocks of 128×128, [32, 1] for rows, or one number"}},
		{"fp8, blocks that the config contradicts", `{"quantization_config":{"quant_method":"compressed-tensors","config_groups":{"group_0":{"weights":{"block_structure":[16,64]}}}}}`, with(module32("fp8"), random("m.weight_scale", dtype.F32, 1, 1, 2, 1)), []string{`"m.weight_scale"`, "want [2, 2] for blocks of 16×64"}},
		{"fp8, scale that is infinite", "", with(module32("fp8"), numbers("m.weight_scale", dtype.F32, nil, inf)), []string{`"m.weight"`, "the scale +Inf"}},
		{"gptq, no zero points", "", gptq[:1], []string{`"m.qweight"`, `"m.qzeros"`, "missing"}},
		{"gptq, no scales", "", gptq[:2], []string{`"m.scales"`, "missing"}},
		{"gptq, scales of another shape", "", with(gptq, random("m.scales", dtype.F16, 4, 16)), []string{`"m.scales"`, "[4, 16], want 32 columns"}},
		{"gptq, groups that do not divide", "", with(gptq, random("m.scales", dtype.F16, 3, 32)), []string{`"m.scales"`, "3 groups do not divide 128 columns"}},
		{"gptq, zero points of another shape", "", with(gptq, random("m.qzeros", dtype.I32, 4, 8)), []string{`"m.qzeros"`, "[4, 8], want [4, 4]"}},
		{"gptq, zero points of another type", "", with(gptq, random("m.qzeros", dtype.F64, 4, 4)), []string{`"m.qzeros"`, "type F64, want I32"}},
		{"gptq of another shape", "", with(gptq, random("m.qweight", dtype.I32, 15, 32)), []string{`"m.qweight"`, "[15, 32], want [128, 4] (AutoAWQ) or [128*bits/32, 32] (GPTQ)"}},
		{"gptq of 7 bits", "", with(gptq, random("m.qweight", dtype.I32, 28, 32)), []string{`"m.q`}},
		{"gptq, scale that is no number", "", changed(gptq, "m.scales", 2, 0, 0x7e), []string{`"m.qweight"`, "row 1", "the scale NaN"}},
		{"gptq, group out of range", "", changed(gptq, "m.g_idx", 4, 9), []string{`"m.g_idx"`, "column 1 is in group 9, want one of 4"}},
		{"gptq, negative group", "", changed(gptq, "m.g_idx", 4, 255, 255, 255, 255), []string{`"m.g_idx"`, "column 1 is in group -1"}},
		{"gptq, group too large", "", changed(gptq, "m.g_idx", 4, 0), []string{`"m.g_idx"`, "group 0 has more than 32 columns"}},
		{"gptq, groups of another length", "", with(gptq, whole("m.g_idx", dtype.I32, 0, 1)), []string{`"m.g_idx"`, "[2], want [128]"}},
		{"gptq, groups of floats", "", with(gptq, random("m.g_idx", dtype.F32, 128)), []string{`"m.g_idx"`, "type F32, want I32 or I64"}},
		{"awq, scales of another shape", "", with(module32("awq"), random("m.scales", dtype.F16, 32, 4)), []string{`"m.scales"`, "[32, 4], want 32 columns"}},
		{"awq in its gemv layout", "", []tensor{random("m.qweight", dtype.I32, 32, 16), random("m.qzeros", dtype.I32, 32, 1), random("m.scales", dtype.F16, 32, 8)}, []string{"gemv layout is not supported", `"version": "gemm"`}},
		{"awq in its gemv_fast layout", "", []tensor{random("m.qweight", dtype.I16, 8, 128), random("m.qzeros", dtype.F16, 1, 32), random("m.scales", dtype.F16, 1, 32)}, []string{"gemv_fast layout is not supported", `"version": "gemm"`}},
		{"words of a stack", "", []tensor{random("m.qweight", dtype.I32, 2, 128, 4)}, []string{`"m.qzeros"`}},
		{"scaled inputs", "", append(module32("modelopt"), random("m.pre_quant_scale", dtype.BF16, 128)), []string{`"m.pre_quant_scale"`, "scales the input", "not supported"}},
		{"low rank of SVDQuant", "", append(module32("modelopt"), random("m.svdquant_lora_a", dtype.BF16, 4, 128)), []string{`"m.svdquant_lora_a"`, "SVDQuant", "not supported"}},
		{"EoRA", "", append(module32("gptq"), random("m.lora_B", dtype.F16, 32, 4)), []string{`"m.lora_B"`, "EoRA", "not supported"}},
		{"config says other bits", extra(`{"bits":8}`), gptq, []string{`"m.qweight"`, "config.json says integers with 8 bits", "zero-point with 4 bits in groups of 32"}},
		{"config says another group", extra(`{"bits":4,"group_size":128}`), module32("awq"), []string{"in groups of 128", "in groups of 32"}},
		{"config says plain", extra(`{"bits":16}`), gptq, []string{"config.json says it is not quantized", "4 bits"}},
		{"config names the module", `{"quantization_config":{"quant_method":"modelopt","config_groups":{"group_0":{"targets":["m"],"weights":{"num_bits":8}}}}}`, packed, []string{"with 8 bits", "zero-point with 4 bits in groups of 32"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := c.config
			if config == "" {
				config = `{}`
			}
			k := single(t, config, c.tensors...)
			var err error
			n := allocated(func() { _, err = k.Matrix("m", 32, 128) })
			contains(t, err, c.want...)
			if slices.Contains(c.want, "missing") && !errors.Is(err, ErrMissing) {
				t.Errorf("%v does not wrap ErrMissing", err)
			}
			if n > 1<<20 {
				t.Errorf("took %d bytes of memory", n)
			}
		})
	}
}

// TestOpenRefusesForeignFormats has folders in formats that are refused by name, with alternatives.
func TestOpenRefusesForeignFormats(t *testing.T) {
	plain, coded := random("m.weight", dtype.BF16, 4, 4), random("m.weight", dtype.U8, 4, 4)
	method := func(name string) string { return `{"quantization_config":{"quant_method":"` + name + `"}}` }
	for _, c := range []struct {
		config string
		tensor tensor
		want   string
	}{
		{`{}`, random("m.weight.absmax", dtype.U8, 4), "the format is bitsandbytes"},
		{`{}`, random("m.SCB", dtype.F32, 4), "the format is bitsandbytes"},
		{`{}`, random("m.trellis", dtype.I16, 4), "the format is EXL3"},
		{`{}`, random("m.W_q", dtype.U8, 4), "the format is HQQ"},
		{`{}`, random("m._weight_qdata", dtype.I8, 4), "the format is torchao"},
		{`{}`, random("m.qlinear.qweight", dtype.I16, 4), "the format is ParoQuant's older layout"},
		{method("bitsandbytes"), coded, "(bitsandbytes)"},
		{method("quark"), coded, "(Quark)"},
		{method("torchao"), coded, "(torchao)"},
		{method("hqq"), coded, "(HQQ)"},
		{method("exl3"), coded, "(EXL3)"},
		{method("fbgemm_fp8"), coded, "(FBGEMM)"},
		{method("quark"), plain, ""},
	} {
		k, err := OpenFiles("test", files{"config.json": c.config, "model.safetensors": encode(t, nil, c.tensor)})
		if c.want == "" {
			if err != nil {
				t.Errorf("plain numbers: %v", err)
			} else {
				closed(t, k)
			}
			continue
		}
		contains(t, err, c.want, "not supported", "use ")
	}
}

// TestQuantizationIgnoresWhatItDoesNotNeed has configs with members of other types, and huge numbers: the tensors decide.
func TestQuantizationIgnoresWhatItDoesNotNeed(t *testing.T) {
	for _, says := range []string{
		`"bits":1e300,"group_size":-99999999999999999999,"sym":"yes","checkpoint_format":7`,
		`"extra_config":{"m":{"bits":1e300,"group_size":[128,128]},"n":null}`,
		`"extra_config":[1],"config_groups":{"group_0":null,"group_1":{"targets":"m","weights":[]},"group_2":7}`,
		`"config_groups":{"group_0":{"weights":{"block_structure":"128x128","num_bits":null}},"group_1":{"weights":{"block_structure":[0,-1]}}}`,
	} {
		for _, format := range formats32 {
			k := single(t, `{"quantization_config":{"quant_method":"gptq",`+says+`}}`, module32(format)...)
			if _, err := k.Matrix("m", 32, 128); err != nil {
				t.Errorf("%s with %s: %v", format, says, err)
			}
			if unused := k.Unused(); len(unused) > 0 {
				t.Errorf("%s: unused %q", format, unused)
			}
		}
	}
}

// TestQuantizationLoadsConfigsThatAreWrong has configs as tools publish them that contradict the tensors, or name
// modules in another way than the tensors: the tensors decide.
func TestQuantizationLoadsConfigsThatAreWrong(t *testing.T) {
	const module = "model.language_model.layers.0.mlp.gate_proj"
	named := func(format string) []tensor {
		list := module32(format)
		for i := range list {
			list[i].Name = module + list[i].Name[1:]
		}
		return list
	}
	groups := func(weights string, targets ...string) string {
		text, _ := json.Marshal(targets)
		return `"config_groups":{"group_0":{"targets":` + string(text) + `,"weights":` + weights + `}}`
	}
	const eight = `{"num_bits":8,"group_size":64}`
	for _, c := range []struct{ name, method, format, says string }{
		{"an ignored module is quantized", "compressed-tensors", "packed", `"ignore":["lm_head","re:.*mlp.*","` + module + `"]`},
		{"targets by patterns", "compressed-tensors", "packed", groups(eight, "re:.*gate_proj$", "re:.*")},
		{"targets by class", "compressed-tensors", "packed", groups(eight, "Linear")},
		{"targets by fused names", "compressed-tensors", "packed", groups(eight, "model.language_model.layers.0.mlp.gate_up_proj", "model.language_model.layers.0.self_attn.qkv_proj")},
		{"targets without the prefix", "compressed-tensors", "packed", groups(eight, "model.layers.0.mlp.gate_proj", "language_model.model.layers.0.mlp.gate_proj")},
		{"a target in two groups", "compressed-tensors", "packed", `"config_groups":{"group_0":{"targets":["` + module + `"],"weights":` + eight + `},"group_1":{"targets":["` + module + `"],"weights":{"num_bits":4,"group_size":32}}}`},
		{"a target of activations only", "compressed-tensors", "plain", groups(`null`, module)},
		{"a head that was added as numbers", "modelopt", "plain", groups(`{"num_bits":4,"group_size":16}`, module)},
		{"nvfp4 that is fp8", "modelopt", "fp8", groups(`{"num_bits":4,"group_size":16}`, module)},
		{"ModelOpt's group of mxfp4", "modelopt", "mxfp4", groups(`{"num_bits":4,"group_size":16}`, module)},
		{"four bits in bytes", "compressed-tensors", "int8", groups(`{"num_bits":4,"group_size":-1}`, module)},
		{"AutoRound keeps the fp8 of the release", "auto-round", "fp8", `"extra_config":{"` + module + `":{"bits":16,"data_type":"fp"}}`},
		{"AutoRound by patterns", "auto-round", "awq", `"extra_config":{".*gate_proj.*":{"bits":16},"model.layers.0.mlp.gate_proj":{"bits":8}}`},
		{"modules that are not converted", "awq", "awq", `"modules_to_not_convert":["mlp","` + module + `"]`},
		{"GPTQ's dynamic", "gptq", "gptq", `"dynamic":{"-:.*gate_proj.*":{},"+:.*mlp.*":{"bits":8}}`},
	} {
		list := []tensor{random(module+".weight", dtype.BF16, 32, 128)}
		if c.format != "plain" {
			list = named(c.format)
		}
		k := single(t, `{"quantization_config":{"quant_method":"`+c.method+`",`+c.says+`}}`, list...)
		if _, err := k.Matrix(module, 32, 128); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if unused := k.Unused(); len(unused) > 0 {
			t.Errorf("%s: unused %q", c.name, unused)
		}
	}
	row := single(t, `{"quantization_config":{"quant_method":"compressed-tensors",`+groups(`{"num_bits":8,"group_size":256}`, "m")+`}}`,
		random("m.weight", dtype.I8, 32, 256), random("m.weight_scale", dtype.BF16, 32, 1))
	if _, err := row.Matrix("m", 32, 256); err != nil {
		t.Errorf("a group as long as the row: %v", err)
	}
}
