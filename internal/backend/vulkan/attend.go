package vulkan

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/gpu"
	"github.com/foretoken/foretoken/internal/backend/vulkan/driver"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/exactmath"
)

// Limits of kernels/attend.comp.
const (
	maxQuery  = 1024
	maxValues = 512
	maxMany   = 256 // numbers of keys and values of kernels/attend_many.comp and attend_coded.comp
)

// fewQueries is the most rows whose queries are computed one by one.
const fewQueries = 16

// layer is struct Layer of kernels/attend.glsl.
type layer struct {
	Dst, Q, K, V, QNorm, KNorm, Rotation, Floats, Codes, Scales driver.Ptr

	Heads, KVHeads, Key, Tail, Value, Head, Kind, Page, Part0, Part1, Latent, Gate, Window, Ahead, Pairs, Interleaved, Queries int32
	DstStride, QStride, KStride, VStride                                                                                       int32
	Eps, Scale                                                                                                                 float32
}

// Attend is attention.
func (b *Backend) Attend(dst backend.Tensor, a *backend.Attention, at backend.Place, q, k, v backend.Tensor, batch []backend.Seq) {
	backend.CheckAttend(dst, a, q, k, v)
	b.begin()
	call := driver.Ptr(gpu.HeadOf(uint64(b.listsOf(backend.Pass{Batch: batch})), &at))
	rows := max(q.Rows, k.Rows)
	if rows == 0 {
		return
	}
	if a.HeadDim > maxQuery || a.Values() > maxValues || rows > maxRows {
		b.missing(fmt.Sprintf("attention over %d rows with keys of %d and values of %d numbers (at most %d, %d and %d)", rows, a.HeadDim, a.Values(), maxRows, maxQuery, maxValues))
		return
	}
	l := b.layer(dst, a, at, q, k, v)
	l.Rotation = b.rotation(a, rows, batch)
	all := groups(int(l.Key)) + groups(int(l.Tail))
	if backend.CodedPages(at.Type) {
		n := q.Rows * a.Heads * all
		l.Codes, l.Scales = b.scratch(n*backend.CodedGroup), b.scratch(4*n)
	} else {
		l.Floats = b.scratch(4 * q.Rows * a.Heads * a.HeadDim)
	}
	var data bytes.Buffer
	_ = binary.Write(&data, binary.LittleEndian, &l) // to memory
	param := b.keep(data.Bytes())
	heads := 2 * a.KVHeads
	switch {
	case k.Mem == nil: // those of another layer are read
		heads = 0
	case a.Latent > 0:
		heads = 1
	}
	if q.Rows > 0 {
		heads += a.Heads
	}
	b.launch("attend_prepare", [3]int{heads, rows, 1}, call, param)
	if q.Rows > fewQueries && a.Latent == 0 && a.HeadDim <= maxMany && a.Values() <= maxMany {
		many := ""
		switch {
		case backend.CodedPages(at.Type):
			many = "attend_coded"
		case at.Type == dtype.F16 && a.HeadDim%32 == 0 && b.opts.Level != Integers:
			many = "attend_many"
		}
		if many != "" {
			b.launch(many, [3]int{a.Heads, q.Rows, 1}, call, param)
			return
		}
	}
	most := pagesOf(batch)
	size := 4 * q.Rows * a.Heads * most * (a.Values() + 3)
	if most <= onePass || q.Rows > strip || size > maxParts {
		b.launch("attend:0", [3]int{a.Heads, q.Rows, 1}, call, param, driver.Ptr(0), 0)
		return
	}
	parts := b.scratch(size)
	b.launch("attend:1", [3]int{a.Heads * min(most, pageGroups), q.Rows, 1}, call, param, parts, most)
	b.launch("attend_merge", [3]int{a.Heads, q.Rows, 1}, call, param, parts, most)
}

// Few rows over many pages: workgroups share the pages, and leave sums of each.
const (
	onePass    = 2         // pages that one workgroup has
	pageGroups = 64        // workgroups of a query of a head, at most
	maxParts   = 256 << 20 // bytes of sums
)

// pagesOf is the most pages of a sequence of a batch, rounded up to a power of two: passes with another number do not share recordings.
func pagesOf(batch []backend.Seq) int {
	most := 1
	for i := range batch {
		for s := &batch[i]; s.Pos+s.N > most*backend.PageTokens; {
			most *= 2
		}
	}
	return most
}

// groups is how many groups of codes n numbers have.
func groups(n int) int { return (n + backend.CodedGroup - 1) / backend.CodedGroup }

// layer is the widths and operands of a call.
func (b *Backend) layer(dst backend.Tensor, a *backend.Attention, at backend.Place, q, k, v backend.Tensor) layer {
	flag := func(x bool) int32 {
		if x {
			return 1
		}
		return 0
	}
	key, tail := a.HeadDim, 0
	part := [2]int{backend.KeyBytes(at.Type, 1, key), backend.ValueBytes(at.Type, 1, a.Values())}
	if a.Latent > 0 {
		key, tail = a.Latent, a.HeadDim-a.Latent
		part = [2]int{backend.LatentBytes(at.Type, key), backend.LatentBytes(at.Type, tail)}
	}
	return layer{
		Dst: b.at(dst), Q: b.at(q), K: b.at(k), V: b.at(v), QNorm: b.at(a.QNorm), KNorm: b.at(a.KNorm),
		Heads: i32(a.Heads), KVHeads: i32(a.KVHeads), Key: i32(key), Tail: i32(tail), Value: i32(a.Values()), Head: i32(a.Queries() / a.Heads),
		Kind: map[dtype.Type]int32{dtype.F32: 0, dtype.F16: 1, dtype.I8: 2, dtype.I4: 3}[at.Type], Page: i32(at.Page), Part0: i32(part[0]), Part1: i32(part[1]),
		Latent: flag(a.Latent > 0), Gate: flag(a.Gate), Window: i32(min(a.Window, backend.MaxWindow)), Ahead: i32(a.Ahead()), Pairs: i32(len(a.Freqs)),
		Interleaved: flag(a.Interleaved), Queries: i32(q.Rows), DstStride: i32(dst.Stride), QStride: i32(q.Stride), KStride: i32(k.Stride), VStride: i32(v.Stride),
		Eps: a.Eps, Scale: a.ScoreScale(),
	}
}

// rotation is cosines and sines of rows' angles, [rows][2][pairs], which the host computes. Layers of a pass that rotate alike have
// one, and a pass that is submitted again gets those of its own positions.
type rotation struct {
	at       driver.Ptr
	freqs    []float32
	sections []uint8
	turn     float32
	rows     int
	data     []byte
}

// rotation is the address of the table for a layer; 0: it has none.
func (b *Backend) rotation(a *backend.Attention, rows int, batch []backend.Seq) driver.Ptr {
	if len(a.Freqs) == 0 || b.err != nil {
		return 0
	}
	t := rotation{freqs: a.Freqs, sections: a.Sections, turn: cmp.Or(a.Turn, 1), rows: rows}
	r := b.passes.recording
	if r == nil {
		return b.keep(t.table(batch))
	}
	for i := range r.turns {
		if x := &r.turns[i]; x.rows == rows && x.turn == t.turn && slices.Equal(x.freqs, t.freqs) && slices.Equal(x.sections, t.sections) {
			return x.at
		}
	}
	t.at = b.keep(t.table(batch))
	r.turns = append(r.turns, t)
	return t.at
}

// table is the bytes of the table for the positions of a batch, valid until the next call.
func (t *rotation) table(batch []backend.Seq) []byte {
	n := len(t.freqs)
	if t.data == nil {
		t.data = make([]byte, 8*t.rows*n)
	}
	for i := range batch {
		s := &batch[i]
		for j := range s.N {
			position := [3]int32{int32(s.Pos + j), int32(s.Pos + j), int32(s.Pos + j)}
			if s.Positions != nil {
				position = s.Positions[j]
			}
			to := t.data[8*(s.First+j)*n:][:8*n]
			for p, f := range t.freqs {
				axis := 0
				if t.sections != nil {
					axis = int(t.sections[p])
				}
				sin, cos := exactmath.Sincos32(float32(position[axis]) * f)
				binary.LittleEndian.PutUint32(to[4*p:], math.Float32bits(cos*t.turn))
				binary.LittleEndian.PutUint32(to[4*(n+p):], math.Float32bits(sin*t.turn))
			}
		}
	}
	return t.data
}
