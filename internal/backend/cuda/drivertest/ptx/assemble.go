package ptx

import (
	"slices"
	"strings"
)

type kind uint8

const (
	kindALU32   kind = iota // d, a, b, c of 32 bits
	kindALU64               // of 64 bits
	kindShift64             // b of 32 bits
	kindWide                // 32 bits to 64
	kindSlim                // 64 bits to 32
	kindCompare32
	kindCompare64
	kindSelect32
	kindSelect64
	kindPredicate // predicates to a predicate
	kindBranch
	kindExit
	kindSpecial // memory, and operations of several lanes or warps
)

// instr is an instruction ready to run: operands are places in the files of registers, where
// constants are too.
type instr struct {
	kind       kind
	negated    bool
	guard      int32 // predicate, -1: none
	d, a, b, c int32 // d of a branch: its target
	line       int32
	f32        func(d, a, b, c *v32)
	f64        func(d, a, b, c *v64)
	wide       func(d *v64, a, b *v32, c *v64)
	slim       func(d *v32, a *v64)
	less32     func(a, b *v32) uint32
	less64     func(a, b *v64) uint32
	logic      func(a, b uint32) uint32
	special    func(w *warp, in *instr, mask uint32) *Fault
	x          *extra
}

// extra has the fields of memory instructions and those of many lanes.
type extra struct {
	space  space
	bytes  int // of one element
	signed bool
	plain  bool // words, in registers of 32 bits
	base64 bool // the base, operand a, is a register of 64 bits
	offset uint64
	fixed  bool    // the base is 0
	regs   []int32 // destinations or sources
	wide   []bool  // which of regs are of 64 bits
	op     func(a, b uint64) uint64
	name   string // of an operation or label
	mma    mmaShape
	single bool // a barrier that warps may reach from one place only

	// Of cp.async: the destination, whose base is operand b.
	to64     bool
	toOffset uint64

	amount int // of groups to wait for; or a register, -1: none
}

// constantKey finds a number among the constants of a kernel.
type constantKey struct {
	class class
	value uint64
}

// assembler turns one statement into instructions.
type assembler struct {
	k    *Kernel
	s    *statement
	op   string
	mods []string // that are not taken yet
	in   instr
	more []instr // after in
}

func (a *assembler) wrong(format string, args ...any) error {
	return wrong(a.s.line, a.s.op+": "+format, args...)
}

// vectors are faster functions of opcodes, with the same bits.
var vectors map[string]any

// assemble fills in k.code.
func assemble(k *Kernel) error {
	starts := make([]int32, len(k.statements)+1)
	k.granule = 2
	for i := range k.statements {
		s := &k.statements[i]
		starts[i] = int32(len(k.code))
		words := strings.Split(s.op, ".")
		a := &assembler{k: k, s: s, op: words[0], mods: words[1:], in: instr{guard: -1, line: int32(s.line)}}
		translate, ok := opcodes[a.op]
		if !ok {
			return wrong(s.line, "%s is not an instruction that is known here", s.op)
		}
		if err := translate(a); err != nil {
			return err
		}
		if len(a.mods) > 0 {
			return a.wrong(".%s is not known here", a.mods[0])
		}
		switch f := vectors[s.op].(type) {
		case func(d, a, b, c *v32):
			a.in.f32 = f
		case func(d, a, b, c *v64):
			a.in.f64 = f
		case func(d *v64, a, b *v32, c *v64):
			a.in.wide = f
		case func(a, b *v32) uint32:
			a.in.less32 = f
		}
		for _, in := range append([]instr{a.in}, a.more...) {
			if s.guard != nil {
				in.guard, in.negated = s.guard.index, s.negated
			}
			in.line = int32(s.line)
			k.code = append(k.code, in)
		}
	}
	starts[len(k.statements)] = int32(len(k.code))
	k.code = append(k.code, instr{kind: kindExit, guard: -1, line: int32(k.line)})
	for i := range k.code {
		if in := &k.code[i]; in.kind == kindBranch {
			at, ok := k.labels[in.x.name]
			if !ok {
				return wrong(int(in.line), "there is no label %s", in.x.name)
			}
			in.d = starts[at]
		}
	}
	k.statements, k.labels, k.lookup = nil, nil, nil // much more memory than code
	return nil
}

// take removes the next modifier if it is one of any.
func (a *assembler) take(any ...string) string {
	if len(a.mods) > 0 && slices.Contains(any, a.mods[0]) {
		m := a.mods[0]
		a.mods = a.mods[1:]
		return m
	}
	return ""
}

// typ takes the next modifier, one of these types.
func (a *assembler) typ(any ...typ) (typ, error) {
	if len(a.mods) == 0 {
		return typeNone, a.wrong("no type")
	}
	t, ok := types[a.mods[0]]
	if !ok || !slices.Contains(any, t) {
		return typeNone, a.wrong(".%s is not known here", a.mods[0])
	}
	a.mods = a.mods[1:]
	return t, nil
}

func (a *assembler) args(n int) error {
	if len(a.s.args) != n {
		return a.wrong("%d operands, want %d", len(a.s.args), n)
	}
	return nil
}

// constant is the place of a number among the registers of a class.
func (a *assembler) constant(c class, value uint64) int32 {
	if c == class32 {
		value = uint64(uint32(value))
	}
	key := constantKey{c, value}
	if at, ok := a.k.lookup[key]; ok {
		return at
	}
	var at int
	if c == class32 {
		at = a.k.count[class32] + specialCount + len(a.k.words)
		a.k.words = append(a.k.words, uint32(value))
	} else {
		at = a.k.count[class64] + len(a.k.longs)
		a.k.longs = append(a.k.longs, value)
	}
	a.k.lookup[key] = int32(at)
	return int32(at)
}

func classOf(t typ) class {
	switch t.bits() {
	case 1:
		return classPred
	case 64:
		return class64
	}
	return class32
}

// dst is the register that operand i names, which must be of the width of t.
func (a *assembler) dst(i int, t typ) (int32, error) { return a.dstOf(&a.s.args[i], t) }

func (a *assembler) dstOf(o *operand, t typ) (int32, error) {
	if o.kind != operandReg || o.pair != nil {
		return 0, a.wrong("a destination that is not a register")
	}
	if o.reg.class != classOf(t) || o.reg.bits != t.bits() {
		return 0, a.wrong("%s has %d bits, want %d", o.name, o.reg.bits, t.bits())
	}
	return o.reg.index, nil
}

// src is the place of operand i, a register or number of type t.
func (a *assembler) src(i int, t typ) (int32, error) { return a.srcOf(&a.s.args[i], t) }

func (a *assembler) srcOf(o *operand, t typ) (int32, error) {
	if o.pair != nil {
		return 0, a.wrong("a pair as a source")
	}
	switch {
	case o.kind == operandReg:
		return a.dstOf(o, t)
	case t == typePred:
	case o.kind == operandInt && !t.float():
		v := o.value
		if bits := t.bits(); bits < 64 {
			if s := int64(v); o.signed && s < -1<<(bits-1) || !o.signed && v >= 1<<bits {
				return 0, a.wrong("%d does not fit %d bits", s, bits)
			}
			v &= 1<<bits - 1
		}
		return a.constant(classOf(t), v), nil
	case o.kind == operandFloat32 && t == typeF32, o.kind == operandFloat64 && t == typeF64:
		return a.constant(classOf(t), o.value), nil
	}
	return 0, a.wrong("an operand that does not fit its type")
}

// operands resolves d, a and as many more sources as the statement has, all of type t.
func (a *assembler) operands(t typ, sources int) error {
	return a.mixed(t, slices.Repeat([]typ{t}, sources)...)
}

// mixed resolves a destination and up to three sources of different types.
func (a *assembler) mixed(d typ, sources ...typ) error {
	if err := a.args(1 + len(sources)); err != nil {
		return err
	}
	var err error
	if a.in.d, err = a.dst(0, d); err != nil {
		return err
	}
	to := []*int32{&a.in.a, &a.in.b, &a.in.c}
	for i, t := range sources {
		if *to[i], err = a.src(i+1, t); err != nil {
			return err
		}
	}
	// Unused operands of vector functions are places that exist.
	for i := len(sources); i < 3; i++ {
		*to[i] = a.in.a
	}
	if a.in.kind == kindWide && len(sources) < 3 {
		a.in.c = a.in.d
	}
	return nil
}
