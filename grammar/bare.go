package grammar

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	bareNull    = `null|None`
	bareBoolean = `true|false|True|False`

	// bareNumber leaves out numbers beyond float64: readers refuse them.
	bareNumber = `-?(?:0|[1-9][0-9]{0,199})(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,2})?`

	// space is the white space that readers trim.
	space = `[\s\v\x{85}\p{Z}]*`
)

// Bare is the values that a schema allows, written as chat templates write arguments
// between tags, with their end: strings without quotation marks and
// escapes; null and booleans as in JSON or Python; all else as JSON. Then comes end,
// which, apart from white space around it, is in none of the values; and no string is one of the
// reserved words, apart from white space around it. The caller ensures that strings are
// not taken for other values, and does not change the schema.
func Bare(schema []byte, end string, reserved ...string) Source {
	marker := strings.TrimSpace(end)
	return newSource("schema", "bare", append([]string{string(schema), end}, reserved...), func(b *builder) (int32, error) {
		if marker == "" {
			return 0, errors.New("schema: a bare value has no end")
		}
		root, err := parseValue(schema)
		if err != nil {
			return 0, fmt.Errorf("schema: %w", err)
		}
		if err := isSchema(root); err != nil {
			return 0, err
		}
		if err := root.without(marker); err != nil {
			return 0, err
		}
		c := newCompiler(b, root)
		c.marker, c.end, c.reserved = marker, end, reserved
		shapes, err := c.shapes([]*value{root})
		if err != nil {
			return 0, err
		}
		last, err := c.choice(end)
		if err != nil {
			return 0, err
		}
		n, values := c.alt(), c.alt()
		c.nodes[n].list = []int32{c.seq(values, last)}
		for _, s := range shapes {
			ended, list, err := c.bare(s)
			if err != nil {
				return 0, err
			}
			c.nodes[n].list = append(c.nodes[n].list, ended...)
			c.nodes[values].list = append(c.nodes[values].list, list...)
		}
		return n, nil
	})
}

// Prefer is the first part, or the second if the first cannot be built: its schema is not
// supported, it is too large, or nothing satisfies it. Once failed attempts took as many steps as
// a grammar may take, no more first parts are tried.
func Prefer(first, second Source) Source {
	return newSource(first.name, "prefer", keys(first, second), func(b *builder) (int32, error) {
		if b.work.vain > maxWork {
			return second.build(b)
		}
		before := b.copy()
		n, err := first.build(b)
		if err == nil && !b.full && b.productive()[n] {
			return n, nil
		}
		before.work.vain = b.work.vain + b.work.steps - before.work.steps
		*b = before
		return second.build(b)
	})
}

// copy is a copy of the builder.
func (b *builder) copy() builder {
	c := *b
	c.nodes = slices.Clone(b.nodes)
	c.choices, c.patterns, c.strings = maps.Clone(b.choices), maps.Clone(b.patterns), maps.Clone(b.strings)
	c.shared, c.texts, c.marked = maps.Clone(b.shared), maps.Clone(b.texts), maps.Clone(b.marked)
	c.measured, c.lengths, c.relaxed = maps.Clone(b.measured), maps.Clone(b.lengths), maps.Clone(b.relaxed)
	return c
}

// without refuses a schema with a text that has the marker.
func (v *value) without(marker string) error {
	has := func(text string) bool { return strings.Contains(text, marker) }
	if v.kind == text && has(v.text) || slices.ContainsFunc(v.names, has) {
		return v.errorf("has the text %q, which ends an argument", marker)
	}
	for _, m := range v.list {
		if err := m.without(marker); err != nil {
			return err
		}
	}
	return nil
}

// bare lists nodes for the values of a shape: some with their end, and some without.
func (c *compiler) bare(s *shape) (ended, list []int32, err error) {
	if s.enum != nil {
		list, err = c.bareEnum(s)
		return nil, list, err
	}
	list, err = s.nodes([]kind{
		{typeNull, func(*shape) (int32, error) { return c.fixed(bareNull) }},
		{typeBoolean, func(*shape) (int32, error) { return c.fixed(bareBoolean) }},
		{typeInteger | typeFraction, c.number},
		{typeArray, c.array},
		{typeObject, c.object},
	})
	if err == nil {
		ended, err = s.nodes([]kind{{typeString, c.bareString}})
	}
	return ended, list, err
}

// bareEnum is like enum.
func (c *compiler) bareEnum(s *shape) ([]int32, error) {
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
		switch v.kind {
		case null:
			texts = append(texts, strings.Split(bareNull, "|")...)
		case boolean:
			texts = append(texts, v.text, strings.ToUpper(v.text[:1])+v.text[1:])
		case number:
			if s.types&typeFraction == 0 && strings.ContainsAny(v.text, ".eE") {
				return nil, v.errorf("an integer that is not written as an integer")
			}
			texts = append(texts, v.canonical())
		case text:
			if slices.Contains(c.reserved, strings.TrimSpace(v.text)) {
				return nil, v.errorf("the string %.40q would be taken for another value", v.text)
			}
			texts = append(texts, v.text)
		default:
			n, err := c.constant(v)
			if err != nil {
				return nil, err
			}
			list = append(list, n)
		}
	}
	return c.withTexts(s, list, texts)
}

// bareString is the node of unquoted strings, with their end: an automaton that could be
// left anywhere would have to look beyond its end with every token.
func (c *compiler) bareString(s *shape) (int32, error) {
	var exprs []patternKey
	for _, v := range s.patterns {
		expr, err := v.pattern()
		if err != nil {
			return 0, err
		}
		exprs = append(exprs, expr)
	}
	list, length := []*dfa{ours()[anyText]}, s.length
	for _, e := range exprs {
		r, err := c.work.relaxed(e, plain)
		if err != nil {
			return 0, s.errorf("%w", err)
		}
		list, length = append(list, r.dfa), length.and(r.length)
	}
	key := fmt.Sprintf("%q %v %v %q", c.end, exprs, s.without, c.reserved)
	d, err := c.once(markedKey{text: key}, func() (*dfa, error) {
		d, err := c.except(list, s.without, plain)
		if err != nil {
			return nil, err
		}
		except := ""
		if len(c.reserved) > 0 {
			words := make([]string, len(c.reserved))
			for i, word := range c.reserved {
				words[i] = regexp.QuoteMeta(word)
			}
			except = space + `(?:` + strings.Join(words, "|") + `)` + space
		}
		if d, err = c.unmarked([]*dfa{d}, except); err != nil {
			return nil, err
		}
		return c.work.then(d, c.end)
	})
	if err == nil && length != (span{0, unlimited}) { // the end counts as well
		end := int32(utf8.RuneCountInString(c.end))
		if length.least += end; length.most != unlimited {
			length.most += end
		}
	}
	n := int32(0)
	if err == nil {
		n, err = c.counted(d, length, false)
	}
	if err != nil {
		return 0, s.errorf("%w", err)
	}
	return n, nil
}

// unmarked is the texts that all of the list accept, except texts with the marker and those that
// the expression matches.
func (c *compiler) unmarked(list []*dfa, except string) (*dfa, error) {
	wanted := len(list)
	not := []patternKey{{expr: regexp.QuoteMeta(c.marker), extent: anywhere}}
	if except != "" {
		not = append(not, patternKey{expr: except, extent: whole})
	}
	for _, e := range not {
		d, err := c.work.regex(e.expr, e.extent, plain)
		if err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return c.work.combine(list, func(each []bool) bool {
		return all(each[:wanted]) && !slices.Contains(each[wanted:], true)
	})
}

// then is the automaton of the texts of d, each followed by a text.
func (w *work) then(d *dfa, text string) (*dfa, error) {
	if len(d.accept) == 0 {
		return d, nil
	}
	var n nfa
	for range d.accept {
		n.split()
	}
	end := n.text(text, n.match())
	for s := range d.accept {
		row := d.row(int32(s))
		first := 0 // of the classes that lead to the same state
		for k, to := range row {
			if k+1 < len(row) && row[k+1] == to {
				continue
			}
			if to >= 0 {
				n.patch(int32(s), n.edge(byte(d.starts[first]), byte(d.starts[k+1]-1), to))
			}
			first = k + 1
		}
		if d.accept[s] {
			n.patch(int32(s), end)
		}
	}
	return n.dfa(w, 0)
}

// markedKey identifies the inputs of an automaton without the marker.
type markedKey struct {
	of   *dfa
	text string
}

// once is the automaton of a key, built at its first use.
func (b *builder) once(key markedKey, build func() (*dfa, error)) (*dfa, error) {
	d, ok := b.marked[key]
	if !ok {
		var err error
		if d, err = build(); err != nil {
			return nil, err
		}
		b.marked[key] = d
	}
	return d, nil
}

// markedText is the node of JSON strings in which the marker does not occur. Those with a
// limit are written in the shortest way, which is how their characters are counted.
func (c *compiler) markedText(s *shape) (int32, error) {
	if s.length != (span{0, unlimited}) {
		return c.quoted(ours()[anyInside], s.length)
	}
	return c.anyMarkedText()
}

// anyMarkedText is the node of all such strings.
func (c *compiler) anyMarkedText() (int32, error) {
	d, err := c.once(markedKey{textDFA(), c.marker}, func() (*dfa, error) { return c.unmarked([]*dfa{textDFA()}, "") })
	if err != nil {
		return 0, err
	}
	return c.automaton(d)
}
