package backendtest

import (
	"math"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
)

// TestProductsOfFormats multiplies with matrices of other tools' formats on every instruction set: within the tolerances of the
// formats' goldens, and all with the same bits.
func TestProductsOfFormats(t *testing.T) {
	isas := []string{"generic"}
	for _, d := range backend.List() {
		if d.Name == "cpu" {
			isas = append(isas, d.Runnable()...)
		}
	}
	bits := map[string][]float32{}
	for _, isa := range isas {
		b := Open(t, backend.Options{Threads: 2, ISA: isa})
		for _, p := range golden.Products(t) {
			for _, how := range []backend.Compute{backend.Int8, backend.Float32} {
				got := multiplied(t, b, &p, how)
				key := p.Name + how.String()
				if bits[key] == nil {
					within(t, &p, got, how)
					bits[key] = got
				}
				for i, v := range got {
					if math.Float32bits(v) != math.Float32bits(bits[key][i]) {
						t.Fatalf("%s, %s: number %d is %g, want %g", isa, key, i, v, bits[key][i])
					}
				}
			}
		}
	}
}

// multiplied is the products of p on a device.
func multiplied(t *testing.T, b backend.Backend, p *golden.Product, how backend.Compute) []float32 {
	t.Helper()
	rows := len(p.X) / p.Matrix.Cols
	x, err := b.Alloc(dtype.F32, rows, p.Matrix.Cols)
	if err != nil {
		t.Fatal(err)
	}
	y, err := b.Alloc(dtype.F32, rows, p.Matrix.Rows)
	if err != nil {
		t.Fatal(err)
	}
	w, err := b.Load(how, p.Matrix)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Write(x, p.X); err != nil {
		t.Fatal(err)
	}
	b.MatMul(x, backend.Product{Dst: y, W: w})
	host, err := b.Host(y)
	if err != nil {
		t.Fatal(err)
	}
	got := append([]float32(nil), host...)
	b.Unload(w)
	b.Free(x)
	b.Free(y)
	return got
}

// within compares products with those in float64.
func within(t *testing.T, p *golden.Product, got []float32, how backend.Compute) {
	t.Helper()
	part := 3e-2
	if how == backend.Float32 {
		part = 2e-6
	}
	m := &p.Matrix
	row, in := make([]float32, m.Cols), make([]float32, m.Cols)
	for i := range len(p.X) / m.Cols {
		if copy(in, p.X[i*m.Cols:]); m.Input != nil {
			m.Input.Apply(in, p.X[i*m.Cols:][:m.Cols])
		}
		for r := range m.Rows {
			m.Row(row, r)
			size := 0.0
			for k, w := range row {
				size += math.Abs(float64(w) * float64(in[k]))
			}
			at := i*m.Rows + r
			if math.Abs(float64(got[at])-float64(p.Y[at])) > part*size {
				t.Fatalf("%s by %v: row %d, number %d: %g, want %g", p.Name, how, i, r, got[at], p.Y[at])
			}
		}
	}
}
