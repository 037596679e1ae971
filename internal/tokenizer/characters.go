package tokenizer

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/foretoken/foretoken/internal/jsontext"
)

// blank is how files of a vocabulary of characters spell a space, in tokens and in normalized
// text. Here it is a space in both, so that ordinary text is encoded without a copy; a blank in
// the text is the same token.
const blank = "\u2581"

func unblank(text string) string { return strings.ReplaceAll(text, blank, " ") }

// characters are the parts of a vocabulary of characters that one of bytes does not have. A
// character without a token becomes the byte tokens of its UTF-8, spelled <0xE2>, which take part
// in no merge.
type characters struct {
	vocab    *vocabulary
	fallback [256]int32

	// Pairs of neighboring characters that some merge joins. The text between two
	// others is where words end: no merge crosses it.
	ascii [utf8.RuneSelf][2]uint64 // by the first character, bits by the second
	found []uint64                 // other pairs, until all merges are read
	slots []uint64                 // an open-addressed hash table of them, at most half full; 0 is free
	mul   uint64                   // random, so that no file can be made to collide
	shift int
}

// byteSpelled reports whether a token is spelled as a byte.
func byteSpelled(token string) bool {
	return len(token) == 6 && strings.HasPrefix(token, "<0x") && token[5] == '>' && upperHex(token[3]) && upperHex(token[4])
}

func upperHex(c byte) bool { return c >= '0' && c <= '9' || c >= 'A' && c <= 'F' }

// appendCharacters is the alphabet of characters. Byte tokens are outside of it, and so are tokens
// with a space, which normalized text does not have.
func appendCharacters(dst, text []byte) (out []byte, ok bool) {
	if bytes.IndexByte(text, ' ') >= 0 || byteSpelled(string(text)) {
		return append(dst, text...), false
	}
	for {
		before, rest, found := bytes.Cut(text, []byte(blank))
		if dst = append(dst, before...); !found {
			return dst, true
		}
		dst, text = append(dst, ' '), rest
	}
}

// readVocabulary reads the object from tokens to ids.
func (c *characters) readVocabulary(r *jsontext.Reader) (*vocabulary, error) {
	v, err := readVocabulary(r, appendCharacters)
	if err != nil {
		return nil, err
	}
	c.vocab = v
	for i := range c.fallback {
		spelling := fmt.Sprintf("<0x%02X>", i)
		id, ok := v.odd[spelling]
		if !ok {
			return nil, fmt.Errorf("no token %s, the fallback of that byte", spelling)
		}
		c.fallback[i] = id
		v.tokens[id] = string([]byte{byte(i)})
	}
	return v, nil
}

// pair is the key of two neighbors in the table, never 0 for what goes there.
func pair(a, b rune) uint64 { return uint64(a)<<32 | uint64(b) }

// join notes a merge.
func (c *characters) join(left, right []byte) {
	a, _ := utf8.DecodeLastRune(left)
	b, _ := utf8.DecodeRune(right)
	if a|b < utf8.RuneSelf {
		c.ascii[a][b/64] |= 1 << (b % 64)
		return
	}
	c.found = append(c.found, pair(a, b))
}

// finish makes the table of all pairs.
func (c *characters) finish() {
	slices.Sort(c.found)
	list := slices.Compact(c.found)
	size := bits.Len(uint(2*len(list) + 1))
	c.slots, c.mul, c.shift, c.found = make([]uint64, 1<<size), rand.Uint64()|1, 64-size, nil
	for _, key := range list {
		*c.slot(key) = key
	}
}

// slot is the slot of a pair, or the free one where it belongs.
func (c *characters) slot(key uint64) *uint64 {
	for i := key * c.mul >> c.shift; ; i = (i + 1) & uint64(len(c.slots)-1) {
		if s := &c.slots[i]; *s == key || *s == 0 {
			return s
		}
	}
}

// joins reports whether a merge may join text that ends with a to text that begins with b.
func (c *characters) joins(a, b rune) bool {
	if a|b < utf8.RuneSelf {
		return c.ascii[a][b/64]>>(b%64)&1 != 0
	}
	return *c.slot(pair(a, b)) != 0
}

// split implements splitter.
func (c *characters) split(text string, emit func(string) bool) bool {
	start, before := 0, rune(0)
	for i := 0; i < len(text); {
		r, size := rune(text[i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRuneInString(text[i:])
		}
		if i > start && !c.joins(before, r) {
			if !emit(text[start:i]) {
				return false
			}
			start = i
		}
		before = r
		i += size
	}
	return start == len(text) || emit(text[start:])
}

// spell is bpe.spell for characters; ascii is the tokens of those of one byte.
func (c *characters) spell(ids []int32, word string, ascii *[256]int32) (n int) {
	for i := 0; i < len(word); {
		if b := word[i]; b < utf8.RuneSelf {
			ids[n] = ascii[b]
			n++
			i++
			continue
		}
		_, size := utf8.DecodeRuneInString(word[i:])
		if id, ok := c.vocab.lookup(word[i : i+size]); ok {
			ids[n] = id
			n++
		} else {
			for _, b := range []byte(word[i : i+size]) {
				ids[n] = c.fallback[b]
				n++
			}
		}
		i += size
	}
	return n
}

// pretokenizer is the splitter of the file. Its own one, if there is one, splits at spaces, which
// normalized text does not have.
func (c *characters) pretokenizer(root *preTokenizerJSON, ignoreMerges bool) (pretokenizer, error) {
	if root != nil && (root.Type != "Split" || root.Pattern.String != " ") {
		return nil, fmt.Errorf("type %q is not supported with a vocabulary of characters, want null or a Split at spaces", root.Type)
	}
	if ignoreMerges {
		return nil, errors.New("ignore_merges is not supported with a vocabulary of characters, want false")
	}
	return pretokenizer{c}, nil
}

// checkAdded refuses an added token that would give other ids than the reference.
func checkAdded(a *addedToken) error {
	switch {
	case byteSpelled(a.Content):
		return fmt.Errorf("%q is a byte, which cannot be an added token", a.Content)
	case a.Normalized && (a.LStrip || a.RStrip):
		return fmt.Errorf("%q: normalized with lstrip or rstrip is not supported with a vocabulary of characters", a.Content)
	}
	return nil
}

// maxRun bounds a run of byte tokens that is decoded as a whole: more than the longest words
// of scripts without tokens.
const maxRun = 256

// next is Decoder.Next with the text of a token, of one byte if it is a byte token. The bytes of consecutive
// byte tokens are text if they are UTF-8 as a whole, and otherwise one U+FFFD each, as in the reference, so
// they wait for another token. A run of more than maxRun is cut between characters.
func (d *Decoder) next(text string, isByte bool) string {
	switch {
	case text == "":
		return ""
	case !isByte:
		return d.Flush() + text
	}
	d.pending += text
	if len(d.pending) < maxRun {
		return ""
	}
	run := d.pending
	n := len(run) - unfinished(run)
	d.pending = strings.Clone(run[n:])
	return wholeUTF8(run[:n])
}

// wholeUTF8 is text if it is UTF-8, and otherwise one U+FFFD for each byte.
func wholeUTF8(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return strings.Repeat(string(utf8.RuneError), len(text))
}
