package checkpoint_test

import (
	"math"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
)

// TestMatrixOfGoldenFormats reads folders in the formats of other tools: every decoded number has the bits of the
// formats' own decoders, products of float32 are within the rounding of the sums, and no tensor is left over.
func TestMatrixOfGoldenFormats(t *testing.T) {
	for folder, files := range golden.Formats(t) {
		if strings.HasPrefix(folder, "paro") {
			continue // rotated: it has another test
		}
		t.Run(folder, func(t *testing.T) {
			c, err := checkpoint.OpenFiles(folder, files)
			if folder == "bnb-nf4" {
				if err == nil || !strings.Contains(err.Error(), "the format is bitsandbytes, which is not supported: use ") {
					t.Errorf("%v, want the name of the format and what to use", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			expected, err := checkpoint.OpenFiles(folder, map[string]string{"config.json": "{}", "model.safetensors": files["expected.safetensors"]})
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range expected.Tensors() {
				module, ok := strings.CutSuffix(name, ".weight")
				if !ok {
					continue
				}
				want, _ := expected.Look(name)
				rows, cols := want.Shape[0], want.Shape[1]
				look, err := c.LookMatrix(module, rows, cols)
				if err != nil {
					t.Fatal(err)
				}
				m, err := c.Matrix(module, rows, cols)
				if err != nil {
					t.Fatal(err)
				}
				if look.Format != m.Format || look.Bits != m.Bits || look.Group != m.Group || look.ScaleType != m.ScaleType || look.LoadedRowBytes() != m.LoadedRowBytes() {
					t.Errorf("headers say %+v", look)
				}
				compareMatrix(t, expected, module, &m)
			}
			if unused := c.Unused(); len(unused) > 0 {
				t.Errorf("unused: %q", unused)
			}
		})
	}
}

// compareMatrix compares the decoded numbers of m and its products with the expected ones.
func compareMatrix(t *testing.T, expected *checkpoint.Checkpoint, module string, m *dtype.Matrix) {
	t.Helper()
	numbers := func(name string, n int) []float32 {
		v, err := expected.Vector(module+name, n)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	const tests = 5
	want, x, y := numbers(".weight", m.Rows*m.Cols), numbers(".x", tests*m.Cols), numbers(".y", tests*m.Rows)
	row, plain, in := make([]float32, m.Cols), make([]float32, m.Cols), make([]float32, m.Cols)
	for r := range m.Rows {
		m.Row(row, r)
		m.PlainRow(plain, r)
		for c, v := range plain {
			if w := want[r*m.Cols+c]; math.Float32bits(v+0) != math.Float32bits(w+0) {
				t.Fatalf("%s [%d,%d]: %g, want %g", module, r, c, v, w)
			}
		}
		for i := range tests {
			copy(in, x[i*m.Cols:][:m.Cols])
			if m.Input != nil {
				m.Input.Apply(in, x[i*m.Cols:][:m.Cols])
			}
			var sum, size float64
			for c, w := range row {
				sum += float64(w) * float64(in[c])
				size += math.Abs(float64(w) * float64(in[c]))
			}
			if w := float64(y[i*m.Rows+r]); math.Abs(sum-w) > 2e-6*size {
				t.Fatalf("%s, product %d of row %d: %g, want %g", module, i, r, sum, w)
			}
		}
	}
}
