package checkpoint

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
)

// TestExamineKeepsWhatIsWhole damages folders in turn: intact parts must be there, with their
// bytes, and damaged ones must be listed.
func TestExamineKeepsWhatIsWhole(t *testing.T) {
	a, b, c := random("a", dtype.F32, 4), random("b", dtype.BF16, 3, 2), random("c", dtype.U8, 5)
	whole := encode(t, nil, a, b, c)
	index := `{"weight_map":{"a":"one.safetensors","b":"one.safetensors","c":"two.safetensors"}}`
	for _, x := range []struct {
		name   string
		files  map[string]string
		left   []string
		damage []string
	}{
		{"whole", map[string]string{"model.safetensors": whole}, []string{"a", "b", "c"}, nil},
		{"cut off", map[string]string{"model.safetensors": whole[:len(whole)-1]}, []string{"a", "b"}, []string{"cut off or damaged"}},
		{"cut in the header", map[string]string{"model.safetensors": whole[:20]}, nil, []string{"cut off"}},
		{"one empty, one whole", map[string]string{"model-1.safetensors": "", "model-2.safetensors": whole}, []string{"a", "b", "c"}, []string{"0 bytes"}},
		{"in both", map[string]string{"model-1.safetensors": encode(t, nil, b), "model-2.safetensors": whole}, []string{"a", "b", "c"}, []string{`"b" is in both`}},
		{"a shard lost", map[string]string{"model.safetensors.index.json": index, "one.safetensors": encode(t, nil, a, b)}, []string{"a", "b"}, []string{"two.safetensors"}},
		{"a tensor lost", map[string]string{"model.safetensors.index.json": index, "one.safetensors": encode(t, nil, a), "two.safetensors": encode(t, nil, c)}, []string{"a", "c"}, []string{`"b"`}},
		{"no index", map[string]string{"model.safetensors.index.json": "{", "one.safetensors": whole}, []string{"a", "b", "c"}, []string{"index.json"}},
		{"an empty sidecar", map[string]string{"model.safetensors": whole, "mtp.safetensors": ""}, []string{"a", "b", "c"}, []string{"mtp.safetensors"}},
		{"an unknown quantization", map[string]string{"config.json": `{"quantization":{"mode":"odd"}}`, "model.safetensors": whole}, []string{"a", "b", "c"}, []string{"odd"}},
	} {
		dir := t.TempDir()
		if x.files["config.json"] == "" {
			x.files["config.json"] = "{}"
		}
		for name, text := range x.files {
			filetest.Write(t, filepath.Join(dir, name), text)
		}
		k, err := Examine(dir)
		if err != nil {
			t.Fatalf("%s: %v", x.name, err)
		}
		if got := k.Tensors(); !slices.Equal(got, x.left) {
			t.Errorf("%s: tensors %q are left, want %q", x.name, got, x.left)
		}
		for _, want := range []tensor{a, b, c} {
			if !k.Has(want.Name) {
				continue
			}
			if got, err := k.Tensor(want.Name); err != nil || string(got.Data) != string(want.data) {
				t.Errorf("%s: tensor %s has other bytes (%v)", x.name, want.Name, err)
			}
		}
		if len(k.Damage()) != len(x.damage) {
			t.Errorf("%s: damage %v, want %d", x.name, k.Damage(), len(x.damage))
		}
		for i, words := range x.damage[:min(len(x.damage), len(k.Damage()))] {
			if got := k.Damage()[i].Error(); !strings.Contains(got, words) {
				t.Errorf("%s: damage %q, want %q", x.name, got, words)
			}
		}
		if _, err := Open(dir); (err != nil) != (len(x.damage) > 0) {
			t.Errorf("%s: Open says %v", x.name, err)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := Examine(t.TempDir()); err == nil || !strings.Contains(err.Error(), "not a model folder") {
		t.Errorf("an empty folder: %v", err)
	}
	if _, err := Examine(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}

// TestLookSaysWhatMatrixDoes compares headers with data for every encoding.
func TestLookSaysWhatMatrixDoes(t *testing.T) {
	tensors := []tensor{
		random("plain.weight", dtype.BF16, 4, 64),
		random("affine.weight", dtype.U32, 4, 8), random("affine.scales", dtype.F16, 4, 1), random("affine.biases", dtype.F16, 4, 1),
		random("mx.weight", dtype.U32, 4, 8), random("mx.scales", dtype.U8, 4, 2),
		random("nv.weight", dtype.U32, 4, 8), random("nv.scales", dtype.U8, 4, 4), random("nv.global_scale", dtype.F32, 1),
		random("fp8.weight", dtype.F8E4M3, 4, 64), random("fp8.weight_scale_inv", dtype.F32, 1, 1),
		random("odd.weight", dtype.U32, 4, 14), random("odd.scales", dtype.F16, 4, 1), random("odd.biases", dtype.F16, 4, 1),
		random("lone.weight", dtype.U32, 4, 8),
		random("stack", dtype.F32, 3, 4, 64),
		random("vector", dtype.F32, 64),
	}
	open := func() *Checkpoint {
		k, err := OpenFiles("look", map[string]string{"config.json": "{}", "model.safetensors": encode(t, nil, tensors...)})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	read, look := open(), open()
	for _, module := range []string{"plain", "affine", "mx", "nv", "fp8", "odd", "lone", "none"} {
		m, err := read.Matrix(module, 4, 64)
		h, headerErr := look.LookMatrix(module, 4, 64)
		if (err != nil) != (headerErr != nil) || h.Data != nil || h.Scales != nil || h.Biases != nil {
			t.Errorf("%s: %v by data, %v by header, %d bytes", module, err, headerErr, h.Bytes())
		}
		m.Data, m.Scales, m.Biases, m.Global, h.Global = nil, nil, nil, 0, 0
		if err == nil && (m.Format != h.Format || m.Bits != h.Bits || m.Group != h.Group || m.Type != h.Type || m.ScaleType != h.ScaleType) {
			t.Errorf("%s: %+v by data, %+v by header", module, m, h)
		}
	}
	stack, err := look.LookStack("stack", 3, 4, 64)
	if part := stack[2].RowRange(1, 3); err != nil || len(stack) != 3 || part.Rows != 2 || part.Data != nil {
		t.Errorf("a stack: %v, %v", stack, err)
	}
	if err := look.LookVector("vector", 64); err != nil {
		t.Error(err)
	}
	if err := look.LookVector("vector", 63); err == nil {
		t.Error("63 of 64 numbers are a vector")
	}
	_, _ = read.MatrixStack("stack", 3, 4, 64)
	_, _ = read.Vector("vector", 64)
	if got, want := look.Unused(), read.Unused(); !slices.Equal(got, want) {
		t.Errorf("unused %q by header, %q by data", got, want)
	}
	if x, ok := look.Look("mx.scales"); !ok || x.Type != dtype.U8 || x.Data != nil || !slices.Equal(x.Shape, []int{4, 2}) {
		t.Errorf("look: %+v, %v", x, ok)
	}
	if _, ok := look.Look("none"); ok {
		t.Error("a tensor that is not there")
	}
}

// FuzzExamine: whatever a damaged file claims, salvaged tensors lie inside of it.
func FuzzExamine(f *testing.F) {
	whole := encode(f, nil, random("a", dtype.F32, 4), random("b", dtype.BF16, 3, 2))
	for _, s := range []string{
		whole, whole[:len(whole)-3], whole[:30], "", raw("{}", 9), raw(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 2),
		raw(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 3),
		raw(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":`, 2),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		w, x := newWeights("fuzz"), &file{name: "x", data: data}
		if w.add(x) != nil {
			w.salvage(x)
		}
		for _, name := range w.Tensors() {
			tensor, err := w.Tensor(name)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, b := range tensor.Data {
				n += int(b)
			}
			if size, ok := byteSize(tensor.Type, tensor.Shape); n < 0 || !ok || size != len(tensor.Data) {
				t.Errorf("tensor %q: %d bytes", name, len(tensor.Data))
			}
		}
	})
}
