package cuda

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
	"github.com/foretoken/foretoken/internal/dtype"
)

const (
	maxPairs    = 256 // of rotation, a parameter
	maxValues   = 512 // numbers of a value that attend.cu can have
	joinColumns = 64  // of a block
	joinBatch   = 64  // pages of a query that are on their way, for up to joinRows rows
	joinRows    = 8

	// Up to splitRows rows have their pages computed apart, and merged by another kernel: they are too
	// few to keep the device busy otherwise. What they leave of each page lies in a part of the
	// device's memory; where that is not enough, which depends on the context and so is found by
	// the kernels, they take their pages one after another all the same.
	splitRows                 = 32
	splitPart                 = 128 // of the memory one in so many bytes
	splitLeast, splitMost int = 64 << 20, 512 << 20

	// Queries of a piece of work. Blocks end at once if there are fewer pieces than a grid has
	// blocks.
	blockQueries = 16
)

// attention is what attention keeps between calls.
type attention struct {
	splitBytes int   // for the sums of single pages; 0: splitPart of the device's memory
	split      bool  // they have been asked for
	turns      piece // the rotations of the rows
	of         *recording
	freqs      []float32
	sections   []uint8
	factor     float32
}

// attendLayer is struct Layer of attend.cuh.
type attendLayer struct {
	heads, kvHeads, key, tail, value, head int
	kind, page                             int
	part                                   [2]int
	latent, gate                           bool
	window, pairs                          int
	interleaved                            bool
	eps, scale                             float32
	split                                  bool
	slots, queries                         int

	dst, q, k, v, qNorm, kNorm                          driver.Ptr
	dstStride, qStride, kStride, vStride                int
	rotation, floats, codes, scales, starts, sums, tops driver.Ptr
}

// pack lays it out as C does.
func (l *attendLayer) pack() []byte {
	var p arguments
	return p.pack([]any{
		l.heads, l.kvHeads, l.key, l.tail, l.value, l.head, l.kind, l.page, l.part[0], l.part[1], l.latent, l.gate, l.window, l.pairs,
		l.interleaved, l.eps, l.scale, l.split, l.slots, l.queries, l.dst, l.q, l.k, l.v, l.qNorm, l.kNorm,
		l.dstStride, l.qStride, l.kStride, l.vStride, l.rotation, l.floats, l.codes, l.scales, l.starts, l.sums, l.tops,
	})
}

// groups is how many groups of codes n numbers have.
func groups(n int) int { return (n + backend.CodedGroup - 1) / backend.CodedGroup }

// Attend is attention.
func (b *Backend) Attend(dst backend.Tensor, a *backend.Attention, at backend.Place, q, k, v backend.Tensor, batch []backend.Seq) {
	l := b.layer(dst, a, at, q, k, v)
	b.begin()
	call := b.lists(backend.Pass{Batch: batch})
	rows := k.Rows
	if rows == 0 {
		return
	}
	l.rotation = b.turn(a, rows, call)
	width := l.key + l.tail
	all := groups(l.key) + groups(l.tail)
	if at.Type == dtype.I8 {
		n := q.Rows * a.Heads * all
		l.codes, l.scales, l.starts = b.scratch(n*backend.CodedGroup), b.scratch(4*n), b.scratch(4*n)
		width = all * backend.CodedGroup
	} else {
		l.floats = b.scratch(4 * q.Rows * a.Heads * width)
	}
	heads := 2 * a.KVHeads
	if a.Latent > 0 {
		heads = 1
	}
	if q.Rows > 0 {
		heads += a.Heads
		if l.split = rows <= splitRows && !l.odd(); l.split {
			bytes := b.splitBytes()
			b.attention.split = true
			columns := (l.value + 15) &^ 15
			l.slots = bytes / (4*columns + 16)
			l.sums, l.tops = b.scratch(4*l.slots*columns), b.scratch(16*l.slots)
		}
	}
	layer := l.pack()
	if l.few(rows) {
		b.attendFew(&l, call, layer)
		b.join(dst, &l, rows, call, layer)
		return
	}
	b.launch("attend.attend_prepare", grid{x: (heads + 3) / 4, y: rows, threads: 128, shared: 16 * max(width, l.value)}, call, layer)
	if q.Rows == 0 {
		return
	}
	if at.Type == dtype.I8 {
		b.attendCodes(&l, rows, call, layer)
	} else {
		b.attendFloats(&l, rows, call, layer)
	}
	if l.split {
		b.join(dst, &l, rows, call, layer)
	}
}

// join merges what pages have left. Of many rows the blocks are as many as the device runs at once only if each
// has few pages on their way.
func (b *Backend) join(dst backend.Tensor, l *attendLayer, rows int, call driver.Ptr, layer []byte) {
	batch := joinBatch
	if rows > joinRows {
		batch = joinBatch / 8
	}
	g := grid{x: rows * l.heads, y: (l.value + joinColumns - 1) / joinColumns, threads: joinColumns, shared: 8 * batch * joinColumns}
	joined := func(c quantized) {
		b.launch("attend.attend_join", g, call, layer, batch, c.param())
	}
	joined(quantized{})
	if l.value%joinColumns == 0 {
		b.passes.codable(dst, b.at(dst), joinColumns, joined)
	}
}

// splitBytes is the memory for the sums of single pages.
func (b *Backend) splitBytes() int {
	if b.attention.splitBytes > 0 {
		return b.attention.splitBytes
	}
	return max(splitLeast, min(int(b.info.Memory/splitPart), splitMost))
}

// layer finds the widths of everything, and checks them.
func (b *Backend) layer(dst backend.Tensor, a *backend.Attention, at backend.Place, q, k, v backend.Tensor) attendLayer {
	l := attendLayer{
		heads: a.Heads, kvHeads: a.KVHeads, key: a.HeadDim, value: a.Values(), head: a.Queries() / a.Heads,
		kind: map[dtype.Type]int{dtype.F32: 0, dtype.F16: 1, dtype.I8: 2}[at.Type], page: at.Page,
		latent: a.Latent > 0, gate: a.Gate, window: a.Window, pairs: len(a.Freqs), interleaved: a.Interleaved,
		eps: a.Eps, scale: a.ScoreScale(), queries: q.Rows,
		dst: b.at(dst), q: b.at(q), k: b.at(k), v: b.at(v), qNorm: b.at(a.QNorm), kNorm: b.at(a.KNorm),
		dstStride: dst.Stride, qStride: q.Stride, kStride: k.Stride, vStride: v.Stride,
	}
	l.part = [2]int{backend.KeyBytes(at.Type, 1, l.key), backend.ValueBytes(at.Type, 1, l.value)}
	values, turned := a.KVHeads*l.value, l.key
	if l.latent {
		l.key, l.tail = a.Latent, a.HeadDim-a.Latent
		l.part = [2]int{backend.LatentBytes(at.Type, l.key), backend.LatentBytes(at.Type, l.tail)}
		values, turned = 0, l.tail
	}
	wrong := k.Cols != a.KVHeads*a.HeadDim || v.Cols != values || 2*len(a.Freqs) > turned ||
		q.Rows > 0 && (q.Rows != k.Rows || q.Cols != a.Queries() || dst.Cols != a.Heads*l.value) ||
		a.Latent > 0 && (a.KVHeads != 1 || a.ValueDim != 0 || l.tail < 0) || a.Heads%a.KVHeads != 0 ||
		a.Sections != nil && len(a.Sections) != len(a.Freqs) || l.pairs > maxPairs || l.value > maxValues || k.Rows > maxRows
	if wrong {
		panic(fmt.Sprintf("cuda: attention %+v of %d×%d, %d×%d and %d columns into %d", *a, q.Rows, q.Cols, k.Rows, k.Cols, v.Cols, dst.Cols))
	}
	return l
}

// turn returns the rotations of the rows. Layers of a pass ask for the same ones, one after another, so
// the last ones stay.
func (b *Backend) turn(a *backend.Attention, rows int, call driver.Ptr) driver.Ptr {
	t := &b.attention
	if len(a.Freqs) == 0 {
		return 0
	}
	to := b.grow(&t.turns, 8*rows*len(a.Freqs))
	if r := b.passes.recording; r != nil && r == t.of && slices.Equal(a.Freqs, t.freqs) && slices.Equal(a.Sections, t.sections) && a.Turn == t.factor {
		return to
	}
	t.of = b.passes.recording
	t.freqs, t.sections = append(t.freqs[:0], a.Freqs...), append(t.sections[:0], a.Sections...)
	t.factor = a.Turn
	p := make([]byte, 12+5*maxPairs)
	le := binary.LittleEndian
	le.PutUint32(p, uint32(len(a.Freqs)))
	le.PutUint32(p[4:], uint32(len(a.Sections)))
	le.PutUint32(p[8:], math.Float32bits(cmp.Or(a.Turn, 1)))
	for i, f := range a.Freqs {
		le.PutUint32(p[12+4*i:], math.Float32bits(f))
	}
	copy(p[12+4*maxPairs:], a.Sections)
	b.launch("attend.attend_turns", grid{x: rows, threads: (len(a.Freqs) + 31) &^ 31}, call, p, to)
	return to
}

// attendFloats computes pages of float32 or half precision.
func (b *Backend) attendFloats(l *attendLayer, rows int, call driver.Ptr, layer []byte) {
	kernel, threads := "attend.attend_"+l.kinds(), 256
	if l.value > 256 {
		kernel = "attendwide.attend_" + l.kinds() + "_wide"
	}
	const state = 4 * blockQueries * (backend.PageTokens + 7) // struct Queries
	size := 4
	if l.kind == 1 {
		size = 2
	}
	row := func(n int) int { return size * ((n+1)&^1 + 16) } // see rowBytes
	second := l.value
	if l.latent {
		second = l.tail
	}
	shared := state + 4*blockQueries*max((l.key+1)&^1+(l.tail+1)&^1, (l.value+1)&^1) + backend.PageTokens*(row(l.key)+row(second))
	if b.tooWide(l, shared) {
		return
	}
	g := grid{x: b.occupancy(kernel, threads, shared), threads: threads, shared: shared}
	if !l.split {
		g.x = min(g.x, rows*((l.heads/l.kvHeads+blockQueries-1)/blockQueries)*l.kvHeads)
	}
	b.launch(kernel, g, call, layer)
}

// kinds are the numbers of pages that are not codes.
func (l *attendLayer) kinds() string { return [2]string{"floats", "halves"}[l.kind] }

// few reports whether a call's rows are few enough, and its heads of the widths, for attend_few.
func (l *attendLayer) few(rows int) bool {
	return rows <= splitRows && l.queries > 0 && l.kind != 2 && !l.latent && l.key <= 256 && l.value <= 256 && l.key%32 == 0 && l.value%8 == 0 &&
		(l.window == 0 || l.window >= backend.PageTokens)
}

// attendFew computes pages of float32 or half precision for few rows, all that comes before included.
func (b *Backend) attendFew(l *attendLayer, call driver.Ptr, layer []byte) {
	const queries, threads = 8, 256
	kernel := "attendfew.attend_few_" + l.kinds()
	const state = 4 * queries * (backend.PageTokens + 7) // struct Queries
	size := 4
	if l.kind == 1 {
		size = 2
	}
	shared := state + 8*queries*max(l.key, l.value) + backend.PageTokens*size*(l.key+16+l.value+16)
	if b.tooWide(l, shared) {
		return
	}
	b.launch(kernel, grid{x: b.occupancy(kernel, threads, shared), threads: threads, shared: shared}, call, layer)
}

// tooWide reports whether a page of a layer is more than a block has shared memory for, which is an error.
func (b *Backend) tooWide(l *attendLayer, shared int) bool {
	if shared <= b.info.Shared {
		return false
	}
	b.fail(fmt.Errorf("cuda: %s: attention over keys of %d numbers of %d bits needs %d KB of shared memory, but a block has %d KB: set fewer --kv-bits",
		b.info.Name, l.key+l.tail, [2]int{32, 16}[l.kind], (shared+1023)>>10, b.info.Shared>>10))
	return true
}

// odd reports whether pages of 8 bits have rows that the kernels for tensor cores do not know.
func (l *attendLayer) odd() bool { return l.kind == 2 && (l.latent || l.key > 256 || l.value > 256) }

// attendCodes computes pages of 8 bits.
func (b *Backend) attendCodes(l *attendLayer, rows int, call driver.Ptr, layer []byte) {
	kernel, queries, shared := "coded.coded", 32, 0
	if l.odd() {
		kernel, queries, shared = "coded.coded_any", 16, 4*16*l.value
	}
	g := grid{x: b.occupancy(kernel, 128, shared), threads: 128, shared: shared}
	if !l.split {
		g.x = min(g.x, rows*((l.heads/l.kvHeads+queries-1)/queries)*l.kvHeads)
	}
	b.launch(kernel, g, call, layer)
}
