package cuda

import (
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/golden"
)

// TestProductsOfFormats multiplies with matrices of other tools' formats.
func TestProductsOfFormats(t *testing.T) {
	b, oracle := open(t, Options{}), backendtest.CPU(t, backend.Options{Threads: 1})
	for _, p := range golden.Products(t) {
		for _, rows := range []int{1, 5} {
			got, want := multiplied(t, b, p.Matrix, rows, backend.Product{}), multiplied(t, oracle, p.Matrix, rows, backend.Product{})
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("%s, %d rows: number %d is %g, want %g", p.Name, rows, i, got[i], want[i])
				}
			}
		}
	}
}
