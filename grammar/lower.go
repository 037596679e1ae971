package grammar

import (
	"fmt"
	"sync"
)

// White space is that of common JSON: one blank, or one line break with an
// indentation, behind an opening bracket or a comma and before a closing bracket, and one
// blank behind a colon. A model cannot repeat it without end.
const (
	blank = `(?: |\r?\n[ \t]{0,64})?`

	objectOpen  = `\{` + blank
	objectClose = blank + `\}`
	objectEmpty = `\}`
	arrayOpen   = `\[` + blank
	arrayClose  = blank + `\]`
	arrayEmpty  = `\]`
	comma       = `,` + blank
	colon       = `: ?`

	nullText    = `null`
	booleanText = `true|false`
	integerText = `-?(?:0|[1-9][0-9]*)`
	numberText  = integerText + `(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?`

	anyText   = `(?s).*`
	anyInside = `(?s)(?:.*)` // of a string
)

// ours are the automata of the expressions above.
var ours = sync.OnceValue(func() map[string]*dfa {
	table := map[string]*dfa{anyInside: mustRegex(anyInside, escaped)}
	for _, expr := range []string{
		tightObject, tightArray, tightComma, tightColon, bareKey, objectOpen, objectClose, objectEmpty, arrayOpen, arrayClose, arrayEmpty, comma, colon,
		nullText, booleanText, integerText, numberText, decimalText, fractionText, anyText, bareNull, bareBoolean, bareNumber,
	} {
		table[expr] = mustRegex(expr, plain)
	}
	return table
})

// marks are the nodes of the punctuation of one kind of structure.
type marks struct{ open, close, empty, comma, colon int32 }

func (c *compiler) marks(open, closing, empty string) (m marks, err error) {
	for _, part := range []struct {
		to   *int32
		expr string
	}{{&m.open, open}, {&m.close, closing}, {&m.empty, empty}, {&m.comma, comma}, {&m.colon, colon}} {
		part.expr = c.tight(part.expr)
		if *part.to, err = c.fixed(part.expr); err != nil {
			return m, err
		}
	}
	return m, nil
}

// shape lists nodes for the values of a shape.
func (c *compiler) shape(s *shape) ([]int32, error) {
	if s.enum != nil {
		return c.enum(s)
	}
	return s.nodes([]kind{
		{typeNull, func(*shape) (int32, error) { return c.fixed(nullText) }},
		{typeBoolean, func(*shape) (int32, error) { return c.fixed(booleanText) }},
		{typeInteger | typeFraction, c.number},
		{typeString, c.anyString},
		{typeArray, c.array},
		{typeObject, c.object},
	})
}

// kind is how values of some types are written.
type kind struct {
	types types
	node  func(*shape) (int32, error)
}

// nodes lists the nodes of the kinds that a shape allows.
func (s *shape) nodes(kinds []kind) ([]int32, error) {
	var list []int32
	for _, k := range kinds {
		if s.types&k.types == 0 {
			continue
		}
		n, err := k.node(s)
		if err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, nil
}

// number is the node of numbers.
func (c *compiler) number(s *shape) (int32, error) {
	integer := s.types&typeFraction == 0
	lo, hi := s.bounds()
	if lo == nil && hi == nil && len(s.multiples)+len(s.numbers) == 0 && s.types&typeInteger != 0 {
		if integer {
			return c.fixed(integerText)
		}
		if c.marker != "" {
			return c.fixed(bareNumber)
		}
		return c.fixed(numberText)
	}
	d, err := c.someNumbers(s)
	if err == nil && c.marker != "" && !integer {
		d, err = c.work.combine([]*dfa{d, ours()[bareNumber]}, all)
	}
	if err != nil {
		return 0, s.errorf("%w", err)
	}
	return c.automaton(d)
}

// bounds are the bounds of numbers. Formats of integers are bounds if all numbers are integers.
func (s *shape) bounds() (lo, hi *bound) {
	lo, hi = s.lo, s.hi
	for _, ends := range s.widths {
		if s.types&typeFraction == 0 {
			lo, hi = tighter(lo, ends[0], 1), tighter(hi, ends[1], -1)
		}
	}
	return lo, hi
}

// errorf is an error about all the schemas of a shape, of which it names the first.
func (s *shape) errorf(format string, args ...any) error {
	return s.schemas[0].errorf(format, args...)
}

// string is the node of strings.
func (c *compiler) string(s *shape) (int32, error) {
	if len(s.patterns)+len(s.without) == 0 {
		if c.marker != "" {
			return c.markedText(s)
		}
		return c.text(s.length.least, s.length.most), nil
	}
	d, length, err := c.inside(s)
	if err != nil {
		return 0, err
	}
	n, err := c.quoted(d, length)
	if err != nil {
		return 0, s.errorf("%w", err)
	}
	return n, nil
}

// inside is the automaton of the insides of strings of a shape without enum, with the range of
// their lengths apart.
func (c *compiler) inside(s *shape) (*dfa, span, error) {
	length := s.length
	list := make([]*dfa, 0, len(s.patterns))
	for _, v := range s.patterns {
		r, err := c.relaxedPattern(v)
		if err != nil {
			return nil, length, err
		}
		list, length = append(list, r.dfa), length.and(r.length)
	}
	d, err := c.except(list, s.without, escaped)
	if err != nil {
		return nil, length, s.errorf("%w", err)
	}
	return d, length, nil
}

// maxMeasured is the longest string whose length an automaton can enforce alone.
const maxMeasured = 1000

// exactInside is the automaton of the insides of strings of a shape without enum.
func (c *compiler) exactInside(s *shape) (*dfa, error) {
	d, length, err := c.inside(s)
	if err != nil || length == (span{0, unlimited}) {
		return d, err
	}
	expr := fmt.Sprintf(`(?s).{%d,}`, length.least)
	if length.most != unlimited {
		expr = fmt.Sprintf(`(?s).{%d,%d}`, length.least, length.most)
	}
	switch {
	case length.least > maxMeasured || length.most > maxMeasured && length.most != unlimited:
		return nil, s.errorf("lengths of the names of members must be at most %d", maxMeasured)
	case length.least > length.most:
		expr = `[^\x00-\x{10FFFF}]` // nothing
	}
	limit, err := c.work.regex(expr, whole, escaped)
	if err == nil {
		d, err = c.work.combine([]*dfa{d, limit}, all)
	}
	if err != nil {
		return nil, s.errorf("%w", err)
	}
	return d, nil
}

// quoted is the node of the strings of a range of lengths whose insides d accepts.
func (c *compiler) quoted(d *dfa, length span) (int32, error) {
	if c.marker != "" {
		var err error
		if d, err = c.once(markedKey{d, c.marker}, func() (*dfa, error) { return c.unmarked([]*dfa{d}, "") }); err != nil {
			return 0, err
		}
	}
	q, ok := c.strings[d]
	if !ok {
		q = d.quote()
		c.strings[d] = q
	}
	return c.counted(q, length, true)
}

// enum lists nodes for the shape's values that it does not exclude otherwise.
func (c *compiler) enum(s *shape) ([]int32, error) {
	var (
		texts []string
		list  []int32
	)
	for _, v := range s.enum {
		fits, err := c.fits(s, v, false)
		if err != nil {
			return nil, err
		}
		if !fits {
			continue
		}
		if v.kind != array && v.kind != object {
			texts = append(texts, c.written(v))
			continue
		}
		n, err := c.constant(v)
		if err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return c.withTexts(s, list, texts)
}

// withTexts adds a node for texts of s to a list of nodes.
func (c *compiler) withTexts(s *shape, list []int32, texts []string) ([]int32, error) {
	if len(texts) == 0 {
		return list, nil
	}
	n, err := c.choice(texts...)
	if err != nil {
		return nil, s.errorf("%w", err)
	}
	return append(list, n), nil
}

// constant is the node of one value, with white space between its parts.
func (c *compiler) constant(v *value) (int32, error) {
	if v.kind != array && v.kind != object {
		return c.choice(c.written(v))
	}
	m, err := c.marks(arrayOpen, arrayClose, arrayEmpty)
	if v.kind == object {
		m, err = c.marks(objectOpen, objectClose, objectEmpty)
	}
	if err != nil {
		return 0, err
	}
	parts := []int32{m.open}
	for i, member := range v.list {
		if i > 0 {
			parts = append(parts, m.comma)
		}
		if v.kind == object {
			key, err := c.choice(c.key(v.names[i]))
			if err != nil {
				return 0, err
			}
			parts = append(parts, key, m.colon)
		}
		n, err := c.constant(member)
		if err != nil {
			return 0, err
		}
		parts = append(parts, n)
	}
	if len(v.list) == 0 {
		return c.seq(append(parts, m.empty)...), nil
	}
	return c.seq(append(parts, m.close)...), nil
}
