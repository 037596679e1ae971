package state

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Rows collects rows of float32 numbers on the device, up to a capacity. The memory is taken
// with the first of them.
type Rows struct {
	pool  *Pool
	block *Block
	cap   int
	n     int
}

// Rows returns an empty collection with a capacity of n rows.
func (p *Pool) Rows(n int) *Rows { return &Rows{pool: p, cap: n} }

// rowsShape is the memory of a collection.
func rowsShape(t dtype.Type, n, width int) shape { return shape{t: t, rows: n, cols: width} }

// Len is the number of rows.
func (r *Rows) Len() int { return r.n }

// Free is the number of rows that can be added.
func (r *Rows) Free() int { return r.cap - r.n }

// Add appends t's rows, of which there are at most Free. The caller copies them to the returned memory.
func (r *Rows) Add(t backend.Tensor) (to backend.Tensor, err error) {
	if r.block == nil {
		if r.block, err = r.pool.block(rowsShape(t.Type, r.cap, t.Cols)); err != nil {
			return to, err
		}
	}
	r.n += t.Rows
	return r.block.t.RowRange(r.n-t.Rows, r.n), nil
}

// Tensor is all rows, valid until the next Add.
func (r *Rows) Tensor() backend.Tensor { return r.block.t.RowRange(0, r.n) }

// Keep removes all rows but the newest n, at most half of them.
func (r *Rows) Keep(n int) {
	if n > 0 {
		r.pool.b.Copy(r.block.t.RowRange(0, n), r.block.t.RowRange(r.n-n, r.n))
	}
	r.n = n
}

// Close releases the memory.
func (r *Rows) Close() {
	r.block.Release()
	r.block, r.n = nil, 0
}
