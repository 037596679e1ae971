package ptx

import (
	"math/bits"
	"slices"
)

// compare is setp of one predicate.
func compare(a *assembler) error {
	op := a.take("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
	t, err := a.typ(append(slices.Clone(wholes), typeB16, typeB32, typeB64, typeF32, typeF64)...)
	if err != nil {
		return err
	}
	ok := false
	switch op {
	case "eq", "ne":
		ok = true
	case "lt", "le", "gt", "ge":
		ok = t.float() || slices.Contains(wholes, t)
	default:
		ok = t.float() && op != ""
	}
	if !ok {
		return a.wrong("no such comparison")
	}
	if err := a.args(3); err != nil {
		return err
	}
	if a.in.d, err = a.dst(0, typePred); err != nil {
		return err
	}
	if a.in.a, err = a.src(1, t); err != nil {
		return err
	}
	if a.in.b, err = a.src(2, t); err != nil {
		return err
	}
	a.in.c = a.in.a
	switch {
	case t == typeF32:
		a.in.kind, a.in.less32 = kindCompare32, compareFloat(op, func(x uint32) float64 { return float64(f32(x)) })
	case t == typeF64:
		a.in.kind, a.in.less64 = kindCompare64, compareFloat(op, f64)
	case t.bits() == 64:
		a.in.kind, a.in.less64 = kindCompare64, compareWhole(op, signOf[uint64](t))
	case t.bits() == 16 && t.signed(): // in registers whose upper half is zero
		whole := compareWhole(op, signOf[uint32](t))
		a.in.kind, a.in.less32 = kindCompare32, func(a, b *v32) uint32 {
			var high [2]v32
			for i := range a {
				high[0][i], high[1][i] = a[i]<<16, b[i]<<16
			}
			return whole(&high[0], &high[1])
		}
	default:
		a.in.kind, a.in.less32 = kindCompare32, compareWhole(op, signOf[uint32](t))
	}
	return nil
}

// signOf is the bit that reverses the order of numbers of type t.
func signOf[T unsigned](t typ) T {
	if !t.signed() {
		return 0
	}
	return ^(^T(0) >> 1)
}

// compareWhole compares integers, which sign makes unsigned.
func compareWhole[T unsigned](op string, sign T) func(a, b *[lanes]T) uint32 {
	switch op {
	case "eq":
		return equal[T]
	case "ne":
		return func(a, b *[lanes]T) uint32 { return ^equal(a, b) }
	case "lt":
		return func(a, b *[lanes]T) uint32 { return less(a, b, sign) }
	case "ge":
		return func(a, b *[lanes]T) uint32 { return ^less(a, b, sign) }
	case "gt":
		return func(a, b *[lanes]T) uint32 { return less(b, a, sign) }
	}
	return func(a, b *[lanes]T) uint32 { return ^less(b, a, sign) }
}

func equal[T unsigned](a, b *[lanes]T) uint32 {
	var m uint32
	for i := range a {
		var bit uint32
		if a[i] == b[i] {
			bit = 1
		}
		m = m>>1 | bit<<31
	}
	return m
}

func less[T unsigned](a, b *[lanes]T, sign T) uint32 {
	var m uint32
	for i := range a {
		var bit uint32
		if a[i]^sign < b[i]^sign {
			bit = 1
		}
		m = m>>1 | bit<<31
	}
	return m
}

// ways says which of less (1), more (-1) and equal make op true, or, with not, false.
func ways(op string) (less int, equal bool, not uint32) {
	switch op[:2] {
	case "eq":
		return 0, true, 0
	case "ne":
		return 0, true, allLanes
	case "lt":
		return 1, false, 0
	case "le":
		return 1, true, 0
	case "gt":
		return -1, false, 0
	}
	return -1, true, 0
}

// compareFloat is false if an operand is NaN, and true for the forms with u; num and nan test
// just that.
func compareFloat[T unsigned](op string, value func(T) float64) func(a, b *[lanes]T) uint32 {
	unordered := len(op) == 3 && op[2] == 'u' || op == "nan"
	less, equal, not := 0, false, uint32(0)
	if op != "num" && op != "nan" {
		less, equal, not = ways(op)
	}
	return func(a, b *[lanes]T) uint32 {
		var m uint32
		for i := range a {
			x, y := value(a[i]), value(b[i])
			var yes bool
			switch {
			case x != x || y != y:
				yes = unordered
			case op == "num":
				yes = true
			case op == "nan":
			case not != 0:
				yes = x != y
			default:
				yes = less > 0 && x < y || less < 0 && x > y || equal && x == y
			}
			if yes {
				m |= 1 << i
			}
		}
		return m
	}
}

// bitsOf are bfi, prmt, popc and clz.
func bitsOf(a *assembler) error {
	switch a.op {
	case "bfi":
		return a.insert()
	case "prmt":
		if _, err := a.typ(typeB32); err != nil {
			return err
		}
		a.in.kind, a.in.f32 = kindALU32, each3(permute)
		return a.operands(typeB32, 3)
	}
	t, err := a.typ(typeB32, typeB64)
	if err != nil {
		return err
	}
	count := bits.OnesCount64
	if a.op == "clz" {
		count = bits.LeadingZeros64
		if t == typeB32 {
			count = func(x uint64) int { return bits.LeadingZeros32(uint32(x)) }
		}
	}
	a.in.kind, a.in.f32 = kindALU32, each2(func(x, _ uint32) uint32 { return uint32(count(uint64(x))) })
	if t == typeB64 {
		a.in.kind, a.in.slim = kindSlim, func(d *v32, a *v64) {
			for i := range d {
				d[i] = uint32(count(a[i]))
			}
		}
	}
	return a.mixed(typeU32, t)
}

// insert is bfi of 32 bits: some bits of a word into another, at a place.
func (a *assembler) insert() error {
	if _, err := a.typ(typeB32); err != nil {
		return err
	}
	if err := a.args(5); err != nil {
		return err
	}
	d, err := a.dst(0, typeB32)
	if err != nil {
		return err
	}
	at := make([]int32, 4)
	for i := range at {
		if at[i], err = a.src(i+1, typeU32); err != nil {
			return err
		}
	}
	a.in.kind = kindSpecial
	a.in.special = func(w *warp, _ *instr, mask uint32) *Fault {
		out, from, into, place, count := &w.r32[d], &w.r32[at[0]], &w.r32[at[1]], &w.r32[at[2]], &w.r32[at[3]]
		for m := mask; m != 0; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			field := uint32(uint64(1<<min(count[i]&255, 32)-1) << (place[i] & 255))
			out[i] = into[i]&^field | from[i]<<(place[i]&255)&field
		}
		return nil
	}
	return nil
}

// dots is dp4a: four products of bytes, added to a word.
func dots(a *assembler) error {
	left, err := a.typ(typeU32, typeS32)
	if err != nil {
		return err
	}
	right, err := a.typ(typeU32, typeS32)
	if err != nil {
		return err
	}
	flipX, flipY := uint32(0), uint32(0) // signed bytes are raised by 128, and the surplus is subtracted again
	if left.signed() {
		flipX = 0x80808080
	}
	if right.signed() {
		flipY = 0x80808080
	}
	raisedX, raisedY := flipX&255, flipY&255
	a.in.kind, a.in.f32 = kindALU32, each3(func(x, y, z uint32) uint32 {
		x, y = x^flipX, y^flipY
		for range 4 {
			z += (x&255 - raisedX) * (y&255 - raisedY)
			x, y = x>>8, y>>8
		}
		return z
	})
	return a.operands(typeU32, 3)
}
