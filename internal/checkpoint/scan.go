package checkpoint

import (
	"encoding/json"
	"fmt"
	"math"
	"unicode/utf8"
)

// scanner reads JSON from memory, strictly and without building a tree: headers
// and indexes of the largest releases are tens of megabytes. It does not know what
// it reads; callers say what they expect next. Duplicate keys are theirs to find.
type scanner struct {
	data []byte
	pos  int
}

// maxDepth bounds the nesting of values that are skipped.
const maxDepth = 64

func (s *scanner) errorf(format string, args ...any) error {
	return fmt.Errorf("at byte %d: %w", s.pos, fmt.Errorf(format, args...))
}

// next skips white space and returns the byte that follows, 0 at the end.
func (s *scanner) next() byte {
	for ; s.pos < len(s.data); s.pos++ {
		switch c := s.data[s.pos]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// expect consumes one punctuation byte.
func (s *scanner) expect(c byte) error {
	if got := s.next(); got != c || s.pos >= len(s.data) {
		return s.errorf("%s where %q was expected", s.found(), c)
	}
	s.pos++
	return nil
}

// found describes what stands at the position, for messages.
func (s *scanner) found() string {
	rest := s.data[s.pos:]
	for _, word := range []string{"NaN", "Infinity", "-Infinity"} {
		if len(rest) >= len(word) && string(rest[:len(word)]) == word {
			return word + ", which JSON does not have,"
		}
	}
	if len(rest) == 0 {
		return "end of text"
	}
	return fmt.Sprintf("%q", rest[0])
}

// object reads an object, calling member for each key with the scanner at its value.
func (s *scanner) object(member func(key string) error) error {
	if err := s.expect('{'); err != nil {
		return err
	}
	if s.next() == '}' {
		s.pos++
		return nil
	}
	for {
		key, err := s.str()
		if err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		if err := member(key); err != nil {
			return err
		}
		if s.next() == '}' {
			s.pos++
			return nil
		}
		if err := s.expect(','); err != nil {
			return err
		}
	}
}

// array reads an array, calling element with the scanner at each value.
func (s *scanner) array(element func() error) error {
	if err := s.expect('['); err != nil {
		return err
	}
	if s.next() == ']' {
		s.pos++
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		if s.next() == ']' {
			s.pos++
			return nil
		}
		if err := s.expect(','); err != nil {
			return err
		}
	}
}

// str reads a string and returns a copy of it.
func (s *scanner) str() (string, error) {
	if s.next() != '"' {
		return "", s.errorf("%s where a string was expected", s.found())
	}
	start, escaped := s.pos, false
	for s.pos++; s.pos < len(s.data); s.pos++ {
		switch c := s.data[s.pos]; {
		case c == '"':
			s.pos++
			return s.text(start, escaped)
		case c == '\\':
			escaped = true
			s.pos++
		case c < ' ':
			return "", s.errorf("control character in a string")
		}
	}
	s.pos = len(s.data)
	return "", s.errorf("string without end")
}

// text is the string whose quoted form is data[start:pos]. Escapes are rare, so
// the standard decoder takes them.
func (s *scanner) text(start int, escaped bool) (string, error) {
	quoted := s.data[start:s.pos]
	if !utf8.Valid(quoted) {
		return "", s.errorf("string is not UTF-8")
	}
	if !escaped {
		return string(quoted[1 : len(quoted)-1]), nil
	}
	var v string
	if err := json.Unmarshal(quoted, &v); err != nil {
		return "", s.errorf("string %q: %w", quoted, err)
	}
	return v, nil
}

// size reads a whole number from 0 to the largest int.
func (s *scanner) size() (int, error) {
	c := s.next()
	if c < '0' || c > '9' {
		return 0, s.errorf("%s where a whole number was expected", s.found())
	}
	start, n := s.pos, 0
	for ; s.pos < len(s.data); s.pos++ {
		c := s.data[s.pos]
		if c < '0' || c > '9' {
			break
		}
		if n > (math.MaxInt-int(c-'0'))/10 {
			return 0, s.errorf("number is too large")
		}
		n = 10*n + int(c-'0')
	}
	if s.data[start] == '0' && s.pos > start+1 {
		return 0, s.errorf("number begins with 0")
	}
	if s.pos < len(s.data) && (s.data[s.pos] == '.' || s.data[s.pos]|0x20 == 'e') {
		return 0, s.errorf("fraction where a whole number was expected")
	}
	return n, nil
}

// sizes reads an array of at most limit whole numbers.
func (s *scanner) sizes(limit int) ([]int, error) {
	list := []int{}
	err := s.array(func() error {
		if len(list) == limit {
			return s.errorf("more than %d numbers", limit)
		}
		n, err := s.size()
		list = append(list, n)
		return err
	})
	return list, err
}

// skip passes over one value of any kind.
func (s *scanner) skip(depth int) error {
	if depth > maxDepth {
		return s.errorf("nested more than %d deep", maxDepth)
	}
	switch c := s.next(); c {
	case '{':
		return s.object(func(string) error { return s.skip(depth + 1) })
	case '[':
		return s.array(func() error { return s.skip(depth + 1) })
	case '"':
		_, err := s.str()
		return err
	}
	start := s.pos
	for s.pos < len(s.data) && isScalar(s.data[s.pos]) {
		s.pos++
	}
	if !json.Valid(s.data[start:s.pos]) {
		s.pos = start
		return s.errorf("%s where a value was expected", s.found())
	}
	return nil
}

// isScalar reports whether c can be part of a number, true, false or null.
func isScalar(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c == 'E' || c == '.' || c == '+' || c == '-'
}

// end checks that nothing follows.
func (s *scanner) end() error {
	s.next()
	if s.pos < len(s.data) {
		return s.errorf("%s after the end", s.found())
	}
	return nil
}
