package kernel

import "unsafe"

// scatterArgs are the operands of moving whole tiles of results to their rows.
type scatterArgs struct {
	src     unsafe.Pointer // [tiles, rows, Tile]
	dst     unsafe.Pointer // first row, column of the first tile
	srcTile int            // bytes from tile to tile
	dstRow  int            // bytes from row to row
	rows    int
	tiles   int
	add     int // 1: add to the old contents
}

// Scatter writes tiles of results, [tiles, rows, Tile], to the columns of dst from tile first
// on, or adds them. dst may have fewer rows than out.
func (k *Set) Scatter(dst Rows, add bool, first int, out []float32, rows int, s *Scratch) {
	tiles := len(out) / (rows * Tile)
	whole := min(tiles, dst.Cols/Tile-first)
	if k.scatter != nil && whole > 0 && dst.N > 0 {
		top := dst.at(0)[first*Tile:][:whole*Tile]
		_ = dst.at(dst.N - 1) // panics if there is none
		a := &s.scatter
		*a = scatterArgs{
			src: unsafe.Pointer(&out[0]), dst: unsafe.Pointer(&top[0]),
			srcTile: rows * Tile * 4, dstRow: dst.Stride * 4,
			rows: dst.N, tiles: whole,
		}
		if add {
			a.add = 1
		}
		k.scatter(a)
		*a = scatterArgs{}
		first, out, tiles = first+whole, out[whole*rows*Tile:], tiles-whole
	}
	for t := range tiles {
		scatterTile(dst, add, (first+t)*Tile, out[t*rows*Tile:])
	}
}

// scatterTile writes one tile of results, [rows, Tile], to the columns of dst from col on. It is
// the twin of the kernels, and does the last tile where that is not whole.
func scatterTile(dst Rows, add bool, col int, out []float32) {
	n := min(Tile, dst.Cols-col)
	for r := range dst.N {
		y, x := dst.at(r)[col:][:n], out[r*Tile:][:n]
		if !add {
			copy(y, x)
			continue
		}
		for i := range y {
			y[i] += x[i]
		}
	}
}
