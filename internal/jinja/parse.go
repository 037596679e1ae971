package jinja

import (
	"fmt"
	"slices"
)

// parser turns tokens into statements by recursive descent. Expressions are in
// expr.go.
type parser struct {
	tokens []token
	pos    int
	depth  int // nesting, bounded by maxNesting
	loops  int // for loops around the current statement in the same function
}

func (p *parser) current() token { return p.tokens[p.pos] }

// next takes the current token. The last one, tokEOF, is never used up.
func (p *parser) next() token {
	t := p.tokens[p.pos]
	if t.kind != tokEOF {
		p.pos++
	}
	return t
}

func (p *parser) peek(kind tokenKind, text string) bool {
	t := p.current()
	return t.kind == kind && t.text == text
}

func (p *parser) peekOp(text string) bool   { return p.peek(tokOp, text) }
func (p *parser) peekName(text string) bool { return p.peek(tokName, text) }

func (p *parser) skip(kind tokenKind, text string) bool {
	if p.peek(kind, text) {
		p.next()
		return true
	}
	return false
}

func (p *parser) skipOp(text string) bool   { return p.skip(tokOp, text) }
func (p *parser) skipName(text string) bool { return p.skip(tokName, text) }

func (p *parser) expectOp(text string) error {
	if !p.skipOp(text) {
		return fmt.Errorf("expected '%s', got %s", text, p.current())
	}
	return nil
}

func (p *parser) expectName() (string, error) {
	if p.current().kind != tokName {
		return "", fmt.Errorf("expected a name, got %s", p.current())
	}
	return p.next().text, nil
}

func (p *parser) expectTagEnd() error {
	if p.current().kind != tokTagEnd {
		return fmt.Errorf("expected '%%}', got %s", p.current())
	}
	p.next()
	return nil
}

func (p *parser) enter() error {
	if p.depth >= maxNesting {
		return &LimitError{What: "levels of nesting in the source", Max: maxNesting}
	}
	p.depth++
	return nil
}

func (p *parser) leave() { p.depth-- }

// parseBody parses statements up to a tag that begins with one of the words in
// ends, and consumes only that word. Without ends it parses to
// the end of the template.
func (p *parser) parseBody(ends ...string) (body []stmt, end string, err error) {
	if err := p.enter(); err != nil {
		return nil, "", err
	}
	defer p.leave()
	for {
		t := p.next()
		switch t.kind {
		case tokEOF:
			if len(ends) > 0 {
				return nil, "", fmt.Errorf("block is not closed: add '{%% %s %%}'", ends[len(ends)-1])
			}
			return body, "", nil
		case tokText:
			body = append(body, &textStmt{line(t.line), t.text})
		case tokPrintBegin:
			value, err := p.parseTuple(true)
			if err != nil {
				return nil, "", err
			}
			if p.current().kind != tokPrintEnd {
				return nil, "", fmt.Errorf("expected '}}', got %s", p.current())
			}
			p.next()
			body = append(body, &printStmt{line(t.line), value})
		default: // tokTagBegin: the lexer puts nothing else outside tags
			if slices.Contains(ends, p.current().text) && p.current().kind == tokName {
				return body, p.next().text, nil
			}
			s, err := p.parseTag()
			if err != nil {
				return nil, "", err
			}
			body = append(body, s)
		}
	}
}

// parseBlock parses the rest of the opening tag, a body and the whole closing
// tag named end.
func (p *parser) parseBlock(end string) ([]stmt, error) {
	if err := p.expectTagEnd(); err != nil {
		return nil, err
	}
	body, _, err := p.parseBody(end)
	if err != nil {
		return nil, err
	}
	return body, p.expectTagEnd()
}

// parseTag parses a statement whose '{%' was taken.
func (p *parser) parseTag() (s stmt, err error) {
	at := line(p.current().line)
	word, err := p.expectName()
	if err != nil {
		return nil, err
	}
	switch word {
	case "if":
		s, err = p.parseIf(at)
	case "for":
		s, err = p.parseFor(at)
	case "set":
		s, err = p.parseSet(at)
	case "macro":
		s, err = p.parseMacro(at)
	case "filter":
		s, err = p.parseFilterBlock(at)
	case "generation":
		s, err = p.parseGeneration(at)
	case "break", "continue":
		s, err = p.parseLoopControl(at, word)
	default:
		return nil, fmt.Errorf("tag '%s' is unknown or not supported", word)
	}
	return s, err
}

func (p *parser) parseIf(at line) (stmt, error) {
	s := &ifStmt{line: at}
	for {
		test, err := p.parseTuple(false)
		if err != nil {
			return nil, err
		}
		if err := p.expectTagEnd(); err != nil {
			return nil, err
		}
		body, end, err := p.parseBody("elif", "else", "endif")
		if err != nil {
			return nil, err
		}
		s.tests, s.bodies = append(s.tests, test), append(s.bodies, body)
		switch end {
		case "else":
			s.orElse, err = p.parseBlock("endif")
			return s, err
		case "endif":
			return s, p.expectTagEnd()
		}
	}
}

func (p *parser) parseFor(at line) (stmt, error) {
	s := &forStmt{line: at}
	var err error
	if s.target, err = p.parseTargets(); err != nil {
		return nil, err
	}
	if !p.skipName("in") {
		return nil, fmt.Errorf("expected 'in', got %s", p.current())
	}
	if s.items, err = p.parseTuple(false); err != nil {
		return nil, err
	}
	if p.skipName("if") {
		if s.filter, err = p.parseExpr(); err != nil {
			return nil, err
		}
	}
	if err := p.expectTagEnd(); err != nil {
		return nil, err
	}
	p.loops++
	body, end, err := p.parseBody("else", "endfor")
	p.loops--
	if err != nil {
		return nil, err
	}
	if s.body = body; end == "else" {
		s.orElse, err = p.parseBlock("endfor")
		return s, err
	}
	return s, p.expectTagEnd()
}

func (p *parser) parseSet(at line) (stmt, error) {
	to, err := p.parseTargets()
	if err != nil {
		return nil, err
	}
	if p.skipOp("=") {
		value, err := p.parseTuple(true)
		if err != nil {
			return nil, err
		}
		return &setStmt{at, to, value}, p.expectTagEnd()
	}
	var filter expr
	if p.peekOp("|") {
		if filter, err = p.parseFilters(nil); err != nil {
			return nil, err
		}
	}
	body, err := p.parseBlock("endset")
	return &setBlockStmt{at, to, filter, body}, err
}

// parseTargets parses one target or several with commas between them.
func (p *parser) parseTargets() (target, error) {
	first, err := p.parseTarget()
	if err != nil || !p.peekOp(",") {
		return first, err
	}
	all := target{unpack: true, parts: []target{first}}
	for p.skipOp(",") {
		if p.current().kind != tokName && !p.peekOp("(") || p.peekName("in") {
			break
		}
		t, err := p.parseTarget()
		if err != nil {
			return all, err
		}
		all.parts = append(all.parts, t)
	}
	return all, nil
}

func (p *parser) parseTarget() (target, error) {
	if err := p.enter(); err != nil {
		return target{}, err
	}
	defer p.leave()
	if p.skipOp("(") {
		t, err := p.parseTargets()
		if err != nil {
			return t, err
		}
		return t, p.expectOp(")")
	}
	name, err := p.expectName()
	if err != nil {
		return target{}, err
	}
	if slices.Contains([]string{"true", "false", "none", "True", "False", "None"}, name) {
		return target{}, fmt.Errorf("cannot assign to '%s'", name)
	}
	t := target{name: name}
	if p.skipOp(".") {
		t.attr, err = p.expectName()
	}
	return t, err
}
