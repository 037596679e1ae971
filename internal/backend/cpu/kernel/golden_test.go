package kernel

import (
	"math"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
)

// TestBlocksEqualGoldens: products of GGUF's blocks have every bit of the law, few rows and many, in
// every instruction set, and those in floats are next to the exact ones.
func TestBlocksEqualGoldens(t *testing.T) {
	list := runnable()
	for _, g := range golden.Blocks(t) {
		m := dtype.NewBlocks(formatOf(t, g.Kind), g.Rows, g.Cols)
		m.Data = g.Data
		w := packed(t, integers, heap, m)
		for _, rows := range []int{1, 4, 20} {
			x := Rows{N: rows, Cols: g.Cols, Stride: g.Cols}
			for len(x.Data) < rows*g.Cols {
				x.Data = append(x.Data, g.X...)
			}
			for _, set := range list {
				for i, y := range integerProduct(&set, w, 0, w.tiles, x, &Scratch{}) {
					n, row := i/Tile/rows*Tile+i%Tile, i/Tile%rows
					if want := g.Int8[4*n+row%4]; y != want {
						t.Fatalf("isa=%s/%s: output %d of row %d of %d is %g, want %g", set.Name, g.Kind, n, row, rows, y, want)
					}
				}
			}
		}
		w = packed(t, floats, heap, m)
		out := make([]float32, w.tiles*4*Tile)
		list[0].Float(out, w, 0, 0, w.tiles, Rows{Data: g.X, N: 4, Cols: g.Cols, Stride: g.Cols}, &Scratch{})
		v := make([]float32, g.Cols)
		for n := range g.Rows {
			m.Row(v, n)
			for row := range 4 {
				size := 0.0
				for k, x := range v {
					size += math.Abs(float64(x) * float64(g.X[row*g.Cols+k]))
				}
				y, want := out[(n/Tile*4+row)*Tile+n%Tile], g.Y[4*n+row]
				if math.Abs(float64(y-want)) > 2e-6*size {
					t.Fatalf("%s: output %d of row %d is %g, want %g", g.Kind, n, row, y, want)
				}
			}
		}
	}
}

// formatOf is the block format of a name.
func formatOf(t *testing.T, name string) dtype.Format {
	for f := dtype.Q4_0; f.Blocks(); f++ {
		if f.String() == name {
			return f
		}
	}
	t.Fatalf("no format %s", name)
	return 0
}
