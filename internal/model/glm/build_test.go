package glm

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
	tensors map[string]tensor // of model.safetensors
	beside  map[string]tensor // of mtp.safetensors
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
	f := &folder{tensors: map[string]tensor{}, beside: map[string]tensor{}}
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
	return f.edit(t, edits...)
}

func (f *folder) edit(t *testing.T, edits ...edit) *folder {
	t.Helper()
	for _, e := range edits {
		e(t, f)
	}
	return f
}

// clone is a folder whose edits leave f as it is.
func (f *folder) clone() *folder {
	return &folder{config: maps.Clone(f.config), tensors: maps.Clone(f.tensors), beside: maps.Clone(f.beside)}
}

func (f *folder) n(key string) int { return int(f.config[key].(float64)) }

// head is the prefix of the names of the head's tensors.
func (f *folder) head() string { return fmt.Sprintf("model.layers.%d.", f.n("num_hidden_layers")) }

// write writes the folder and returns its path.
func (f *folder) write(t *testing.T) string {
	t.Helper()
	dir := filetest.Folder(t, map[string][]byte{"config.json": filetest.Encode(t, f.config)})
	writeTensors(t, filepath.Join(dir, "model.safetensors"), f.tensors)
	if len(f.beside) > 0 {
		writeTensors(t, filepath.Join(dir, "mtp.safetensors"), f.beside)
	}
	return dir
}

func writeTensors(t *testing.T, path string, list map[string]tensor) {
	t.Helper()
	var decls []checkpoint.Decl
	var contents [][]byte
	for _, name := range slices.Sorted(maps.Keys(list)) {
		x := list[name]
		if x.data == nil {
			x.data = make([]byte, len(x.values)*x.typ.Size())
			dtype.FromF32(x.data, x.typ, x.values)
		}
		decls, contents = append(decls, checkpoint.Decl{Name: name, Type: x.typ, Shape: x.shape}), append(contents, x.data)
	}
	golden.WriteTensors(t, path, decls, contents, nil)
}

// mlx is the layout of mlx-lm, with the head where the release has it: experts in stacks, and the
// two parts of kv_b apart, the first by columns.
func mlx(t *testing.T, f *folder) {
	t.Helper()
	stackExperts(f)
	for name, x := range maps.Clone(f.tensors) {
		p, ok := strings.CutSuffix(name, "kv_b_proj.weight")
		if !ok {
			continue
		}
		heads, nope, value, rank := f.n("num_attention_heads"), f.n("qk_nope_head_dim"), f.n("v_head_dim"), f.n("kv_lora_rank")
		keys := tensor{typ: x.typ, shape: []int{heads, rank, nope}}
		values := tensor{typ: x.typ, shape: []int{heads, value, rank}}
		for h := range heads {
			rows := x.values[h*(nope+value)*rank:][:(nope+value)*rank]
			for c := range rank {
				for j := range nope {
					keys.values = append(keys.values, rows[j*rank+c])
				}
			}
			values.values = append(values.values, rows[nope*rank:]...)
		}
		delete(f.tensors, name)
		f.tensors[p+"embed_q.weight"], f.tensors[p+"unembed_out.weight"] = keys, values
	}
}

// stackExperts makes stacks of experts.
func stackExperts(f *folder) {
	for name := range maps.Clone(f.tensors) {
		p, ok := strings.CutSuffix(name, "experts.0.gate_proj.weight")
		if !ok {
			continue
		}
		for _, proj := range []string{"gate_proj", "up_proj", "down_proj"} {
			var all tensor
			for e := range f.n("n_routed_experts") {
				one := fmt.Sprintf("%sexperts.%d.%s.weight", p, e, proj)
				x := f.tensors[one]
				all.typ, all.shape = x.typ, append([]int{e + 1}, x.shape...)
				all.values = append(all.values, x.values...)
				delete(f.tensors, one)
			}
			f.tensors[p+"switch_mlp."+proj+".weight"] = all
		}
	}
}

// setting changes the config; nil takes a field out.
func setting(key string, value any) edit {
	return func(_ *testing.T, f *folder) {
		if f.config[key] = value; value == nil {
			delete(f.config, key)
		}
	}
}

// renamed changes names.
func renamed(rename func(name string) string) edit {
	return func(_ *testing.T, f *folder) {
		for name, x := range maps.Clone(f.tensors) {
			delete(f.tensors, name)
			f.tensors[rename(name)] = x
		}
	}
}

// newer is the newer form of the config.
func newer(_ *testing.T, f *folder) {
	rope := map[string]any{"rope_type": "default"}
	if old, ok := f.config["rope_scaling"].(map[string]any); ok {
		rope = maps.Clone(old)
		rope["rope_type"] = rope["type"]
		delete(rope, "type")
	}
	rope["rope_theta"] = f.config["rope_theta"]
	var kinds []string
	for i := range f.n("num_hidden_layers") {
		kinds = append(kinds, "sparse")
		if i < f.n("first_k_dense_replace") {
			kinds[i] = "dense"
		}
	}
	f.config["rope_parameters"], f.config["mlp_layer_types"] = rope, kinds
	for _, key := range []string{"rope_theta", "rope_scaling", "first_k_dense_replace"} {
		delete(f.config, key)
	}
}

// nested puts the config where a wrapper has it, and the weights under its name.
func nested(t *testing.T, f *folder) {
	f.config = map[string]any{"model_type": f.config["model_type"], "text_config": f.config}
	renamed(func(name string) string { return "language_model." + name })(t, f)
}

// sidecar moves the head into a file of its own.
func sidecar(_ *testing.T, f *folder) {
	for name, x := range maps.Clone(f.tensors) {
		if strings.HasPrefix(name, f.head()) {
			delete(f.tensors, name)
			f.beside[name] = x
		}
	}
}

// uncopied leaves out the head's copies of the model's matrices.
func uncopied(_ *testing.T, f *folder) {
	delete(f.tensors, f.head()+"embed_tokens.weight")
	delete(f.tensors, f.head()+"shared_head.head.weight")
}

// headless leaves the head out.
func headless(_ *testing.T, f *folder) {
	maps.DeleteFunc(f.tensors, func(name string, _ tensor) bool { return strings.HasPrefix(name, f.head()) })
}

// plainly has all numbers as a type, but the bias that is to be float32.
func plainly(typ dtype.Type) edit {
	return func(_ *testing.T, f *folder) {
		for name, x := range f.tensors {
			if !strings.HasSuffix(name, biasName) {
				x.typ = typ
				f.tensors[name] = x
			}
		}
	}
}
