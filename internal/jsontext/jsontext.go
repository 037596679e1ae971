// Package jsontext reads JSON (RFC 8259) from memory, value by value and without a tree:
// headers and vocabularies are megabytes of short strings. Members of an object come in file
// order with duplicates, numbers stay text, errors name the byte offset. The package knows
// no schema and no Go types: callers say what they expect next.
package jsontext

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// ErrDepth is in the error about arrays and objects that nest deeper than Limits allow.
var ErrDepth = errors.New("nested more than")

// Limits are the largest texts that are accepted.
type Limits struct {
	Bytes int // maximum length of the text; 0: unlimited
	Depth int // maximum nesting of arrays and objects

	// Replace makes U+FFFD of each byte that is not UTF-8 and of each \u escape of half a
	// surrogate pair, as encoding/json does. Otherwise both are errors.
	Replace bool
}

// Kind is the kind of a value.
type Kind uint8

// The kinds of values. Invalid is also the end of the text.
const (
	Invalid Kind = iota
	Null
	Bool
	Number
	String
	Array
	Object
)

// Reader stands before a value of a text, or behind the last. Behind an error it is of no use.
type Reader struct {
	data    []byte // ends where the value ends
	pos     int
	depth   int
	limits  Limits
	repair  bool   // data has bytes that are to be replaced
	scratch []byte // of Text
}

// Read lets root read the one value of a text, and checks that nothing follows it.
func Read(data []byte, limits Limits, root func(r *Reader) error) error {
	if limits.Bytes > 0 && len(data) > limits.Bytes {
		return fmt.Errorf("%d bytes, want at most %d", len(data), limits.Bytes)
	}
	r := &Reader{data: data, limits: limits}
	if !utf8.Valid(data) {
		if !limits.Replace {
			r.pos = firstInvalid(data)
			return r.Errorf("text is not UTF-8")
		}
		r.repair = true
	}
	if err := root(r); err != nil {
		return err
	}
	return r.End()
}

// firstInvalid is where the first byte is that is not UTF-8.
func firstInvalid(data []byte) int {
	for i := 0; i < len(data); {
		c, size := utf8.DecodeRune(data[i:])
		if c == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return len(data)
}

// Errorf is an error that names the byte where the reader is.
func (r *Reader) Errorf(format string, args ...any) error {
	return fmt.Errorf("at byte %d: %w", r.pos, fmt.Errorf(format, args...))
}

// unexpected is the error about the next bytes, where want was expected.
func (r *Reader) unexpected(want string) error {
	rest := r.data[r.pos:]
	if len(rest) == 0 {
		return r.Errorf("%w where %s was expected", io.ErrUnexpectedEOF, want)
	}
	for _, word := range []string{"NaN", "Infinity", "-Infinity"} {
		if bytes.HasPrefix(rest, []byte(word)) {
			return r.Errorf("%s, which JSON does not have, where %s was expected", word, want)
		}
	}
	return r.Errorf("%q where %s was expected", rest[0], want)
}

// next passes over white space and returns the byte that follows, 0 at the end.
func (r *Reader) next() byte {
	if r.pos < len(r.data) && r.data[r.pos] > ' ' {
		return r.data[r.pos]
	}
	return r.space()
}

func (r *Reader) space() byte {
	for ; r.pos < len(r.data); r.pos++ {
		switch c := r.data[r.pos]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// Kind is the kind of the next value, by its first byte. It reads nothing.
func (r *Reader) Kind() Kind {
	switch c := r.next(); c {
	case '{':
		return Object
	case '[':
		return Array
	case '"':
		return String
	case 't', 'f':
		return Bool
	case 'n':
		return Null
	default:
		if c == '-' || isDigit(c) {
			return Number
		}
		return Invalid
	}
}

// End checks that nothing follows.
func (r *Reader) End() error {
	if r.next(); r.pos < len(r.data) {
		return r.Errorf("%q after the end: more text follows", r.data[r.pos])
	}
	return nil
}

// Object reads an object. It calls member for each key, which is valid until the next string
// is read; member reads the value.
func (r *Reader) Object(member func(key []byte) error) error {
	more, err := r.open('{', '}', "'{'")
	for more && err == nil {
		var key []byte
		if key, err = r.Text(); err != nil {
			return err
		}
		if r.next() != ':' {
			return r.unexpected("':'")
		}
		r.pos++
		if err = member(key); err == nil {
			more, err = r.more('}', "',' or '}'")
		}
	}
	return err
}

// Array reads an array. It calls element for each index; element reads the value.
func (r *Reader) Array(element func(i int) error) error {
	more, err := r.open('[', ']', "'['")
	for i := 0; more && err == nil; i++ {
		if err = element(i); err == nil {
			more, err = r.more(']', "',' or ']'")
		}
	}
	return err
}

// open reads the first byte of an array or object. If it is empty, there is no more and open
// reads the end byte as well.
func (r *Reader) open(begin, end byte, want string) (more bool, err error) {
	if r.next() != begin {
		return false, r.unexpected(want)
	}
	if r.depth++; r.depth > r.limits.Depth {
		return false, r.Errorf("%w %d deep", ErrDepth, r.limits.Depth)
	}
	r.pos++
	if r.next() != end {
		return true, nil
	}
	r.depth--
	r.pos++
	return false, nil
}

// more reads what follows an element: a comma, or the end byte.
func (r *Reader) more(end byte, want string) (bool, error) {
	switch r.next() {
	case ',':
		r.pos++
		return true, nil
	case end:
		r.depth--
		r.pos++
		return false, nil
	default:
		return false, r.unexpected(want)
	}
}

// Skip reads a value of any kind, which must be valid.
func (r *Reader) Skip() error {
	switch r.Kind() {
	case String:
		_, err := r.Text()
		return err
	case Object:
		return r.Object(func([]byte) error { return r.Skip() })
	case Array:
		return r.Array(func(int) error { return r.Skip() })
	default:
		_, err := r.Scalar()
		return err
	}
}

// Value skips a value and returns a reader of it alone, whose errors name bytes of the whole
// text as well.
func (r *Reader) Value() (*Reader, error) {
	r.next()
	v := &Reader{pos: r.pos, depth: r.depth, limits: r.limits, repair: r.repair}
	err := r.Skip()
	v.data = r.data[:r.pos]
	return v, err
}

// Rest is the text that is not read yet: of a reader by Value, the whole value.
func (r *Reader) Rest() []byte { return r.data[r.pos:] }
