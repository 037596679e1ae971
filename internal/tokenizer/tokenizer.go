// Package tokenizer turns text into token ids and back, by the BPE that a checkpoint's
// tokenizer.json describes: of bytes, or of characters with a fallback to bytes.
//
// It knows the file's vocabulary, merges, added tokens, normalizer,
// pre-tokenizer and decoder, and gives the same ids as the reference implementation
// (Hugging Face tokenizers). It does not know files, models, chat
// templates or stop tokens, and it never adds a token that is not in the text:
// the file's post-processor, truncation and padding are not applied, as with
// add_special_tokens=false in the reference. Prefix is the tokens that the post-processor
// would add.
//
// Bytes that are not UTF-8 are read as U+FFFD, one for each maximal part of a
// character that was cut short, both in text to encode and in ids to decode.
package tokenizer

import (
	"math"
	"slices"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Tokenizer is one tokenizer.json, ready for use. It does not change after New
// and may be used by several goroutines at once.
type Tokenizer struct {
	vocab    *vocabulary
	bpe      bpe
	cache    wordCache
	pretoken pretokenizer

	normalize func(string) string // nil: text is encoded as it is

	// raw holds the added tokens that are searched in the given text, normal those
	// searched after normalization. Most files have only the first kind.
	raw, normal addedSet
	blanks      addedSet // those of raw that are white space: they steer nothing, and are searched in untrusted text too

	added     map[string]int32       // content of every added token
	begins    func() map[string]bool // prefixes of these, computed on demand
	special   []bool                 // by id; true for added tokens flagged special
	mergeable map[int32]bool         // added tokens that merges can make; nil: none
	longest   int                    // bytes of the longest token
	prefix    []int32
}

// ID returns the id of a token by its text: the content of an added token, or
// else the very bytes an entry of the vocabulary stands for (" the", not the
// file's spelling "Ġthe").
func (t *Tokenizer) ID(token string) (int32, bool) {
	if id, ok := t.added[token]; ok {
		return id, true
	}
	return t.vocab.lookup(token)
}

// Prefix returns the tokens that the file's post-processor puts before a text that is not a
// conversation, such as GLM's [gMASK]<sop>. Chat templates write them themselves.
func (t *Tokenizer) Prefix() []int32 { return t.prefix }

// Token returns the bytes a token contributes to decoded text. They need not be
// valid UTF-8: characters may be spread over several tokens. ok is false for an
// id without a token; such ids exist where a vocabulary has gaps or a model's
// output layer is padded.
func (t *Tokenizer) Token(id int32) (text string, ok bool) {
	return t.vocab.token(id)
}

// Special reports whether id is an added token flagged special: one that steers
// the model and that decoding may skip. Ids without a token are not special.
func (t *Tokenizer) Special(id int32) bool {
	return id >= 0 && int(id) < len(t.special) && t.special[id]
}

// Show makes tokens that the file flags special ordinary ones: text that decoding does not skip. Call
// it before t is shared.
func (t *Tokenizer) Show(tokens ...string) {
	for _, token := range tokens {
		if id, ok := t.added[token]; ok {
			t.special[id] = false
		}
	}
}

// Size returns one more than the highest id, added tokens included. A model's
// output layer may be wider.
func (t *Tokenizer) Size() int { return len(t.vocab.tokens) }

// Encode returns the ids of text. Added tokens written out in text become their
// ids, special ones too: use EncodeWithin for text with untrusted parts.
func (t *Tokenizer) Encode(text string) []int32 {
	return t.AppendEncode(nil, text)
}

// AppendEncode appends the ids of text to dst, as Encode gives them.
func (t *Tokenizer) AppendEncode(dst []int32, text string) []int32 {
	e := encoder{t: t, ids: dst, limit: math.MaxInt}
	e.encode(text, [][2]int{{0, len(text)}})
	return e.ids
}

// EncodeOpen returns the ids that text begins with, whatever follows it: those of
// its last word are left out, since more of a word is merged in another way, and so is a possible
// beginning of an added token, up to maxBegin bytes.
func (t *Tokenizer) EncodeOpen(text string) []int32 {
	begins := t.begins()
	for n := min(len(text), maxBegin); n > 0; n-- {
		if begins[text[len(text)-n:]] {
			text = text[:len(text)-n]
			break
		}
	}
	// One more line end makes one word of the white space before it, also of lines before.
	blank := func(r rune) bool { return unicode.IsSpace(r) && r != '\n' && r != '\r' }
	if line := strings.TrimRightFunc(text, blank); strings.HasSuffix(line, "\n") || strings.HasSuffix(line, "\r") {
		text = line
	}
	e := encoder{t: t, limit: math.MaxInt}
	e.encode(text, [][2]int{{0, len(text)}})
	return e.ids[:e.last]
}

// maxBegin is the maximum length of the beginnings of added tokens that EncodeOpen knows, in bytes.
const maxBegin = 64

// findBegins lists the texts that added tokens begin with, themselves not included.
func (t *Tokenizer) findBegins() map[string]bool {
	list := map[string]bool{}
	for token := range t.added {
		for n := range min(len(token), maxBegin+1) {
			list[token[:n]] = true
		}
	}
	return list
}

// EncodeWithin returns the ids of a text that was put together from parts of different
// origin. trusted are ranges of it, [from, to) in bytes, in order and disjoint. Added tokens,
// special or not, are recognized only if all of their bytes lie in one such range; the
// same characters elsewhere are ordinary text, unless they are all white space. Apart from that the ids are those of Encode:
// words and merges cross the ends of ranges.
//
// If the text has more than limit tokens, ok is false and ids is nil. The rest of the text is then
// not encoded: no more than limit times the longest token is processed. A limit of
// 0 is none.
func (t *Tokenizer) EncodeWithin(text string, trusted [][2]int, limit int) (ids []int32, ok bool) {
	if limit == 0 {
		limit = math.MaxInt
	}
	e := encoder{t: t, limit: limit, guard: t.mergeable != nil && !all(text, trusted)}
	if !e.encode(text, trusted) {
		return nil, false
	}
	return e.ids, true
}

// encoder is one call of Encode: each method is a stage that hands smaller
// parts of the text to the next. It returns false once there are too many ids.
type encoder struct {
	t       *Tokenizer
	text    string
	trusted [][2]int
	ids     []int32
	last    int  // ids before the last word or added token
	limit   int  // of ids
	guard   bool // words do not become added tokens by merges
}

// encode encodes the whole input.
func (e *encoder) encode(text string, trusted [][2]int) bool {
	if text == "" {
		return true
	}
	if e.ids == nil {
		// Ordinary text has four to five bytes a token.
		e.ids = make([]int32, 0, min(len(text)/4+8, e.limit))
	}
	e.text, e.trusted = text, trusted
	if !utf8.ValidString(text) {
		e.text, e.trusted = mapParts(text, trusted, validUTF8)
	}
	return e.t.raw.cut(e.text, e.trusted, e.blanks, e.id)
}

// blanks encodes text between added tokens other than white space.
func (e *encoder) blanks(start, end int) bool {
	if len(e.t.blanks.tokens) == 0 {
		return e.unnormalized(start, end)
	}
	gap := func(from, to int) bool { return e.unnormalized(start+from, start+to) }
	return e.t.blanks.cut(e.text[start:end], [][2]int{{0, end - start}}, gap, e.id)
}

// unnormalized encodes text between added tokens. Each stretch is normalized by
// itself: a token keeps the characters around it from composing.
func (e *encoder) unnormalized(start, end int) bool {
	text := e.text[start:end]
	if !e.fits(len(text) / maxShrink) {
		return false // before the work of normalizing it
	}
	if len(e.t.normal.tokens) == 0 {
		if e.t.normalize != nil {
			text = e.t.normalize(text)
		}
		return e.normalized(text)
	}
	// If tokens are searched after normalization, trusted parts are normalized by
	// themselves as well: an untrusted accent after a token must not change its last character.
	trusted := within(e.trusted, start, end)
	if e.t.normalize != nil {
		text, trusted = mapParts(text, trusted, e.t.normalize)
	}
	gap := func(start, end int) bool { return e.normalized(text[start:end]) }
	return e.t.normal.cut(text, trusted, gap, e.id)
}

// fits reports whether the tokens of n bytes may stay within the limit.
func (e *encoder) fits(n int) bool { return n/e.t.longest <= e.limit-len(e.ids) }

// normalized encodes text without added tokens.
func (e *encoder) normalized(text string) bool {
	if !e.fits(len(text)) {
		return false // before its longest word, which may be all of it
	}
	return e.t.pretoken.run(text, e.word)
}

// word encodes one piece of the pre-tokenizer; merges never cross its ends.
func (e *encoder) word(word string) bool {
	if len(word) == 1 {
		return e.id(e.t.bpe.bytes[word[0]])
	}
	n := len(e.ids)
	e.last = n
	if len(word) > maxCachedWord {
		e.ids = e.t.merge(e.ids, word)
	} else if known, place := e.t.cache.find(word); known != nil {
		e.ids = append(e.ids, known.ids...)
	} else {
		e.ids = e.t.merge(e.ids, word)
		e.t.cache.put(place, word, e.ids[n:])
	}
	if e.guard {
		e.ids = e.t.unmerge(e.ids, n)
	}
	return len(e.ids) <= e.limit
}

// id appends an added token, or that of a byte.
func (e *encoder) id(id int32) bool {
	e.last = len(e.ids)
	e.ids = append(e.ids, id)
	return len(e.ids) <= e.limit
}

// unmerge spells the added tokens among ids[from:] by their bytes or characters.
func (t *Tokenizer) unmerge(ids []int32, from int) []int32 {
	if !slices.ContainsFunc(ids[from:], func(id int32) bool { return t.mergeable[id] }) {
		return ids
	}
	var spelled []int32
	for _, id := range ids[from:] {
		if !t.mergeable[id] {
			spelled = append(spelled, id)
			continue
		}
		token := t.vocab.tokens[id]
		parts := make([]int32, len(token))
		spelled = append(spelled, parts[:t.bpe.spell(parts, token)]...)
	}
	return append(ids[:from], spelled...)
}

// within returns the parts of ranges that lie in text[start:end], counted from start.
func within(ranges [][2]int, start, end int) [][2]int {
	var in [][2]int
	first := sort.Search(len(ranges), func(i int) bool { return ranges[i][1] > start })
	for _, r := range ranges[first:] {
		if r[0] >= end {
			break
		}
		in = append(in, [2]int{max(r[0], start) - start, min(r[1], end) - start})
	}
	return in
}

// all reports whether ranges are one of the whole text.
func all(text string, ranges [][2]int) bool {
	return len(ranges) == 1 && ranges[0] == [2]int{0, len(text)}
}

// mapParts applies f to each range of text and to the text between them, and returns the
// whole and the new ranges.
func mapParts(text string, ranges [][2]int, f func(string) string) (string, [][2]int) {
	if all(text, ranges) {
		text = f(text)
		return text, [][2]int{{0, len(text)}}
	}
	var b strings.Builder
	mapped := make([][2]int, len(ranges))
	done := 0
	for i, r := range ranges {
		b.WriteString(f(text[done:r[0]]))
		mapped[i][0] = b.Len()
		b.WriteString(f(text[r[0]:r[1]]))
		mapped[i][1] = b.Len()
		done = r[1]
	}
	b.WriteString(f(text[done:]))
	return b.String(), mapped
}

// merge appends the ids of one word, without the cache.
func (t *Tokenizer) merge(ids []int32, word string) []int32 {
	if t.bpe.ignoreMerges {
		if id, ok := t.vocab.lookup(word); ok {
			return append(ids, id)
		}
	}
	return t.bpe.append(ids, word)
}

// Decode returns the text of ids. Ids without a token are left out, and with
// skipSpecial so are special tokens.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	var b strings.Builder
	if t.bpe.chars != nil {
		d := t.Decoder(skipSpecial)
		for _, id := range ids {
			b.WriteString(d.Next(id))
		}
		b.WriteString(d.Flush())
		return b.String()
	}
	for _, id := range ids {
		b.WriteString(t.output(id, skipSpecial))
	}
	return validUTF8(b.String())
}

// output returns the bytes id adds to decoded text.
func (t *Tokenizer) output(id int32, skipSpecial bool) string {
	if skipSpecial && t.Special(id) {
		return ""
	}
	text, _ := t.vocab.token(id)
	return text
}
