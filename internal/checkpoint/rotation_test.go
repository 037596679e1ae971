package checkpoint_test

import (
	"math"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/golden"
)

// TestMatrixOfRotations reads ParoQuant's folders: decoded numbers bit for bit, rotated inputs, matrices without the
// rotation and products within the tolerances of the formats' goldens.
func TestMatrixOfRotations(t *testing.T) {
	for _, folder := range []string{"paro", "paro-experts"} {
		files := golden.Formats(t)[folder]
		c, err := checkpoint.OpenFiles(folder, files)
		if err != nil {
			t.Fatal(err)
		}
		expected, err := checkpoint.OpenFiles(folder, map[string]string{"config.json": "{}", "model.safetensors": files["expected.safetensors"]})
		if err != nil {
			t.Fatal(err)
		}
		modules := 0
		for _, name := range expected.Tensors() {
			module, ok := strings.CutSuffix(name, ".y")
			if !ok {
				continue
			}
			modules++
			y, _ := expected.Look(name)
			x, _ := expected.Look(module + ".x")
			checkRotated(t, c, expected, module, y.Shape[1], x.Shape[1])
		}
		if unused := c.Unused(); modules < 3 || len(unused) > 0 {
			t.Errorf("%s: %d modules, unused: %q", folder, modules, unused)
		}
	}
}

func checkRotated(t *testing.T, c, expected *checkpoint.Checkpoint, module string, rows, cols int) {
	t.Helper()
	look, err := c.LookMatrix(module, rows, cols)
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Matrix(module, rows, cols)
	if err != nil {
		t.Fatal(err)
	}
	if look.InputBytes() != m.InputBytes() || look.LoadedRowBytes() != m.LoadedRowBytes() {
		t.Errorf("%s: headers say %+v", module, look)
	}
	numbers := func(name string, n int) []float32 {
		if !expected.Has(module + name) {
			return nil
		}
		v, err := expected.Vector(module+name, n)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	const tests = 5
	x, y, turned := numbers(".x", tests*cols), numbers(".y", tests*rows), numbers(".x_rotated", tests*cols)
	decoded, plain := numbers(".weight_rotated", rows*cols), numbers(".weight", rows*cols)
	if m.Input == nil {
		decoded = plain
	} else {
		in := make([]float32, len(x))
		for i := 0; i < len(x); i += cols {
			m.Input.Apply(in[i:][:cols], x[i:][:cols])
		}
		x = in
	}
	near(t, module+": rotated inputs", x, turned, 1e-5)
	all, widened := make([]float32, rows*cols), make([]float32, rows*cols)
	for r := range rows {
		m.Row(all[r*cols:], r)
		m.PlainRow(widened[r*cols:][:cols], r)
		for i := range tests {
			var sum, size float64
			for k, w := range all[r*cols:][:cols] {
				sum += float64(w) * float64(x[i*cols+k])
				size += math.Abs(float64(w) * float64(x[i*cols+k]))
			}
			if want := float64(y[i*rows+r]); math.Abs(sum-want) > 2e-6*size {
				t.Fatalf("%s: product %d of row %d: %g, want %g", module, i, r, sum, want)
			}
		}
	}
	near(t, module+": without rotation", widened, plain, 1e-6)
	for i, w := range decoded {
		if math.Float32bits(all[i]+0) != math.Float32bits(w+0) {
			t.Fatalf("%s: number %d: %g, want %g", module, i, all[i], w)
		}
	}
}

// near compares numbers with the expected ones, if any, within a part of the largest.
func near(t *testing.T, what string, got, want []float32, part float64) {
	t.Helper()
	largest := 0.0
	for _, w := range want {
		largest = max(largest, math.Abs(float64(w)))
	}
	for i, w := range want {
		if math.Abs(float64(got[i])-float64(w)) > part*largest {
			t.Fatalf("%s: number %d: %g, want %g", what, i, got[i], w)
		}
	}
}
