package kernel

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/foretoken/foretoken/internal/exactmath"
)

// Attention over pages of 8-bit codes is computed with integers, whose sums have no order: the
// kernels of this file take one page and a block of up to Lanes queries, one per lane.
//
// Queries and keys have a scale for each group of codedGroup columns, what is missing of the
// last group being zeros. Keys are stored as code+128, since instructions multiply unsigned
// with signed bytes. Values lie by column, [columns, PageTokens], and have a scale for each
// position. Latent rows have one scale for all groups, and are keys and values in one. For
// one query, over the positions that it sees:
//
//	I_g  = sum over the group of query code * key code                     exact
//	s    = sum over the groups of float(I_g)*sq_g * sk_g, ascending        fused from the second on
//	top  = highest s;  e = exp(s-top);  w = sum of e in lane order
//	p    = e*sv;  c = round(p * (65535/highest p))                         16 bits
//	O    = sum of c * value code                                           exact, below 2^31
//
// with the scale of scores in sq_g. The answer of a page is O times highest p/65535; pages are
// merged by their tops, as those of float32 are. A highest p below codedTiny is none.

// Lanes is how many queries a block has.
const Lanes = lanes

const (
	codedGroup = 64
	// codedBlock is the bytes of a group of a block's queries: codes, [codedGroup/4, Lanes, 4],
	// scales, what the sum of key codes + 128 starts from, and something unused, [Lanes] each.
	codedBlock  = codedGroup*Lanes + 3*4*Lanes
	codedScales = codedGroup * Lanes
	codedStarts = codedScales + 4*Lanes
	codedTiny   = 0x1p-100
	codedMost   = 65535
)

// CodedGroups is how many groups a width has.
func CodedGroups(width int) int { return (width + codedGroup - 1) / codedGroup }

// Coded is the kernels of a page of codes, in the order they are called in.
type Coded struct {
	Scores  func(p *CodedPage)
	Softmax func(p *CodedPage)
	Weigh   func(p *CodedPage)
	Merge   func(m *CodedMerge)
	// WeighMerge is Weigh and then Merge of all sums, for blocks of Lanes queries. The sums
	// themselves need not be stored. Nil: there is nothing better than the two.
	WeighMerge func(p *CodedPage, m *CodedMerge)

	// UnpackKeys and UnpackValues make pages of 8 bits of those of 4: see packed_generic.go.
	UnpackKeys   func(keys, packed, ranges []byte, groups int)
	UnpackValues func(values []int8, packed []byte, groups int)
}

// CodedPage is one page and one block of queries.
type CodedPage struct {
	Queries   []byte    // groups of codedBlock bytes
	Keys      []byte    // [PageTokens, Groups*codedGroup]
	KeyScales []float32 // [Groups, PageTokens]
	ScaleStep int       // numbers from one group's scales to the next: PageTokens, or none
	Groups    int
	More      int // unless 0, groups are added to scores that are there

	Masks       *[PageTokens]uint16 // which lanes see a position: scores of the others are undefined
	ValueScales []float32           // [PageTokens]
	Values      []int8              // [Dims, PageTokens]
	Dims        int                 // columns of a value, a multiple of 16
	Width       int                 // lanes of a row of Sums: 4, 8 or 16

	// Next is read after the values. It is only prefetched, as the values are while
	// scores are computed: by steps of Ahead bytes, 256 or 1024, from the Skip bytes on. A step
	// is a sixteenth of the columns and positions, or of the columns of values.
	Next                        []int8
	Ahead, SkipValues, SkipNext int

	Scores  []float32 // [PageTokens, Lanes], then e
	Weights []byte    // high bytes of c, [PageTokens/4, Lanes, 4], then low ones
	Sums    []int32   // [Dims, Width]: O
	Now     LaneSums

	tiles  []byte   // products, before they are added up
	config [64]byte // shapes of AMX tiles
}

// Prepare makes the memory that kernels compute in, unless p has it.
func (p *CodedPage) Prepare() {
	if p.tiles != nil {
		return
	}
	const tiles, scores, weights = 8192, 4 * PageTokens * Lanes, 2 * PageTokens * Lanes
	const align = 2 * tiles // products of AMX kernels are a ring: its end is where a bit changes
	b := make([]byte, align+tiles+scores+weights)
	b = b[-int(uintptr(unsafe.Pointer(unsafe.SliceData(b))))&(align-1):]
	p.tiles, b = b[:tiles], b[tiles:]
	p.Scores = unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), PageTokens*Lanes)
	p.Weights = b[scores:][:weights]
	p.config = [64]byte{0: 1}
	for t := range 8 {
		p.config[16+2*t], p.config[48+t] = 64, 16 // bytes of a row, rows
	}
}

// LaneSums belongs to the sums of a block.
type LaneSums struct {
	Top, Weight [Lanes]float32 // as in SoftmaxSum
	Scale       [Lanes]float32 // of the sums of one page
}

// CodedMerge adds the sums of a page, Now and Sums, to those of the pages before it in the
// lanes of Sees. Before the first page Out and All.Weight are zeros, All.Top is -infinity.
//
// Number i of the sums belongs to lane i mod Lanes. So if rows have fewer lanes, their queries
// must be repeated in all others (see Repeat).
type CodedMerge struct {
	All, Now *LaneSums
	Out      []float32 // a multiple of Lanes, or none: then only All is merged
	Sums     []int32
	Sees     uint16

	old, more [Lanes]float32 // factors of the old sum and of the page's
}

// codedGeneric is the definition of the kernels.
var codedGeneric = Coded{
	Scores: codedScores8, Softmax: codedSoftmax, Weigh: codedWeigh, Merge: codedMerge, UnpackKeys: unpackKeys, UnpackValues: unpackValues,
}

func codedScores8(p *CodedPage) {
	for g := range p.Groups {
		block := p.Queries[g*codedBlock:][:codedBlock]
		for l := range Lanes {
			var q [codedGroup]int32
			for i := range q {
				q[i] = int32(int8(block[i/4*4*Lanes+4*l+i%4]))
			}
			scale := math.Float32frombits(binary.LittleEndian.Uint32(block[codedScales+4*l:]))
			start := int32(binary.LittleEndian.Uint32(block[codedStarts+4*l:]))
			for j := range PageTokens {
				if p.Masks[j]>>l&1 == 0 {
					continue
				}
				sum := start
				for i, k := range p.Keys[(j*p.Groups+g)*codedGroup:][:codedGroup] {
					sum += int32(k) * q[i]
				}
				s, t := &p.Scores[j*Lanes+l], float32(sum)*scale
				if k := p.KeyScales[g*p.ScaleStep+j]; g == 0 && p.More == 0 {
					*s = t * k
				} else {
					*s = exactmath.FMA32(t, k, *s)
				}
			}
		}
	}
}

func codedSoftmax(p *CodedPage) {
	for l := range Lanes {
		top := float32(math.Inf(-1))
		for j := range PageTokens {
			if s := p.Scores[j*Lanes+l]; p.Masks[j]>>l&1 != 0 && s > top {
				top = s
			}
		}
		var acc [lanes]float32
		var highest uint32 // numbers from zero on order like their bits, NaN above infinity
		for j := range PageTokens {
			e := &p.Scores[j*Lanes+l]
			if p.Masks[j]>>l&1 == 0 {
				*e = 0
				continue
			}
			*e = exactmath.Exp32(*e - top)
			acc[j%lanes] += *e
			highest = max(highest, math.Float32bits(*e*p.ValueScales[j]))
		}
		most := math.Float32frombits(highest)
		inverse := float32(0)
		if most >= codedTiny {
			inverse = codedMost / most
		}
		for j := range PageTokens {
			c := uint16(0)
			if e := p.Scores[j*Lanes+l]; p.Masks[j]>>l&1 != 0 {
				const round = 3 << 22 // adding it leaves the nearest integer
				c = uint16(int32(float32(float32(e*p.ValueScales[j])*inverse)+round) - round)
			}
			at := j/4*4*Lanes + 4*l + j%4
			p.Weights[at], p.Weights[PageTokens*Lanes+at] = byte(c>>8), byte(c)
		}
		p.Now.Top[l], p.Now.Weight[l], p.Now.Scale[l] = top, exactmath.SumLanes32(&acc), most/codedMost
	}
}

func codedWeigh(p *CodedPage) {
	for l := range p.Width {
		var c [PageTokens]int32
		for j := range c {
			at := j/4*4*Lanes + 4*l + j%4
			c[j] = int32(p.Weights[at])<<8 + int32(p.Weights[PageTokens*Lanes+at])
		}
		for d := range p.Dims {
			sum := int32(0)
			for j, x := range p.Values[d*PageTokens:][:PageTokens] {
				sum += c[j] * int32(x)
			}
			p.Sums[d*p.Width+l] = sum
		}
	}
}

func codedMerge(m *CodedMerge) {
	for l := range Lanes {
		if m.Sees>>l&1 == 0 {
			continue
		}
		all, now := SoftmaxSum{m.All.Top[l], m.All.Weight[l]}, SoftmaxSum{m.Now.Top[l], m.Now.Weight[l]}
		old, more := mergeSums(&all, &now)
		m.All.Top[l], m.All.Weight[l] = all.Top, all.Weight
		more *= m.Now.Scale[l]
		m.old[l], m.more[l] = old, more
		for i := l; i < len(m.Out); i += Lanes {
			m.Out[i] = exactmath.FMA32(float32(m.Sums[i]), more, float32(m.Out[i]*old))
		}
	}
}

// PutQuery quantizes x, a query or the second part of one, as a lane of a block, whose groups
// begin at dst; scale is that of scores. buf is workspace.
func (k *Set) PutQuery(dst []byte, lane int, x []float32, scale float32, buf *[]float32) {
	x = padded(x, buf)
	k.quantize(dst, x, codedGroup, place{first: 4 * lane, vector: 4 * Lanes, tail: codedScales, across: 4 * Lanes, next: codedBlock, raise: codeOffset})
	for g := range len(x) / codedGroup {
		tail := dst[g*codedBlock+codedScales+4*lane:]
		s := math.Float32frombits(binary.LittleEndian.Uint32(tail)) * scale
		binary.LittleEndian.PutUint32(tail, math.Float32bits(s))
		total := int32(binary.LittleEndian.Uint32(tail[2*4*Lanes:])) / -codeOffset // see quantizeRow
		binary.LittleEndian.PutUint32(tail[4*Lanes:], uint32(-128*total))
	}
}

// Repeat copies the queries in the first width lanes of a block to the others.
func Repeat(queries []byte, width int) {
	for ; len(queries) > 0; queries = queries[4*Lanes:] {
		for n := 4 * width; n < 4*Lanes; n *= 2 {
			copy(queries[n:2*n], queries[:n])
		}
	}
}

// QueryBytes is the size of a query of a width in a block.
func QueryBytes(width int) int { return CodedGroups(width) * codedBlock }

// padded is x with zeros up to whole groups.
func padded(x []float32, buf *[]float32) []float32 {
	n := CodedGroups(len(x)) * codedGroup
	if n == len(x) {
		return x
	}
	*buf = Grow(*buf, n)
	clear((*buf)[copy(*buf, x):])
	return *buf
}

// PutKey quantizes x as key i of a page of whole keys, whose codes go to row; scales are one for each
// group, or if there are no more of them one for a whole row. buf and codes are workspace.
func (k *Set) PutKey(row []byte, scales []float32, i int, x []float32, buf *[]float32, codes *[]byte) {
	x = padded(x, buf)
	groups := len(scales) / PageTokens
	group := len(x) / groups
	*codes = Grow(*codes, groups*(group+rowTail))
	b := *codes
	k.quantize(b, x, group, place{vector: 4, tail: group, across: 4, next: group + rowTail})
	row = row[:len(x)]
	for g := range groups {
		c := b[g*(group+rowTail):]
		for j := range group {
			row[g*group+j] = c[j] ^ 0x80
		}
		scales[g*PageTokens+i] = math.Float32frombits(binary.LittleEndian.Uint32(c[group:]))
	}
}

// PutValue quantizes x as value i of a page. codes is workspace.
func (k *Set) PutValue(values []int8, scales []float32, i int, x []float32, codes *[]byte) {
	var c []int8
	c, scales[i] = k.value(x, codes)
	for j, v := range c {
		values[j*PageTokens+i] = v
	}
}

// value quantizes x as a value. Its codes are in buf.
func (k *Set) value(x []float32, buf *[]byte) (codes []int8, scale float32) {
	d := len(x)
	*buf = Grow(*buf, d+rowTail+d)
	codes = unsafe.Slice((*int8)(unsafe.Pointer(unsafe.SliceData((*buf)[d+rowTail:]))), d)
	return codes, k.quantizeWhole(codes, x, (*buf)[:d+rowTail])
}

// Transpose sets values to the first columns of keys, a page of latent rows. Bytes of positions that were never written are 0; they become
// the least value, not -128, which some kernels have no room for.
func Transpose(values []int8, keys []byte, columns int) {
	row := len(keys) / PageTokens
	for i := range PageTokens {
		for d, c := range keys[i*row:][:columns] {
			values[d*PageTokens+i] = int8(max(c, 1) ^ 0x80)
		}
	}
}

// quantizeWhole quantizes x as one group and returns its scale. Kernels need whole vectors,
// and write more than the scale behind the codes in b.
func (k *Set) quantizeWhole(codes []int8, x []float32, b []byte) float32 {
	d := len(x)
	if d%lanes != 0 {
		scale, _, _ := quantizeGroup(codes, x)
		return scale
	}
	k.quantize(b, x, d, place{vector: 4, tail: d, across: 4, next: d + rowTail})
	copy(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(codes))), d), b)
	return math.Float32frombits(binary.LittleEndian.Uint32(b[d:]))
}
