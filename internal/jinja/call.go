package jinja

import "fmt"

func (p *parser) parseCall(callee expr) (expr, error) {
	a, err := p.parseArgs()
	return &callExpr{callee, a}, err
}

// parseArgs parses arguments up to and with the closing parenthesis.
func (p *parser) parseArgs() (a callArgs, err error) {
	for first := true; !p.skipOp(")"); first = false {
		if !first {
			if err := p.expectOp(","); err != nil {
				return a, err
			}
			if p.skipOp(")") {
				break
			}
		}
		if err := p.parseArg(&a); err != nil {
			return a, err
		}
	}
	return a, nil
}

func (p *parser) parseArg(a *callArgs) (err error) {
	switch {
	case p.current().kind == tokName && p.tokens[p.pos+1] == (token{tokOp, p.tokens[p.pos+1].line, "="}):
		name := p.next().text
		p.next()
		value, err := p.parseExpr()
		a.names, a.named = append(a.names, name), append(a.named, value)
		return err
	case len(a.named) > 0:
		return fmt.Errorf("positional argument after a named one")
	}
	value, err := p.parseExpr()
	a.positional = append(a.positional, value)
	return err
}

// parseTest parses a test, its 'is' taken. Its argument may stand without
// parentheses.
func (p *parser) parseTest(object expr) (expr, error) {
	t := &testExpr{object: object, negate: p.skipName("not")}
	var err error
	if t.name, err = p.parseDottedName(); err != nil {
		return nil, err
	}
	if p.skipOp("(") {
		t.args, err = p.parseArgs()
		return t, err
	}
	if !p.startsTestArg() {
		return t, nil
	}
	if p.peekName("is") {
		return nil, fmt.Errorf("two tests in a row: put the first in parentheses")
	}
	arg, err := p.parsePrimary()
	if err != nil {
		return nil, err
	}
	if arg, err = p.parsePostfix(arg); err != nil {
		return nil, err
	}
	t.args.positional = []expr{arg}
	return t, nil
}

func (p *parser) startsTestArg() bool {
	switch t := p.current(); t.kind {
	case tokString, tokInt, tokFloat:
		return true
	case tokName:
		return t.text != "else" && t.text != "or" && t.text != "and"
	case tokOp:
		return t.text == "[" || t.text == "{"
	}
	return false
}

// args are the arguments of a call at run time.
type args struct {
	positional []Value
	names      []string
	named      []Value
}

func (a args) count() int { return len(a.positional) + len(a.named) }

// bind assigns the arguments to parameters by name, as Python does.
// The first required of them must be given; the others are
// of kindMissing if they are not.
func (a args) bind(function string, required int, params ...string) ([]Value, error) {
	if len(a.positional) > len(params) {
		return nil, fmt.Errorf("%s takes at most %d arguments, got %d", function, len(params), len(a.positional))
	}
	bound := make([]Value, len(params))
	for i := range bound {
		bound[i].kind = kindMissing
	}
	copy(bound, a.positional)
	for i, name := range a.names {
		at := -1
		for j, param := range params {
			if param == name {
				at = j
			}
		}
		switch {
		case at < 0:
			return nil, fmt.Errorf("%s has no parameter '%s'", function, name)
		case bound[at].kind != kindMissing:
			return nil, fmt.Errorf("%s got more than one value for '%s'", function, name)
		}
		bound[at] = a.named[i]
	}
	for i, v := range bound[:required] {
		if v.kind == kindMissing {
			return nil, fmt.Errorf("%s needs an argument '%s'", function, params[i])
		}
	}
	return bound, nil
}

// or returns v, or other if v is an argument that was not given.
func (v Value) or(other Value) Value {
	if v.kind == kindMissing {
		return other
	}
	return v
}

func (a callArgs) eval(r *run) (out args, err error) {
	if out.positional, err = r.evalAll(a.positional); err != nil {
		return out, err
	}
	out.names = a.names
	out.named, err = r.evalAll(a.named)
	return out, err
}

func (r *run) evalAll(exprs []expr) ([]Value, error) {
	if len(exprs) == 0 {
		return nil, nil
	}
	if err := r.allocList(len(exprs)); err != nil {
		return nil, err
	}
	values := make([]Value, len(exprs))
	for i, e := range exprs {
		var err error
		if values[i], err = r.eval(e); err != nil {
			return nil, err
		}
	}
	return values, nil
}
