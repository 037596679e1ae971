package grammar

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"strconv"
)

// Source is the texts that a grammar allows. Sources are values, cheap to make and checked
// when they are compiled. The zero Source is invalid.
type Source struct {
	name string // for error messages
	key  Key
	make func(*builder) (int32, error)
}

// Key identifies a Source: Sources made by different functions, or of different
// arguments, have different keys.
type Key [sha256.Size]byte

// newSource is a source that the function kind made of parts.
func newSource(name, kind string, parts []string, build func(*builder) (int32, error)) Source {
	text := []byte(kind)
	for _, p := range parts {
		text = binary.LittleEndian.AppendUint64(append(text, 0), uint64(len(p))) // lengths keep parts apart
		text = append(text, p...)
	}
	return Source{name, sha256.Sum256(text), build}
}

// keys are the keys of sources, as parts of another.
func keys(list ...Source) []string {
	parts := make([]string, len(list))
	for i, s := range list {
		parts[i] = string(s.key[:])
	}
	return parts
}

// Key identifies the source, for caches of compiled grammars.
func (s Source) Key() Key { return s.key }

// IsZero reports whether s is the zero Source.
func (s Source) IsZero() bool { return s.make == nil }

// build adds the nodes of the source to a builder and returns the first.
func (s Source) build(b *builder) (int32, error) {
	if s.make == nil {
		return 0, errors.New("the source is empty")
	}
	return s.make(b)
}

// maxChoice bounds the texts of a Choice and the length of a Literal, in bytes.
const maxChoice = 1 << 20

// Regexp is the texts that the expression, in RE2's syntax, matches as a whole. Word boundaries and line anchors are
// not supported.
func Regexp(expr string) Source {
	return newSource("expression", "regexp", []string{expr}, func(b *builder) (int32, error) {
		d, err := b.lexeme(expr)
		if err != nil {
			return 0, fmt.Errorf("expression %.60q: %w", expr, err)
		}
		return b.automaton(d)
	})
}

// InString is the texts of a Regexp or of a grammar that Lark read, as strings of JSON: in
// quotation marks, with an escape only where JSON demands one.
func InString(part Source) Source {
	return newSource(part.name, "in string", keys(part), func(b *builder) (int32, error) {
		before := b.spelling
		b.spelling = escaped
		n, err := part.build(b)
		b.spelling = before
		if err != nil {
			return 0, err
		}
		mark, err := b.choice(`"`)
		return b.seq(mark, n, mark), err
	})
}

// Without is the texts of a Regexp or of a Lark grammar, none of whose terminals contains
// the marker.
func Without(marker string, part Source) Source {
	return newSource(part.name, "without", append(keys(part), marker), func(b *builder) (int32, error) {
		before := b.avoid
		b.avoid = marker
		n, err := part.build(b)
		b.avoid = before
		return n, err
	})
}

// lexeme is the automaton of an expression, in the builder's spelling.
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
	return newSource("choice", "choice", texts, func(b *builder) (int32, error) {
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
	})
}

// Literal is the text itself.
func Literal(text string) Source { return Choice(text) }

// TextWithout is any text of whole characters in which the marker does not occur: for
// text before a marker that begins something else.
func TextWithout(marker string) Source {
	return newSource("text", "text without", []string{marker}, func(b *builder) (int32, error) {
		within, err := b.work.regex(regexp.QuoteMeta(marker), anywhere, plain)
		if err != nil {
			return 0, fmt.Errorf("marker %.60q: %w", marker, err)
		}
		d, err := b.work.combine([]*dfa{ours()[anyText], within}, func(each []bool) bool { return each[0] && !each[1] })
		if err != nil {
			return 0, fmt.Errorf("marker %.60q: %w", marker, err)
		}
		return b.automaton(d)
	})
}

// Sequence is the parts, one after the other with nothing between them.
func Sequence(parts ...Source) Source {
	return newSource("sequence", "sequence", keys(parts...), func(b *builder) (int32, error) {
		list, err := b.each(parts)
		return b.seq(list...), err
	})
}

// Either is any one of the parts.
func Either(parts ...Source) Source {
	return newSource("alternatives", "either", keys(parts...), func(b *builder) (int32, error) {
		list, err := b.each(parts)
		return b.alt(list...), err
	})
}

// Repeat is the part, min to max times; a max of 0 or less is no limit.
func Repeat(part Source, min, max int) Source {
	counts := []string{strconv.Itoa(min), strconv.Itoa(max)}
	return newSource("repetition", "repeat", append(keys(part), counts...), func(b *builder) (int32, error) {
		if max <= 0 {
			max = unlimited
		}
		if min < 0 || min > max || max > unlimited {
			return 0, fmt.Errorf("repetition of %d to %d times", min, max)
		}
		n, err := part.build(b)
		return b.rep(n, int32(min), int32(max)), err
	})
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
