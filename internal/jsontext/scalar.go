package jsontext

import (
	"bytes"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Scalar reads a string, number, true, false or null: the value of the string, or the text of the
// others. The result is valid until the next string is read.
func (r *Reader) Scalar() ([]byte, error) {
	switch r.Kind() {
	case String:
		return r.Text()
	case Number:
		return r.number()
	case Bool, Null:
		for _, word := range []string{"true", "false", "null"} {
			if bytes.HasPrefix(r.Rest(), []byte(word)) {
				r.pos += len(word)
				return r.data[r.pos-len(word) : r.pos], nil
			}
		}
	}
	return nil, r.unexpected("a value")
}

// number reads a number.
func (r *Reader) number() ([]byte, error) {
	start := r.pos
	if r.data[r.pos] == '-' {
		r.pos++
	}
	if r.at('0') {
		r.pos++
	} else if err := r.digits(); err != nil {
		return nil, err
	}
	if r.at('.') {
		r.pos++
		if err := r.digits(); err != nil {
			return nil, err
		}
	}
	if r.at('e') || r.at('E') {
		r.pos++
		if r.at('+') || r.at('-') {
			r.pos++
		}
		if err := r.digits(); err != nil {
			return nil, err
		}
	}
	return r.data[start:r.pos], nil
}

func isDigit(c byte) bool { return c-'0' <= 9 }

// at reports whether the next byte is c.
func (r *Reader) at(c byte) bool { return r.pos < len(r.data) && r.data[r.pos] == c }

// digits reads one digit or more.
func (r *Reader) digits() error {
	start := r.pos
	for r.pos < len(r.data) && isDigit(r.data[r.pos]) {
		r.pos++
	}
	if r.pos == start {
		return r.unexpected("a digit")
	}
	return nil
}

// Whole reads a whole number from 0 to limit, written without fraction or exponent.
func (r *Reader) Whole(limit int) (int, error) {
	if !isDigit(r.next()) {
		return 0, r.unexpected("a whole number")
	}
	start, n := r.pos, 0
	for ; r.pos < len(r.data) && isDigit(r.data[r.pos]); r.pos++ {
		digit := int(r.data[r.pos] - '0')
		if n > (math.MaxInt-digit)/10 || 10*n+digit > limit {
			return 0, r.Errorf("number is too large: more than %d", limit)
		}
		n = 10*n + digit
	}
	if r.data[start] == '0' && r.pos > start+1 {
		return 0, r.Errorf("whole number begins with 0")
	}
	if r.at('.') || r.at('e') || r.at('E') {
		return 0, r.Errorf("fraction where a whole number was expected")
	}
	return n, nil
}

// Text reads a string. The result is valid until the next string is read: it is a part of the
// data or, if something in it is escaped or replaced, of a buffer.
func (r *Reader) Text() ([]byte, error) {
	if r.next() != '"' {
		return nil, r.unexpected("a string")
	}
	r.pos++
	start := r.pos
	for r.pos < len(r.data) && plain[r.data[r.pos]] {
		r.pos++
	}
	if r.at('"') && !r.repair {
		r.pos++
		return r.data[start : r.pos-1], nil
	}
	text, err := r.escaped(append(r.scratch[:0], r.data[start:r.pos]...))
	if err == nil && r.repair {
		text = []byte(string([]rune(string(text))))
	}
	r.scratch = text
	return text, err
}

// plain are the bytes that stand for themselves in a string.
var plain = func() (table [256]bool) {
	for c := ' '; c < 256; c++ {
		table[c] = c != '"' && c != '\\'
	}
	return table
}()

// escaped appends the rest of a string to text, and reads its end.
func (r *Reader) escaped(text []byte) ([]byte, error) {
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; {
		case plain[c]:
			text = append(text, c)
			r.pos++
		case c == '"':
			r.pos++
			return text, nil
		case c != '\\':
			return nil, r.Errorf("control character %#02x in a string", c)
		case r.pos+1 < len(r.data) && r.data[r.pos+1] == 'u':
			char, err := r.unicode()
			if err != nil {
				return nil, err
			}
			text = utf8.AppendRune(text, char)
		case r.pos+1 < len(r.data):
			i := bytes.IndexByte([]byte(`"\/bfnrt`), r.data[r.pos+1])
			if i < 0 {
				return nil, r.Errorf("unknown escape \\%c in a string", r.data[r.pos+1])
			}
			text = append(text, "\"\\/\b\f\n\r\t"[i])
			r.pos += 2
		default:
			r.pos++
		}
	}
	return nil, r.Errorf("string without end")
}

// unicode reads \uXXXX, or two of them for a character beyond U+FFFF.
func (r *Reader) unicode() (rune, error) {
	char, ok := r.hex(r.pos)
	if ok && utf16.IsSurrogate(char) {
		low, _ := r.hex(r.pos + 6)
		if char = utf16.DecodeRune(char, low); char != utf8.RuneError {
			r.pos += 6
		} else {
			ok = r.limits.Replace
		}
	}
	if !ok {
		return 0, r.Errorf("broken \\u escape in a string")
	}
	r.pos += 6
	return char, nil
}

// hex is the number of the escape \uXXXX at pos.
func (r *Reader) hex(pos int) (rune, bool) {
	if pos+6 > len(r.data) || r.data[pos] != '\\' || r.data[pos+1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(r.data[pos+2:pos+6]), 16, 32)
	return rune(n), err == nil
}
