package grammar

import (
	"slices"
	"strings"
)

// fits reports whether a value of an enum has the shape otherwise. Conditions on strings that
// no expression describes exactly, such as a format, are checked against the value, unless
// loose: then the value has the shape unless it is certain that it has not.
func (c *compiler) fits(s *shape, v *value, loose bool) (bool, error) {
	if s.types&v.types() == 0 {
		return false, nil
	}
	switch v.kind {
	case number:
		x, err := parseBound(v.text, false)
		if err != nil {
			return false, v.errorf("%w", err)
		}
		not := func(m multiple) bool { return m.divides(x) == m.not }
		return x.within(s.lo, s.hi) && !slices.ContainsFunc(s.multiples, not) && !slices.ContainsFunc(s.numbers, v.equal), nil
	case text:
		return c.fitsText(s, v, loose)
	case array:
		return c.fitsArray(s, v, loose)
	case object:
		return c.fitsObject(s, v, loose)
	}
	return true, nil
}

func (c *compiler) fitsText(s *shape, v *value, loose bool) (bool, error) {
	if n := int32(len([]rune(v.text))); n < s.length.least || n > s.length.most {
		return false, nil
	}
	inside := inString(v.text)
	for _, p := range s.patterns {
		if loose && p.name == "format" {
			continue
		}
		r, err := c.relaxedPattern(p)
		if err != nil || !r.matches(v.text) {
			return false, err
		}
	}
	for _, key := range s.without {
		if loose {
			break
		}
		d, err := c.expression(key, escaped)
		if err != nil || d.matches(inside) {
			return false, err
		}
	}
	return true, nil
}

func (c *compiler) fitsArray(s *shape, v *value, loose bool) (bool, error) {
	if n := int32(len(v.list)); n < s.items.least || n > s.items.most {
		return false, nil
	}
	for i, m := range v.list {
		shapes, err := c.shapes(s.item(int32(i)))
		if err != nil {
			return false, err
		}
		if ok, err := c.fitsAny(shapes, m, loose); err != nil || !ok {
			return false, err
		}
		if s.unique != nil && slices.ContainsFunc(v.list[:i], m.equal) {
			return false, nil
		}
	}
	return c.hasSome(s, v, loose)
}

func (c *compiler) fitsObject(s *shape, v *value, loose bool) (bool, error) {
	if n := int32(len(v.list)); n < s.members || n > s.mostMembers {
		return false, nil
	}
	allowed, err := c.allowedNames(s)
	if err != nil || !loose && slices.ContainsFunc(v.names, func(name string) bool { return !allowed.has(name) }) {
		return false, err
	}
	if slices.ContainsFunc(s.required, func(name string) bool { return v.member(name) == nil }) {
		return false, nil
	}
	for i, m := range v.list {
		shapes, err := c.memberShapes(s, v.names[i])
		if err != nil {
			return false, err
		}
		if ok, err := c.fitsAny(shapes, m, loose); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// fitsAny reports whether a value has one of some shapes.
func (c *compiler) fitsAny(shapes []*shape, v *value, loose bool) (bool, error) {
	for _, s := range shapes {
		if s.enum != nil && !slices.ContainsFunc(s.enum, v.equal) {
			continue
		}
		if ok, err := c.fits(s, v, loose); err != nil || ok {
			return ok, err
		}
	}
	return false, nil
}

// equal reports whether two values are the same. Numbers too long to compare are the same.
func (v *value) equal(w *value) bool {
	if v.kind != w.kind || len(v.list) != len(w.list) {
		return false
	}
	if v.kind == number {
		x, err := parseBound(v.text, false)
		y, other := parseBound(w.text, false)
		return err != nil || other != nil || x.compare(y) == 0
	}
	for i, m := range v.list {
		n := w.list[i]
		if v.kind == object {
			n = w.member(v.names[i])
		}
		if n == nil || !m.equal(n) {
			return false
		}
	}
	return v.text == w.text
}

// expression is the automaton of an expression, made once.
func (c *compiler) expression(key patternKey, s spelling) (*dfa, error) {
	if s != escaped {
		return c.work.expression(key, s)
	}
	d, ok := c.patterns[key]
	if !ok {
		var err error
		if d, err = c.work.expression(key, s); err != nil {
			return nil, err
		}
		c.patterns[key] = d
	}
	return d, nil
}

// except is the automaton of the texts that all of the list accept and none of some expressions
// matches.
func (c *compiler) except(list []*dfa, without []patternKey, s spelling) (*dfa, error) {
	if len(list) == 0 {
		list = append(list, ours()[anyInside])
	}
	if len(list) == 1 && len(without) == 0 {
		return list[0], nil
	}
	wanted := len(list)
	for _, key := range without {
		d, err := c.expression(key, s)
		if err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return c.work.combine(list, func(each []bool) bool {
		return all(each[:wanted]) && !slices.Contains(each[wanted:], true)
	})
}

const (
	// decimalText is a number without an exponent, and fractionText one that is not an integer.
	decimalText  = integerText + `(?:\.[0-9]+)?`
	fractionText = integerText + `\.[0-9]*[1-9][0-9]*`
)

// someNumbers is the automaton of the numbers of a shape that leaves out some.
func (c *compiler) someNumbers(s *shape) (*dfa, error) {
	integer := s.types&typeFraction == 0
	list := []*dfa{ours()[decimalText]}
	if integer {
		list[0] = ours()[integerText]
	}
	if lo, hi := s.bounds(); lo != nil || hi != nil {
		d, err := c.work.numbers(lo, hi, integer)
		if err != nil {
			return nil, err
		}
		list[0] = d
	}
	if s.types&typeInteger == 0 {
		list = append(list, ours()[fractionText])
	}
	for _, m := range s.multiples {
		d, err := c.work.multiples(m)
		if err != nil {
			return nil, err
		}
		if !m.not {
			list = append(list, d)
		} else if list[0], err = c.work.combine([]*dfa{list[0], d}, func(each []bool) bool { return each[0] && !each[1] }); err != nil {
			return nil, err
		}
	}
	var spellings []string
	for _, v := range s.numbers {
		x, err := parseBound(v.text, false)
		if err != nil {
			return nil, err
		}
		spellings = append(spellings, x.spellings())
	}
	if spellings == nil {
		return c.except(list, nil, plain)
	}
	return c.except(list, []patternKey{{expr: strings.Join(spellings, "|"), extent: whole}}, plain)
}

// spellings is the expression of all ways to write a number without an exponent.
func (b *bound) spellings() string {
	sign := ""
	switch {
	case b.negative:
		sign = "-"
	case b.whole == "0" && b.fraction == "":
		sign = "-?"
	}
	if b.fraction == "" {
		return sign + b.whole + `(?:\.0+)?`
	}
	return sign + b.whole + `\.` + b.fraction + `0*`
}
