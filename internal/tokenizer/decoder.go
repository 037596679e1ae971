package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Decoder turns a stream of ids into a stream of text. It belongs to one
// stream and one goroutine.
type Decoder struct {
	t           *Tokenizer
	skipSpecial bool

	// pending is the beginning of a character whose end has not arrived, at
	// most three bytes; with a vocabulary of characters, a run of byte tokens.
	pending string
}

// Decoder returns a streaming decoder. For any ids, the results of Next for
// each and of Flush at the end add up to Decode of them all.
func (t *Tokenizer) Decoder(skipSpecial bool) *Decoder {
	return &Decoder{t: t, skipSpecial: skipSpecial}
}

// Next returns the text that id completes: always valid UTF-8, and empty while
// a character is incomplete.
func (d *Decoder) Next(id int32) string {
	text := d.t.output(id, d.skipSpecial)
	if c := d.t.bpe.chars; c != nil {
		return d.next(text, len(text) == 1 && c.fallback[text[0]] == id)
	}
	text = d.pending + text
	n := len(text) - unfinished(text)
	// A copy: a substring would keep all of text alive for three bytes.
	d.pending = strings.Clone(text[n:])
	return validUTF8(text[:n])
}

// Flush ends the stream: an incomplete character becomes U+FFFD. The decoder
// may then be used for another stream.
func (d *Decoder) Flush() string {
	rest := d.pending
	d.pending = ""
	if d.t.bpe.chars != nil {
		return wholeUTF8(rest)
	}
	return validUTF8(rest)
}

// unfinished returns the length of the incomplete character at the end of text, 0 if there
// is none.
func unfinished(text string) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if b := text[len(text)-n]; utf8.RuneStart(b) {
			if !utf8.FullRuneInString(text[len(text)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}

// validUTF8 returns text with each maximal part of a broken character replaced
// by one U+FFFD (Unicode 15, section 3.9, "U+FFFD substitution of maximal
// subparts"). The reference does the same; Go's own conversions replace every
// byte or whole runs.
func validUTF8(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	b.Grow(len(text) + 2*utf8.UTFMax)
	done := 0
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if r != utf8.RuneError || size != 1 {
			i += size
			continue
		}
		// The part is the longest prefix that some character begins with.
		for i+size < len(text) && !utf8.FullRuneInString(text[i:i+size+1]) {
			size++
		}
		b.WriteString(text[done:i])
		b.WriteRune(utf8.RuneError)
		i += size
		done = i
	}
	b.WriteString(text[done:])
	return b.String()
}
