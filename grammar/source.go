package grammar

import (
	"fmt"
	"regexp"
)

// Source says what a text has to look like. Sources are values, cheap to make and checked
// when they are compiled.
type Source struct {
	name  string
	build func(*builder) (int32, error)
}

// maxChoice bounds the texts of a Choice and the length of a Literal, in bytes.
const maxChoice = 1 << 20

// Regexp is the texts that the expression, in RE2's syntax, matches from their beginning to
// their end. Word boundaries and line anchors are not supported.
func Regexp(expr string) Source {
	return Source{"expression", func(b *builder) (int32, error) {
		d, err := b.lexeme(expr)
		if err != nil {
			return 0, fmt.Errorf("expression %.60q: %w", expr, err)
		}
		return b.automaton(d)
	}}
}

// InString is the texts of a Regexp or of a grammar that Lark read, as strings of JSON: in
// quotation marks, with an escape only where JSON demands one.
func InString(part Source) Source {
	return Source{part.name, func(b *builder) (int32, error) {
		before := b.spelling
		b.spelling = escaped
		n, err := part.build(b)
		b.spelling = before
		if err != nil {
			return 0, err
		}
		mark, err := b.choice(`"`)
		return b.seq(mark, n, mark), err
	}}
}

// Without is the texts of a Regexp or of a grammar that Lark read, none of whose terminals has
// the marker in it.
func Without(marker string, part Source) Source {
	return Source{part.name, func(b *builder) (int32, error) {
		before := b.avoid
		b.avoid = marker
		n, err := part.build(b)
		b.avoid = before
		return n, err
	}}
}

// lexeme is the automaton of an expression, spelled as the builder is told to.
func (b *builder) lexeme(expr string) (*dfa, error) {
	d, err := b.work.regex(expr, whole, b.spelling)
	if err != nil || b.avoid == "" {
		return d, err
	}
	within, err := b.work.regex(regexp.QuoteMeta(b.avoid), anywhere, plain)
	if err != nil {
		return nil, err
	}
	return b.work.combine([]*dfa{d, within}, func(each []bool) bool { return each[0] && !each[1] })
}

// Choice is one of the texts.
func Choice(texts ...string) Source {
	return Source{"choice", func(b *builder) (int32, error) {
		n := 0
		for _, text := range texts {
			n += len(text)
		}
		if n > maxChoice {
			return 0, fmt.Errorf("choice: %d bytes of text, want at most %d", n, maxChoice)
		}
		id, err := b.choice(texts...)
		if err != nil {
			return 0, fmt.Errorf("choice: %w", err)
		}
		return id, nil
	}}
}

// Literal is the text itself.
func Literal(text string) Source { return Choice(text) }

// TextWithout is any text of whole characters in which the marker does not occur: what
// stands before a marker that begins something else.
func TextWithout(marker string) Source {
	return Source{"text", func(b *builder) (int32, error) {
		within, err := b.work.regex(regexp.QuoteMeta(marker), anywhere, plain)
		if err != nil {
			return 0, fmt.Errorf("marker %.60q: %w", marker, err)
		}
		d, err := b.work.combine([]*dfa{ours()[anyText], within}, func(each []bool) bool { return each[0] && !each[1] })
		if err != nil {
			return 0, fmt.Errorf("marker %.60q: %w", marker, err)
		}
		return b.automaton(d)
	}}
}

// Sequence is the parts, one after the other with nothing between them.
func Sequence(parts ...Source) Source {
	return Source{"sequence", func(b *builder) (int32, error) {
		list, err := b.each(parts)
		return b.seq(list...), err
	}}
}

// Either is any one of the parts.
func Either(parts ...Source) Source {
	return Source{"alternatives", func(b *builder) (int32, error) {
		list, err := b.each(parts)
		return b.alt(list...), err
	}}
}

// Repeat is the part, at least and at most as often as said; a most of 0 or less is no limit.
func Repeat(part Source, least, most int) Source {
	return Source{"repetition", func(b *builder) (int32, error) {
		if most <= 0 {
			most = unlimited
		}
		if least < 0 || least > most || most > unlimited {
			return 0, fmt.Errorf("repetition of %d to %d times", least, most)
		}
		n, err := part.build(b)
		return b.rep(n, int32(least), int32(most)), err
	}}
}

// each builds the parts.
func (b *builder) each(parts []Source) ([]int32, error) {
	list := make([]int32, len(parts))
	for i, part := range parts {
		var err error
		if list[i], err = part.build(b); err != nil {
			return nil, err
		}
	}
	return list, nil
}
