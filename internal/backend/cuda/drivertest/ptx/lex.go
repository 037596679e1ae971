package ptx

import "fmt"

// A SyntaxError is an error of a text with its line.
type SyntaxError struct {
	Line int
	What string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("ptx: line %d: %s", e.Line, e.What) }

func wrong(line int, format string, args ...any) error {
	return &SyntaxError{line, fmt.Sprintf(format, args...)}
}

type tokenKind uint8

const (
	tokenEnd    tokenKind = iota
	tokenWord             // names, opcodes and directives, with their dots
	tokenNumber           // without sign
	tokenString
	tokenPunct // one character
)

type token struct {
	kind tokenKind
	text string
	line int
}

func (t token) String() string {
	if t.kind == tokenEnd {
		return "the end of the text"
	}
	return fmt.Sprintf("%q", t.text)
}

func letter(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '$' || c == '%' || c == '.'
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// lex cuts text into tokens; comments go.
func lex(text string) ([]token, error) {
	tokens := make([]token, 0, len(text)/5)
	line := 1
	for i := 0; i < len(text); {
		start := i
		c := text[i]
		switch {
		case c == '\n':
			line++
			i++
		case c == ' ' || c == '\t' || c == '\r':
			i++
		case c == '/' && i+1 < len(text) && text[i+1] == '/':
			for i < len(text) && text[i] != '\n' {
				i++
			}
		case c == '"':
			for i++; i < len(text) && text[i] != '"' && text[i] != '\n'; i++ {
			}
			if i == len(text) || text[i] == '\n' {
				return nil, wrong(line, "a string without an end")
			}
			i++
			tokens = append(tokens, token{tokenString, text[start+1 : i-1], line})
		case letter(c):
			i = word(text, i)
			tokens = append(tokens, token{tokenWord, text[start:i], line})
		case digit(c):
			for i < len(text) && (letter(text[i]) || digit(text[i])) {
				i++
			}
			tokens = append(tokens, token{tokenNumber, text[start:i], line})
		case c > ' ' && c < 0x7f:
			i++
			tokens = append(tokens, token{tokenPunct, text[start:i], line})
		default:
			return nil, wrong(line, "byte %#x in the text", c)
		}
	}
	return append(tokens, token{tokenEnd, "", line}), nil
}

// word returns the end of the word that begins at i. Two colons belong to it, as in L2::128B.
func word(text string, i int) int {
	for i < len(text) {
		switch {
		case letter(text[i]) || digit(text[i]):
			i++
		case text[i] == ':' && i+2 < len(text) && text[i+1] == ':' && (letter(text[i+2]) || digit(text[i+2])):
			i += 2
		default:
			return i
		}
	}
	return i
}
