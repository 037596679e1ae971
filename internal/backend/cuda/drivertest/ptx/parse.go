package ptx

import (
	"math"
	"strconv"
	"strings"
)

// A Module is a text that was understood, every instruction of it.
type Module struct {
	Version string // of the language, such as 7.8
	Target  string // such as sm_90
	kernels []*Kernel
}

// Kernels are those of the text, in its order.
func (m *Module) Kernels() []*Kernel { return m.kernels }

// Kernel returns the kernel of that name, or nil.
func (m *Module) Kernel(name string) *Kernel {
	for _, k := range m.kernels {
		if k.Name == name {
			return k
		}
	}
	return nil
}

// A Param is one parameter of a kernel: Size bytes at Offset of the block of parameters.
type Param struct {
	Name         string
	Offset, Size int
}

// A Kernel is an entry of a module.
type Kernel struct {
	Name         string
	Params       []Param
	ParamBytes   int
	MaxThreads   int // of a block, 1024 if the text sets none
	SharedBytes  int // without those of a launch
	LocalBytes   int // of a thread
	Instructions int

	line       int
	statements []statement
	labels     map[string]int // statement that it stands before
	count      [classes]int   // registers
	code       []instr
	words      []uint32 // constants, after the registers
	longs      []uint64
	lookup     map[constantKey]int32
	granule    int // shift of the narrowest access to shared memory
}

// class is the register file of a register.
type class uint8

const (
	classPred class = iota
	class32         // 16 bits too
	class64
	classes
)

type register struct {
	class class
	bits  int
	index int32
}

type operandKind uint8

const (
	operandReg operandKind = iota
	operandInt
	operandFloat32
	operandFloat64
	operandSymbol  // address of a variable
	operandSpecial // %tid.x and the like
	operandLabel
	operandVector
	operandAddress // [register, symbol or number, plus value]
)

type operand struct {
	kind   operandKind
	reg    register
	name   string
	value  uint64 // of a number, offset of an address or symbol
	space  space  // of a symbol
	list   []operand
	pair   *operand // the second of a|b
	signed bool     // a number with a minus
}

type statement struct {
	line    int
	op      string
	guard   *register
	negated bool
	args    []operand
}

// variable is a name in a space; offset is set before kernels are assembled.
type variable struct {
	space  space
	offset int
}

// Limits of a text, so that the cost of an untrusted one is proportional to its size.
const (
	maxRegisters = 1 << 16
	maxShared    = 227 << 10
	maxLocal     = 512 << 10
	maxParams    = 4096
)

type parser struct {
	tokens  []token
	module  *Module
	symbols map[string]variable

	scan   bool // instructions are read and not understood
	k      *Kernel
	scopes []map[string]register
	local  map[string]variable
}

// Parse reads the text of a module.
func Parse(text string) (*Module, error) {
	tokens, err := lex(text)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens, module: &Module{}, symbols: map[string]variable{}}
	for p.peek().kind != tokenEnd {
		if err := p.directive(); err != nil {
			return nil, err
		}
	}
	if p.module.Version == "" || p.module.Target == "" {
		return nil, wrong(1, "a module begins with .version and .target")
	}
	return p.module, nil
}

func (p *parser) peek() token { return p.tokens[0] }

func (p *parser) next() token {
	t := p.tokens[0]
	if t.kind != tokenEnd {
		p.tokens = p.tokens[1:]
	}
	return t
}

// accept takes the next token if it equals text.
func (p *parser) accept(text string) bool {
	if t := p.peek(); t.text == text && t.kind != tokenString && t.kind != tokenEnd {
		p.next()
		return true
	}
	return false
}

func (p *parser) expect(text string) error {
	if t := p.peek(); !p.accept(text) {
		return wrong(t.line, "%v where %q belongs", t, text)
	}
	return nil
}

func (p *parser) name() (string, error) {
	t := p.next()
	if t.kind != tokenWord || t.text[0] == '.' {
		return "", wrong(t.line, "%v where a name belongs", t)
	}
	return t.text, nil
}

func (p *parser) number(most int) (int, error) {
	t := p.next()
	n, err := strconv.ParseUint(t.text, 0, 31)
	if t.kind != tokenNumber || err != nil || n > uint64(most) {
		return 0, wrong(t.line, "%v where a number of at most %d belongs", t, most)
	}
	return int(n), nil
}

// directive reads one at the level of the module.
func (p *parser) directive() error {
	t := p.next()
	switch t.text {
	case ".version":
		v := p.next()
		if major, _, _ := strings.Cut(v.text, "."); v.kind != tokenNumber || major != "7" && major != "8" && major != "9" {
			return wrong(v.line, "version %v of PTX: 7, 8 and 9 are known", v)
		}
		p.module.Version = v.text
	case ".target":
		v := p.next()
		if _, err := strconv.ParseUint(strings.TrimRight(strings.TrimPrefix(v.text, "sm_"), "a"), 10, 16); err != nil || !strings.HasPrefix(v.text, "sm_") {
			return wrong(v.line, "target %v", v)
		}
		p.module.Target = v.text
	case ".address_size":
		if v := p.next(); v.text != "64" {
			return wrong(v.line, "addresses of %v bits: only 64", v)
		}
	case ".visible", ".weak": // linking does not matter here
	case ".extern":
		if err := p.expect(".shared"); err != nil {
			return err
		}
		return p.externShared()
	case ".entry":
		return p.kernel(t.line)
	default:
		return wrong(t.line, "%v is not a directive that is known here", t)
	}
	return nil
}

// externShared reads an array of dynamic shared memory: it begins where the kernel's own ends.
func (p *parser) externShared() error {
	line := p.peek().line
	name, size, _, err := p.declaration()
	if err != nil {
		return err
	}
	if size != -1 {
		return wrong(line, "%s: shared memory that is extern has a size", name)
	}
	if _, ok := p.symbols[name]; ok {
		return wrong(line, "%s is declared twice", name)
	}
	p.symbols[name] = variable{space: spaceShared, offset: -1}
	return p.expect(";")
}

// declaration reads [.align n] .type name [[n]] and returns its size in bytes (-1: open) and alignment.
func (p *parser) declaration() (name string, size, align int, err error) {
	if p.accept(".align") {
		if align, err = p.number(128); err != nil {
			return
		}
		if align == 0 || align&(align-1) != 0 {
			return "", 0, 0, wrong(p.peek().line, "an alignment of %d", align)
		}
	}
	t := p.next()
	typ, ok := types[strings.TrimPrefix(t.text, ".")]
	if !ok || t.text[0] != '.' || typ == typePred {
		return "", 0, 0, wrong(t.line, "%v is not a type of a variable", t)
	}
	size = typ.bits() / 8
	align = max(align, size)
	if name, err = p.name(); err != nil || !p.accept("[") {
		return
	}
	if p.accept("]") {
		return name, -1, align, nil
	}
	n, err := p.number(maxLocal)
	if err != nil {
		return
	}
	return name, n * size, align, p.expect("]")
}

// kernel reads an entry: parameters, hints, body.
func (p *parser) kernel(line int) error {
	name, err := p.name()
	if err != nil {
		return err
	}
	if p.module.Kernel(name) != nil {
		return wrong(line, "kernel %s is defined twice", name)
	}
	p.k = &Kernel{Name: name, MaxThreads: 1024, line: line, labels: map[string]int{}, lookup: map[constantKey]int32{}}
	p.local = map[string]variable{}
	p.scopes = []map[string]register{{}}
	if p.accept("(") && !p.accept(")") {
		if err := p.params(); err != nil {
			return err
		}
	}
	for !p.accept("{") {
		t := p.next()
		n := 1
		switch t.text {
		case ".maxntid":
			if n, err = p.hint(); err == nil && (n == 0 || n > 1024) {
				err = wrong(t.line, ".maxntid of %d threads", n)
			}
			p.k.MaxThreads = n
		case ".reqntid", ".minnctapersm", ".maxnreg": // hints for the compiler
			_, err = p.hint()
		default:
			err = wrong(t.line, "%v is not a directive of a kernel that is known here", t)
		}
		if err != nil {
			return err
		}
	}
	if err := p.body(); err != nil {
		return err
	}
	p.place()
	if !p.scan {
		if err := assemble(p.k); err != nil {
			return err
		}
	}
	p.module.kernels = append(p.module.kernels, p.k)
	return nil
}

// hint reads up to three numbers and returns their product.
func (p *parser) hint() (int, error) {
	product, n := 1, 0
	for range 3 {
		v, err := p.number(4096)
		if err != nil {
			return 0, err
		}
		product *= v
		if n++; !p.accept(",") {
			break
		}
	}
	return product, nil
}

func (p *parser) params() error {
	for {
		line := p.peek().line
		if err := p.expect(".param"); err != nil {
			return err
		}
		name, size, align, err := p.declaration()
		if err != nil {
			return err
		}
		at := (p.k.ParamBytes + align - 1) &^ (align - 1)
		if size < 0 || at+size > maxParams {
			return wrong(line, "parameters of more than %d bytes", maxParams)
		}
		if _, ok := p.local[name]; ok {
			return wrong(line, "%s is declared twice", name)
		}
		p.local[name] = variable{spaceParam, at}
		p.k.Params = append(p.k.Params, Param{name, at, size})
		p.k.ParamBytes = at + size
		if p.accept(")") {
			return nil
		}
		if err := p.expect(","); err != nil {
			return err
		}
	}
}

// place settles the addresses of dynamic shared memory, which begins where the kernel's own ends.
func (p *parser) place() {
	end := uint64(p.k.SharedBytes+15) &^ 15
	var fix func(o *operand)
	fix = func(o *operand) {
		if (o.kind == operandSymbol || o.kind == operandAddress) && o.space == spaceShared && p.symbols[o.name].offset == -1 && o.name != "" {
			if _, own := p.local[o.name]; !own {
				o.value += end
			}
		}
		for i := range o.list {
			fix(&o.list[i])
		}
	}
	for i := range p.k.statements {
		for j := range p.k.statements[i].args {
			fix(&p.k.statements[i].args[j])
		}
	}
}

// literal reads a number: an integer, or the bits of a float.
func literal(t token) (operand, error) {
	text := t.text
	if len(text) == 10 && (text[:2] == "0f" || text[:2] == "0F") {
		v, err := strconv.ParseUint(text[2:], 16, 32)
		if err == nil {
			return operand{kind: operandFloat32, value: v}, nil
		}
	}
	if len(text) == 18 && (text[:2] == "0d" || text[:2] == "0D") {
		v, err := strconv.ParseUint(text[2:], 16, 64)
		if err == nil {
			return operand{kind: operandFloat64, value: v}, nil
		}
	}
	v, err := strconv.ParseUint(strings.TrimSuffix(text, "U"), 0, 64)
	if err != nil || strings.Contains(text, "_") {
		return operand{}, wrong(t.line, "%v is not a number that is known here", t)
	}
	return operand{kind: operandInt, value: v}, nil
}

// negative returns -v where a text may say so.
func negative(o operand, line int) (operand, error) {
	if o.kind != operandInt || o.value > math.MaxInt64+1 {
		return o, wrong(line, "a minus before something else than an integer")
	}
	o.value, o.signed = -o.value, true
	return o, nil
}
