package grammar

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// The notation of Marked has no white space, and bareKey is the names of members that it writes
// without marks.
const (
	tightObject = `\{`
	tightArray  = `\[`
	tightComma  = `,`
	tightColon  = `:`
	bareKey     = `[A-Za-z0-9_$.\-]+`
)

// Marked is the values that a schema allows, in a notation of chat templates that is JSON but for
// strings and names of members: a string stands between two marks, without escapes and without the mark in it; a name
// stands without marks, or with them if it has other characters than letters of ASCII, digits and _ $ . -, which
// names that the schema does not list never have. Numbers are those of float64, and there is no white
// space.
func Marked(schema []byte, mark string) Source {
	return newSource("schema", "marked", []string{string(schema), mark}, func(b *builder) (int32, error) {
		if mark == "" {
			return 0, errors.New("schema: strings have no mark around them")
		}
		root, err := parseValue(schema)
		if err != nil {
			return 0, fmt.Errorf("schema: %w", err)
		}
		if err := isSchema(root); err != nil {
			return 0, err
		}
		if err := root.without(mark); err != nil {
			return 0, err
		}
		c := newCompiler(b, root)
		c.marker, c.end, c.quote = mark, mark, mark
		return c.value([]*value{root})
	})
}

var isBareKey = regexp.MustCompile(`^(?:` + bareKey + `)$`).MatchString

// tight is the punctuation of a structure in the notation of the compiler.
func (c *compiler) tight(expr string) string {
	if c.quote == "" {
		return expr
	}
	switch expr {
	case colon:
		return tightColon
	default:
		return strings.ReplaceAll(expr, blank, "")
	}
}

// key is how the name of a member is written.
func (c *compiler) key(name string) string {
	switch {
	case c.quote == "":
		return `"` + inString(name) + `"`
	case isBareKey(name):
		return name
	}
	return c.quote + name + c.quote
}

// written is how a value other than an array or object is written.
func (c *compiler) written(v *value) string {
	if c.quote != "" && v.kind == text {
		return c.quote + v.text + c.quote
	}
	return v.canonical()
}

// quotedKey is the node of the names whose insides in JSON d accepts.
func (c *compiler) quotedKey(d *dfa, length span) (int32, error) {
	if c.quote == "" {
		return c.quoted(d, length)
	}
	bare, err := c.work.combine([]*dfa{d, ours()[bareKey]}, all)
	if err != nil {
		return 0, err
	}
	return c.counted(bare, length, false)
}

// anyString is the node of strings.
func (c *compiler) anyString(s *shape) (int32, error) {
	if c.quote == "" {
		return c.string(s)
	}
	open, err := c.choice(c.quote)
	if err != nil {
		return 0, err
	}
	rest, err := c.bareString(s)
	return c.seq(open, rest), err
}
