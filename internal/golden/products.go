package golden

import (
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Product is rows of inputs, a matrix in a format of Formats, and their products in float64.
type Product struct {
	Name   string
	Matrix dtype.Matrix
	X, Y   []float32
}

// Products are all modules of Formats in formats that are read.
func Products(t testing.TB) []Product {
	t.Helper()
	var list []Product
	for folder, files := range Formats(t) {
		if folder == "bnb-nf4" {
			continue
		}
		c, err := checkpoint.OpenFiles(folder, files)
		if err != nil {
			t.Fatal(err)
		}
		expected, err := checkpoint.OpenFiles(folder, map[string]string{"config.json": "{}", "model.safetensors": files["expected.safetensors"]})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range expected.Tensors() {
			module, ok := strings.CutSuffix(name, ".y")
			if !ok {
				continue
			}
			y, _ := expected.Look(name)
			x, _ := expected.Look(module + ".x")
			p := Product{Name: folder + ": " + module}
			for tensor, into := range map[string]*[]float32{name: &p.Y, x.Name: &p.X} {
				t1, _ := expected.Look(tensor)
				if *into, err = expected.Vector(tensor, t1.Shape[0]*t1.Shape[1]); err != nil {
					t.Fatal(err)
				}
			}
			if p.Matrix, err = c.Matrix(module, y.Shape[1], x.Shape[1]); err != nil {
				t.Fatal(err)
			}
			list = append(list, p)
		}
	}
	return list
}
