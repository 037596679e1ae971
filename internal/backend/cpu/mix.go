package cpu

import (
	"fmt"
	"math"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
)

// mixOp is attention without mask and cache. It takes as many heads at a time as mixPacked has room
// for, and runs over the pool twice for them: packing keys and values, a part being a block of
// keys of a head; and attention, a part being a block of queries of a head.
type mixOp struct {
	b            *Backend
	dst, q, k, v backend.Tensor
	heads, dim   int
	scale        float32
	first        int       // head of those that are packed
	keys         []float32 // [heads, keys/MixTile, dim, MixTile]: a tile of keys by column
	values       []float32 // [heads, keys/MixKeys, dim/MixTile, MixKeys, MixTile]
	packing      bool
	buffers      []mixBuffers // one per thread
}

// mixBuffers are what one thread computes in.
type mixBuffers struct {
	queries []float32 // [dim, MixQueries]
	weights [kernel.MixKeys * kernel.MixQueries]float32
	out     []float32 // [dim, MixQueries]
	sums    kernel.MixSums
}

// mixPacked is about how many numbers keys and values may have that are packed at a time.
const mixPacked = 4 << 20

// Mix is attention without mask and cache.
func (b *Backend) Mix(dst, q, k, v backend.Tensor, heads int, scale float32) {
	wrong := heads < 1 || q.Cols%heads != 0 || dst.Rows != q.Rows || dst.Cols != q.Cols || k.Cols != q.Cols ||
		v.Rows != k.Rows || v.Cols != q.Cols || q.Rows > 0 && k.Rows == 0
	if wrong {
		panic(fmt.Sprintf("cpu: attention of %d heads of %d×%d over %d×%d and %d×%d into %d×%d", heads, q.Rows, q.Cols, k.Rows, k.Cols, v.Rows, v.Cols, dst.Rows, dst.Cols))
	}
	if q.Rows == 0 || q.Cols == 0 {
		return
	}
	op := &b.mix
	op.b, op.dst, op.q, op.k, op.v, op.scale = b, dst, q, k, v, scale
	op.heads, op.dim = heads, q.Cols/heads
	op.buffers = kernel.Grow(op.buffers, b.pool.size())
	each := op.headKeys() + op.headValues()
	turn := min(heads, max(1, mixPacked/each))
	op.keys, op.values = kernel.Grow(op.keys, turn*op.headKeys()), kernel.Grow(op.values, turn*op.headValues())
	for op.first = 0; op.first < heads; op.first += turn {
		n := min(turn, heads-op.first)
		op.packing = true
		b.pool.run(op, n*op.blocks(), 1)
		op.packing = false
		b.pool.run(op, n*op.groups(), 1)
	}
}

// blocks and groups are how many blocks of keys and of queries a head has.
func (op *mixOp) blocks() int { return above(op.k.Rows, kernel.MixKeys) }
func (op *mixOp) groups() int { return above(op.q.Rows, kernel.MixQueries) }

// headKeys and headValues are how many numbers are packed for a head.
func (op *mixOp) headKeys() int { return op.blocks() * kernel.MixKeys * op.dim }

func (op *mixOp) headValues() int {
	return op.blocks() * kernel.MixKeys * above(op.dim, kernel.MixTile) * kernel.MixTile
}

// above is n/d, rounded up.
func above(n, d int) int { return (n + d - 1) / d }

func (op *mixOp) part(worker, from, to int) {
	for i := from; i < to; i++ {
		if op.packing {
			op.pack(i/op.blocks(), i%op.blocks())
		} else {
			op.mix(&op.buffers[worker], i/op.groups(), i%op.groups())
		}
	}
}

// block is what was packed of block i of head h, counted from op.first: its keys and values.
func (op *mixOp) block(h, i int) (keys, values []float32) {
	k, v := op.headKeys()/op.blocks(), op.headValues()/op.blocks()
	i += h * op.blocks()
	return op.keys[i*k:][:k], op.values[i*v:][:v]
}

// pack packs block i of head h. The last tile of keys is filled up with zeros, so that scores
// nobody wants are computed of numbers.
func (op *mixOp) pack(h, i int) {
	const tile = kernel.MixTile
	keys, values := op.block(h, i)
	col, first := (op.first+h)*op.dim, i*kernel.MixKeys
	n := min(kernel.MixKeys, op.k.Rows-first)
	for j := 0; j < n; j += tile {
		transpose(keys[j*op.dim:], tile, op.k, first+j, min(tile, n-j), col, op.dim, 1)
	}
	for j := range n {
		v := row(op.v, first+j)[col:][:op.dim]
		for c := 0; c < op.dim; c += tile {
			to := (*[tile]float32)(values[c*kernel.MixKeys+j*tile:])
			if c+tile <= op.dim {
				*to = [tile]float32(v[c:])
			} else {
				clear(to[copy(to[:], v[c:]):])
			}
		}
	}
}

// transpose writes columns [col, col+dim) of n rows of x, at most MixTile of them and zeros for
// the others, as rows of dst that are stride numbers apart. They are multiplied with scale.
func transpose(dst []float32, stride int, x backend.Tensor, first, n, col, dim int, scale float32) {
	const tile = kernel.MixTile
	for c := 0; c < dim && n < tile; c++ {
		*(*[tile]float32)(dst[c*stride:]) = [tile]float32{}
	}
	i := 0
	for ; i+4 <= n; i += 4 { // all at once would be more slices than there are registers
		a, b := row(x, first+i)[col:][:dim], row(x, first+i+1)[col:][:dim]
		e, f := row(x, first+i+2)[col:][:dim], row(x, first+i+3)[col:][:dim]
		for c := range dim {
			to := (*[4]float32)(dst[c*stride+i:])
			to[0], to[1], to[2], to[3] = a[c]*scale, b[c]*scale, e[c]*scale, f[c]*scale
		}
	}
	for ; i < n; i++ {
		for c, y := range row(x, first+i)[col:][:dim] {
			dst[c*stride+i] = y * scale
		}
	}
}

// mix computes group i of the queries of head h.
func (op *mixOp) mix(buf *mixBuffers, h, i int) {
	const queries, tile = kernel.MixQueries, kernel.MixTile
	columns := above(op.dim, tile) * tile
	buf.queries, buf.out = kernel.Grow(buf.queries, op.dim*queries), kernel.Grow(buf.out, columns*queries)
	col, first := (op.first+h)*op.dim, i*queries
	n := min(queries, op.q.Rows-first)
	for q := 0; q < queries; q += tile {
		transpose(buf.queries[q:], queries, op.q, first+q, max(0, min(tile, n-q)), col, op.dim, op.scale)
	}
	clear(buf.out)
	buf.sums = kernel.MixSums{}
	for q := range buf.sums.Top {
		buf.sums.Top[q] = float32(math.Inf(-1))
	}
	m := &op.b.isa.Vector.Mix
	for j := range op.blocks() {
		keys, values := op.block(h, j)
		count := min(kernel.MixKeys, op.k.Rows-j*kernel.MixKeys)
		m.Product(buf.weights[:above(count, tile)*tile*queries], buf.queries, keys, op.dim, op.dim*tile, nil)
		m.Weights(buf.weights[:count*queries], &buf.sums)
		m.Product(buf.out, buf.weights[:], values, count, kernel.MixKeys*tile, &buf.sums.Scale)
	}
	m.Divide(buf.out, &buf.sums.Weight)
	for q := range n {
		to, from := row(op.dst, first+q)[col:][:op.dim], buf.out[q:]
		for c := range to {
			to[c] = from[c*queries]
		}
	}
}
