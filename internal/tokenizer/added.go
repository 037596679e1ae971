package tokenizer

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxAddedLen bounds the content of an added token, in bytes. Looking for
// tokens may take this many steps for each byte of text, so it bounds the time
// a file can make us waste; Qwen's tokens are shorter than 32 bytes.
const maxAddedLen = 256

// addedToken is an entry of the file's added_tokens.
type addedToken struct {
	ID      int32  `json:"id"`
	Content string `json:"content"`

	SingleWord bool `json:"single_word"` // not beside a letter, digit or underscore
	LStrip     bool `json:"lstrip"`      // includes the white space before it
	RStrip     bool `json:"rstrip"`      // includes the white space after it
	Normalized bool `json:"normalized"`  // is searched in normalized text
	Special    bool `json:"special"`
}

// addedSet finds added tokens in text: the leftmost, and at one position
// the longest.
type addedSet struct {
	tokens []addedToken

	// The contents form a tree, one edge a byte. Node 0 is the root, and first
	// its edges (0 for none); ends gives the index of the token that ends at a
	// node, if one does.
	first [256]int32
	edges map[edge]int32
	ends  map[int32]int

	// only is the common first byte of all tokens, as in
	// every Qwen model ("<"); -1 if there is none.
	only int
}

type edge struct {
	node int32
	b    byte
}

// newAddedSet makes a set of tokens. If two have the same content, which
// normalization may cause, the first is found.
func newAddedSet(tokens []addedToken) addedSet {
	s := addedSet{tokens: tokens, edges: map[edge]int32{}, ends: map[int32]int{}, only: -1}
	nodes := int32(0)
	for i, t := range tokens {
		node := int32(0)
		for j := range len(t.Content) {
			b := t.Content[j]
			next := s.child(node, b)
			if next == 0 {
				nodes++
				next = nodes
				if node == 0 {
					s.first[b] = next
				} else {
					s.edges[edge{node, b}] = next
				}
			}
			node = next
		}
		if _, taken := s.ends[node]; !taken {
			s.ends[node] = i
		}
	}
	for b, node := range s.first {
		if node == 0 {
			continue
		}
		if s.only >= 0 {
			s.only = -1
			break
		}
		s.only = b
	}
	return s
}

func (s *addedSet) child(node int32, b byte) int32 {
	if node == 0 {
		return s.first[b]
	}
	return s.edges[edge{node, b}]
}

// cut calls gap with the text between tokens, as offsets, and token with their ids, in the
// order of the text, until one of them returns false. A token is found only if all of it
// lies within one of the trusted ranges, which are in order; text outside of them
// is neither a token nor prevents text beside it from being one.
func (s *addedSet) cut(text string, trusted [][2]int, gap func(start, end int) bool, token func(int32) bool) bool {
	done := 0 // everything before it has been handed over
	for _, own := range trusted {
		for pos := own[0]; len(s.tokens) > 0; {
			start, end, t := s.find(text[:own[1]], pos)
			if t == nil {
				break
			}
			// A token found but not taken is text as a whole: nothing is looked for
			// inside it. The reference does so too.
			pos = end
			if t.SingleWord && !alone(text[own[0]:own[1]], start-own[0], end-own[0]) {
				continue
			}
			// The token before may have taken white space up to done, beyond the
			// start of this one and even its end if this one is white space.
			if t.LStrip && done < start {
				start = done + len(strings.TrimRightFunc(text[done:start], unicode.IsSpace))
			}
			if t.RStrip {
				end = len(text) - len(strings.TrimLeftFunc(text[max(end, done):], unicode.IsSpace))
			}
			if done < start && !gap(done, start) || !token(t.ID) {
				return false
			}
			done = end
		}
	}
	return done >= len(text) || gap(done, len(text))
}

// find returns the first token at or after pos, or nil.
func (s *addedSet) find(text string, pos int) (start, end int, t *addedToken) {
	for ; pos < len(text); pos++ {
		if s.only >= 0 {
			skip := strings.IndexByte(text[pos:], byte(s.only))
			if skip < 0 {
				break
			}
			pos += skip
		}
		node := s.first[text[pos]]
		for i := pos + 1; node != 0; i++ {
			if token, ok := s.ends[node]; ok {
				end, t = i, &s.tokens[token]
			}
			if i == len(text) {
				break
			}
			node = s.child(node, text[i])
		}
		if t != nil {
			return pos, end, t
		}
	}
	return 0, 0, nil
}

// alone reports whether no word character touches text[start:end].
func alone(text string, start, end int) bool {
	before, _ := utf8.DecodeLastRuneInString(text[:start])
	after, _ := utf8.DecodeRuneInString(text[end:])
	return (start == 0 || !wordRune(before)) && (end == len(text) || !wordRune(after))
}

// wordRune is \w of Unicode Technical Standard 18, annex C: alphabetic, mark,
// decimal digit, connector punctuation or joiner.
func wordRune(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc,
		unicode.Other_Alphabetic, unicode.Other_Lowercase, unicode.Other_Uppercase, unicode.Join_Control)
}

// addTokens checks the file's added tokens, assigns their ids and makes
// them searchable. The model's vocabulary must be read and the normalizer
// known.
func (t *Tokenizer) addTokens(tokens []addedToken) error {
	t.added = make(map[string]int32, len(tokens))
	limit := len(t.vocab.tokens) + len(tokens) + maxGap
	for _, a := range tokens {
		if a.Content == "" {
			continue // the reference leaves it out as well
		}
		if len(a.Content) > maxAddedLen {
			return fmt.Errorf("%.40q... is longer than %d bytes", a.Content, maxAddedLen)
		}
		if a.ID < 0 || int(a.ID) >= limit {
			return fmt.Errorf("%q: id %d is out of range; ids must be nearly dense", a.Content, a.ID)
		}
		if _, twice := t.added[a.Content]; twice {
			return fmt.Errorf("%q is listed twice", a.Content)
		}
		if own, ok := t.vocab.spelled(a.Content); ok && own != a.ID {
			return fmt.Errorf("%q: id is %d here and %d in the vocabulary", a.Content, a.ID, own)
		} else if !ok {
			if old, taken := t.vocab.token(a.ID); taken {
				return fmt.Errorf("%q: id %d belongs to %q", a.Content, a.ID, old)
			}
		}
		t.added[a.Content] = a.ID
		for int(a.ID) >= len(t.vocab.tokens) {
			t.vocab.tokens = append(t.vocab.tokens, "")
		}
		if t.bpe.chars != nil {
			if err := checkAdded(&a); err != nil {
				return err
			}
		}
		// The decoder reads added tokens in the alphabet too, if it can.
		text, _ := t.vocab.spell(nil, []byte(a.Content))
		t.vocab.tokens[a.ID] = string(text)
	}
	t.special = make([]bool, len(t.vocab.tokens))
	var raw, normal, blanks []addedToken
	for _, special := range []bool{true, false} {
		for _, a := range tokens {
			if a.Content == "" || a.Special != special {
				continue
			}
			t.special[a.ID] = special
			if !a.Normalized {
				if isBlank(a.Content) && !a.SingleWord && !a.LStrip && !a.RStrip {
					blanks = append(blanks, a)
				} else {
					raw = append(raw, a)
				}
				continue
			}
			if t.normalize != nil {
				a.Content = t.normalize(a.Content)
			}
			normal = append(normal, a)
		}
	}
	t.raw, t.normal, t.blanks = newAddedSet(raw), newAddedSet(normal), newAddedSet(blanks)
	t.findMergeable()
	return nil
}

// isBlank reports whether a text is white space, also as vocabularies of characters spell it.
func isBlank(text string) bool {
	return strings.TrimFunc(text, func(r rune) bool { return unicode.IsSpace(r) || string(r) == blank }) == ""
}

// findMergeable records the added tokens that merges of ordinary text can produce, because
// the model's vocabulary has them too. Files of the known models have none.
func (t *Tokenizer) findMergeable() {
	note := func(id int32) {
		if t.mergeable == nil {
			t.mergeable = map[int32]bool{}
		}
		t.mergeable[id] = true
	}
	for content, id := range t.added {
		if isBlank(content) {
			continue
		}
		if own, ok := t.vocab.lookup(content); ok && own == id && t.bpe.ignoreMerges && len(content) > 1 {
			note(id)
		}
	}
	ids := make(map[int32]bool, len(t.added))
	for content, id := range t.added {
		if !isBlank(content) {
			ids[id] = true
		}
	}
	for _, id := range t.bpe.products {
		if ids[id] {
			note(id)
		}
	}
}
