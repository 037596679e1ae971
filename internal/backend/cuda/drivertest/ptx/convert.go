package ptx

import (
	"math"
)

// convert is cvt: between integers, between floats, and from one to the other.
func convert(a *assembler) error {
	mode := a.take("rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi")
	all := []typ{typeU8, typeS8, typeU16, typeS16, typeU32, typeS32, typeU64, typeS64, typeF16, typeF32, typeF64}
	to, err := a.typ(all...)
	if err != nil {
		return err
	}
	from, err := a.typ(all...)
	if err != nil {
		return err
	}
	f, err := a.conversion(to, from, mode)
	if err != nil {
		return err
	}
	if err := a.args(2); err != nil {
		return err
	}
	d, dLong, err := a.loose(0, to)
	if err != nil {
		return err
	}
	s, sLong, err := a.loose(1, from)
	if err != nil {
		return err
	}
	a.in.d, a.in.a, a.in.b, a.in.c = d, s, s, s
	if whole := f; a.s.args[0].reg.bits == 16 { // a register wider than the type gets the sign, and no more
		f = func(x uint64) uint64 { return whole(x) & 0xffff }
	}
	switch {
	case dLong && sLong:
		a.in.kind, a.in.f64 = kindALU64, each2(func(x, _ uint64) uint64 { return f(x) })
	case dLong:
		a.in.kind, a.in.c = kindWide, d
		a.in.wide = func(d *v64, a, _ *v32, _ *v64) {
			for i := range d {
				d[i] = f(uint64(a[i]))
			}
		}
	case sLong:
		a.in.kind = kindSlim
		a.in.slim = func(d *v32, a *v64) {
			for i := range d {
				d[i] = uint32(f(a[i]))
			}
		}
	case to == typeF32 && from == typeF16: // keys and values
		a.in.kind, a.in.f32 = kindALU32, widenHalves
	default:
		a.in.kind, a.in.f32 = kindALU32, each2(func(x, _ uint32) uint32 { return uint32(f(uint64(x))) })
	}
	return nil
}

// loose is operand i, a register as wide as t or wider, or for a source a number.
func (a *assembler) loose(i int, t typ) (at int32, long bool, err error) {
	o := &a.s.args[i]
	if o.kind != operandReg || o.pair != nil {
		if i == 0 {
			return 0, false, a.wrong("a destination that is not a register")
		}
		at, err = a.src(i, t)
		return at, t.bits() == 64, err
	}
	if o.reg.class == classPred || o.reg.bits < t.bits() || t.float() && o.reg.bits != t.bits() {
		return 0, false, a.wrong("%s has %d bits, want %d", o.name, o.reg.bits, t.bits())
	}
	return o.reg.index, o.reg.class == class64, nil
}

// conversion is the function of a number's bits.
func (a *assembler) conversion(to, from typ, mode string) (func(x uint64) uint64, error) {
	switch {
	case !to.float() && !from.float():
		if mode != "" {
			return nil, a.wrong("a rounding mode between integers")
		}
		return func(x uint64) uint64 { return extend(to, extend(from, x)) }, nil
	case !to.float():
		if len(mode) != 3 {
			return nil, a.wrong("a float becomes an integer by .rni, .rzi, .rmi or .rpi")
		}
		return func(x uint64) uint64 { return toInt(to, from, round(mode, toFloat(from, x))) }, nil
	case !from.float():
		if mode != "rn" {
			return nil, a.wrong("an integer becomes a float by .rn")
		}
		return func(x uint64) uint64 { return fromInt(to, from, extend(from, x)) }, nil
	case to.bits() < from.bits():
		if mode != "rn" || from == typeF64 && to == typeF16 {
			return nil, a.wrong("a float becomes narrower by .rn, from 64 bits to 32 and from 32 to 16")
		}
	case to.bits() > from.bits():
		if mode != "" || from == typeF16 && to == typeF64 {
			return nil, a.wrong("a float becomes wider without rounding, from 16 bits to 32 and from 32 to 64")
		}
	default:
		if len(mode) == 2 || to == typeF16 {
			return nil, a.wrong("not known here")
		}
	}
	return func(x uint64) uint64 {
		v := toFloat(from, x)
		if v != v {
			return convertNone(to, from, x)
		}
		if len(mode) == 3 {
			v = round(mode, v)
		}
		return narrow(to, v)
	}, nil
}

// convertNone converts a NaN: between 32 and 64 bits its upper digits stay.
func convertNone(to, from typ, x uint64) uint64 {
	switch {
	case to == typeF64 && from == typeF32:
		return x&(1<<31)<<32 | 0x7ff8<<48 | x&0x7fffff<<29
	case to == typeF64:
		return x | quiet
	case to == typeF32 && from == typeF64:
		return x>>63<<31 | 0x7fc00000 | x>>29&0x7fffff
	case to == typeF32:
		return nan32
	}
	return nan16
}

func toFloat(t typ, x uint64) float64 {
	switch t {
	case typeF16:
		return float64(widen16(uint32(x)))
	case typeF32:
		return float64(f32(uint32(x)))
	}
	return f64(x)
}

// narrow rounds v, which is exact but for the step from 64 bits to 32.
func narrow(t typ, v float64) uint64 {
	switch t {
	case typeF16:
		return uint64(narrow16(float32(v)))
	case typeF32:
		return uint64(bits32(float32(v)))
	}
	return bits64(v)
}

func round(mode string, v float64) float64 {
	switch mode {
	case "rni":
		return math.RoundToEven(v)
	case "rzi":
		return math.Trunc(v)
	case "rmi":
		return math.Floor(v)
	}
	return math.Ceil(v)
}

// toInt converts a whole number to an integer: the nearest there is, and for NaN 0, or
// 1<<63 for operands or results of 64 bits.
func toInt(to, from typ, v float64) uint64 {
	if v != v {
		if from == typeF64 || to.bits() == 64 {
			return extend(to, 1<<(to.bits()-1))
		}
		return 0
	}
	top := math.Ldexp(1, to.bits()) // exclusive
	low := 0.0
	if to.signed() {
		top /= 2
		low = -top
	}
	switch {
	case v <= low:
		if to.signed() {
			return extend(to, 1<<(to.bits()-1))
		}
		return 0
	case v >= top:
		if to.signed() {
			return 1<<(to.bits()-1) - 1
		}
		return math.MaxUint64 >> (64 - to.bits())
	case v >= 1<<63:
		return uint64(v-1<<63) + 1<<63
	}
	return uint64(int64(v))
}

// fromInt rounds once, to 32 bits too.
func fromInt(to, from typ, x uint64) uint64 {
	if to == typeF16 {
		return uint64(narrow16(float32(int64(x)))) // exact below 2^24, and beyond it all is infinity
	}
	if from.signed() {
		if to == typeF32 {
			return uint64(math.Float32bits(float32(int64(x))))
		}
		return math.Float64bits(float64(int64(x)))
	}
	if to == typeF32 {
		return uint64(math.Float32bits(float32(x)))
	}
	return math.Float64bits(float64(x))
}

// move is mov: copies, addresses, special registers, and words packed and taken apart.
func move(a *assembler) error {
	t, err := a.typ(typePred, typeB16, typeB32, typeB64, typeU16, typeU32, typeU64, typeS16, typeS32, typeS64, typeF32, typeF64)
	if err != nil {
		return err
	}
	if err := a.args(2); err != nil {
		return err
	}
	d, s := &a.s.args[0], &a.s.args[1]
	if d.kind == operandVector || s.kind == operandVector {
		return a.moveVector(t, d, s)
	}
	a.put(t, copyInt[uint32], copyInt[uint64])
	a.in.logic = func(x, _ uint32) uint32 { return x }
	if t == typePred {
		a.in.kind = kindPredicate
	}
	switch s.kind {
	case operandInt:
		if t != typePred {
			break
		}
		if a.in.d, err = a.dst(0, t); err != nil {
			return err
		}
		a.in.a, a.in.b = a.in.d, a.in.d
		if s.value != 0 {
			a.in.logic = func(_, _ uint32) uint32 { return allLanes }
		} else {
			a.in.logic = func(_, _ uint32) uint32 { return 0 }
		}
		return nil
	case operandSpecial:
		at, ok := specials[s.name]
		if !ok || t.bits() != 32 {
			return a.wrong("%s is not known here", s.name)
		}
		if a.in.d, err = a.dst(0, t); err != nil {
			return err
		}
		a.in.a = int32(a.k.count[class32]) + at
		a.in.b, a.in.c = a.in.a, a.in.a
		return nil
	case operandSymbol:
		if t.bits() < 32 || t.bits() == 32 && s.space != spaceShared {
			return a.wrong("an address in %d bits", t.bits())
		}
		s.kind = operandInt // its kind from now on
		if t == typeF32 || t == typeF64 {
			return a.wrong("an address as a float")
		}
	}
	return a.operands(t, 1)
}

// moveVector packs two halves of a word, or splits them.
func (a *assembler) moveVector(t typ, d, s *operand) error {
	half := map[typ]typ{typeB32: typeB16, typeB64: typeB32}[t]
	if half == typeNone {
		return a.wrong("a vector is packed into 32 or 64 bits")
	}
	v := d
	if s.kind == operandVector {
		v = s
	}
	if len(v.list) != 2 || s.kind == d.kind {
		return a.wrong("a vector is of two halves")
	}
	var err error
	var at [2]int32
	for i := range at {
		if v == d {
			at[i], err = a.dstOf(&v.list[i], half)
		} else {
			at[i], err = a.srcOf(&v.list[i], half)
		}
		if err != nil {
			return err
		}
	}
	if v == s {
		if a.in.d, err = a.dst(0, t); err != nil {
			return err
		}
		a.in.a, a.in.b = at[0], at[1]
		a.in.kind, a.in.f32 = kindALU32, each2(func(x, y uint32) uint32 { return x | y<<16 })
		if t == typeB64 {
			a.in.kind, a.in.c = kindWide, a.in.d
			a.in.wide = func(d *v64, a, b *v32, _ *v64) {
				for i := range d {
					d[i] = uint64(a[i]) | uint64(b[i])<<32
				}
			}
		}
		return nil
	}
	if a.in.a, err = a.src(1, t); err != nil {
		return err
	}
	a.in.b, a.in.c, a.in.d = a.in.a, a.in.a, at[0]
	upper := a.in
	upper.d = at[1]
	if t == typeB32 {
		a.in.kind, a.in.f32 = kindALU32, lowHalf
		upper.kind, upper.f32 = kindALU32, highHalf
	} else {
		a.in.kind, a.in.slim = kindSlim, func(d *v32, a *v64) {
			for i := range d {
				d[i] = uint32(a[i])
			}
		}
		upper.kind, upper.slim = kindSlim, func(d *v32, a *v64) {
			for i := range d {
				d[i] = uint32(a[i] >> 32)
			}
		}
	}
	a.more = []instr{upper}
	return nil
}

func lowHalf(d, a, _, _ *v32) {
	for i := range d {
		d[i] = a[i] & 0xffff
	}
}

func highHalf(d, a, _, _ *v32) {
	for i := range d {
		d[i] = a[i] >> 16
	}
}
