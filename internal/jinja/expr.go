package jinja

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// parseExpr parses an expression: x if y else z, and everything that binds
// tighter.
func (p *parser) parseExpr() (expr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	e, err := p.parseOr()
	for err == nil && p.skipName("if") {
		c := &condExpr{then: e}
		if c.test, err = p.parseOr(); err != nil {
			break
		}
		if p.skipName("else") {
			c.otherwise, err = p.parseExpr()
		}
		e = c
	}
	return e, err
}

// parseTuple parses an expression, or several with commas between them as a
// tuple. Without conditional, an 'if' ends the expression.
func (p *parser) parseTuple(conditional bool) (expr, error) {
	var items []expr
	for {
		if len(items) > 0 && p.tupleEnds() {
			return &listExpr{items, true}, nil
		}
		item, err := p.parseTupleItem(conditional)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
		if !p.skipOp(",") {
			break
		}
	}
	if len(items) == 1 {
		return items[0], nil
	}
	return &listExpr{items, true}, nil
}

func (p *parser) parseTupleItem(conditional bool) (expr, error) {
	if conditional {
		return p.parseExpr()
	}
	return p.parseOr()
}

func (p *parser) tupleEnds() bool {
	k := p.current().kind
	return k == tokTagEnd || k == tokPrintEnd || p.peekOp(")")
}

func (p *parser) parseOr() (expr, error) {
	left, err := p.parseAnd()
	for err == nil && p.skipName("or") {
		var right expr
		right, err = p.parseAnd()
		left = &logicExpr{false, left, right}
	}
	return left, err
}

func (p *parser) parseAnd() (expr, error) {
	left, err := p.parseNot()
	for err == nil && p.skipName("and") {
		var right expr
		right, err = p.parseNot()
		left = &logicExpr{true, left, right}
	}
	return left, err
}

func (p *parser) parseNot() (expr, error) {
	if !p.peekName("not") {
		return p.parseCompare()
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	p.next()
	operand, err := p.parseNot()
	return &notExpr{operand}, err
}

func (p *parser) parseCompare() (expr, error) {
	first, err := p.parseSum()
	c := &compareExpr{first: first}
	for err == nil {
		op := p.comparison()
		if op == "" {
			break
		}
		var operand expr
		operand, err = p.parseSum()
		c.ops, c.operands = append(c.ops, op), append(c.operands, operand)
	}
	if len(c.ops) == 0 {
		return first, err
	}
	return c, err
}

// comparison consumes a comparison operator if there is one, else returns "".
func (p *parser) comparison() string {
	t := p.current()
	switch {
	case t.kind == tokOp && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, t.text):
		return p.next().text
	case p.skipName("in"):
		return "in"
	case p.peekName("not") && p.tokens[p.pos+1].kind == tokName && p.tokens[p.pos+1].text == "in":
		p.pos += 2
		return "not in"
	}
	return ""
}

// parseBinary parses operands with any of ops between them, grouping to the left.
func (p *parser) parseBinary(operand func() (expr, error), ops ...string) (expr, error) {
	left, err := operand()
	for err == nil && p.current().kind == tokOp && slices.Contains(ops, p.current().text) {
		op := p.next().text
		var right expr
		right, err = operand()
		left = &binaryExpr{op, left, right}
	}
	return left, err
}

func (p *parser) parseSum() (expr, error) { return p.parseBinary(p.parseConcat, "+", "-") }

func (p *parser) parseConcat() (expr, error) {
	first, err := p.parseProduct()
	if err != nil || !p.peekOp("~") {
		return first, err
	}
	c := &concatExpr{[]expr{first}}
	for p.skipOp("~") {
		part, err := p.parseProduct()
		if err != nil {
			return nil, err
		}
		c.parts = append(c.parts, part)
	}
	return c, nil
}

func (p *parser) parseProduct() (expr, error) {
	return p.parseBinary(func() (expr, error) { return p.parseUnary(true) }, "*", "/", "//", "%")
}

func (p *parser) parseUnary(filters bool) (expr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	var e expr
	var err error
	if p.peekOp("-") || p.peekOp("+") {
		op := p.next().text
		var operand expr
		operand, err = p.parseUnary(false)
		e = &unaryExpr{op, operand}
	} else {
		e, err = p.parsePrimary()
	}
	if err != nil {
		return nil, err
	}
	if e, err = p.parsePostfix(e); err != nil || !filters {
		return e, err
	}
	return p.parseFiltersAndTests(e)
}

func (p *parser) parsePrimary() (expr, error) {
	t := p.next()
	switch t.kind {
	case tokName:
		return p.name(t.text), nil
	case tokString:
		parts := []string{t.text}
		for p.current().kind == tokString {
			parts = append(parts, p.next().text)
		}
		return &constExpr{Trusted(strings.Join(parts, ""))}, nil
	case tokInt:
		n, err := strconv.ParseInt(t.text, 0, 64)
		if err != nil {
			return nil, fmt.Errorf("integer %s does not fit 64 bits", t.text)
		}
		return literal(intValue(n)), nil
	case tokFloat:
		f, err := strconv.ParseFloat(t.text, 64)
		if err != nil && !math.IsInf(f, 0) {
			return nil, fmt.Errorf("%s is not a number", t.text)
		}
		return literal(floatValue(f)), nil
	case tokOp:
		switch t.text {
		case "(":
			return p.parseParenthesised()
		case "[":
			items, err := p.parseList("]")
			return &listExpr{items, false}, err
		case "{":
			return p.parseDict()
		}
	}
	return nil, fmt.Errorf("expected an expression, got %s", t)
}

func (p *parser) name(name string) expr {
	switch name {
	case "true", "True":
		return literal(Bool(true))
	case "false", "False":
		return literal(Bool(false))
	case "none", "None":
		return literal(None())
	}
	return &nameExpr{name}
}

func (p *parser) parseParenthesised() (expr, error) {
	if p.skipOp(")") {
		return &listExpr{nil, true}, nil
	}
	e, err := p.parseTuple(true)
	if err != nil {
		return nil, err
	}
	return e, p.expectOp(")")
}

// parseList parses expressions with commas between them, up to and with end.
func (p *parser) parseList(end string) ([]expr, error) {
	var items []expr
	for !p.skipOp(end) {
		if len(items) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
			if p.skipOp(end) {
				break
			}
		}
		item, err := p.parseExpr()
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

func (p *parser) parseDict() (expr, error) {
	d := &dictExpr{}
	for !p.skipOp("}") {
		if len(d.keys) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
			if p.skipOp("}") {
				break
			}
		}
		key, err := p.parseExpr()
		if err != nil {
			return nil, err
		}
		if err := p.expectOp(":"); err != nil {
			return nil, err
		}
		value, err := p.parseExpr()
		if err != nil {
			return nil, err
		}
		d.keys, d.values = append(d.keys, key), append(d.values, value)
	}
	return d, nil
}

// parsePostfix parses attributes, subscripts and calls.
func (p *parser) parsePostfix(e expr) (expr, error) {
	for {
		var err error
		switch {
		case p.skipOp("."):
			e, err = p.parseAttribute(e)
		case p.skipOp("["):
			e, err = p.parseSubscript(e)
		case p.skipOp("("):
			e, err = p.parseCall(e)
		default:
			return e, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (p *parser) parseAttribute(object expr) (expr, error) {
	switch t := p.next(); t.kind {
	case tokName:
		return &attrExpr{object, t.text}, nil
	case tokInt:
		n, err := strconv.ParseInt(t.text, 0, 64)
		if err != nil {
			return nil, fmt.Errorf("integer %s does not fit 64 bits", t.text)
		}
		return &itemExpr{object, &constExpr{intValue(n)}}, nil
	default:
		return nil, fmt.Errorf("expected a name or a number after '.', got %s", t)
	}
}

// parseSubscript parses a subscript after its bracket: an index, several as a
// tuple, or a slice.
func (p *parser) parseSubscript(object expr) (expr, error) {
	var bounds [3]expr
	n, colons := 0, 0
	for !p.skipOp("]") {
		if p.skipOp(":") {
			if colons++; colons > 2 {
				return nil, fmt.Errorf("too many ':' in a slice")
			}
			n = colons
			continue
		}
		if bounds[n] != nil {
			return nil, fmt.Errorf("expected ']', got %s", p.current())
		}
		var err error
		if bounds[n], err = p.parseExpr(); err != nil {
			return nil, err
		}
	}
	switch {
	case colons > 0:
		return &sliceExpr{object, bounds[0], bounds[1], bounds[2]}, nil
	case bounds[0] == nil:
		return nil, fmt.Errorf("expected a subscript, got ']'")
	}
	return &itemExpr{object, bounds[0]}, nil
}

// parseFiltersAndTests parses the bars and the 'is' behind a value.
func (p *parser) parseFiltersAndTests(e expr) (expr, error) {
	for {
		var err error
		switch {
		case p.peekOp("|"):
			e, err = p.parseFilters(e)
		case p.skipName("is"):
			e, err = p.parseTest(e)
		case p.skipOp("("):
			e, err = p.parseCall(e)
		default:
			return e, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// parseFilters parses filters, if there are any, each with its bar.
func (p *parser) parseFilters(e expr) (expr, error) {
	for p.skipOp("|") {
		var err error
		if e, err = p.parseFilter(e); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// parseFilter parses one filter, its bar taken.
func (p *parser) parseFilter(object expr) (expr, error) {
	name, err := p.parseDottedName()
	if err != nil {
		return nil, err
	}
	f := &filterExpr{object: object, name: name}
	if p.skipOp("(") {
		f.args, err = p.parseArgs()
	}
	return f, err
}

func (p *parser) parseDottedName() (string, error) {
	first, err := p.expectName()
	parts := []string{first}
	for err == nil && p.skipOp(".") {
		var part string
		part, err = p.expectName()
		parts = append(parts, part)
	}
	return strings.Join(parts, "."), err
}

// literal is a value that the template spells.
func literal(v Value) expr {
	v.own = template
	return &constExpr{v}
}
