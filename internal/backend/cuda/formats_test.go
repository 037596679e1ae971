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
			sameProduct(t, b, oracle, p.Matrix, rows, backend.Product{})
		}
	}
}
