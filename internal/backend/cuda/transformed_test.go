package cuda

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
)

// A model whose inputs are rotated has the CPU's bits.
func TestRotatedModelHasTheBitsOfTheCPU(t *testing.T) {
	c := golden.Open(t, golden.Dir(t, "dense"))
	dir := t.TempDir()
	var decls []checkpoint.Decl
	data := map[string][]byte{}
	for _, name := range c.Tensors() {
		x, err := c.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		parts := []golden.Part{{Suffix: name, Type: x.Type, Shape: x.Shape, Data: x.Data}}
		if len(x.Shape) == 2 {
			values := make([]float32, x.Shape[0]*x.Shape[1])
			dtype.ToF32(values, x.Type, x.Data)
			if coded, _ := golden.ParoQuant(golden.Named{Name: name, Shape: x.Shape, Values: values}); coded != nil {
				parts = coded
			}
		}
		for _, p := range parts {
			decls = append(decls, checkpoint.Decl{Name: p.Suffix, Type: p.Type, Shape: p.Shape})
			data[p.Suffix] = p.Data
		}
	}
	file, err := checkpoint.FileHeader(decls, nil)
	for _, d := range decls {
		file = append(file, data[d.Name]...)
	}
	if err := cmp.Or(err, os.WriteFile(filepath.Join(dir, "model.safetensors"), file, 0o600), os.WriteFile(filepath.Join(dir, "config.json"), c.Config(), 0o600)); err != nil {
		t.Fatal(err)
	}
	o := model.Options{}
	want, got := modeltest.Dialog(t, backendtest.CPU(t, backend.Options{Threads: 1}), dir, o, 2), modeltest.Dialog(t, open(t, Options{}), dir, o, 2)
	if !slices.Equal(got, want) {
		t.Error("the model has other bits")
	}
}
