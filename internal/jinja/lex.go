package jinja

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tokEOF tokenKind = iota
	tokText
	tokPrintBegin // {{
	tokPrintEnd   // }}
	tokTagBegin   // {%
	tokTagEnd     // %}
	tokName
	tokString
	tokInt
	tokFloat
	tokOp
)

// token is one piece of the source. Text is its meaning: a string without its
// quotes and escapes, a number without underscores.
type token struct {
	kind tokenKind
	line int
	text string
}

func (t token) String() string {
	switch t.kind {
	case tokEOF:
		return "end of template"
	case tokText:
		return "text"
	case tokPrintBegin:
		return "'{{'"
	case tokPrintEnd:
		return "'}}'"
	case tokTagBegin:
		return "'{%'"
	case tokTagEnd:
		return "'%}'"
	case tokString:
		return "a string"
	}
	return "'" + t.text + "'"
}

// lexer cuts a template into tokens. Whitespace around tags is dealt with here:
// the newline after a tag and the blanks before one on its line are dropped
// (trim_blocks and lstrip_blocks), and the signs - and + override that.
type lexer struct {
	src       string
	pos       int
	line      int
	lineStart bool // nothing but a newline, or nothing at all, came before pos
	brackets  []byte
	tokens    []token
}

// lex returns the tokens of src, ending with tokEOF.
func lex(src string) ([]token, error) {
	src = strings.ReplaceAll(src, "\r\n", "\n")
	src = strings.ReplaceAll(src, "\r", "\n")
	l := &lexer{src: strings.TrimSuffix(src, "\n"), line: 1, lineStart: true}
	for l.pos < len(l.src) {
		if err := l.lexOutside(); err != nil {
			return nil, &Error{Line: l.line, Err: err}
		}
	}
	l.emit(tokEOF, "")
	return l.tokens, nil
}

func (l *lexer) emit(kind tokenKind, text string) {
	l.tokens = append(l.tokens, token{kind, l.line, text})
}

// advance moves over n bytes and counts the lines.
func (l *lexer) advance(n int) {
	part := l.src[l.pos : l.pos+n]
	l.line += strings.Count(part, "\n")
	l.lineStart = strings.HasSuffix(part, "\n")
	l.pos += n
}

func (l *lexer) rest() string { return l.src[l.pos:] }

// lexOutside reads text up to the next tag, and that tag.
func (l *lexer) lexOutside() error {
	at := nextTag(l.rest())
	if at < 0 {
		l.emit(tokText, l.rest())
		l.pos = len(l.src)
		return nil
	}
	text, kind := l.rest()[:at], l.rest()[at+1]
	sign := byte(0)
	if at+2 < len(l.rest()) {
		sign = l.rest()[at+2]
	}
	if text = l.stripBefore(text, sign, kind == '{'); text != "" {
		l.emit(tokText, text)
	}
	skip := at + 2
	if sign == '-' || sign == '+' {
		skip++
	}
	l.advance(skip)
	switch kind {
	case '#':
		return l.skipComment()
	case '{':
		return l.lexInside(tokPrintBegin, tokPrintEnd, "}}")
	}
	if n := rawTag(l.rest(), "raw"); n > 0 {
		l.advance(n)
		return l.lexRaw()
	}
	return l.lexInside(tokTagBegin, tokTagEnd, "%}")
}

// nextTag returns where the next tag begins in s, or -1.
func nextTag(s string) int {
	for i := 0; i+1 < len(s); i++ {
		j := strings.IndexByte(s[i:len(s)-1], '{')
		if j < 0 {
			return -1
		}
		if i += j; strings.IndexByte("{%#", s[i+1]) >= 0 {
			return i
		}
	}
	return -1
}

// stripBefore strips the text before a tag by the tag's sign.
func (l *lexer) stripBefore(text string, sign byte, isPrint bool) string {
	switch {
	case sign == '-':
		return strings.TrimRightFunc(text, isSpace)
	case sign == '+' || isPrint:
		return text
	}
	from := strings.LastIndexByte(text, '\n') + 1
	if (from > 0 || l.lineStart) && strings.TrimFunc(text[from:], isSpace) == "" {
		return text[:from]
	}
	return text
}

func spaces(s string) int { return len(s) - len(strings.TrimLeftFunc(s, isSpace)) }

// closing returns the length of the end of a tag at the start of s with the
// whitespace that it strips, or 0 if there is none.
func closing(s, end string) int {
	isPrint := end == "}}"
	switch {
	case strings.HasPrefix(s, "-"+end):
		return 3 + spaces(s[3:])
	case strings.HasPrefix(s, "+"+end) && !isPrint:
		return 3
	case strings.HasPrefix(s, end+"\n") && !isPrint:
		return 3
	case strings.HasPrefix(s, end):
		return 2
	}
	return 0
}

func (l *lexer) skipComment() error {
	i := strings.Index(l.rest(), "#}")
	if i < 0 {
		return errors.New("comment is not closed: add '#}'")
	}
	if i > 0 && strings.IndexByte("-+", l.rest()[i-1]) >= 0 {
		i--
	}
	l.advance(i + closing(l.rest()[i:], "#}"))
	return nil
}

// rawTag returns the length of the rest of a {% word %} tag, its opening brace
// taken, or 0 if this is not one. The tag that begins raw text does not take the
// newline behind it along; the one that ends it does.
func rawTag(s, word string) int {
	n := spaces(s)
	if !strings.HasPrefix(s[n:], word) {
		return 0
	}
	n += len(word)
	n += spaces(s[n:])
	if word == "raw" && strings.HasPrefix(s[n:], "%}") {
		return n + 2
	}
	if word == "raw" && strings.HasPrefix(s[n:], "+") {
		return 0
	}
	c := closing(s[n:], "%}")
	if c == 0 {
		return 0
	}
	return n + c
}

func (l *lexer) lexRaw() error {
	for i := 0; ; i += 2 {
		j := strings.Index(l.rest()[i:], "{%")
		if j < 0 {
			return errors.New("raw block is not closed: add '{% endraw %}'")
		}
		i += j
		sign, skip := byte(0), i+2
		if skip < len(l.rest()) {
			if sign = l.rest()[skip]; sign == '-' || sign == '+' {
				skip++
			}
		}
		if n := rawTag(l.rest()[skip:], "endraw"); n > 0 {
			if text := l.stripBefore(l.rest()[:i], sign, false); text != "" {
				l.emit(tokText, text)
			}
			l.advance(skip + n)
			return nil
		}
	}
}

// lexInside reads the tokens of one tag, whose opening was read, and its end.
func (l *lexer) lexInside(begin, end tokenKind, endText string) error {
	l.emit(begin, "")
	l.brackets = l.brackets[:0]
	for l.pos < len(l.src) {
		if len(l.brackets) == 0 {
			if n := closing(l.rest(), endText); n > 0 {
				l.emit(end, "")
				l.advance(n)
				return nil
			}
		}
		if n := spaces(l.rest()); n > 0 {
			l.advance(n)
			continue
		}
		if err := l.lexToken(); err != nil {
			return err
		}
	}
	return fmt.Errorf("tag is not closed: add '%s'", endText)
}

func (l *lexer) lexToken() error {
	s := l.rest()
	c, size := utf8.DecodeRuneInString(s)
	switch {
	case c >= '0' && c <= '9':
		return l.lexNumber()
	case c == '\'' || c == '"':
		return l.lexString()
	case isNameRune(c):
		n := len(s) - len(strings.TrimLeftFunc(s, isNameRune))
		if n > maxName {
			return &LimitError{What: "bytes of a name", Max: maxName}
		}
		l.emit(tokName, s[:n])
		l.advance(n)
		return nil
	}
	n := 1
	if len(s) > 1 && slices.Contains([]string{"//", "==", "!=", ">=", "<="}, s[:2]) {
		n = 2
	} else if size != 1 || strings.IndexByte("+-/*%~[](){}><=.:|,", s[0]) < 0 {
		return fmt.Errorf("unexpected character %q", c)
	}
	if err := l.balance(s[0]); err != nil {
		return err
	}
	l.emit(tokOp, s[:n])
	l.advance(n)
	return nil
}

func isNameRune(c rune) bool {
	return c == '_' || unicode.IsLetter(c) || unicode.IsDigit(c)
}

// balance follows brackets: inside them a closing brace cannot end the tag.
func (l *lexer) balance(c byte) error {
	switch c {
	case '(':
		l.brackets = append(l.brackets, ')')
	case '[':
		l.brackets = append(l.brackets, ']')
	case '{':
		l.brackets = append(l.brackets, '}')
	case ')', ']', '}':
		n := len(l.brackets)
		if n == 0 {
			return fmt.Errorf("unexpected '%c'", c)
		}
		if want := l.brackets[n-1]; c != want {
			return fmt.Errorf("unexpected '%c', expected '%c'", c, want)
		}
		l.brackets = l.brackets[:n-1]
	}
	return nil
}
