package tokenizer

import (
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// maxShrink is more than the number of bytes that normalization makes one of: three of a
// Kelvin sign, or nine of the parts of a Hangul syllable three.
const maxShrink = 4

// composeNFC returns text in Unicode normalization form C. text must be valid
// UTF-8.
func composeNFC(text string) string {
	n := norm.NFC.QuickSpanString(text)
	if n == len(text) {
		return text
	}
	if manyMarks(text[n:]) {
		return composeMarks(text)
	}
	return norm.NFC.String(text)
}

// markLimit is the number of combining characters in a row up to which
// norm.NFC is trusted with text. It keeps to the Stream-Safe Text Format: after
// thirty of them it inserts U+034F, which the reference does not. No character
// decomposes into more than three.
const markLimit = 8

// manyMarks reports whether text has more than markLimit characters in a row
// that may combine with those before.
func manyMarks(text string) bool {
	row := 0
	for i := 0; i < len(text); {
		if text[i] < utf8.RuneSelf {
			row = 0
			i++
			continue
		}
		p := norm.NFC.PropertiesString(text[i:])
		if p.BoundaryBefore() {
			row = 0
		} else if row++; row > markLimit {
			return true
		}
		i += max(p.Size(), 1)
	}
	return false
}

// combining is a character with its canonical combining class.
type combining struct {
	r     rune
	class uint8
}

// composeMarks is the normalization of Unicode Standard Annex 15 with no limit
// on combining characters; norm is asked for one character or pair at a time.
func composeMarks(text string) string {
	var chars []combining
	var buf []byte
	for _, r := range text {
		if r < utf8.RuneSelf {
			chars = append(chars, combining{r: r})
			continue
		}
		buf = norm.NFD.AppendString(buf[:0], string(r))
		for i := 0; i < len(buf); {
			p := norm.NFD.Properties(buf[i:])
			r, size := utf8.DecodeRune(buf[i:])
			chars = append(chars, combining{r, p.CCC()})
			i += size
		}
	}
	for i := 0; i < len(chars); i++ {
		start := i
		for i < len(chars) && chars[i].class > 0 {
			i++
		}
		slices.SortStableFunc(chars[start:i], func(a, b combining) int { return int(a.class) - int(b.class) })
	}
	return composeSorted(chars)
}

// composeSorted joins each starter with the characters after it that it has a
// composite with and that nothing blocks.
func composeSorted(chars []combining) string {
	out := make([]rune, 0, len(chars))
	starter := -1
	var last uint8 // class of the last character after the starter
	for _, c := range chars {
		adjacent := starter == len(out)-1
		if starter >= 0 && (adjacent || last < c.class) {
			if r, ok := composite(out[starter], c.r); ok {
				out[starter] = r
				continue
			}
		}
		if c.class == 0 {
			starter = len(out)
		}
		last = c.class
		out = append(out, c.r)
	}
	return string(out)
}

// composite returns the character that a and b make together, if there is one.
func composite(a, b rune) (rune, bool) {
	if b < utf8.RuneSelf {
		return 0, false
	}
	pair := norm.NFC.String(string([]rune{a, b}))
	r, size := utf8.DecodeRuneInString(pair)
	return r, size == len(pair)
}
