package cpu

import (
	"math"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
)

// mixOp is attention without mask and cache. It takes as many heads at a time as mixPacked has space
// for, and runs over the pool twice for them: packing keys and values, a part being a block of
// keys of a head; and attention, a part being a block of queries of a head.
type mixOp struct {
	b            *Backend
	dst, q, k, v backend.Tensor
	heads, dim   int
	columns      int // of packed rows: dim and zeros, whole tiles
	scale        float32
	first, turn  int       // heads that are packed: the first of them, and how many
	keys, values []float32 // [turn, blocks, MixKeys, columns]: rows of a head beside each other
	packing      bool
	buffers      []mixBuffers // one per thread
}

// mixBuffers are the working memory of one thread.
type mixBuffers struct {
	queries []float32 // [dim, MixQueries]
	weights [kernel.MixKeys * kernel.MixQueries]float32
	out     []float32 // [dim, MixQueries]
	sums    kernel.MixSums
}

// mixPacked is about how many numbers the keys of the heads may have that are packed at a time.
const mixPacked = 2 << 20

// Mix is attention without mask and cache.
func (b *Backend) Mix(dst, q, k, v backend.Tensor, heads int, scale float32) {
	backend.CheckMix(dst, q, k, v, heads)
	if q.Rows == 0 || q.Cols == 0 {
		return
	}
	op := &b.mix
	op.b, op.dst, op.q, op.k, op.v, op.scale = b, dst, q, k, v, scale
	op.heads, op.dim = heads, q.Cols/heads
	op.columns = above(op.dim, kernel.MixTile) * kernel.MixTile
	op.buffers = kernel.Grow(op.buffers, b.pool.size())
	each := op.blocks() * kernel.MixKeys * op.columns
	most := min(heads, max(1, mixPacked/each))
	op.keys, op.values = kernel.Grow(op.keys, most*each), kernel.Grow(op.values, most*each)
	for op.first = 0; op.first < heads; op.first += op.turn {
		op.turn = min(most, heads-op.first)
		op.packing = true
		b.pool.run(op, op.turn*op.blocks(), 1)
		op.packing = false
		b.pool.run(op, op.turn*op.groups(), 1)
	}
}

// blocks and groups are how many blocks of keys and of queries a head has.
func (op *mixOp) blocks() int { return above(op.k.Rows, kernel.MixKeys) }
func (op *mixOp) groups() int { return above(op.q.Rows, kernel.MixQueries) }

// above is n/d, rounded up.
func above(n, d int) int { return (n + d - 1) / d }

func (op *mixOp) part(worker, from, to int) {
	for i := from; i < to; i++ {
		if op.packing { // all heads of a row while it is at hand
			op.pack(i%op.turn, i/op.turn)
		} else {
			op.mix(&op.buffers[worker], i/op.groups(), i%op.groups())
		}
	}
}

// block is the packed keys and values of block i of head h, counted from op.first.
func (op *mixOp) block(h, i int) (keys, values []float32) {
	n := kernel.MixKeys * op.columns
	i = (h*op.blocks() + i) * n
	return op.keys[i:][:n], op.values[i:][:n]
}

// pack packs block i of head h. A tile with too few keys is padded with zeros, so that
// unused scores are computed from numbers.
func (op *mixOp) pack(h, i int) {
	keys, values := op.block(h, i)
	col, first := (op.first+h)*op.dim, i*kernel.MixKeys
	n := min(kernel.MixKeys, op.k.Rows-first)
	for j := range n {
		copy(keys[j*op.columns:][:op.dim], row(op.k, first+j)[col:])
		to := values[j*op.columns:][:op.columns]
		clear(to[copy(to, row(op.v, first+j)[col:][:op.dim]):])
	}
	clear(keys[n*op.columns : above(n, kernel.MixTile)*kernel.MixTile*op.columns])
}

// mix computes group i of the queries of head h.
func (op *mixOp) mix(buf *mixBuffers, h, i int) {
	const queries, tile = kernel.MixQueries, kernel.MixTile
	buf.queries, buf.out = kernel.Grow(buf.queries, op.dim*queries), kernel.Grow(buf.out, op.columns*queries)
	col, first := (op.first+h)*op.dim, i*queries
	n := min(queries, op.q.Rows-first)
	if n < queries {
		clear(buf.queries)
	}
	for q := range n {
		to := buf.queries[q:]
		for c, x := range row(op.q, first+q)[col:][:op.dim] {
			to[c*queries] = x * op.scale
		}
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
		m.Product(buf.weights[:above(count, tile)*tile*queries], buf.queries, keys, values, op.dim, 1, op.columns, nil)
		m.Weights(buf.weights[:count*queries], &buf.sums)
		next, _ := op.block(h, min(j+1, op.blocks()-1))
		m.Product(buf.out, buf.weights[:], values, next, count, op.columns, 1, &buf.sums.Scale)
	}
	m.Divide(buf.out, &buf.sums.Weight)
	for q := range n {
		to, from := row(op.dst, first+q)[col:][:op.dim], buf.out[q:]
		for c := range to {
			to[c] = from[c*queries]
		}
	}
}
