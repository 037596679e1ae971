package ptx

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
	flipA, flipB := uint32(0), uint32(0)
	if m.left {
		flipA = 0x80808080
	}
	if m.right {
		flipB = 0x80808080
	}
	var a, sums [4]v32
	var b [16][4]uint32
	for i, r := range m.a {
		a[i] = w.r32[r]
	}
	for i, r := range m.b {
		for lane, v := range &w.r32[r] {
			b[i*8+lane&3*2+lane>>2&1][lane>>3] = v
		}
	}
	for i, r := range m.acc {
		sums[i] = w.r32[r]
	}
	dot(&sums, &a, &b, m.k/16, flipA, flipB)
	for i, r := range m.d {
		w.r32[r] = sums[i]
	}
	return nil
}

var dot = dotPortable

// dotPortable adds products to sums. Registers of a have four columns of A in each lane; words of b are four rows of B, of the
// columns that each of four lanes has in its even or its odd results. Signed bytes are raised by 128 first.
func dotPortable(sums, a *[4]v32, b *[16][4]uint32, deep int, flipA, flipB uint32) {
	for i := range sums {
		for lane := range lanes {
			for k := range 4 * deep {
				x, y := a[k>>2*2+i>>1][lane&^3|k&3]^flipA, b[2*k+i&1][lane&3]^flipB
				for range 4 {
					sums[i][lane] += (x&255 - flipA&255) * (y&255 - flipB&255)
					x, y = x>>8, y>>8
				}
			}
		}
	}
}
