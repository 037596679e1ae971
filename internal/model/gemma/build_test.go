package gemma

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
)

// The tests of ingestion write checkpoints: one model under other names, shapes, types and in
// other files. A layout is a list of edits to a folder that begins as the releases are.

// folder is a checkpoint to be written.
type folder struct {
	config  map[string]any
	tensors map[string]tensor
}

// tensor is one to be written. Values are its numbers; if there are none it is its bytes.
type tensor struct {
	typ    dtype.Type
	shape  []int
	values []float32
	data   []byte
}

// edit changes a folder.
type edit func(t *testing.T, f *folder)

// fixture is a fixture's folder after edits.
func fixture(t *testing.T, name string, edits ...edit) *folder {
	t.Helper()
	c := openFolder(t, golden.Dir(t, name))
	f := &folder{tensors: map[string]tensor{}}
	filetest.Decode(t, c.Config(), &f.config)
	for _, n := range c.Tensors() {
		x, err := c.Tensor(n)
		if err != nil {
			t.Fatal(err)
		}
		v := make([]float32, len(x.Data)/x.Type.Size())
		dtype.ToF32(v, x.Type, x.Data)
		f.tensors[n] = tensor{typ: x.Type, shape: x.Shape, values: v}
	}
	for _, e := range edits {
		e(t, f)
	}
	return f
}

// clone is a folder whose tensors can be replaced.
func (f *folder) clone() *folder {
	return &folder{config: maps.Clone(f.config), tensors: maps.Clone(f.tensors)}
}

// text is the config of the model itself.
func (f *folder) text() map[string]any {
	if part, ok := f.config["text_config"].(map[string]any); ok {
		return part
	}
	return f.config
}

// n is a number of the config, 0 if it is null.
func (f *folder) n(key string) int {
	x, _ := f.text()[key].(float64)
	return int(x)
}

// write writes the folder and returns its path.
func (f *folder) write(t *testing.T) string {
	t.Helper()
	dir := filetest.Folder(t, map[string][]byte{"config.json": filetest.Encode(t, f.config)})
	var decls []checkpoint.Decl
	var contents [][]byte
	for _, name := range slices.Sorted(maps.Keys(f.tensors)) {
		x := f.tensors[name]
		if x.data == nil {
			x.data = make([]byte, len(x.values)*x.typ.Size())
			dtype.FromF32(x.data, x.typ, x.values)
		}
		decls, contents = append(decls, checkpoint.Decl{Name: name, Type: x.typ, Shape: x.shape}), append(contents, x.data)
	}
	golden.WriteTensors(t, filepath.Join(dir, "model.safetensors"), decls, contents, nil)
	return dir
}

// setting changes the config of the model; nil takes a field out.
func setting(key string, value any) edit {
	return func(_ *testing.T, f *folder) {
		part := f.text()
		if part[key] = value; value == nil {
			delete(part, key)
		}
	}
}

// renamed changes names.
func renamedTo(rename func(name string) string) edit {
	return func(_ *testing.T, f *folder) {
		list := map[string]tensor{}
		for name, x := range f.tensors {
			list[rename(name)] = x
		}
		f.tensors = list
	}
}

// textOnly is a folder with the text alone: the config is flat, and names are shorter.
func textOnly(t *testing.T, f *folder) {
	f.config = f.text()
	f.config["architectures"] = []string{"Gemma4ForCausalLM"}
	renamedTo(func(name string) string { return strings.Replace(name, "model.language_model.", "model.", 1) })(t, f)
}

// mlx is the layout of mlx-vlm: other prefixes, and experts in stacks by projection.
func mlx(t *testing.T, f *folder) {
	splitExperts(f, func(layer string, list map[string]tensor) {
		for proj, x := range list {
			f.tensors[layer+"switch_glu."+proj+".weight"] = x
		}
	})
	renamedTo(func(name string) string {
		return strings.Replace(name, "model.language_model.", "language_model.model.", 1)
	})(t, f)
}

// single has experts one by one.
func single(_ *testing.T, f *folder) {
	splitExperts(f, func(layer string, list map[string]tensor) {
		for proj, x := range list {
			n := len(x.values) / x.shape[0]
			for e := range x.shape[0] {
				f.tensors[fmt.Sprintf("%s%d.%s.weight", layer, e, proj)] = tensor{typ: x.typ, shape: x.shape[1:], values: x.values[e*n:][:n]}
			}
		}
	})
}

// splitExperts takes the stacks of all mixtures out of f and gives them to add, by projection.
func splitExperts(f *folder, add func(layer string, list map[string]tensor)) {
	for name, x := range maps.Clone(f.tensors) {
		layer, ok := strings.CutSuffix(name, "gate_up_proj")
		if !ok {
			continue
		}
		n, rows, cols := x.shape[0], x.shape[1]/2, x.shape[2]
		gate, up := tensor{typ: x.typ, shape: []int{n, rows, cols}}, tensor{typ: x.typ, shape: []int{n, rows, cols}}
		for e := range n {
			both := x.values[e*2*rows*cols:][:2*rows*cols]
			gate.values, up.values = append(gate.values, both[:rows*cols]...), append(up.values, both[rows*cols:]...)
		}
		down := f.tensors[layer+"down_proj"]
		delete(f.tensors, name)
		delete(f.tensors, layer+"down_proj")
		add(layer, map[string]tensor{"gate_proj": gate, "up_proj": up, "down_proj": down})
	}
}

// stores adds tensors that mean nothing.
func stores(list map[string][]int) edit {
	return func(_ *testing.T, f *folder) {
		for name, shape := range list {
			x, n := tensor{typ: dtype.BF16, shape: shape}, 1
			for _, d := range shape {
				n *= d
			}
			for i := range n {
				x.values = append(x.values, float32(i%13-6)/4)
			}
			f.tensors[name] = x
		}
	}
}

// surplus adds the keys and values of layers that share, which releases of the small sizes have.
var surplus = stores(func() map[string][]int {
	list := map[string][]int{}
	for i, dim := range map[int]int{4: 16, 5: 32, 6: 16, 7: 32} {
		p := fmt.Sprintf("model.language_model.layers.%d.self_attn.", i)
		list[p+"k_proj.weight"], list[p+"v_proj.weight"], list[p+"k_norm.weight"] = []int{dim, 64}, []int{dim, 64}, []int{dim}
	}
	return list
}())

// otherParts adds tensors of towers.
var otherParts = stores(map[string][]int{
	"model.vision_tower.encoder.layers.0.self_attn.q_proj.linear.weight": {4, 4}, "model.vision_tower.encoder.layers.0.input_max": {1},
	"model.embed_vision.embedding_projection.weight": {4, 4}, "model.audio_tower.layers.0.norm.weight": {4}, "model.embed_audio.embedding_projection.weight": {4, 4},
	"model.vision_embedder.patch_dense.weight": {4, 4},
})

// newer is the form of the config that says the heads of layers one by one, or by kind.
func newer(byKind bool) edit {
	return func(_ *testing.T, f *folder) {
		part, list := f.text(), map[string]any{}
		heads := part["num_key_value_heads"]
		if part["attention_k_eq_v"] == true {
			heads = part["num_global_key_value_heads"]
		}
		own := map[string]any{"head_dim": part["global_head_dim"], "num_key_value_heads": heads}
		for i, name := range part["layer_types"].([]any) {
			switch {
			case name != "full_attention":
			case byKind:
				list["full_attention"] = own
			default:
				list[fmt.Sprint(i)] = own
			}
		}
		part["per_layer_config"] = list
		delete(part, "global_head_dim")
		delete(part, "num_global_key_value_heads")
	}
}

// plainly has all numbers as a type.
func plainly(typ dtype.Type) edit {
	return func(_ *testing.T, f *folder) {
		for name, x := range f.tensors {
			x.typ = typ
			f.tensors[name] = x
		}
	}
}
