package kernel

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// Activations are the input's rows as 8-bit integers: x ≈ scale*q, per group of columns.
//
// Rows go in strips, the last of which may have fewer. A strip has, group after group,
// the codes of its rows, and then for each of its rows the scale, the scaled sum (see
// quantizeGroup) and the offset, four bytes each. For superblocks, of which one is a group
// here, the scales of the rows are followed by the sums of the codes of the superblock's own
// groups, as pairs of 16 bits: those of the first two groups for each row, then of the next two.
// Codes lie as the kernels want them:
//
//	by fours  [group/4, rows, 4], so that one vector of a weight meets neighbors
//	by row    [rows, group], the groups padded to whole cache lines, and the last strip
//	          filled with rows of zeros: the shape of AMX tiles. Superblocks are
//	          [group/64, rows, 64]: a tile is read in whole, and not in lines that lie apart
type Activations struct {
	rows, groups int
	rounding
	strips
	data []byte // aligned to cache lines
}

// rounding is how rows are rounded for a weight.
type rounding struct {
	group int   // columns that have one scale
	part  int   // columns of a superblock's group; 0: there are no superblocks
	raise int32 // added to codes by kernels that want them unsigned: the offset is -raise times the sum
}

// rounding is how rows are rounded for w.
func (w *Weight) rounding() rounding {
	switch {
	case w.per > 1:
		return rounding{group: w.per * w.group, part: w.group}
	case w.zeros > 0:
		return rounding{group: w.group, raise: 1} // zero points are factors of the offset
	case w.fp4():
		return rounding{group: w.group, raise: codeOffset}
	case w.format.Leveled():
		return rounding{group: w.group, raise: levelOffset}
	default:
		return rounding{group: w.group, raise: int32(-w.zero)}
	}
}

// tail is the size of the data after a row's codes in a group.
func (r *rounding) tail() int {
	if r.part == 0 {
		return rowTail
	}
	return 4 + 2*(r.group/r.part)
}

// strips is the layout of rows.
type strips struct {
	height int  // rows of a strip
	pad    int  // rows of zeros in the last strip
	byRow  bool // by row, where pad fills the last strip
}

const (
	// codeOffset and levelOffset are added to E2M1 integers and dtype.Levels by kernels
	// that need unsigned codes.
	codeOffset  = 12
	levelOffset = 132
	// rowTail is the size of the data after a row's codes in a group that is not a superblock.
	rowTail = 12
	// byRowAtOnce is the number of rows in the layout by row that are multiplied at once, superAtOnce that for superblocks, of
	// which unpacking is a larger part.
	byRowAtOnce = 256
	superAtOnce = 512
	// superWidth is the number of adjacent codes of a superblock in the layout by row.
	superWidth = 64
	// cacheLine is the alignment of activations.
	cacheLine = 64
)

// Lay shapes a for rows rows to be multiplied with w, in the layout of k.
func (k *Set) Lay(a *Activations, rows int, w *Weight) {
	r := w.rounding()
	a.lay(rows, w.groups/w.per, r, k.strips(rows, r))
}

// Fits reports whether a, laid out for another weight, is laid out for w too.
func (a *Activations) Fits(w *Weight) bool { return a.rounding == w.rounding() }

// lay shapes a, in zeroed memory if some of it is padding.
func (a *Activations) lay(rows, groups int, r rounding, s strips) {
	a.rows, a.groups, a.rounding, a.strips = rows, groups, r, s
	n := a.OutRows() * groups * (r.group + r.tail())
	if s.byRow {
		n = a.OutRows() / s.height * groups * a.stride(s.height)
	}
	a.data = aligned(a.data, n)
	if s.pad > 0 {
		clear(a.strip(rows / s.height * s.height))
	}
}

// aligned returns b with length n, reusing its memory where it can, at the start of a
// cache line. Contents are undefined.
func aligned(b []byte, n int) []byte {
	if cap(b) >= n {
		return b[:n]
	}
	b = make([]byte, n+cacheLine)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (cacheLine - 1)
	return b[skip:][:n]
}

// OutRows is the number of rows that a product computes, padding included.
func (a *Activations) OutRows() int { return a.rows + a.pad }

// AtOnce is the number of rows to multiply with many tiles before the next rows: large enough that
// weights are seldom read, and small enough that the rows stay in the L2 cache.
func (a *Activations) AtOnce() int {
	switch {
	case a.byRow && a.part > 0:
		return superAtOnce
	case a.byRow:
		return byRowAtOnce
	}
	const codes = 256 << 10
	return max(4, codes/(max(1, a.groups)*a.stride(a.height))) * a.height
}

// Range is rows [from, to) of a, from being that of a strip.
func (a *Activations) Range(from, to int) Activations {
	part := *a
	part.rows, part.data = to-from, a.data[a.at(from):]
	if to < a.rows {
		part.pad = 0
	}
	return part
}

// inStrip is the number of rows in the strip that begins at row first.
func (a *Activations) inStrip(first int) int { return min(a.height, a.OutRows()-first) }

// stride is the distance of groups in a strip of rows rows.
func (a *Activations) stride(rows int) int {
	n := rows * (a.group + a.tail())
	if a.byRow {
		n = (n + cacheLine - 1) &^ (cacheLine - 1)
	}
	return n
}

// at is where the strip that begins at row first is.
func (a *Activations) at(first int) int {
	if a.byRow {
		return first / a.height * a.groups * a.stride(a.height)
	}
	return first * a.groups * (a.group + a.tail())
}

// strip is the strip that begins at row first.
func (a *Activations) strip(first int) []byte {
	at := a.at(first)
	n := a.groups * a.stride(a.inStrip(first))
	return a.data[at : at+n : at+n]
}

// place is the offset of the numbers of one row in its strip, in bytes.
type place struct {
	first  int // code of the row
	vector int // from four codes to the next four
	skip   int // more than that after every 64 codes; only rows by row have it
	tail   int // from the group's first code to its scale
	across int // from scale to sum, and from sum to offset, or to the next pair of sums
	next   int // from one group to the next
	part   int // columns of a superblock's group; 0: there are no superblocks
	raise  int // see rounding
}

// place finds row r in its strip.
func (a *Activations) place(r int) place {
	i := r % a.height
	n := a.inStrip(r - i)
	p := place{first: 4 * i, vector: 4 * n, tail: n * a.group, across: 4 * n, next: a.stride(n), part: a.part, raise: int(a.raise)}
	if a.byRow {
		width := a.group
		if a.part > 0 {
			width = superWidth
			p.skip = (n - 1) * width
		}
		p.first, p.vector = i*width, 4
		p.tail += 4*i - p.first
	}
	return p
}

// code is where the four codes are that column k of a group belongs to, from the first.
func (p *place) code(k int) int { return k/4*p.vector + k/superWidth*p.skip }

// Put quantizes x as row r of a, which k has laid out.
func (k *Set) Put(a *Activations, r int, x []float32) { a.put(r, x, k.quantize) }

// put quantizes row r.
func (a *Activations) put(r int, x []float32, quantize func(dst []byte, x []float32, group int, p place)) {
	quantize(a.strip(r-r%a.height), x[:a.groups*a.group], a.group, a.place(r))
}

// quantizeRow is Set.quantize: it writes one row of a strip.
func quantizeRow(dst []byte, x []float32, group int, p place) {
	at := p.first
	var short [256]int8 // as long as groups and heads usually are
	q := short[:]
	if group > len(short) {
		q = make([]int8, group)
	}
	q = q[:group]
	for ; len(x) > 0; x = x[group:] {
		scale, sum, total := quantizeGroup(q, x[:group])
		for v := 0; v < group; v += 4 {
			out, c := dst[at+p.code(v):][:4], q[v:][:4]
			out[0], out[1], out[2], out[3] = byte(c[0]), byte(c[1]), byte(c[2]), byte(c[3])
		}
		tail := dst[at+p.tail:]
		binary.LittleEndian.PutUint32(tail, math.Float32bits(scale))
		at += p.next
		if p.part > 0 {
			p.putSums(tail, q)
			continue
		}
		binary.LittleEndian.PutUint32(tail[p.across:], math.Float32bits(sum))
		binary.LittleEndian.PutUint32(tail[2*p.across:], uint32(-p.raise)*uint32(total))
	}
}

// putSums writes the sums of the groups of a superblock, whose scale is at tail.
func (p *place) putSums(tail []byte, q []int8) {
	for i := 0; len(q) > 0; q = q[p.part:] {
		sum := int16(0) // of at most 32 codes
		for _, c := range q[:p.part] {
			sum += int16(c)
		}
		binary.LittleEndian.PutUint16(tail[(1+i/2)*p.across+i%2*2:], uint16(sum))
		i++
	}
}

// codes writes the integers of group g of a row, and returns its scale and, unless it is a
// superblock, its sum. Portable code reads every layout by it.
func (a *Activations) codes(q []int8, r, g int) (scale, sum float32) {
	p := a.place(r)
	b := a.strip(r - r%a.height)[p.first+g*p.next:]
	for k := range q {
		q[k] = int8(b[p.code(k)+k%4])
	}
	tail := b[p.tail:]
	return math.Float32frombits(binary.LittleEndian.Uint32(tail)), math.Float32frombits(binary.LittleEndian.Uint32(tail[p.across:]))
}
