package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// The patterns of the Qwen families and of GLM, as their files spell them. A scanner
// gives the same pieces as the regular expression, without its look-ahead and
// backtracking.
const (
	qwen35Pattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	qwen2Pattern  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	glmPattern    = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// class is the class of a character in the patterns.
type class uint8

const (
	other   class = iota // neither of the following: punctuation, symbols, controls
	letter               // part of a word
	number               // \p{N}
	space                // \s but for the line ends
	newline              // CR or LF
)

// tableRunes is the part of Unicode that has a table: all but historic
// ideographs, emoji included.
const tableRunes = 0x20000

// scanner splits text by one of these patterns. They differ in combining marks: in
// that of Qwen3.5 a mark is like a letter everywhere (as the optional first
// character of a word it is followed by what it would begin itself), in the others
// it is like punctuation; and in how many digits stay together.
type scanner struct {
	classes [tableRunes]class
	marks   class // the class of \p{M}
	digits  int   // at most this many in a piece
}

// newScanner returns a scanner that gives combining marks the class marks, and
// makes pieces of at most digits digits.
func newScanner(marks class, digits int) *scanner {
	s := &scanner{marks: marks, digits: digits}
	s.fill(unicode.M, marks)
	s.fill(unicode.L, letter)
	s.fill(unicode.N, number)
	s.fill(unicode.White_Space, space)
	s.classes['\r'] = newline
	s.classes['\n'] = newline
	return s
}

func (s *scanner) fill(table *unicode.RangeTable, c class) {
	for _, r := range table.R16 {
		for i := rune(r.Lo); i <= rune(r.Hi); i += rune(r.Stride) {
			s.classes[i] = c
		}
	}
	for _, r := range table.R32 {
		for i := rune(r.Lo); i <= rune(r.Hi) && i < tableRunes; i += rune(r.Stride) {
			s.classes[i] = c
		}
	}
}

// at returns the class and length of the character at i, which must be inside
// text.
func (s *scanner) at(text string, i int) (c class, size int) {
	if b := text[i]; b < utf8.RuneSelf {
		return s.classes[b], 1
	}
	r, size := utf8.DecodeRuneInString(text[i:])
	if r < tableRunes {
		return s.classes[r], size
	}
	switch { // no number or white space is out here
	case unicode.Is(unicode.L, r):
		return letter, size
	case unicode.Is(unicode.M, r):
		return s.marks, size
	}
	return other, size
}

// run returns the end of the characters of class c from i on.
func (s *scanner) run(text string, i int, c class) int {
	for i < len(text) {
		// ASCII bytes have precomputed classes; most text is ASCII.
		if b := text[i]; b < utf8.RuneSelf {
			if s.classes[b] != c {
				break
			}
			i++
			continue
		}
		found, size := s.at(text, i)
		if found != c {
			break
		}
		i += size
	}
	return i
}

// split implements splitter.
func (s *scanner) split(text string, emit func(string) bool) bool {
	for pos := 0; pos < len(text); {
		end := s.end(text, pos)
		if !emit(text[pos:end]) {
			return false
		}
		pos = end
	}
	return true
}

// end returns the end of the piece that begins at pos. Its branches are the
// pattern's alternatives, in their order where it matters.
func (s *scanner) end(text string, pos int) int {
	first, size := s.at(text, pos)
	next := pos + size
	switch first {
	case letter:
		return s.run(text, next, letter)
	case number:
		return s.numbers(text, next)
	case newline:
		return s.spaces(text, pos)
	case other:
		if text[pos] == '\'' {
			if n := contraction(text[next:]); n > 0 {
				return next + n
			}
		}
	}
	if next < len(text) {
		second, size := s.at(text, next)
		if second == letter {
			return s.run(text, next+size, letter)
		}
		if text[pos] == ' ' && second == other {
			return s.symbols(text, next+size)
		}
	}
	if first == other {
		return s.symbols(text, next)
	}
	return s.spaces(text, pos)
}

// numbers returns the end of a piece of digits, of which the first ends at i.
func (s *scanner) numbers(text string, i int) int {
	for n := 1; n < s.digits && i < len(text); n++ {
		c, size := s.at(text, i)
		if c != number {
			break
		}
		i += size
	}
	return i
}

// symbols returns the end of a run of symbols and of the line ends after it.
func (s *scanner) symbols(text string, i int) int {
	return s.run(text, s.run(text, i, other), newline)
}

// spaces returns the end of the piece that begins with white space at pos: up
// to the last line end of the white space if there is one; else all of it, but
// for the last character if text follows, which that character then leads.
func (s *scanner) spaces(text string, pos int) int {
	lineEnd, last, i := -1, pos, pos
	for i < len(text) {
		c, size := s.at(text, i)
		if c != space && c != newline {
			break
		}
		last = i
		i += size
		if c == newline {
			lineEnd = i
		}
	}
	switch {
	case lineEnd >= 0:
		return lineEnd
	case i == len(text) || last == pos:
		return i
	}
	return last
}

// contraction returns the length of an English contraction's letters at the
// start of text, 0 if there is none. Case folding counts U+017F, the long s, as
// an s.
func contraction(text string) int {
	const longS = "\u017f"
	if text == "" {
		return 0
	}
	switch text[0] | 0x20 {
	case 's', 't', 'm', 'd':
		return 1
	case 'r', 'v':
		if len(text) > 1 && text[1]|0x20 == 'e' {
			return 2
		}
	case 'l':
		if len(text) > 1 && text[1]|0x20 == 'l' {
			return 2
		}
	case longS[0] | 0x20:
		if len(text) > 1 && text[:2] == longS {
			return 2
		}
	}
	return 0
}
