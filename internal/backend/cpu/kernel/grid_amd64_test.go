//go:build !noasm

package kernel

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/cpu"
)

// TestExpandersEqualTheirTwin: every kernel expands as portable code does, those too that this processor has a
// better one for.
func TestExpandersEqualTheirTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(72, 1))
	for _, by := range []struct {
		name string
		list expanders
		runs bool
	}{
		{"avx2", expandersAVX2, avx2().Missing == ""},
		{"avx512", expandersAVX512, avx512().Missing == ""},
		{"vbmi", expandersVBMI, avx512().Missing == "" && cpu.X86.HasAVX512VBMI},
	} {
		if !by.runs {
			continue
		}
		for _, f := range gridFormats {
			w := packed(t, integers, heap, randomBlocks(blockCase{format: f, rows: 37, cols: 7 * 256}, r))
			for tile := range w.tiles {
				var want, got Scratch
				want.expand(w, 0, tile, tile+1, 2, 7, nil)
				if got.expand(w, 0, tile, tile+1, 2, 7, by.list); !bytes.Equal(got.grid, want.grid) {
					t.Errorf("isa=%s: %v: tile %d is expanded otherwise", by.name, f, tile)
				}
			}
		}
	}
}
