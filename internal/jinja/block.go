package jinja

import "fmt"

// parseFunction parses the body of a macro, in which the loops outside do not
// count.
func (p *parser) parseFunction(m *macro, end string) error {
	loops := p.loops
	p.loops = 0
	body, err := p.parseBlock(end)
	p.loops = loops
	m.body = body
	return err
}

func (p *parser) parseMacro(at line) (stmt, error) {
	name, err := p.expectName()
	if err != nil {
		return nil, err
	}
	m := &macro{name: name}
	if err := p.expectOp("("); err != nil {
		return nil, err
	}
	if err := p.parseSignature(m); err != nil {
		return nil, err
	}
	return &macroStmt{at, m}, p.parseFunction(m, "endmacro")
}

// parseSignature parses parameters up to and with the closing parenthesis.
func (p *parser) parseSignature(m *macro) error {
	for !p.skipOp(")") {
		if len(m.params) > 0 {
			if err := p.expectOp(","); err != nil {
				return err
			}
		}
		name, err := p.expectName()
		if err != nil {
			return err
		}
		m.params = append(m.params, name)
		switch {
		case p.skipOp("="):
			value, err := p.parseExpr()
			if err != nil {
				return err
			}
			m.defaults = append(m.defaults, value)
		case len(m.defaults) > 0:
			return fmt.Errorf("parameter '%s' without a default follows one with a default", name)
		}
	}
	return nil
}

// parseFilterBlock parses the filters without a bar before the first of them.
func (p *parser) parseFilterBlock(at line) (stmt, error) {
	first, err := p.parseFilter(nil)
	if err != nil {
		return nil, err
	}
	filter, err := p.parseFilters(first)
	if err != nil {
		return nil, err
	}
	body, err := p.parseBlock("endfilter")
	return &filterStmt{at, filter, body}, err
}

// parseGeneration parses the block that marks an assistant's text. Rendering
// ignores it; like the reference's call block it has a scope
// and does not allow loop controls.
func (p *parser) parseGeneration(at line) (stmt, error) {
	loops := p.loops
	p.loops = 0
	body, err := p.parseBlock("endgeneration")
	p.loops = loops
	return &scopeStmt{at, body}, err
}

func (p *parser) parseLoopControl(at line, word string) (stmt, error) {
	if p.loops == 0 {
		return nil, fmt.Errorf("'%s' outside a loop", word)
	}
	f := flowBreak
	if word == "continue" {
		f = flowContinue
	}
	return &loopControlStmt{at, f}, p.expectTagEnd()
}
