package jinja

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// lexNumber reads an integer or a float, written as in Python.
func (l *lexer) lexNumber() error {
	s := l.rest()
	if n := floatLength(s); n > 0 && (l.pos == 0 || l.src[l.pos-1] != '.') {
		l.emit(tokFloat, strings.ReplaceAll(s[:n], "_", ""))
		l.advance(n)
		return nil
	}
	n := 0
	if len(s) > 2 && s[0] == '0' {
		for prefix, digits := range map[byte]string{'x': "0123456789abcdefABCDEF", 'o': "01234567", 'b': "01"} {
			if s[1]|0x20 == prefix {
				n = digitRun(s[2:], digits)
			}
		}
		if n > 0 {
			n += 2
		}
	}
	if n == 0 {
		digits := "0123456789"
		if s[0] == '0' {
			digits = "0"
		}
		n = digitRun(s, digits)
	}
	l.emit(tokInt, strings.ReplaceAll(s[:n], "_", ""))
	l.advance(n)
	return nil
}

// digitRun returns how many bytes of s are digits with single underscores
// between them.
func digitRun(s, digits string) int {
	n := 0
	for n < len(s) {
		switch {
		case strings.IndexByte(digits, s[n]) >= 0:
			n++
		case s[n] == '_' && n+1 < len(s) && strings.IndexByte(digits, s[n+1]) >= 0:
			n += 2
		default:
			return n
		}
	}
	return n
}

// floatLength returns the length of the float at the start of s, or 0 if there
// is an integer.
func floatLength(s string) int {
	const digits = "0123456789"
	n := digitRun(s, digits)
	isFloat := false
	if n < len(s) && s[n] == '.' {
		if f := digitRun(s[n+1:], digits); f > 0 && s[n+1] != '_' {
			n += 1 + f
			isFloat = true
		}
	}
	if n < len(s) && s[n]|0x20 == 'e' {
		at := n + 1
		if at < len(s) && (s[at] == '+' || s[at] == '-') {
			at++
		}
		if e := digitRun(s[at:], digits); e > 0 && s[at] != '_' {
			return at + e
		}
	}
	if !isFloat {
		return 0
	}
	return n
}

// lexString reads a quoted string.
func (l *lexer) lexString() error {
	s := l.rest()
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case s[0]:
			text, err := unescape(s[1:i])
			if err != nil {
				return err
			}
			l.emit(tokString, text)
			l.advance(i + 1)
			return nil
		}
	}
	return errors.New("string is not closed")
}

var simpleEscapes = map[byte]string{
	'\n': "", '\\': `\`, '\'': "'", '"': `"`, 'a': "\a", 'b': "\b",
	'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v",
}

// unescape resolves Python's backslash escapes. Unknown ones are
// kept.
func unescape(s string) (string, error) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		digits, base := 0, 16
		switch c := s[i]; c {
		case 'x':
			digits = 2
		case 'u':
			digits = 4
		case 'U':
			digits = 8
		case 'N':
			return "", errors.New(`string escape \N{...} is not supported: write the character itself`)
		case '0', '1', '2', '3', '4', '5', '6', '7':
			base = 8
			digits = min(3, len(s)-i) - 1
			for digits >= 0 && strings.Trim(s[i:i+digits+1], "01234567") != "" {
				digits--
			}
			i-- // the escape has no letter: its digits begin here
			digits++
		default:
			if text, ok := simpleEscapes[c]; ok {
				b.WriteString(text)
			} else {
				b.WriteByte('\\')
				b.WriteByte(c)
			}
			continue
		}
		if i+digits >= len(s) {
			return "", fmt.Errorf(`string escape \%s is cut short`, s[i:])
		}
		n, err := strconv.ParseUint(s[i+1:i+1+digits], base, 32)
		if err != nil || n > utf8.MaxRune || n >= 0xd800 && n < 0xe000 {
			return "", fmt.Errorf(`string escape \%s is not a character`, s[i:i+1+digits])
		}
		b.WriteRune(rune(n))
		i += digits
	}
	return b.String(), nil
}
