package cpu

import (
	"fmt"
	"strings"

	"github.com/foretoken/foretoken/internal/backend"
)

// isa is a set of kernels for one instruction set. All sets return the same bits; generic
// is the definition of what they are. Which one computes is chosen once, by Open.
type isa struct {
	name    string
	missing string // why this machine cannot run it; empty if it can
	product productKernels
	vector  vectorKernels
}

// productKernels are the inner loops of matrix products. out is [to-from, rows, tile].
type productKernels struct {
	// strips is the layout that integer wants so many rows in, quantized by that group.
	strips func(rows, group int) strips
	// quantize writes one row, whole groups, to its place in a strip.
	quantize func(dst []byte, x []float32, group int, p place)
	// integer multiplies tiles [from, to) of matrix n with quantized rows, padding included.
	integer func(out []float32, w *weight, n, from, to int, a *activations, s *scratch)
	// float multiplies tiles [from, to) of matrix n with float32 rows.
	float func(out []float32, w *weight, n, from, to int, x backend.Tensor, s *scratch)
	// scatter moves whole tiles of results to their rows; nil: one by one, in Go.
	scatter func(a *scatterArgs)
}

// generic is portable Go.
var generic = isa{
	name: "generic",
	product: productKernels{
		strips:   func(int, int) strips { return strips{height: 1} },
		quantize: quantizeRow,
		integer:  integerTiles,
		float:    floatTiles,
	},
	vector: vectorGeneric,
}

// ISAs lists the instruction sets this build has kernels for, the best first, and whether
// this machine can run each.
func ISAs() (names []string, runs []bool) {
	for _, i := range isas() {
		names, runs = append(names, i.name), append(runs, i.missing == "")
	}
	return names, runs
}

// findISA is the set of that name, or the best that runs here if name is empty.
func findISA(name string) (*isa, error) {
	var known []string
	for _, i := range isas() {
		known = append(known, i.name)
		switch {
		case name == "" && i.missing == "":
			return &i, nil
		case name != "" && name == i.name:
			if i.missing != "" {
				return nil, fmt.Errorf("cpu: instruction set %s: %s", name, i.missing)
			}
			return &i, nil
		}
	}
	return nil, fmt.Errorf("cpu: no instruction set %q, want one of %s", name, strings.Join(known, ", "))
}
