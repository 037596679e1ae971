package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/dtype"
)

// unsupported are formats that are refused by name: by the config's quant_method, or by a suffix of a tensor's name.
var unsupported = []struct {
	name    string
	methods []string
	marks   []string
	instead string
}{
	{"bitsandbytes", []string{"bitsandbytes"}, []string{".weight.absmax", ".weight.quant_map", ".SCB"}, another},
	{"EXL3", []string{"exl2", "exl3"}, []string{".trellis", ".q_weight"}, another},
	{"HQQ", []string{"hqq"}, []string{".W_q"}, another},
	{"torchao", []string{"torchao"}, []string{"._weight_qdata"}, another},
	{"Quark", []string{"quark"}, nil, another},
	{"FBGEMM", []string{"fbgemm_fp8"}, []string{".input_scale_ub"}, "use a file with FP8 of compressed-tensors or of the release"},
	{"ParoQuant's older layout", nil, []string{".qlinear.qweight"}, "use a file with qweight, theta and pairs beside one another"},
}

const another = "use the original release, or a file with AWQ, GPTQ, NVFP4 or FP8 weights, or a GGUF file"

// functions are suffixes of tensors that change the function of a module, and that are not applied.
var functions = []struct {
	what     string
	suffixes []string
}{
	{"ModelOpt's AWQ scales the input of the module", []string{".pre_quant_scale"}},
	{"SVDQuant adds a product of two matrices to the module", []string{".svdquant_lora_a", ".svdquant_lora_b"}},
	{"an adapter (EoRA) adds a product of two matrices to the module", []string{".lora_A", ".lora_B", ".lora_A.weight", ".lora_B.weight"}},
}

// activations are suffixes of scales of activations and of the KV cache, which are not used here.
var activations = []string{
	".input_scale", ".input_global_scale", ".output_scale", ".k_scale", ".v_scale", ".q_scale",
}

// Ignored reports whether a tensor, by its name, is a scale of activations or of the KV cache: an engine that
// quantizes these itself has no use for it. It counts as used.
func Ignored(name string) bool {
	return slices.ContainsFunc(activations, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
}

// foreign is the error of a format that is refused by name, or nil. Scales of activations are marked as used.
func (w *Weights) foreign() error {
	coded := false
	for _, e := range w.entries() {
		ends := func(suffix string) bool { return strings.HasSuffix(e.name, suffix) }
		for _, u := range unsupported {
			if slices.ContainsFunc(u.marks, ends) {
				return e.errorf("the format is %s, which is not supported: %s", u.name, u.instead)
			}
		}
		if Ignored(e.name) {
			e.used.Store(true)
		}
		coded = coded || e.blocks == nil && e.typ != dtype.F32 && e.typ != dtype.F16 && e.typ != dtype.BF16
	}
	for _, u := range unsupported {
		if coded && slices.Contains(u.methods, w.quant.method) {
			return fmt.Errorf("checkpoint: %s: %s has the quantization method %q (%s), which is not supported: %s", w.name, configFile, w.quant.method, u.name, u.instead)
		}
	}
	return nil
}

// entries are the tensors of all files, in their order there.
func (w *Weights) entries() []*entry {
	var list []*entry
	for _, f := range w.files {
		list = append(list, f.entries...)
	}
	return list
}

// gemvFast refuses 16-bit words.
func (m *module) gemvFast() ([]dtype.Matrix, error) {
	return nil, m.elements.errorf("type I16: AutoAWQ's gemv_fast layout is not supported, %s", gemm)
}

// gemm is the alternative to AutoAWQ's other layouts.
const gemm = "use a file with \"version\": \"gemm\""

// refused is the error of a module that computes more than a product with its matrix, whose elements e has.
func (m *module) refused(e *entry) error {
	for _, f := range functions {
		for _, suffix := range f.suffixes {
			if m.Has(m.name + suffix) {
				return e.errorf("%q is beside it: %s, which is not supported: use another file", m.name+suffix, f.what)
			}
		}
	}
	return nil
}
