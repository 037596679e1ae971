package convert

import (
	"fmt"
	"log/slog"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
	_ "github.com/foretoken/foretoken/internal/model/qwen35"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// The tests here store one model in many ways, convert it, and compare what is loaded
// afterwards. A source is a folder in memory that begins as a fixture and is then edited.

const mainFile = "model.safetensors"

var discard = slog.New(slog.DiscardHandler)

// stored is a folder in memory.
type stored struct {
	config map[string]any
	texts  map[string]string
	files  map[string][]tensor // by path, which may lead to a folder beside
	format map[string]string   // metadata of files
}

type tensor struct {
	name  string
	typ   dtype.Type
	shape []int
	data  []byte
}

type edit func(s *stored)

// fixture is a golden checkpoint in memory, after edits.
func fixture(t testing.TB, name string, edits ...edit) *stored {
	t.Helper()
	c := golden.Open(t, golden.Dir(t, name))
	s := &stored{texts: map[string]string{}, files: map[string][]tensor{}, format: map[string]string{}}
	filetest.Decode(t, c.Config(), &s.config)
	for _, n := range c.Tensors() {
		x, err := c.Tensor(n)
		if err != nil {
			t.Fatal(err)
		}
		s.files[mainFile] = append(s.files[mainFile], tensor{n, x.Type, x.Shape, slices.Clone(x.Data)})
	}
	if name != "tiny" {
		shrink(s)
	}
	for _, e := range edits {
		e(s)
	}
	return s
}

// shrink leaves two layers, 128 tokens and 4 experts: the same code in a third of the time.
func shrink(s *stored) {
	const vocab, experts = 128, 4
	text := s.config["text_config"].(map[string]any)
	text["vocab_size"], text["num_hidden_layers"], text["full_attention_interval"] = vocab, 2, 2
	text["layer_types"] = []any{"linear_attention", "full_attention"}
	if text["num_experts"] != nil {
		text["num_experts"], text["num_experts_per_tok"] = experts, 2
	}
	for e := experts; e < 16; e++ {
		s.take(func(name string) bool { return strings.Contains(name, fmt.Sprintf("mlp.experts.%d.", e)) })
	}
	s.take(func(name string) bool {
		return strings.Contains(name, "model.layers.1.") || strings.Contains(name, "model.layers.2.")
	})
	rename("model.language_model.layers.3.", "model.language_model.layers.1.")(s)
	s.each(func(x *tensor) {
		rows := x.shape[0]
		switch {
		case strings.HasSuffix(x.name, "embed_tokens.weight"), x.name == "lm_head.weight":
			rows = vocab
		case strings.HasSuffix(x.name, "mlp.gate.weight"), strings.Contains(x.name, "mlp.experts.") && len(x.shape) == 3:
			rows = experts
		}
		x.data = x.data[:len(x.data)/x.shape[0]*rows]
		x.shape[0] = rows
	})
}

// base is the folder of a fixture as it is.
func base(t testing.TB, arch string) string {
	t.Helper()
	return fixture(t, arch).write(t)
}

// write puts the folder on disk and returns its path.
func (s *stored) write(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "source")
	texts := maps.Clone(s.texts)
	config := filetest.Encode(t, s.config)
	texts["config.json"] = string(config)
	for name, text := range texts {
		path := filepath.Join(dir, filepath.FromSlash(name))
		filetest.Write(t, path, text)
	}
	for name, list := range s.files {
		writeTensors(t, filepath.Join(dir, filepath.FromSlash(name)), list, s.format[name])
	}
	return dir
}

func writeTensors(t testing.TB, path string, list []tensor, format string) {
	t.Helper()
	decls, contents := make([]checkpoint.Decl, len(list)), make([][]byte, len(list))
	for i, x := range list {
		decls[i], contents[i] = checkpoint.Decl{Name: x.name, Type: x.typ, Shape: x.shape}, x.data
	}
	var metadata map[string]string
	if format != "" {
		metadata = map[string]string{"format": format}
	}
	golden.WriteTensors(t, path, decls, contents, metadata)
}

// each changes every tensor of every file.
func (s *stored) each(do func(x *tensor)) {
	for _, list := range s.files {
		for i := range list {
			do(&list[i])
		}
	}
}

// take removes the tensors that match from the main file.
func (s *stored) take(match func(name string) bool) []tensor {
	var taken, left []tensor
	for _, x := range s.files[mainFile] {
		if match(x.name) {
			taken = append(taken, x)
		} else {
			left = append(left, x)
		}
	}
	s.files[mainFile] = left
	return taken
}

func (s *stored) add(x ...tensor) { s.files[mainFile] = append(s.files[mainFile], x...) }

func (x *tensor) values() []float32 {
	v := make([]float32, len(x.data)/x.typ.Size())
	dtype.ToF32(v, x.typ, x.data)
	return v
}

func values(name string, typ dtype.Type, shape []int, v []float32) tensor {
	x := tensor{name: name, typ: typ, shape: shape, data: make([]byte, len(v)*typ.Size())}
	dtype.FromF32(x.data, typ, v)
	return x
}

// float32s stores everything in float32, so that no edit loses a bit.
func float32s(s *stored) {
	s.each(func(x *tensor) { *x = values(x.name, dtype.F32, x.shape, x.values()) })
}

func rename(from, to string) edit {
	return func(s *stored) {
		s.each(func(x *tensor) {
			if rest, ok := strings.CutPrefix(x.name, from); ok {
				x.name = to + rest
			}
		})
	}
}

// shift adds to the offset norms that match.
func shift(by float32, match func(name string) bool) edit {
	return func(s *stored) {
		s.each(func(x *tensor) {
			if strings.Contains(x.name, "norm") && !strings.HasSuffix(x.name, "linear_attn.norm.weight") &&
				!strings.Contains(x.name, "visual") && match(x.name) {
				v := x.values()
				for i := range v {
					v[i] += by
				}
				*x = values(x.name, x.typ, x.shape, v)
			}
		})
	}
}

func all(string) bool { return true }

// vlm stores a model as mlx-vlm would, unquantized: other names, gains, convolutions.
func vlm(s *stored) {
	float32s(s)
	shift(1, all)(s)
	rename("model.language_model.", "language_model.model.")(s)
	rename("lm_head.", "language_model.lm_head.")(s)
	rename("mtp.", "language_model.mtp.")(s)
	rename("model.visual.", "vision_tower.")(s)
	s.each(func(x *tensor) {
		if strings.HasSuffix(x.name, "conv1d.weight") {
			x.shape = []int{x.shape[0], x.shape[2], 1}
		}
	})
	s.format[mainFile] = "mlx"
}

// beside moves the head to another file.
func beside(file string) edit {
	return func(s *stored) { s.files[file] = s.take(isHead) }
}

// fuse stores the experts of the head as one tensor, as Qwen3.6 does.
func fuse(s *stored) {
	const p = "mtp.layers.0.mlp.experts."
	parts := map[string]tensor{}
	for _, x := range s.take(func(name string) bool { return strings.HasPrefix(name, p) }) {
		parts[strings.TrimPrefix(x.name, p)] = x
	}
	var both, down tensor
	n := len(parts) / 3
	for e := range n {
		gate, up := parts[fmt.Sprintf("%d.gate_proj.weight", e)], parts[fmt.Sprintf("%d.up_proj.weight", e)]
		both.data = append(append(both.data, gate.data...), up.data...)
		both.typ, both.shape = gate.typ, []int{n, 2 * gate.shape[0], gate.shape[1]}
		d := parts[fmt.Sprintf("%d.down_proj.weight", e)]
		down.data = append(down.data, d.data...)
		down.typ, down.shape = d.typ, append([]int{n}, d.shape...)
	}
	both.name, down.name = p+"gate_up_proj", p+"down_proj"
	s.add(both, down)
}

// separate stores the experts of the model one by one, as FP8 releases do.
func separate(s *stored) {
	for _, x := range s.take(func(name string) bool { return strings.Contains(name, ".mlp.experts.") && !isHead(name) }) {
		size := len(x.data) / x.shape[0]
		for e := range x.shape[0] {
			data := x.data[e*size : (e+1)*size]
			p := strings.TrimSuffix(strings.TrimSuffix(x.name, "gate_up_proj"), "down_proj")
			if strings.HasSuffix(x.name, "down_proj") {
				s.add(tensor{fmt.Sprintf("%s%d.down_proj.weight", p, e), x.typ, x.shape[1:], data})
				continue
			}
			half := []int{x.shape[1] / 2, x.shape[2]}
			s.add(tensor{fmt.Sprintf("%s%d.gate_proj.weight", p, e), x.typ, half, data[:size/2]},
				tensor{fmt.Sprintf("%s%d.up_proj.weight", p, e), x.typ, half, data[size/2:]})
		}
	}
}

// fp8 stores the projections as official releases do: E4M3 with a scale per block.
func fp8(s *stored) {
	const block = 128
	for name, list := range s.files {
		var out []tensor
		for _, x := range list {
			if len(x.shape) != 2 || !strings.HasSuffix(x.name, "_proj.weight") {
				out = append(out, x)
				continue
			}
			rows, cols := x.shape[0], x.shape[1]
			down, across := (rows+block-1)/block, (cols+block-1)/block
			scales := make([]float32, down*across)
			for i := range scales {
				scales[i] = float32(0.001) * float32(i%3+1)
			}
			v := x.values()
			for i := range v {
				v[i] /= scales[i/cols/block*across+i%cols/block]
			}
			out = append(out, values(x.name, dtype.F8E4M3, x.shape, v),
				values(x.name+"_scale_inv", dtype.BF16, []int{down, across}, scales))
		}
		s.files[name] = out
	}
	s.config["quantization_config"] = map[string]any{
		"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": []int{block, block}, "modules_to_not_convert": []string{"lm_head"},
	}
}

// qwen3Next stores a model as that older family does: a flat config, the projections of
// linear layers together, grouped by key head, and every expert on its own.
func qwen3Next(s *stored) {
	separate(s)
	rename("model.language_model.", "model.")(s)
	s.take(func(name string) bool { return strings.HasPrefix(name, "model.visual.") })
	text := s.config["text_config"].(map[string]any)
	text["tie_word_embeddings"], text["model_type"] = s.config["tie_word_embeddings"], "qwen3_next"
	s.config = text
	size := func(name string) int { return int(text[name].(float64)) }
	groups, dk := size("linear_num_key_heads"), size("linear_key_head_dim")
	r := size("linear_num_value_heads") / groups
	dv := r * size("linear_value_head_dim")
	for _, qkv := range s.take(func(name string) bool { return strings.HasSuffix(name, "in_proj_qkv.weight") }) {
		p := strings.TrimSuffix(qkv.name, "qkv.weight")
		part := map[string]tensor{}
		for _, x := range s.take(func(name string) bool { return strings.HasPrefix(name, p) }) {
			part[strings.TrimSuffix(strings.TrimPrefix(x.name, p), ".weight")] = x
		}
		cols := qkv.shape[1]
		rows := func(x tensor, from, n int) []byte {
			size := cols * x.typ.Size()
			return x.data[from*size : (from+n)*size]
		}
		both, ba := tensor{name: p + "qkvz.weight", typ: qkv.typ}, tensor{name: p + "ba.weight", typ: qkv.typ}
		for m := range groups {
			both.data = append(both.data, rows(qkv, m*dk, dk)...)
			both.data = append(both.data, rows(qkv, (groups+m)*dk, dk)...)
			both.data = append(both.data, rows(qkv, 2*groups*dk+m*dv, dv)...)
			both.data = append(both.data, rows(part["z"], m*dv, dv)...)
			ba.data = append(ba.data, rows(part["b"], m*r, r)...)
			ba.data = append(ba.data, rows(part["a"], m*r, r)...)
		}
		both.shape, ba.shape = []int{2 * groups * (dk + dv), cols}, []int{2 * groups * r, cols}
		s.add(both, ba)
	}
}

// converted converts a folder and returns where it is then.
func converted(t testing.TB, dir string, o Options) (string, Summary) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "converted")
	s, err := Convert(t.Context(), golden.Open(t, dir), out, o)
	if err != nil {
		t.Fatal(err)
	}
	return out, s
}

// effective is the numbers of every weight as a model would use them.
func effective(t testing.TB, dir string) map[string][]float32 {
	t.Helper()
	v, err := model.Inventory(golden.Open(t, dir), weights.Whole, discard)
	if err != nil {
		t.Fatal(err)
	}
	v.IncludeTower()
	return modeltest.Numbers(t, v)
}

// same compares numbers by their bits.
func same(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

// compare checks that two models have the same weights, want after rounding.
func compare(t *testing.T, got, want map[string][]float32, round func(name string, v []float32) []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d weights, want %d", len(got), len(want))
	}
	for name, w := range want {
		if round != nil {
			w = round(name, w)
		}
		if !same(got[name], w) {
			i := 0
			for i < min(len(w), len(got[name])) && got[name][i] == w[i] {
				i++
			}
			t.Errorf("%s: %d numbers, want %d; they differ from %d on", name, len(got[name]), len(w), i)
		}
	}
}

// rounded is numbers as a type has them.
func rounded(typ dtype.Type, v []float32) []float32 {
	x := values("", typ, nil, v)
	return x.values()
}

// isHead reports whether a tensor is one of a head, by its name in a file.
func isHead(name string) bool { return strings.Contains("."+name, ".mtp.") }

// mlxName is the naming of converted checkpoints.
func mlxName(name string) string {
	if isHead(name) || strings.HasPrefix(name, "lm_head.") {
		return "language_model." + name
	}
	return "language_model.model." + name
}

// answers are the logits of a folder's model on the float path, the head's after the
// target's.
func answers(t *testing.T, dir string) [][]float32 {
	t.Helper()
	target, head := modeltest.Open(t, dir, 1, model.Options{Compute: backend.Float32}).Answers(t, []int32{3, 14, 15, 92, 65})
	return slices.Concat(target, head)
}
