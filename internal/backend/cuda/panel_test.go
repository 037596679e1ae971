package cuda

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Panels give the bits of the CPU for every number of rows that they are for: of every form, with columns that are no whole
// chunk and no whole span, outputs that are no whole tile, panels with tiles too few, several rounds, and listed tiles.
func TestPanelsEqualCPU(t *testing.T) {
	b, oracle := open(t, Options{}), backendtest.Open(t, backend.Options{Threads: 1})
	rng := rand.New(rand.NewPCG(1, 2))
	for rows := packedRows + 1; rows <= maxRelay; rows++ {
		for _, wide := range []int{4, 8, 12, 16, 20, 24} {
			narrow := wide > 12 && rows%8 == 1
			if wide >= 12 && rows%4 != 3 && !narrow { // as of 4 bits, and fewer forms
				continue
			}
			// Tiles of a multiprocessor: from one to two rounds of the largest panels.
			size := 1 + (5*rows+wide)%19
			if narrow {
				size = 1 + rows/8%2
			}
			outs, groups := 16*b.info.Multiprocessors*size-rng.IntN(60), 1+rng.IntN(24)
			m := randomMatrix(t, rng, outs, 64*groups, 4, 64, dtype.BF16)
			switch wide {
			case 8:
				m = randomBlocks(t, rng, dtype.Q4_0, outs, 64*groups)
			case 12:
				m = randomBlocks(t, rng, dtype.Q8_0, outs, 64*groups)
			case 16, 20, 24:
				m = randomBlocks(t, rng, []dtype.Format{dtype.NVFP4, dtype.MXFP4, dtype.IQ4NL}[wide/4-4], outs, 64*groups)
			}
			p := backend.Product{Add: rows%2 == 0}
			if rows%5 == 0 {
				p.Only = []int32{0, int32(outs-1) / 16}
			}
			sameProduct(t, b, oracle, m, rows, p)
		}
	}
	for _, f := range nibblePanels { // with zero points
		rows, outs := f.strips*strip-3, 16*b.info.Multiprocessors*f.least-20
		sameProduct(t, b, oracle, randomPoints(t, rng, outs, 64*9, 4, 64, dtype.BF16, true), rows, backend.Product{})
	}
	for _, rows := range []int{maxRelay + 1, 47, 2 * maxRelay} { // two panels
		sameProduct(t, b, oracle, randomMatrix(t, rng, 16*b.info.Multiprocessors*3-5, 64*9, 4, 64, dtype.BF16), rows, backend.Product{Add: rows == 47})
	}
	for key, forms := range tensors {
		for _, f := range forms.panels {
			if name := fmt.Sprintf("%s.panel_%d_64_%s", forms.module, key.bits, f.name); b.functions[name] == nil {
				t.Errorf("%s was not tested", name)
			}
		}
	}
}
