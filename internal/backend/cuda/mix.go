package cuda

import "github.com/foretoken/foretoken/internal/backend"

// Queries and keys that a block of mix.cu takes together.
const mixQueries, mixKeys = 16, 64

// Mix is attention without mask and cache.
func (b *Backend) Mix(dst, q, k, v backend.Tensor, heads int, scale float32) {
	backend.CheckMix(dst, q, k, v, heads)
	b.begin()
	if q.Rows == 0 || q.Cols == 0 {
		return
	}
	dim := q.Cols / heads
	shared := 4 * (2*mixQueries*dim + mixKeys*(dim+1) + mixQueries*(mixKeys+1))
	b.launch("mix.mix", grid{x: (q.Rows + mixQueries - 1) / mixQueries, y: heads, threads: 256, shared: shared},
		b.at(dst), dst.Stride, b.at(q), q.Stride, b.at(k), k.Stride, b.at(v), v.Stride, q.Rows, k.Rows, dim, scale)
}
