package qwen35

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
	"github.com/foretoken/foretoken/internal/model/weights"
)

// The tests of ingestion write checkpoints: one model under other names, shapes, types
// and in other files. A layout is a list of edits to a folder that begins as the releases
// are: one file, prefix model.language_model., raw norms, fused experts.

const (
	mainFile = "model.safetensors"
	released = "model.language_model." // prefix of the model in the releases
)

// folder is a checkpoint to be written.
type folder struct {
	config map[string]any
	files  map[string]*weightFile // by path
	texts  map[string]string      // other files
}

type weightFile struct {
	metadata map[string]string
	tensors  []tensor
}

// tensor is one to be written.
type tensor struct {
	name  string
	typ   dtype.Type
	shape []int
	data  []byte
}

// edit changes a folder.
type edit func(t *testing.T, f *folder)

// specFolder is a model of the specification as it would be released, after edits.
func specFolder(t *testing.T, c golden.SpecConfig, edits ...edit) *folder {
	t.Helper()
	f := newFolder(t, c.JSON())
	for _, x := range c.Tensors() {
		f.main().add(numbers(x.Name, dtype.F32, x.Shape, x.Values))
	}
	return f.edit(t, edits...)
}

func newFolder(t *testing.T, config []byte) *folder {
	t.Helper()
	f := &folder{files: map[string]*weightFile{mainFile: {}}, texts: map[string]string{}}
	filetest.Decode(t, config, &f.config)
	return f
}

// clone is a folder whose edits leave f as it is. The numbers of tensors are shared: an
// edit that changes them makes new ones.
func (f *folder) clone() *folder {
	c := &folder{config: maps.Clone(f.config), files: map[string]*weightFile{}, texts: maps.Clone(f.texts)}
	if text, ok := c.config["text_config"].(map[string]any); ok {
		c.config["text_config"] = maps.Clone(text)
	}
	for name, w := range f.files {
		c.files[name] = &weightFile{metadata: w.metadata, tensors: slices.Clone(w.tensors)}
	}
	return c
}

// edit applies edits in their order.
func (f *folder) edit(t *testing.T, edits ...edit) *folder {
	t.Helper()
	for _, e := range edits {
		e(t, f)
	}
	return f
}

func (f *folder) main() *weightFile { return f.files[mainFile] }

// text is the part of the config that describes the model.
func (f *folder) text() map[string]any {
	if t, ok := f.config["text_config"].(map[string]any); ok {
		return t
	}
	return f.config
}

// each calls do for every tensor of every file.
func (f *folder) each(do func(x *tensor)) {
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		w := f.files[name]
		for i := range w.tensors {
			do(&w.tensors[i])
		}
	}
}

// find is the tensor whose name ends so, or ends the test.
func (f *folder) find(t *testing.T, suffix string) *tensor {
	t.Helper()
	var found *tensor
	f.each(func(x *tensor) {
		if found == nil && strings.HasSuffix(x.name, suffix) {
			found = x
		}
	})
	if found == nil {
		t.Fatalf("the folder has no tensor %s", suffix)
	}
	return found
}

func (w *weightFile) add(x ...tensor) { w.tensors = append(w.tensors, x...) }

// take removes the tensors that match and returns them.
func (w *weightFile) take(match func(name string) bool) []tensor {
	var taken, left []tensor
	for _, x := range w.tensors {
		if match(x.name) {
			taken = append(taken, x)
		} else {
			left = append(left, x)
		}
	}
	w.tensors = left
	return taken
}

// numbers is a tensor of values.
func numbers(name string, typ dtype.Type, shape []int, values []float32) tensor {
	x := tensor{name: name, typ: typ, shape: slices.Clone(shape), data: make([]byte, len(values)*typ.Size())}
	dtype.FromF32(x.data, typ, values)
	return x
}

// values are a tensor's numbers.
func (x *tensor) values() []float32 {
	v := make([]float32, len(x.data)/x.typ.Size())
	dtype.ToF32(v, x.typ, x.data)
	return v
}

// set changes a tensor's numbers.
func (x *tensor) set(v []float32) { *x = numbers(x.name, x.typ, x.shape, v) }

// rows cuts a tensor along its first dimension into parts of n rows.
func (x *tensor) rows(n int) []tensor {
	size := len(x.data) / x.shape[0] * n
	var parts []tensor
	for from := 0; from < len(x.data); from += size {
		p := *x
		p.shape = append([]int{n}, x.shape[1:]...)
		p.data = x.data[from : from+size]
		parts = append(parts, p)
	}
	return parts
}

// write puts the folder on disk and returns its path.
func (f *folder) write(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	config := filetest.Encode(t, f.config)
	texts := maps.Clone(f.texts)
	if _, ok := texts["config.json"]; !ok {
		texts["config.json"] = string(config)
	}
	for name, text := range texts {
		filetest.Write(t, filepath.Join(dir, filepath.FromSlash(name)), text)
	}
	for name, w := range f.files {
		w.write(t, filepath.Join(dir, filepath.FromSlash(name)))
	}
	return dir
}

func (w *weightFile) write(t *testing.T, path string) {
	t.Helper()
	decls, contents := make([]checkpoint.Decl, len(w.tensors)), make([][]byte, len(w.tensors))
	for i, x := range w.tensors {
		decls[i], contents[i] = checkpoint.Decl{Name: x.name, Type: x.typ, Shape: x.shape}, x.data
	}
	golden.WriteTensors(t, path, decls, contents, w.metadata)
}

// in applies edits to the tensors of one part only, given by the start of their names:
// the others are put aside while the edits run.
func in(prefix string, edits ...edit) edit {
	return func(t *testing.T, f *folder) {
		t.Helper()
		aside := f.main().take(func(name string) bool { return !strings.HasPrefix(name, prefix) })
		f.edit(t, edits...)
		f.main().add(aside...)
	}
}

// rename gives tensors whose names begin with one prefix another.
func rename(from, to string) edit {
	return func(_ *testing.T, f *folder) {
		f.each(func(x *tensor) {
			if rest, ok := strings.CutPrefix(x.name, from); ok {
				x.name = to + rest
			}
		})
	}
}

// configure changes the config: top is all of it, text the part of the model.
func configure(change func(text, top map[string]any)) edit {
	return func(_ *testing.T, f *folder) { change(f.text(), f.config) }
}

// flat makes the config that of a text-only export.
func flat(_ *testing.T, f *folder) {
	text := f.text()
	text["tie_word_embeddings"] = f.config["tie_word_embeddings"]
	f.config = text
}

// isOffsetNorm reports whether a norm's gain is one more than its raw weight.
func isOffsetNorm(name string) bool {
	return strings.Contains(name, "norm") && !strings.HasSuffix(name, "linear_attn.norm.weight") && !inTower(name)
}

// shifted stores the gains of the matching norms instead of the gains less one.
func shifted(match func(name string) bool) edit {
	return func(_ *testing.T, f *folder) {
		f.each(func(x *tensor) {
			if !isOffsetNorm(x.name) || !match(x.name) {
				return
			}
			v := x.values()
			for i := range v {
				v[i]++
			}
			x.set(v)
		})
	}
}

func everything(string) bool { return true }

func inHead(name string) bool {
	return strings.HasPrefix(name, "mtp.") || strings.Contains(name, ".mtp.")
}

func inTower(name string) bool {
	name, _ = canonical(name)
	return weights.IsTower(name)
}

func inModel(name string) bool { return !inHead(name) }

// convShape stores convolutions as MLX does, [channels, kernel, 1], or with two dimensions.
func convShape(dims int) edit {
	return func(_ *testing.T, f *folder) {
		f.each(func(x *tensor) {
			if strings.HasSuffix(x.name, "conv1d.weight") {
				c, k := x.shape[0], x.shape[len(x.shape)-1]
				x.shape = []int{c, k, 1}[:dims]
			}
		})
	}
}

// metadata sets the format a file says it has.
func metadata(file, format string) edit {
	return func(_ *testing.T, f *folder) { f.files[file].metadata = map[string]string{"format": format} }
}

// fetched marks the head beside the weights as one of a repository with that convention.
func fetched(c weights.Convention) edit {
	return func(_ *testing.T, f *folder) {
		f.files[checkpoint.SidecarFile].metadata = map[string]string{"format": "pt", checkpoint.NormsKey: c.String()}
	}
}

// mlxNames are the prefixes of converted checkpoints.
func mlxNames(t *testing.T, f *folder) {
	f.edit(t, rename(released, "language_model.model."), rename("lm_head.", "language_model.lm_head."), rename("mtp.", "language_model.mtp."))
}

// mlx is the whole conversion, with experts as they are.
func mlx(t *testing.T, f *folder) {
	f.edit(t, shifted(everything), convShape(3), mlxNames, metadata(mainFile, "mlx"))
}

// sidecar moves the head to a file of its own.
func sidecar(file string) edit {
	return func(_ *testing.T, f *folder) {
		f.files[file] = &weightFile{tensors: f.main().take(inHead)}
	}
}

// manifest puts a description beside mtp/weights.safetensors.
func manifest(text string) edit {
	return func(_ *testing.T, f *folder) { f.texts["mtp/manifest.json"] = text }
}

// sharded spreads the tensors over files with an index; head names the one for the head.
func sharded(n int, head string) edit {
	return func(t *testing.T, f *folder) {
		t.Helper()
		index := map[string]string{}
		for i, x := range f.main().tensors {
			file := fmt.Sprintf("model-%05d-of-%05d.safetensors", i%n+1, n)
			if inHead(x.name) && head != "" {
				file = head
			}
			if f.files[file] == nil {
				f.files[file] = &weightFile{metadata: map[string]string{"format": "pt"}}
			}
			f.files[file].add(x)
			index[x.name] = file
		}
		delete(f.files, mainFile)
		text := filetest.Encode(t, map[string]any{"metadata": map[string]any{"total_size": 1}, "weight_map": index})
		f.texts[mainFile+".index.json"] = string(text)
	}
}

// towerTensors adds tensors of an image tower under every prefix seen.
func towerTensors(_ *testing.T, f *folder) {
	for _, p := range []string{
		"vision_tower.", "visual.", "model.visual.", "language_model.visual.", "model.language_model.visual.",
		"vision_model.", "model.vision_tower.", "multi_modal_projector.",
	} {
		f.main().add(numbers(p+"blocks.0.norm1.weight", dtype.F32, []int{3}, []float32{1, 2, 3}))
	}
}

// separateExperts stores one tensor per expert and projection.
func separateExperts(_ *testing.T, f *folder) {
	f.experts(func(prefix string, gate, up, down []tensor) {
		for e := range gate {
			for name, x := range map[string]tensor{"gate_proj": gate[e], "up_proj": up[e], "down_proj": down[e]} {
				x.name = fmt.Sprintf("%sexperts.%d.%s.weight", prefix, e, name)
				f.main().add(x)
			}
		}
	})
}

// switchExperts stores one tensor per projection, as converted checkpoints do.
func switchExperts(_ *testing.T, f *folder) {
	f.experts(func(prefix string, gate, up, down []tensor) {
		for name, list := range map[string][]tensor{"gate_proj": gate, "up_proj": up, "down_proj": down} {
			f.main().add(stacked(prefix+"switch_mlp."+name+".weight", list))
		}
	})
}

// experts takes the fused experts of every layer apart and gives each projection's list
// of matrices to store.
func (f *folder) experts(store func(prefix string, gate, up, down []tensor)) {
	const fused = "experts.gate_up_proj"
	both := f.main().take(func(name string) bool { return strings.HasSuffix(name, fused) })
	for _, x := range both {
		prefix := strings.TrimSuffix(x.name, fused)
		down := f.main().take(func(name string) bool { return name == prefix+"experts.down_proj" })
		var gate, up, out []tensor
		for _, e := range x.rows(1) {
			e.shape = e.shape[1:]
			halves := e.rows(e.shape[0] / 2)
			gate, up = append(gate, halves[0]), append(up, halves[1])
		}
		for _, e := range down[0].rows(1) {
			e.shape = e.shape[1:]
			out = append(out, e)
		}
		store(prefix, gate, up, out)
	}
}

// stacked is one tensor of equal ones.
func stacked(name string, list []tensor) tensor {
	x := tensor{name: name, typ: list[0].typ, shape: append([]int{len(list)}, list[0].shape...)}
	for _, e := range list {
		x.data = append(x.data, e.data...)
	}
	return x
}

// without drops the tensors whose names end so.
func without(suffixes ...string) edit {
	return func(t *testing.T, f *folder) {
		t.Helper()
		for _, s := range suffixes {
			n := 0
			for _, w := range f.files {
				n += len(w.take(func(name string) bool { return strings.HasSuffix(name, s) }))
			}
			if n == 0 {
				t.Fatalf("no tensor ends with %s", s)
			}
		}
	}
}

// with adds tensors to the main file.
func with(x ...tensor) edit {
	return func(_ *testing.T, f *folder) { f.main().add(x...) }
}

// change gives do the tensor whose name ends so.
func change(suffix string, do func(x *tensor)) edit {
	return func(t *testing.T, f *folder) {
		t.Helper()
		do(f.find(t, suffix))
	}
}
