package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// reader reads JSON in place. A vocabulary is megabytes of short strings: read
// through reflection into maps they would take longer than everything else at
// load, and a token listed twice would go unseen. The small parts of the file go
// through encoding/json.
//
// The data must be valid UTF-8.
type reader struct {
	data    []byte // ends where the value ends
	pos     int
	scratch []byte // of str
}

func (r *reader) errorf(format string, args ...any) error {
	return fmt.Errorf("at byte %d: %s", r.pos, fmt.Sprintf(format, args...))
}

// peek returns the next byte that is not white space, 0 at the end.
func (r *reader) peek() byte {
	for r.pos < len(r.data) {
		switch b := r.data[r.pos]; b {
		case ' ', '\t', '\n', '\r':
			r.pos++
		default:
			return b
		}
	}
	return 0
}

func (r *reader) expect(b byte, what string) error {
	if r.peek() != b {
		return r.errorf("expected %s", what)
	}
	r.pos++
	return nil
}

// end checks that nothing follows.
func (r *reader) end() error {
	if r.peek() != 0 || r.pos < len(r.data) {
		return r.errorf("expected the end of the document")
	}
	return nil
}

// object calls field for each key; field reads the value. The key is valid
// until the next string is read.
func (r *reader) object(field func(key []byte) error) error {
	if err := r.expect('{', "an object"); err != nil {
		return err
	}
	if r.peek() == '}' {
		r.pos++
		return nil
	}
	for {
		key, err := r.str()
		if err != nil {
			return err
		}
		if err := r.expect(':', "a colon"); err != nil {
			return err
		}
		if err := field(key); err != nil {
			return err
		}
		switch r.peek() {
		case ',':
			r.pos++
		case '}':
			r.pos++
			return nil
		default:
			return r.errorf("expected a comma or the end of an object")
		}
	}
}

// array calls element for each index; element reads the value.
func (r *reader) array(element func(i int) error) error {
	if err := r.expect('[', "an array"); err != nil {
		return err
	}
	if r.peek() == ']' {
		r.pos++
		return nil
	}
	for i := 0; ; i++ {
		if err := element(i); err != nil {
			return err
		}
		switch r.peek() {
		case ',':
			r.pos++
		case ']':
			r.pos++
			return nil
		default:
			return r.errorf("expected a comma or the end of an array")
		}
	}
}

// str reads a string. The result is valid until the next string is read: it
// lies in the data itself or, if the string has escapes, in scratch.
func (r *reader) str() ([]byte, error) {
	if err := r.expect('"', "a string"); err != nil {
		return nil, err
	}
	start := r.pos
	for ; r.pos < len(r.data); r.pos++ {
		switch b := r.data[r.pos]; {
		case b == '"':
			r.pos++
			return r.data[start : r.pos-1], nil
		case b == '\\':
			var err error
			r.scratch, err = r.escaped(append(r.scratch[:0], r.data[start:r.pos]...))
			return r.scratch, err
		case b < ' ':
			return nil, r.errorf("control character %#02x in a string", b)
		}
	}
	return nil, r.errorf("string without end")
}

// escaped reads the rest of a string from its first escape on.
func (r *reader) escaped(buf []byte) ([]byte, error) {
	for r.pos < len(r.data) {
		b := r.data[r.pos]
		switch {
		case b == '"':
			r.pos++
			return buf, nil
		case b < ' ':
			return nil, r.errorf("control character %#02x in a string", b)
		case b != '\\':
			buf = append(buf, b)
			r.pos++
			continue
		}
		if r.pos+1 >= len(r.data) {
			break
		}
		if r.data[r.pos+1] == 'u' {
			c, err := r.unicodeEscape()
			if err != nil {
				return nil, err
			}
			buf = utf8.AppendRune(buf, c)
			continue
		}
		i := bytes.IndexByte([]byte(`"\/bfnrt`), r.data[r.pos+1])
		if i < 0 {
			return nil, r.errorf("unknown escape \\%c", r.data[r.pos+1])
		}
		buf = append(buf, "\"\\/\b\f\n\r\t"[i])
		r.pos += 2
	}
	return nil, r.errorf("string without end")
}

// unicodeEscape reads \uXXXX, or two of them for a character beyond U+FFFF.
func (r *reader) unicodeEscape() (rune, error) {
	c, ok := r.hexEscape(r.pos)
	if ok && utf16.IsSurrogate(c) {
		low, lowOK := r.hexEscape(r.pos + 6)
		c = utf16.DecodeRune(c, low)
		ok = lowOK && c != utf8.RuneError
		r.pos += 6
	}
	if !ok {
		return 0, r.errorf("broken \\u escape")
	}
	r.pos += 6
	return c, nil
}

func (r *reader) hexEscape(pos int) (rune, bool) {
	if pos+6 > len(r.data) || r.data[pos] != '\\' || r.data[pos+1] != 'u' {
		return 0, false
	}
	v, err := strconv.ParseUint(string(r.data[pos+2:pos+6]), 16, 32)
	return rune(v), err == nil
}

// id reads a token id: a whole number from 0 to below limit.
func (r *reader) id(limit int) (int32, error) {
	r.peek()
	start, v := r.pos, 0
	for ; r.pos < len(r.data); r.pos++ {
		digit := r.data[r.pos] - '0'
		if digit > 9 {
			break
		}
		if v = v*10 + int(digit); v >= limit {
			return 0, r.errorf("token id of %d or more; ids must be nearly dense", limit)
		}
	}
	if r.pos == start || r.data[start] == '0' && r.pos > start+1 {
		return 0, r.errorf("expected a token id, a whole number")
	}
	return int32(v), nil
}

// value skips any value and returns a reader of it. Brackets are matched by
// number only: whoever reads the value checks the rest.
func (r *reader) value() (reader, error) {
	r.peek()
	start, depth := r.pos, 0
	for r.pos < len(r.data) {
		switch r.data[r.pos] {
		case '"':
			if err := r.skipString(); err != nil {
				return reader{}, err
			}
			if depth == 0 {
				return reader{data: r.data[:r.pos], pos: start}, nil
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return r.scalar(start)
			}
			if depth == 0 {
				r.pos++
				return reader{data: r.data[:r.pos], pos: start}, nil
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return r.scalar(start)
			}
		}
		r.pos++
	}
	if depth > 0 {
		return reader{}, r.errorf("value without end")
	}
	return r.scalar(start)
}

// scalar ends a value that is neither a string nor bracketed.
func (r *reader) scalar(start int) (reader, error) {
	if r.pos == start {
		return reader{}, r.errorf("expected a value")
	}
	return reader{data: r.data[:r.pos], pos: start}, nil
}

func (r *reader) skipString() error {
	for r.pos++; r.pos < len(r.data); r.pos++ {
		switch r.data[r.pos] {
		case '"':
			r.pos++
			return nil
		case '\\':
			r.pos++
		}
	}
	r.pos = len(r.data)
	return r.errorf("string without end")
}

// decode reads all of the value into v with encoding/json.
func (r *reader) decode(v any) error {
	if err := json.Unmarshal(r.data[r.pos:], v); err != nil {
		return fmt.Errorf("at byte %d: %w", r.pos, err)
	}
	return nil
}

// next reads the next value into v with encoding/json.
func (r *reader) next(v any) error {
	value, err := r.value()
	if err != nil {
		return err
	}
	return value.decode(v)
}

// ignore passes over a value, which must be valid nevertheless.
func (r *reader) ignore() error {
	var unused json.RawMessage
	return r.next(&unused)
}
