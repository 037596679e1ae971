package qwen35

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/checkpoint/gguf/gguftest"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// llama makes a GGUF file of a checkpoint as llama.cpp's converter does: it is told the
// layout of the source, and works on float32 numbers under the names of the release.
type llama struct {
	out    gguftest.File
	arch   string
	text   map[string]any // text_config
	raw    bool           // norms lack the one that is added to them
	choose func(name string, cols int) string
	stored map[string][]float32 // what the file stands for, by its names

	// What converters may do otherwise.
	fused   bool              // gates of experts stay with their ups
	grouped bool              // value heads stay in their order
	words   string            // folder of the tokenizer, if it is another
	names   *strings.Replacer // names are changed by it
	replace map[string]any    // keys have other values, or with nil are left out
}

// plainTensor is a tensor of the source.
type plainTensor struct {
	shape []int
	v     []float32
}

// oneType stores every matrix that it fits as a type, and others as halves.
func oneType(typ string) func(string, int) string {
	return func(_ string, cols int) string {
		if cols%gguftest.Columns(typ) != 0 {
			return "F16"
		}
		return typ
	}
}

// sourceTensors are the effective numbers of a checkpoint, quantized in groups of group, by
// canonical name; stacks of experts are called experts.
func sourceTensors(t *testing.T, c *checkpoint.Checkpoint, group int) map[string]plainTensor {
	t.Helper()
	list := map[string]plainTensor{}
	for _, n := range c.Tensors() {
		name, needed := canonical(n)
		if !needed || weights.IsTower(name) || strings.HasSuffix(n, ".scales") || strings.HasSuffix(n, ".biases") {
			continue
		}
		x, err := c.Tensor(n)
		if err != nil {
			t.Fatal(err)
		}
		p := plainTensor{shape: x.Shape}
		switch x.Type {
		case dtype.U8:
			x.Shape[len(x.Shape)-1] = x.Blocks.Cols
			p = matrixTensor(t, c, strings.TrimSuffix(n, ".weight"), x.Shape)
		case dtype.U32:
			scales, err := c.Tensor(strings.TrimSuffix(n, "weight") + "scales")
			if err != nil {
				t.Fatal(err)
			}
			x.Shape[len(x.Shape)-1] = scales.Shape[len(x.Shape)-1] * group
			p = matrixTensor(t, c, strings.TrimSuffix(n, ".weight"), x.Shape)
		default:
			p.v = make([]float32, weights.Elements(x.Shape))
			dtype.ToF32(p.v, x.Type, x.Data)
		}
		list[strings.Replace(name, "switch_mlp.", "experts.", 1)] = p
	}
	return list
}

// matrixTensor is the numbers of a quantized module of one matrix or several.
func matrixTensor(t *testing.T, c *checkpoint.Checkpoint, module string, shape []int) plainTensor {
	t.Helper()
	last := len(shape) - 1
	var err error
	var ms []dtype.Matrix
	if last == 2 {
		ms, err = c.MatrixStack(module, shape[0], shape[1], shape[2])
	} else {
		ms = make([]dtype.Matrix, 1)
		ms[0], err = c.Matrix(module, weights.Elements(shape[:last]), shape[last])
	}
	if err != nil {
		t.Fatal(err)
	}
	p := plainTensor{shape: shape}
	for i := range ms {
		p.v = append(p.v, floats(&ms[i])...)
	}
	return p
}

func floats(m *dtype.Matrix) []float32 {
	v := make([]float32, m.Rows*m.Cols)
	for r := range m.Rows {
		m.Row(v[r*m.Cols:], r)
	}
	return v
}

// convertGGUF converts a folder and writes the file, or its parts, to a new one. It returns
// the path, and the converter with the numbers that the file stands for. Edits come last.
func convertGGUF(t *testing.T, dir, arch string, choose func(string, int) string, parts int, edits ...func(*llama)) (string, *llama) {
	t.Helper()
	c := golden.Open(t, dir)
	l := newLlama(t, c.Config(), arch, choose)
	l.raw = c.Metadata(c.Files()[0])["format"] != "mlx"
	for _, edit := range edits {
		edit(l)
	}
	l.metadata()
	l.tokenizer(t, cmp.Or(l.words, dir))
	l.convert(sourceTensors(t, c, 64)) // the groups of the embedded model
	path := filepath.Join(t.TempDir(), "m.gguf")
	files := []*gguftest.File{&l.out}
	if parts > 1 {
		files = l.out.Split(parts)
	}
	for i, f := range files {
		if parts > 1 {
			path = filepath.Join(filepath.Dir(path), fmt.Sprintf("m-%05d-of-%05d.gguf", i+1, parts))
		}
		filetest.Write(t, path, f.Bytes())
	}
	return path, l
}

func newLlama(t testing.TB, config []byte, arch string, choose func(string, int) string) *llama {
	t.Helper()
	var f struct {
		Text map[string]any `json:"text_config"`
	}
	filetest.Decode(t, config, &f)
	return &llama{arch: arch, text: f.Text, choose: choose, stored: map[string][]float32{}}
}

// convert writes all tensors.
func (l *llama) convert(list map[string]plainTensor) {
	l.fuseExperts(list)
	if l.arch == "qwen3next" {
		l.fuseBetaAlpha(list)
	}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		l.tensor(name, list[name])
	}
}

// fuseBetaAlpha makes one tensor of the two projections: for each key head its part of the
// first, then of the second.
func (l *llama) fuseBetaAlpha(list map[string]plainTensor) {
	for name, b := range maps.Clone(list) {
		prefix, ok := strings.CutSuffix(name, "in_proj_b.weight")
		if !ok {
			continue
		}
		a := list[prefix+"in_proj_a.weight"]
		var both []float32
		size := len(b.v) / l.n("linear_num_key_heads")
		for k := range l.n("linear_num_key_heads") {
			both = append(append(both, b.v[k*size:][:size]...), a.v[k*size:][:size]...)
		}
		delete(list, name)
		delete(list, prefix+"in_proj_a.weight")
		list[prefix+"in_proj_ba.weight"] = plainTensor{[]int{2 * b.shape[0], b.shape[1]}, both}
	}
}

func (l *llama) n(key string) int { return int(l.text[key].(float64)) }

// set writes a key, unless it is to be another.
func (l *llama) set(key string, v any) {
	if other, ok := l.replace[key]; ok {
		v = other
	}
	if v != nil {
		l.out.Set(key, v)
	}
}

// metadata writes what the converter takes from config.json.
func (l *llama) metadata() {
	set := func(key string, v any) { l.set(l.arch+"."+key, v) }
	l.set("general.architecture", l.arch)
	set("block_count", uint32(l.n("num_hidden_layers")+l.n("mtp_num_hidden_layers")))
	set("nextn_predict_layers", uint32(l.n("mtp_num_hidden_layers")))
	names := map[string]string{
		"context_length": "max_position_embeddings", "embedding_length": "hidden_size", "attention.head_count": "num_attention_heads",
		"attention.head_count_kv": "num_key_value_heads", "attention.key_length": "head_dim", "attention.value_length": "head_dim",
		"ssm.conv_kernel": "linear_conv_kernel_dim", "ssm.state_size": "linear_key_head_dim", "ssm.group_count": "linear_num_key_heads",
		"ssm.time_step_rank": "linear_num_value_heads", "feed_forward_length": "intermediate_size", "expert_count": "num_experts",
		"expert_used_count": "num_experts_per_tok", "expert_feed_forward_length": "moe_intermediate_size",
		"expert_shared_feed_forward_length": "shared_expert_intermediate_size", "full_attention_interval": "full_attention_interval",
	}
	for _, key := range slices.Sorted(maps.Keys(names)) {
		if _, ok := l.text[names[key]]; ok {
			set(key, uint32(l.n(names[key])))
		}
	}
	set("ssm.inner_size", uint32(l.n("linear_value_head_dim")*l.n("linear_num_value_heads")))
	rope := l.text["rope_parameters"].(map[string]any)
	set("attention.layer_norm_rms_epsilon", float32(l.text["rms_norm_eps"].(float64)))
	set("rope.freq_base", float32(rope["rope_theta"].(float64)))
	set("rope.dimension_count", uint32(float64(l.n("head_dim"))*rope["partial_rotary_factor"].(float64)))
	if list, ok := rope["mrope_section"].([]any); ok {
		sections := []int32{0, 0, 0, 0}
		for i, n := range list {
			sections[i] = int32(n.(float64))
		}
		set("rope.dimension_sections", sections)
	}
	l.set("general.sampling.temp", float32(0.8))
	l.set("general.sampling.top_k", int32(20))
}

// tokenizer writes what the converter takes from the tokenizer's files, if there are any.
func (l *llama) tokenizer(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	if err != nil { // the random fixtures have none
		if id, ok := l.text["eos_token_id"].(float64); ok {
			l.set("tokenizer.ggml.eos_token_id", uint32(id))
		}
		return
	}
	var f struct {
		Added []struct {
			ID      int
			Content string
			Special bool
		} `json:"added_tokens"`
		Model struct {
			Vocab  map[string]int
			Merges []json.RawMessage
		}
	}
	filetest.Decode(t, text, &f)
	size := l.n("vocab_size")
	for _, id := range f.Model.Vocab {
		size = max(size, id+1)
	}
	for _, a := range f.Added {
		size = max(size, a.ID+1)
	}
	tokens, types := make([]string, size), make([]int32, size)
	for i := range tokens {
		tokens[i], types[i] = fmt.Sprintf("[PAD%d]", i), 5
	}
	for s, id := range f.Model.Vocab {
		tokens[id], types[id] = s, 1
	}
	for _, a := range f.Added {
		tokens[a.ID], types[a.ID] = a.Content, 4
		if a.Special || strings.HasPrefix(a.Content, "<|") && strings.HasSuffix(a.Content, "|>") {
			types[a.ID] = 3
		}
	}
	var merges []string
	for _, raw := range f.Model.Merges {
		var pair []string
		if json.Unmarshal(raw, &pair) != nil {
			pair = []string{""}
			filetest.Decode(t, raw, &pair[0])
		}
		merges = append(merges, strings.Join(pair, " "))
	}
	l.set("tokenizer.ggml.model", "gpt2")
	l.set("tokenizer.ggml.pre", "qwen35")
	l.set("tokenizer.ggml.tokens", tokens)
	l.set("tokenizer.ggml.token_type", types)
	l.set("tokenizer.ggml.merges", merges)
	l.set("tokenizer.ggml.eos_token_id", uint32(slices.Index(tokens, "<|im_end|>")))
	template := filetest.Read(t, filepath.Join(dir, "chat_template.jinja"))
	l.set("tokenizer.chat_template", string(template))
}

// fuseExperts makes one tensor of experts that are stored one by one, and two of fused ones.
func (l *llama) fuseExperts(list map[string]plainTensor) {
	for name, x := range maps.Clone(list) {
		prefix, fused := strings.CutSuffix(name, "experts.gate_up_proj")
		if fused && !l.fused {
			n, w, h := x.shape[0], x.shape[1]/2, x.shape[2]
			var gate, up []float32
			for e := range n {
				gate = append(gate, x.v[e*2*w*h:][:w*h]...)
				up = append(up, x.v[e*2*w*h+w*h:][:w*h]...)
			}
			delete(list, name)
			list[prefix+"experts.gate_proj.weight"] = plainTensor{[]int{n, w, h}, gate}
			list[prefix+"experts.up_proj.weight"] = plainTensor{[]int{n, w, h}, up}
		}
		if rest, ok := strings.CutSuffix(name, "experts.down_proj"); ok {
			delete(list, name)
			list[rest+"experts.down_proj.weight"] = x
		}
		prefix, single := strings.CutSuffix(name, "experts.0.gate_proj.weight")
		for _, proj := range []string{"gate_proj", "up_proj", "down_proj"} {
			if !single {
				break
			}
			var all plainTensor
			for e := range l.n("num_experts") {
				one := fmt.Sprintf("%sexperts.%d.%s.weight", prefix, e, proj)
				all.shape = append([]int{e + 1}, list[one].shape...)
				all.v = append(all.v, list[one].v...)
				delete(list, one)
			}
			list[prefix+"experts."+proj+".weight"] = all
		}
	}
}

// llamaNames are the converter's names.
var llamaNames = strings.NewReplacer(
	"embed_tokens.", "token_embd.", "lm_head.", "output.",
	"input_layernorm.", "attn_norm.", "post_attention_layernorm.", "post_attention_norm.",
	"self_attn.q_proj.", "attn_q.", "self_attn.k_proj.", "attn_k.", "self_attn.v_proj.", "attn_v.", "self_attn.o_proj.", "attn_output.",
	"self_attn.q_norm.", "attn_q_norm.", "self_attn.k_norm.", "attn_k_norm.",
	"linear_attn.in_proj_qkv.", "attn_qkv.", "linear_attn.in_proj_z.", "attn_gate.", "linear_attn.in_proj_b.", "ssm_beta.",
	"linear_attn.in_proj_a.", "ssm_alpha.", "linear_attn.in_proj_ba.", "ssm_ba.", "linear_attn.conv1d.", "ssm_conv1d.", "linear_attn.A_log", "ssm_a",
	"linear_attn.dt_bias", "ssm_dt.bias", "linear_attn.norm.", "ssm_norm.", "linear_attn.out_proj.", "ssm_out.",
	"mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight", "mlp.experts.gate_proj.", "ffn_gate_exps.", "mlp.experts.up_proj.", "ffn_up_exps.", "mlp.experts.down_proj.", "ffn_down_exps.",
	"mlp.shared_expert_gate.", "ffn_gate_inp_shexp.", "mlp.shared_expert.gate_proj.", "ffn_gate_shexp.",
	"mlp.shared_expert.up_proj.", "ffn_up_shexp.", "mlp.shared_expert.down_proj.", "ffn_down_shexp.",
	"mlp.gate_proj.", "ffn_gate.", "mlp.up_proj.", "ffn_up.", "mlp.down_proj.", "ffn_down.", "mlp.gate.", "ffn_gate_inp.",
)

// rename is the converter's name of a canonical one.
func (l *llama) rename(name string) string {
	block := fmt.Sprintf("blk.%d.", l.n("num_hidden_layers"))
	switch name {
	case "norm.weight":
		return "output_norm.weight"
	case "mtp.fc.weight":
		return block + "nextn.eh_proj.weight"
	case "mtp.pre_fc_norm_embedding.weight":
		return block + "nextn.enorm.weight"
	case "mtp.pre_fc_norm_hidden.weight":
		return block + "nextn.hnorm.weight"
	case "mtp.norm.weight":
		return block + "nextn.shared_head_norm.weight"
	}
	name = strings.Replace(name, "mtp.layers.0.", block, 1)
	return llamaNames.Replace(strings.Replace(name, "layers.", "blk.", 1))
}

// tensor converts one tensor.
func (l *llama) tensor(name string, x plainTensor) {
	v := slices.Clone(x.v)
	keys := 2 * l.n("linear_num_key_heads") * l.n("linear_key_head_dim")
	dim := l.n("linear_value_head_dim")
	last := name[strings.LastIndex(strings.TrimSuffix(name, ".weight"), ".")+1:]
	switch {
	case isOffsetNorm(name) && l.raw:
		for i := range v {
			v[i]++
		}
	case last == "A_log":
		for i := range v {
			v[i] = -float32(math.Exp(float64(v[i])))
		}
		v = l.tile(v, 0, 1, 1)
	case last == "dt_bias":
		v = l.tile(v, 0, 1, 1)
	case last == "conv1d.weight":
		x.shape = []int{x.shape[0], l.n("linear_conv_kernel_dim")}
		v = l.tile(v, keys, dim, x.shape[1])
	case last == "in_proj_qkv.weight":
		v = l.tile(v, keys, dim, x.shape[1])
	case last == "in_proj_z.weight":
		v = l.tile(v, 0, dim, x.shape[1])
	case last == "in_proj_a.weight" || last == "in_proj_b.weight":
		v = l.tile(v, 0, 1, x.shape[1])
	case last == "out_proj.weight":
		var rows []float32
		for ; len(v) > 0; v = v[x.shape[1]:] {
			rows = append(rows, l.tile(v[:x.shape[1]], 0, dim, 1)...)
		}
		v = rows
	case last == "shared_expert_gate.weight":
		x.shape = x.shape[1:]
	}
	typ := "F32"
	if len(x.shape) > 1 && last != "conv1d.weight" && last != "gate.weight" {
		typ = l.choose(name, x.shape[len(x.shape)-1])
	}
	name = l.rename(name)
	if l.names != nil {
		name = l.names.Replace(name)
	}
	l.stored[name] = l.out.Add(name, typ, x.shape, v)
	if typ == "NVFP4" {
		l.stored[name] = l.out.AddFactors(name, x.shape, l.stored[name])
	}
}

// tile brings value heads, of dim rows of cols numbers each from row at on, from the order
// of their key heads into one that goes over all key heads again and again.
func (l *llama) tile(v []float32, at, dim, cols int) []float32 {
	keys, values := l.n("linear_num_key_heads"), l.n("linear_num_value_heads")
	if l.arch == "qwen3next" || l.grouped {
		return v
	}
	each, size := values/keys, dim*cols
	out := slices.Clone(v[:at*cols])
	for r := range each {
		for k := range keys {
			out = append(out, v[at*cols+(k*each+r)*size:][:size]...)
		}
	}
	return append(out, v[at*cols+values*size:]...)
}
