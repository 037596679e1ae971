package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// deepSeekPatterns are the Splits of DeepSeek-V3, each of which cuts the pieces of the one before.
var deepSeekPatterns = []string{
	`\p{N}{1,3}`,
	"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
	"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|" +
		`[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
}

// spelled is an expression with line ends as escapes: files have them either way.
func spelled(expr string) string {
	return strings.NewReplacer("\r", `\r`, "\n", `\n`).Replace(expr)
}

// More classes, of characters that these patterns distinguish.
const (
	mark   class = newline + 1 + iota
	symbol       // \p{P} and \p{S}
)

// deepSeekScanner gives the pieces of the three patterns in one pass.
type deepSeekScanner struct{ scanner }

func newDeepSeekScanner() *deepSeekScanner {
	s := &deepSeekScanner{scanner{marks: mark, digits: 3}}
	for _, c := range []struct {
		table *unicode.RangeTable
		class class
	}{{unicode.M, mark}, {unicode.P, symbol}, {unicode.S, symbol}, {unicode.L, letter}, {unicode.N, number}, {unicode.White_Space, space}} {
		s.fill(c.table, c.class)
	}
	s.classes['\r'], s.classes['\n'] = newline, newline
	return s
}

// split implements splitter. Runs that the second pattern matches, and the text between them and
// numbers, are cut independently of their surroundings.
func (s *deepSeekScanner) split(text string, emit func(string) bool) bool {
	for pos := 0; pos < len(text); {
		first, size := s.at(text, pos)
		end := pos + size
		if first == number {
			if end = s.numbers(text, end); !emit(text[pos:end]) {
				return false
			}
			pos = end
			continue
		}
		for chinese := ideograph(text[pos:]); end < len(text) && ideograph(text[end:]) == chinese; end += size {
			var c class
			if c, size = s.at(text, end); c == number {
				break
			}
		}
		if !s.words(text[pos:end], emit) {
			return false
		}
		pos = end
	}
	return true
}

// ideograph reports whether text begins with a character of the second pattern: Chinese and
// Japanese, in part.
func ideograph(text string) bool {
	if text[0] < 0xe3 || text[0] > 0xe9 { // first bytes of these characters in UTF-8
		return false
	}
	r, _ := utf8.DecodeRuneInString(text)
	return r >= 0x4e00 && r <= 0x9fa5 || r >= 0x3040 && r <= 0x30ff
}

// words splits text by the third pattern.
func (s *deepSeekScanner) words(text string, emit func(string) bool) bool {
	for pos := 0; pos < len(text); {
		end := s.word(text, pos)
		if end == pos { // no match: the text before the next one is a piece
			for end == pos || end < len(text) && s.word(text, end) == end {
				_, size := s.at(text, end)
				end += size
			}
		}
		if !emit(text[pos:end]) {
			return false
		}
		pos = end
	}
	return true
}

// word returns the end of the match that begins at pos, pos if none does. Its branches are the
// pattern's alternatives, in their order.
func (s *deepSeekScanner) word(text string, pos int) int {
	first, size := s.at(text, pos)
	next := pos + size
	second, secondSize := other, 0
	if next < len(text) {
		second, secondSize = s.at(text, next)
	}
	switch {
	case first == symbol && text[pos] < 0x80 && next < len(text) && latin(text[next]):
		for next < len(text) && latin(text[next]) {
			next++
		}
		return next
	case first == letter || first == mark:
		return s.letters(text, next)
	case first != newline && first != symbol && (second == letter || second == mark):
		return s.letters(text, next+secondSize)
	case first == symbol:
		return s.run(text, s.run(text, next, symbol), newline)
	case text[pos] == ' ' && second == symbol:
		return s.run(text, s.run(text, next+secondSize, symbol), newline)
	case first == space || first == newline:
		return s.spaces(text, pos)
	}
	return pos
}

// letters returns the end of a run of letters and marks.
func (s *deepSeekScanner) letters(text string, i int) int {
	for i < len(text) {
		c, size := s.at(text, i)
		if c != letter && c != mark {
			break
		}
		i += size
	}
	return i
}

// latin reports whether c is a letter of ASCII.
func latin(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
