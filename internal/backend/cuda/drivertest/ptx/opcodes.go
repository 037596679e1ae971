package ptx

import "slices"

// opcodes translates statements by the first word of their opcode. It is filled by init, since
// the functions lead back to it through the kernels that they build.
var opcodes map[string]func(a *assembler) error

func init() {
	opcodes = map[string]func(a *assembler) error{
		"add": arithmetic, "sub": arithmetic, "mul": multiply, "mad": multiply, "fma": fused, "div": divide, "rem": integers,
		"sqrt": root, "min": extreme, "max": extreme, "neg": unary, "abs": unary, "not": bitwise, "and": bitwise, "or": bitwise,
		"xor": bitwise, "shl": shift, "shr": shift, "bfi": bitsOf, "prmt": bitsOf, "popc": bitsOf, "clz": bitsOf, "dp4a": dots,
		"mov": move, "cvt": convert, "cvta": generic, "setp": compare, "selp": selects,
		"bra": branch, "ret": leave,
		"ld": load, "st": store, "atom": atomicOp, "cp": copyAsync, "bar": barrier, "barrier": barrier,
		"membar": fence, "griddepcontrol": dependence,
		"shfl": shuffle, "redux": reduce, "vote": vote, "mma": matrix,
	}
}

var wholes = []typ{typeU16, typeS16, typeU32, typeS32, typeU64, typeS64}

// put chooses between the functions of two widths; 16 bits are cut after 32.
func (a *assembler) put(t typ, f32 func(d, a, b, c *v32), f64 func(d, a, b, c *v64)) {
	switch t.bits() {
	case 64:
		a.in.kind, a.in.f64 = kindALU64, f64
	case 16:
		a.in.kind = kindALU32
		a.in.f32 = func(d, a, b, c *v32) {
			f32(d, a, b, c)
			for i := range d {
				d[i] &= 0xffff
			}
		}
	default:
		a.in.kind, a.in.f32 = kindALU32, f32
	}
}

// nearest takes .rn, which float arithmetic must have: without it a compiler may fuse.
func (a *assembler) nearest() error {
	if a.take("rn") == "" {
		return a.wrong("arithmetic without .rn")
	}
	return nil
}

func arithmetic(a *assembler) error {
	if len(a.mods) > 0 && (a.mods[len(a.mods)-1] == "f32" || a.mods[len(a.mods)-1] == "f64") {
		if err := a.nearest(); err != nil {
			return err
		}
	}
	t, err := a.typ(append(slices.Clone(wholes), typeF32, typeF64)...)
	if err != nil {
		return err
	}
	switch {
	case t.float() && a.op == "add":
		a.put(t, addF32, addF64)
	case t.float():
		a.put(t, subF32, subF64)
	case a.op == "add":
		a.put(t, addInt[uint32], addInt[uint64])
	default:
		a.put(t, subInt[uint32], subInt[uint64])
	}
	return a.operands(t, 2)
}

func multiply(a *assembler) error {
	which := a.take("lo", "hi", "wide")
	if which == "" { // floats; mad of floats is not a rounding that is known
		if a.op == "mad" {
			return a.wrong("only .lo of integers is known")
		}
		if err := a.nearest(); err != nil {
			return err
		}
		t, err := a.typ(typeF32, typeF64)
		if err != nil {
			return err
		}
		a.put(t, mulF32, mulF64)
		return a.operands(t, 2)
	}
	t, err := a.typ(wholes...)
	if err != nil {
		return err
	}
	sources := 2
	if a.op == "mad" {
		sources = 3
	}
	switch which {
	case "wide":
		if a.op == "mad" {
			return a.wrong("not known here")
		}
		return a.multiplyWide(t)
	case "hi":
		if a.op == "mad" || t.bits() == 16 {
			return a.wrong("not known here")
		}
		a.put(t, each2(high32(t.signed())), each2(high64(t.signed())))
	default:
		if a.op == "mad" {
			a.put(t, madInt[uint32], madInt[uint64])
		} else {
			a.put(t, mulInt[uint32], mulInt[uint64])
		}
	}
	return a.operands(t, sources)
}

// multiplyWide is a product of twice the width.
func (a *assembler) multiplyWide(t typ) error {
	to := map[typ]typ{typeU16: typeU32, typeS16: typeS32, typeU32: typeU64, typeS32: typeS64}[t]
	switch {
	case to == typeNone:
		return a.wrong("not known here")
	case t == typeU16:
		a.in.kind, a.in.f32 = kindALU32, mulInt[uint32]
	case t == typeS16:
		a.in.kind, a.in.f32 = kindALU32, each2(func(x, y uint32) uint32 { return uint32(int32(int16(x)) * int32(int16(y))) })
	default:
		a.in.kind, a.in.wide = kindWide, wideProduct(t.signed())
	}
	return a.mixed(to, t, t)
}

func fused(a *assembler) error {
	if err := a.nearest(); err != nil {
		return err
	}
	t, err := a.typ(typeF32, typeF64)
	if err != nil {
		return err
	}
	a.put(t, fmaF32, fmaF64)
	return a.operands(t, 3)
}

func divide(a *assembler) error {
	if a.take("rn") == "" {
		return integers(a)
	}
	t, err := a.typ(typeF32, typeF64)
	if err != nil {
		return err
	}
	a.put(t, divF32, divF64)
	return a.operands(t, 2)
}

// integers are division and its rest.
func integers(a *assembler) error {
	t, err := a.typ(wholes...)
	if err != nil {
		return err
	}
	f := quotient(t, a.op == "rem")
	a.put(t, each2(func(x, y uint32) uint32 { return uint32(f(uint64(x), uint64(y))) }), each2(f))
	return a.operands(t, 2)
}

func root(a *assembler) error {
	if err := a.nearest(); err != nil {
		return err
	}
	t, err := a.typ(typeF32, typeF64)
	if err != nil {
		return err
	}
	a.put(t, sqrtF32, sqrtF64)
	return a.operands(t, 1)
}

func extreme(a *assembler) error {
	t, err := a.typ(append(slices.Clone(wholes), typeF32, typeF64)...)
	if err != nil {
		return err
	}
	f := extremeOf(t, a.op == "max")
	a.put(t, each2(func(x, y uint32) uint32 { return uint32(f(uint64(x), uint64(y))) }), each2(f))
	return a.operands(t, 2)
}

func unary(a *assembler) error {
	t, err := a.typ(typeS16, typeS32, typeS64, typeF32, typeF64)
	if err != nil {
		return err
	}
	f := unaryOf(t, a.op == "abs")
	a.put(t, each2(func(x, _ uint32) uint32 { return uint32(f(uint64(x))) }), each2(func(x, _ uint64) uint64 { return f(x) }))
	return a.operands(t, 1)
}

func bitwise(a *assembler) error {
	t, err := a.typ(typePred, typeB16, typeB32, typeB64)
	if err != nil {
		return err
	}
	n := 2
	switch a.op {
	case "and":
		a.in.logic = func(x, y uint32) uint32 { return x & y }
		a.put(t, andInt[uint32], andInt[uint64])
	case "or":
		a.in.logic = func(x, y uint32) uint32 { return x | y }
		a.put(t, orInt[uint32], orInt[uint64])
	case "xor":
		a.in.logic = func(x, y uint32) uint32 { return x ^ y }
		a.put(t, xorInt[uint32], xorInt[uint64])
	default:
		n = 1
		a.in.logic = func(x, _ uint32) uint32 { return ^x }
		a.put(t, notInt[uint32], notInt[uint64])
	}
	if t == typePred {
		a.in.kind = kindPredicate
	}
	return a.operands(t, n)
}

func shift(a *assembler) error {
	left := a.op == "shl"
	allowed := []typ{typeB16, typeB32, typeB64}
	if !left {
		allowed = append(allowed, wholes...)
	}
	t, err := a.typ(allowed...)
	if err != nil {
		return err
	}
	signed := t.signed()
	switch {
	case left:
		a.put(t, shlInt[uint32], shlInt[uint64])
	case signed && t.bits() == 16:
		a.put(t, each2(func(x, y uint32) uint32 { return uint32(int16(x) >> min(y, 15)) }), nil)
	case signed:
		a.put(t, shrS32, shrS64)
	default:
		a.put(t, shrInt[uint32], shrInt[uint64])
	}
	if t.bits() == 64 {
		a.in.kind = kindShift64
	}
	return a.mixed(t, t, typeU32)
}

func selects(a *assembler) error {
	t, err := a.typ(append(slices.Clone(wholes), typeB16, typeB32, typeB64, typeF32, typeF64)...)
	if err != nil {
		return err
	}
	a.in.kind = kindSelect32
	if t.bits() == 64 {
		a.in.kind = kindSelect64
	}
	return a.mixed(t, t, t, typePred)
}

func branch(a *assembler) error {
	a.take("uni")
	if err := a.args(1); err != nil {
		return err
	}
	if a.s.args[0].kind != operandLabel {
		return a.wrong("a branch to something else than a label")
	}
	a.in.kind, a.in.x = kindBranch, &extra{name: a.s.args[0].name}
	return nil
}

func leave(a *assembler) error {
	a.in.kind = kindExit
	return a.args(0)
}
