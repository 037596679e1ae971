package cpu

import (
	"unsafe"

	"github.com/foretoken/foretoken/internal/backend"
)

// scatterArgs are the operands of moving whole tiles of results to their rows.
type scatterArgs struct {
	src     unsafe.Pointer // [tiles, rows, tile]
	dst     unsafe.Pointer // first row, column of the first tile
	srcTile int            // bytes from tile to tile
	dstRow  int            // bytes from row to row
	rows    int
	tiles   int
	add     int // 1: add to what is there
}

// scatter writes tiles of results, [tiles, rows, tile], to the columns of p.Dst from tile
// first on. rows is the number of rows in out, which may have more than p.Dst.
func (b *Backend) scatter(p backend.Product, first int, out []float32, rows int, s *scratch) {
	tiles := len(out) / (rows * tile)
	if kernel := b.isa.product.scatter; kernel != nil {
		whole := min(tiles, p.Dst.Cols/tile-first)
		if whole > 0 && p.Dst.Rows > 0 {
			top := row(p.Dst, 0)[first*tile:][:whole*tile]
			_ = row(p.Dst, p.Dst.Rows-1) // panics if there is none
			a := &s.scatter
			*a = scatterArgs{
				src: unsafe.Pointer(&out[0]), dst: unsafe.Pointer(&top[0]),
				srcTile: rows * tile * 4, dstRow: p.Dst.Stride * 4,
				rows: p.Dst.Rows, tiles: whole,
			}
			if p.Add {
				a.add = 1
			}
			kernel(a)
			*a = scatterArgs{}
			first, out, tiles = first+whole, out[whole*rows*tile:], tiles-whole
		}
	}
	for t := range tiles {
		scatterTile(p, (first+t)*tile, out[t*rows*tile:])
	}
}

// scatterTile writes one tile of results, [rows, tile], to the columns of p.Dst from col
// on. It is the twin of the kernels, and does the last tile where that is not whole.
func scatterTile(p backend.Product, col int, out []float32) {
	n := min(tile, p.Dst.Cols-col)
	for r := range p.Dst.Rows {
		dst, y := row(p.Dst, r)[col:][:n], out[r*tile:][:n]
		if !p.Add {
			copy(dst, y)
			continue
		}
		for i := range dst {
			dst[i] += y[i]
		}
	}
}
