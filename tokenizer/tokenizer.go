// Package tokenizer turns text into token ids and back, by byte-level BPE as a
// checkpoint's tokenizer.json describes it.
//
// It knows the file's vocabulary, merges, added tokens, normaliser,
// pre-tokeniser and decoder, and gives the ids the reference implementation
// (Hugging Face tokenizers) gives. It does not know files, models, chat
// templates or stop tokens, and it never adds a token the text does not hold:
// the file's post-processor, truncation and padding are not applied, as with
// add_special_tokens=false in the reference.
//
// Bytes that are not UTF-8 are read as U+FFFD, one for each maximal part of a
// character that was cut short, both in text to encode and in ids to decode.
package tokenizer

import "strings"

// Tokenizer is one tokenizer.json, ready for use. It does not change after New
// and may be used by any number of goroutines at once.
type Tokenizer struct {
	vocab    *vocabulary
	bpe      bpe
	cache    wordCache
	nfc      bool
	pretoken pretokenizer

	// raw holds the added tokens looked for in the text as given, normal those
	// looked for after normalisation. Most files have only the first kind.
	raw, normal addedSet

	added   map[string]int32 // content of every added token
	special []bool           // by id; true for added tokens flagged special
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

// Size returns one more than the highest id, added tokens included. A model's
// output layer may be wider.
func (t *Tokenizer) Size() int { return len(t.vocab.tokens) }

// Encode returns the ids of text. Added tokens written out in text become their
// ids, special ones too: use EncodePlain for text that must not hold any.
func (t *Tokenizer) Encode(text string) []int32 {
	return t.AppendEncode(nil, text)
}

// AppendEncode appends the ids of text to dst, as Encode gives them.
func (t *Tokenizer) AppendEncode(dst []int32, text string) []int32 {
	return t.encode(dst, text, false)
}

// EncodePlain is Encode for text from strangers: the spelling of a special
// token is encoded as ordinary text, so that it cannot stand for a control
// token. Added tokens that are not special are recognised still.
func (t *Tokenizer) EncodePlain(text string) []int32 {
	return t.encode(nil, text, true)
}

func (t *Tokenizer) encode(dst []int32, text string, plain bool) []int32 {
	if text == "" {
		return dst
	}
	if dst == nil {
		// Ordinary text has four to five bytes a token.
		dst = make([]int32, 0, len(text)/4+8)
	}
	e := encoder{t: t, plain: plain, ids: dst}
	e.text(validUTF8(text))
	return e.ids
}

// encoder is one call of Encode: each method is a stage that hands smaller
// parts of the text to the next.
type encoder struct {
	t     *Tokenizer
	plain bool
	ids   []int32
}

// text takes the whole input.
func (e *encoder) text(text string) {
	e.t.raw.cut(text, e.plain, e.unnormalized, e.id)
}

// unnormalized takes text between added tokens. Each stretch is normalised by
// itself: a token keeps the characters around it from composing.
func (e *encoder) unnormalized(text string) {
	if e.t.nfc {
		text = composeNFC(text)
	}
	e.t.normal.cut(text, e.plain, e.normalized, e.id)
}

// normalized takes text without added tokens.
func (e *encoder) normalized(text string) {
	e.t.pretoken.run(text, e.word)
}

// word takes one piece of the pre-tokeniser; merges never cross its ends.
func (e *encoder) word(word string) {
	if len(word) == 1 {
		e.ids = append(e.ids, e.t.bpe.bytes[word[0]])
		return
	}
	if len(word) > maxCachedWord {
		e.ids = e.t.merge(e.ids, word)
		return
	}
	known, place := e.t.cache.find(word)
	if known != nil {
		e.ids = append(e.ids, known.ids...)
		return
	}
	n := len(e.ids)
	e.ids = e.t.merge(e.ids, word)
	e.t.cache.put(place, word, e.ids[n:])
}

// id takes an added token.
func (e *encoder) id(id int32) { e.ids = append(e.ids, id) }

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
