package ptx

import (
	"strconv"
	"strings"
)

// body reads declarations, labels and instructions of a kernel up to its closing brace.
func (p *parser) body() error {
	for depth := 1; depth > 0; {
		t := p.next()
		var err error
		switch {
		case t.kind == tokenEnd:
			return wrong(t.line, "kernel %s has no end", p.k.Name)
		case t.text == "{":
			depth++
			p.scopes = append(p.scopes, map[string]register{})
			if depth > 8 {
				err = wrong(t.line, "blocks nested %d deep", depth)
			}
		case t.text == "}":
			depth--
			p.scopes = p.scopes[:depth]
		case t.text == ".reg":
			err = p.registers()
		case t.text == ".shared":
			err = p.variable(spaceShared, &p.k.SharedBytes, maxShared)
		case t.text == ".local":
			err = p.variable(spaceLocal, &p.k.LocalBytes, maxLocal)
		case t.text == ".pragma":
			if s := p.next(); s.kind != tokenString || s.text != "nounroll" {
				return wrong(s.line, "pragma %v", s)
			}
			err = p.expect(";")
		case t.kind == tokenWord && p.accept(":"):
			if _, ok := p.k.labels[t.text]; ok {
				return wrong(t.line, "label %s stands twice", t.text)
			}
			p.k.labels[t.text] = len(p.k.statements)
		case t.text == "@" || t.kind == tokenWord && t.text[0] >= 'a' && t.text[0] <= 'z':
			err = p.instruction(t)
		default:
			err = wrong(t.line, "%v where an instruction belongs", t)
		}
		if err != nil {
			return err
		}
	}
	p.k.Instructions = len(p.k.statements)
	return nil
}

func (p *parser) variable(in space, used *int, most int) error {
	line := p.peek().line
	name, size, align, err := p.declaration()
	if err != nil {
		return err
	}
	at := (*used + align - 1) &^ (align - 1)
	if size < 0 || at+size > most {
		return wrong(line, "%s: more than %d bytes", name, most)
	}
	if _, ok := p.local[name]; ok {
		return wrong(line, "%s is declared twice", name)
	}
	p.local[name] = variable{in, at}
	*used = at + size
	return p.expect(";")
}

// registers reads .reg .type name<n>, name;
func (p *parser) registers() error {
	t := p.next()
	typ, ok := types[strings.TrimPrefix(t.text, ".")]
	if !ok || t.text[0] != '.' || typ.bits() == 8 {
		return wrong(t.line, "%v is not a type of a register", t)
	}
	for {
		line := p.peek().line
		name, err := p.name()
		if err != nil {
			return err
		}
		n := -1
		if p.accept("<") {
			if n, err = p.number(maxRegisters); err != nil {
				return err
			}
			if err := p.expect(">"); err != nil {
				return err
			}
		}
		if err := p.declare(line, name, n, typ); err != nil {
			return err
		}
		if p.accept(";") {
			return nil
		}
		if err := p.expect(","); err != nil {
			return err
		}
	}
}

// declare adds a register, or n of them with a number after the name.
func (p *parser) declare(line int, name string, n int, typ typ) error {
	scope := p.scopes[len(p.scopes)-1]
	c := class32
	switch typ.bits() {
	case 1:
		c = classPred
	case 64:
		c = class64
	}
	for i := range max(n, 1) {
		full := name
		if n >= 0 {
			full += strconv.Itoa(i)
		}
		if _, ok := scope[full]; ok {
			return wrong(line, "register %s is declared twice", full)
		}
		scope[full] = register{c, typ.bits(), int32(p.k.count[c])}
		p.k.count[c]++
	}
	if p.k.count[c] > maxRegisters {
		return wrong(line, "more than %d registers", maxRegisters)
	}
	return nil
}

// instruction reads [@[!]guard] opcode operands; t is its first token.
func (p *parser) instruction(t token) error {
	s := statement{line: t.line}
	if t.text == "@" {
		s.negated = p.accept("!")
		name, err := p.name()
		if err != nil {
			return err
		}
		r, ok := p.register(name)
		if !ok || r.class != classPred {
			return wrong(t.line, "guard %s is not a predicate", name)
		}
		s.guard = &r
		t = p.next()
	}
	if t.kind != tokenWord {
		return wrong(t.line, "%v where an opcode belongs", t)
	}
	s.op = t.text
	for !p.accept(";") {
		if len(s.args) > 0 {
			if err := p.expect(","); err != nil {
				return err
			}
		}
		o, err := p.operand(0)
		if err != nil {
			return err
		}
		if p.accept("|") {
			second, err := p.operand(0)
			if err != nil {
				return err
			}
			o.pair = &second
		}
		s.args = append(s.args, o)
	}
	p.k.statements = append(p.k.statements, s)
	return nil
}

func (p *parser) register(name string) (register, bool) {
	for i := len(p.scopes) - 1; i >= 0; i-- {
		if r, ok := p.scopes[i][name]; ok {
			return r, true
		}
	}
	return register{}, false
}

// operand reads one: a register, number, name, vector or address. depth counts vectors around it.
func (p *parser) operand(depth int) (operand, error) {
	t := p.next()
	switch {
	case t.text == "{" && depth == 0:
		o := operand{kind: operandVector}
		for {
			e, err := p.operand(1)
			if err != nil {
				return o, err
			}
			o.list = append(o.list, e)
			if p.accept("}") {
				return o, nil
			}
			if err := p.expect(","); err != nil {
				return o, err
			}
		}
	case t.text == "[" && depth == 0:
		return p.address()
	case t.text == "-" && t.kind == tokenPunct:
		line := t.line
		o, err := literal(p.next())
		if err != nil {
			return o, err
		}
		return negative(o, line)
	case t.kind == tokenNumber:
		return literal(t)
	case t.kind == tokenWord:
		return p.named(t), nil
	}
	return operand{}, wrong(t.line, "%v where an operand belongs", t)
}

// named is the meaning of a word as an operand; a word without another meaning is a label.
func (p *parser) named(t token) operand {
	if r, ok := p.register(t.text); ok {
		return operand{kind: operandReg, reg: r, name: t.text}
	}
	if v, ok := p.local[t.text]; ok {
		return operand{kind: operandSymbol, name: t.text, space: v.space, value: uint64(v.offset)}
	}
	if v, ok := p.symbols[t.text]; ok { // its place is settled at the end
		return operand{kind: operandSymbol, name: t.text, space: v.space}
	}
	if t.text[0] == '%' {
		return operand{kind: operandSpecial, name: t.text}
	}
	return operand{kind: operandLabel, name: t.text}
}

// address reads register, symbol or number, with an offset, up to the bracket.
func (p *parser) address() (operand, error) {
	line := p.peek().line
	base, err := p.operand(1)
	if err != nil {
		return base, err
	}
	o := operand{kind: operandAddress, name: base.name, space: base.space, value: base.value}
	switch base.kind {
	case operandReg:
		o.reg = base.reg
		o.list = []operand{base}
	case operandSymbol, operandInt:
	default:
		return o, wrong(line, "an address of neither register, variable nor number")
	}
	if p.accept("+") {
		by, err := p.operand(1)
		if err != nil {
			return o, err
		}
		if by.kind != operandInt {
			return o, wrong(line, "an offset that is not a number")
		}
		o.value += by.value
	}
	return o, p.expect("]")
}
