package ptx

import "encoding/binary"

// mmaShape is a product of bytes or halves by tensor cores: 16 rows, 8 columns, k deep.
type mmaShape struct {
	k            int
	halves       bool
	left, right  bool // signed
	d, a, b, acc []int32
}

// matrix is mma.sync of m16n8k16 and m16n8k32, bytes to words, and of m16n8k16, halves to floats.
func matrix(a *assembler) error {
	if a.take("sync") == "" || a.take("aligned") == "" {
		return a.wrong("only .sync.aligned is known")
	}
	m := mmaShape{k: 32}
	switch a.take("m16n8k16", "m16n8k32") {
	case "m16n8k16":
		m.k = 16
	case "":
		return a.wrong("a shape that is not known here")
	}
	if a.take("row") == "" || a.take("col") == "" {
		return a.wrong("only .row.col is known")
	}
	if err := m.types(a); err != nil {
		return err
	}
	bytes := 1 // of an element
	if m.halves {
		bytes = 2
	}
	if err := a.args(4); err != nil {
		return err
	}
	for i, f := range []struct {
		to *[]int32
		n  int
	}{{&m.d, 4}, {&m.a, m.k / 8 * bytes}, {&m.b, m.k / 16 * bytes}, {&m.acc, 4}} {
		v := &a.s.args[i]
		if f.n == 1 && v.kind == operandReg {
			v = &operand{list: []operand{*v}, kind: operandVector}
		}
		if v.kind != operandVector || len(v.list) != f.n {
			return a.wrong("operand %d is not %d registers", i+1, f.n)
		}
		for j := range v.list {
			at, err := a.srcOf(&v.list[j], typeB32)
			if err == nil && i == 0 {
				at, err = a.dstOf(&v.list[j], typeB32)
			}
			if err != nil {
				return err
			}
			*f.to = append(*f.to, at)
		}
	}
	a.in.kind, a.in.x, a.in.special = kindSpecial, &extra{mma: m}, matrixLanes
	return nil
}

// types has those of the result, both factors and the accumulators.
func (m *mmaShape) types(a *assembler) error {
	to, err := a.typ(typeS32, typeF32)
	if err != nil {
		return err
	}
	elements := []typ{typeU8, typeS8}
	if m.halves = to == typeF32; m.halves {
		if elements = []typ{typeF16}; m.k != 16 {
			return a.wrong("a shape that is not known here")
		}
	}
	left, err := a.typ(elements...)
	if err != nil {
		return err
	}
	right, err := a.typ(elements...)
	if err != nil {
		return err
	}
	m.left, m.right = left.signed(), right.signed()
	_, err = a.typ(to)
	return err
}

// matrixLanes multiplies. Fragments, by the manual: lane l has row l/4 (and 8 more) of A and of the
// result and column l/4 of B; four bytes of a register are columns 4(l%4) and on of A, and rows of B.
func matrixLanes(w *warp, in *instr, mask uint32) *Fault {
	switch {
	case w.live != allLanes || mask != w.mask: // ended, or guarded
		return w.fault(first(mask), "mma by lanes %#x only", mask)
	case mask != allLanes: // other lanes may still come
		w.held = true
		return nil
	}
	m := &in.x.mma
	if m.halves {
		if wrong := w.halves(m); wrong != "" {
			return w.fault(0, "%s", wrong)
		}
		return nil
	}
	var a [16][32]uint8
	var b columns
	flipA, flipB := uint32(0), uint32(0x80808080)
	if m.left {
		flipA = 0x80808080
	}
	if !m.right {
		flipB = 0
	}
	for lane := range lanes {
		group, at := lane>>2, lane&3*4
		for i, r := range m.a { // registers: row group, row group+8, then 16 columns on
			binary.LittleEndian.PutUint32(a[group+i&1*8][at+i>>1*16:], w.r32[r][lane]^flipA)
		}
		word, shift := &b[group/3], group%3*sumBits
		for i, r := range m.b {
			v := uint64(w.r32[r][lane] ^ flipB)
			four := word[at+16*i:][:4]
			four[0] |= v & 255 << shift
			four[1] |= v >> 8 & 255 << shift
			four[2] |= v >> 16 & 255 << shift
			four[3] |= v >> 24 << shift
		}
	}
	w.products(m, &a, &b)
	return nil
}

// columns are those of B, three in a word: a sum of 32 products of two bytes has 21 bits.
type columns [3][32]uint64

const sumBits = 21

// sum is column n of three words of sums.
func sum(words *[3]uint64, n int) uint32 {
	return uint32(words[n/3] >> (n % 3 * sumBits) & (1<<sumBits - 1))
}

// products adds a times b to the accumulators. Signed bytes are raised by 128; the surplus is subtracted
// again.
func (w *warp) products(m *mmaShape, a *[16][32]uint8, b *columns) {
	var sumB [3]uint64
	for i := range b {
		for _, v := range b[i][:m.k] {
			sumB[i] += v
		}
	}
	var out [16][8]uint32
	for row := range a {
		var s [3]uint64
		sumA := uint32(0)
		for k, v := range a[row][:m.k] {
			x := uint64(v)
			sumA += uint32(v)
			s[0] += x * b[0][k&31]
			s[1] += x * b[1][k&31]
			s[2] += x * b[2][k&31]
		}
		for n := range out[row] {
			v := sum(&s, n)
			if m.left {
				v -= 128 * sum(&sumB, n)
			}
			if m.right {
				v -= 128 * sumA
			}
			if m.left && m.right {
				v += 128 * 128 * uint32(m.k)
			}
			out[row][n] = v
		}
	}
	var sums [4]v32
	for i, r := range m.acc {
		for lane := range lanes {
			sums[i][lane] = w.r32[r][lane] + out[lane>>2+i>>1*8][lane&3*2+i&1]
		}
	}
	for i, r := range m.d {
		w.r32[r] = sums[i]
	}
}
