package cuda

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
	"github.com/foretoken/foretoken/internal/backend/gpu"
	"github.com/foretoken/foretoken/internal/dtype"
)

const (
	maxPairs    = len(turnsParam{}.freqs)
	maxValues   = 512 // numbers of a value that attend.cu can have
	joinColumns = 64  // of a block
	joinBatch   = 64  // pages of a query that are on their way, for up to joinRows rows
	joinRows    = 8

	// The pages of up to splitRows rows are computed separately, and merged by another kernel: the rows are too
	// few to keep the device busy otherwise. The sums of pages are in a part of the
	// device's memory; if that is not enough, which depends on the context and so is found by
	// the kernels, they take their pages one after another.
	splitRows                 = 64
	blockRows                 = 128 // splitRows of blocks
	splitPart                 = 128 // the sums take one in splitPart bytes of the memory
	splitLeast, splitMost int = 64 << 20, 512 << 20

	// Queries of a piece of work. Blocks end at once if there are fewer pieces than a grid has
	// blocks.
	blockQueries = 16
)

// Kinds of pages, beyond those of float32 and half precision: of 8 bits and of 4.
const (
	kindCoded  = 2
	kindPacked = 3
)

// attention is the state of attention between calls.
type attention struct {
	splitBytes int      // for the sums of single pages; 0: splitPart of the device's memory
	split      bool     // they have been asked for
	turns      [2]turns // the last used is the first
}

// turns is rotations of the rows of a pass.
type turns struct {
	piece
	of       *recording
	freqs    []float32
	sections []uint8
	factor   float32
}

// attendLayer is a call of attention: widths as kernels/attend.cuh explains them, and its parameter.
type attendLayer struct {
	dst                              backend.Tensor
	call                             driver.Ptr
	rows, queries                    int
	heads, kvHeads, key, tail, value int
	kind, window                     int
	latent, split, blocks, reads     bool
	width, prepared                  int // numbers of a query, heads that attend_prepare has
	layerParam
}

// groups is how many groups of codes n numbers have.
func groups(n int) int { return (n + backend.CodedGroup - 1) / backend.CodedGroup }

// Attend is attention.
func (b *Backend) Attend(dst backend.Tensor, a *backend.Attention, at backend.Place, q, k, v backend.Tensor, batch []backend.Seq) {
	l := b.layer(dst, a, at, q, k, v)
	b.begin()
	l.call = driver.Ptr(gpu.HeadOf(uint64(b.lists(backend.Pass{Batch: batch})), &at))
	if l.rows == 0 {
		return
	}
	l.rotation = b.turn(a, l.rows, l.call)
	width := l.key + l.tail
	all := groups(l.key) + groups(l.tail)
	if backend.CodedPages(at.Type) {
		n := q.Rows * a.Heads * all
		l.codes, l.scales, l.starts = b.scratch(n*backend.CodedGroup), b.scratch(4*n), b.scratch(4*n)
		width = all * backend.CodedGroup
	} else {
		l.floats = b.scratch(4 * q.Rows * a.Heads * width)
	}
	l.width, l.prepared = width, 2*a.KVHeads
	switch {
	case l.reads:
		l.prepared = 0
	case a.Latent > 0:
		l.prepared = 1
	}
	if q.Rows > 0 {
		l.prepared += a.Heads
		if l.split = (l.rows <= splitRows || l.blocks) && !l.odd(); l.split {
			bytes := b.splitBytes()
			b.attention.split = true
			columns := (l.value + 15) &^ 15
			slots := bytes / (4*columns + 16)
			l.slots, l.sums, l.tops = i32(slots), b.scratch(4*slots*columns), b.scratch(16*slots)
		}
	}
	l.layerParam.split = b32(l.split)
	find(b, attendRules, &l).run(b, &l)
}

// attendPrepare norms and rotates heads, and appends keys and values to pages.
func (b *Backend) attendPrepare(l *attendLayer) {
	shared := 16 * max(l.width, l.value)
	if l.kind == kindPacked {
		shared = 20 * max(l.width, groups(l.value)*backend.CodedGroup)
	}
	b.launch("attend.attend_prepare", grid{x: (l.prepared + 3) / 4, y: l.rows, threads: 128, shared: shared}, l.call, raw(l.layerParam))
}

// join merges the sums of pages. For many rows the device runs all blocks at once only if each
// has few pages in flight.
func (b *Backend) join(l *attendLayer) {
	if !l.split {
		return
	}
	batch := joinBatch
	if l.rows > joinRows {
		batch = joinBatch / 8
	}
	g := grid{x: l.rows * l.heads, y: (l.value + joinColumns - 1) / joinColumns, threads: joinColumns, shared: 8 * batch * joinColumns}
	joined := func(c quantized) {
		b.launch("attend.attend_join", g, l.call, raw(l.layerParam), batch, raw(c.param()))
	}
	joined(quantized{})
	if l.value%joinColumns == 0 {
		b.passes.codable(l.dst, b.at(l.dst), joinColumns, joined)
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
	backend.CheckAttend(dst, a, q, k, v)
	atMost(maxPairs, len(a.Freqs))
	atMost(maxValues, a.Values())
	rows := max(q.Rows, k.Rows)
	atMost(maxRows, rows)
	l := attendLayer{
		dst: dst, rows: rows, queries: q.Rows, heads: a.Heads, kvHeads: a.KVHeads, key: a.HeadDim, value: a.Values(),
		kind: map[dtype.Type]int{dtype.F32: 0, dtype.F16: 1, dtype.I8: kindCoded, dtype.I4: kindPacked}[at.Type], window: min(a.Window, backend.MaxWindow), latent: a.Latent > 0, reads: k.Mem == nil,
	}
	l.blocks = a.Rows > 1 && l.rows <= blockRows && l.kind == 1 && l.key <= 128 && l.value <= 128
	part := [2]int{backend.KeyBytes(at.Type, 1, l.key), backend.ValueBytes(at.Type, 1, l.value)}
	if l.latent {
		l.key, l.tail = a.Latent, a.HeadDim-a.Latent
		part = [2]int{backend.LatentBytes(at.Type, l.key), backend.LatentBytes(at.Type, l.tail)}
	}
	l.layerParam = layerParam{
		heads: i32(l.heads), kvHeads: i32(l.kvHeads), key: i32(l.key), tail: i32(l.tail), value: i32(l.value), head: i32(a.Queries() / a.Heads),
		kind: i32(l.kind), page: i32(at.Page), part: [2]int32{i32(part[0]), i32(part[1])}, latent: b32(l.latent), gate: b32(a.Gate), window: i32(l.window), ahead: i32(a.Ahead()),
		pairs: i32(len(a.Freqs)), interleaved: b32(a.Interleaved), eps: a.Eps, scale: a.ScoreScale(), queries: i32(l.queries),
		dst: b.at(dst), q: b.at(q), k: b.at(k), v: b.at(v), qNorm: b.at(a.QNorm), kNorm: b.at(a.KNorm),
		dstStride: i32(dst.Stride), qStride: i32(q.Stride), kStride: i32(k.Stride), vStride: i32(v.Stride),
	}
	return l
}

// turn returns the rotations of the rows. Layers of a pass use the same ones, or two of them alternating, so the last two
// are kept.
func (b *Backend) turn(a *backend.Attention, rows int, call driver.Ptr) driver.Ptr {
	if len(a.Freqs) == 0 {
		return 0
	}
	list := &b.attention.turns
	for i := range list {
		t := &list[i]
		if r := b.passes.recording; r != nil && r == t.of && slices.Equal(a.Freqs, t.freqs) && slices.Equal(a.Sections, t.sections) && a.Turn == t.factor {
			list[0], list[i] = list[i], list[0]
			return list[0].at
		}
	}
	list[0], list[1] = list[1], list[0]
	t := &list[0]
	to := b.grow(&t.piece, 8*rows*len(a.Freqs))
	t.of = b.passes.recording
	t.freqs, t.sections = append(t.freqs[:0], a.Freqs...), append(t.sections[:0], a.Sections...)
	t.factor = a.Turn
	p := turnsParam{pairs: i32(len(a.Freqs)), sections: i32(len(a.Sections)), factor: cmp.Or(a.Turn, 1)}
	copy(p.freqs[:], a.Freqs)
	copy(p.section[:], a.Sections)
	b.launch("attend.attend_turns", grid{x: rows, threads: (len(a.Freqs) + 31) &^ 31}, call, raw(p), to)
	return to
}

// attendFloats and attendWide compute pages of float32 or half precision.
func (b *Backend) attendFloats(l *attendLayer) { b.attendPages(l, "attend.attend_"+l.kinds()) }

func (b *Backend) attendWide(l *attendLayer) {
	b.attendPages(l, "attendwide.attend_"+l.kinds()+"_wide")
}

func (b *Backend) attendPages(l *attendLayer, kernel string) {
	const threads = 256
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
	if !b.tooWide(l, shared) {
		b.attendPiecewise(l, kernel, blockQueries, grid{threads: threads, shared: shared})
	}
}

// attendPiecewise launches a kernel whose blocks take pieces of work, queries of a head each.
func (b *Backend) attendPiecewise(l *attendLayer, kernel string, queries int, g grid) {
	b.attendPrepare(l)
	g.x = b.occupancy(kernel, g.threads, g.shared)
	if !l.split {
		g.x = min(g.x, l.rows*((l.heads/l.kvHeads+queries-1)/queries)*l.kvHeads)
	}
	b.launch(kernel, g, l.call, raw(l.layerParam))
	b.join(l)
}

// kinds are the numbers of pages that are not codes.
func (l *attendLayer) kinds() string { return [2]string{"floats", "halves"}[l.kind] }

// attendFew computes pages of float32 or half precision for few rows, all that comes before included.
func (b *Backend) attendFew(l *attendLayer) { b.attendAll(l, "attendfew.attend_few_"+l.kinds(), 8, 8) }

// attendBlock is attendFew for the rows of blocks.
func (b *Backend) attendBlock(l *attendLayer) {
	b.attendAll(l, "attendblock.attend_block_halves", 16, 8)
}

// attendAll launches a kernel whose blocks of warps compute some queries, all that comes before included.
func (b *Backend) attendAll(l *attendLayer, kernel string, queries, warps int) {
	state := 4 * queries * (backend.PageTokens + 7) // struct Queries
	size := 4
	if l.kind == 1 {
		size = 2
	}
	shared := state + 4*(queries+warps)*max(l.key, l.value) + backend.PageTokens*size*(l.key+16+l.value+16)
	if b.tooWide(l, shared) {
		return
	}
	b.launch(kernel, grid{x: b.occupancy(kernel, 32*warps, shared), threads: 32 * warps, shared: shared}, l.call, raw(l.layerParam))
	b.join(l)
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

// odd reports whether pages of codes have rows that the kernels for tensor cores do not support.
func (l *attendLayer) odd() bool { return l.coded() && (l.latent || l.key > 512 || l.value > 512) }

func (l *attendLayer) coded() bool { return l.kind >= kindCoded }

// attendCodes and attendAny compute pages of 8 bits, attendPacked and attendPackedAny pages of 4 bits.
func (b *Backend) attendCodes(l *attendLayer)      { b.attendTensor(l, "coded.coded", 32) }
func (b *Backend) attendCodesWide(l *attendLayer)  { b.attendTensor(l, "coded.coded_wide", 16) }
func (b *Backend) attendPacked(l *attendLayer)     { b.attendTensor(l, "packed.packed", 32) }
func (b *Backend) attendPackedWide(l *attendLayer) { b.attendTensor(l, "packed.packed_wide", 16) }
func (b *Backend) attendAny(l *attendLayer)        { b.attendPlain(l, "coded.coded_any") }
func (b *Backend) attendPackedAny(l *attendLayer)  { b.attendPlain(l, "packed.packed_any") }

func (b *Backend) attendTensor(l *attendLayer, kernel string, queries int) {
	b.attendPiecewise(l, kernel, queries, grid{threads: 128})
}

func (b *Backend) attendPlain(l *attendLayer, kernel string) {
	b.attendPiecewise(l, kernel, 16, grid{threads: 128, shared: 4 * 16 * l.value})
}
