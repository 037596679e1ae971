package tokenizer

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"

	"github.com/foretoken/foretoken/internal/jsontext"
)

// vocabulary holds the bytes of every token by id, and the ids of the model's
// own tokens by their bytes.
type vocabulary struct {
	tokens []string // by id; empty for an id without a token

	// slots is an open-addressed hash table of the model's ids, keyed by the
	// bytes of their tokens and at most half full; -1 is free.
	slots []int32
	seed  maphash.Seed

	spell alphabet

	// odd holds, by spelling, the model's tokens that are not in the
	// alphabet. Merges never make one of them, but they have ids, and
	// merges may name them.
	odd map[string]int32
}

// alphabet appends the bytes that the spelling of a token in the file stands for to dst. ok is
// false, and the spelling itself is appended, if it stands for none.
type alphabet func(dst, spelling []byte) (out []byte, ok bool)

// maxGap is how far ids may exceed their number: enough for the gaps of real files,
// while a false id in the file costs little memory.
const maxGap = 1 << 16

// listed is one entry of the file's vocabulary.
type listed struct {
	start, end int // of the bytes, in one buffer for all
	id         int32
	odd        bool
}

// readVocabulary reads the object from tokens to ids.
func readVocabulary(r *jsontext.Reader, spell alphabet) (*vocabulary, error) {
	size := len(r.Rest()) // as a rule a third of it, then come the merges
	var (
		entries []listed
		text    = make([]byte, 0, size/4)
		limit   = size/len(`"":0,`) + maxGap // no file of this size can have more ids
		n       = 0
	)
	err := r.Object(func(key []byte) error {
		e := listed{start: len(text)}
		var plain bool
		text, plain = spell(text, key)
		e.end, e.odd = len(text), !plain
		id, err := r.Whole(limit)
		if err != nil {
			return fmt.Errorf("token %q: %w; ids must be nearly dense", text[e.start:], err)
		}
		e.id = int32(id)
		n = max(n, id+1)
		entries = append(entries, e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, errors.New("no tokens")
	}
	if n > 2*len(entries)+maxGap {
		return nil, fmt.Errorf("highest id is %d with only %d tokens; ids must be nearly dense", n-1, len(entries))
	}
	return newVocabulary(string(text), entries, n, spell)
}

func newVocabulary(text string, entries []listed, n int, spell alphabet) (*vocabulary, error) {
	v := &vocabulary{
		tokens: make([]string, n),
		slots:  make([]int32, 1<<bits.Len(uint(2*len(entries)-1))),
		seed:   maphash.MakeSeed(),
		spell:  spell,
		odd:    map[string]int32{},
	}
	for i := range v.slots {
		v.slots[i] = -1
	}
	for _, e := range entries {
		token := text[e.start:e.end]
		if token == "" {
			return nil, fmt.Errorf("id %d is the empty token", e.id)
		}
		if v.tokens[e.id] != "" {
			return nil, fmt.Errorf("tokens %q and %q share id %d", v.tokens[e.id], token, e.id)
		}
		v.tokens[e.id] = token
		if old, twice := v.insert(token, e); twice {
			return nil, fmt.Errorf("token %q has two ids, %d and %d", token, old, e.id)
		}
	}
	return v, nil
}

// insert makes a token findable by its bytes. If it already is, it returns the
// id that it has.
func (v *vocabulary) insert(token string, e listed) (old int32, twice bool) {
	if e.odd {
		old, twice = v.odd[token]
		v.odd[token] = e.id
		return old, twice
	}
	slot, old := v.find([]byte(token))
	if old < 0 {
		v.slots[slot] = e.id
	}
	return old, old >= 0
}

// find returns the slot where token is or would be, and its id or -1.
func (v *vocabulary) find(token []byte) (slot int, id int32) {
	mask := len(v.slots) - 1
	for i := int(maphash.Bytes(v.seed, token)) & mask; ; i = (i + 1) & mask {
		id := v.slots[i]
		if id < 0 || v.tokens[id] == string(token) {
			return i, id
		}
	}
}

// lookup returns the id of the model's token with these bytes.
func (v *vocabulary) lookup(token string) (int32, bool) {
	_, id := v.find([]byte(token))
	return id, id >= 0
}

// spelled returns the id of the model's token that the file spells so.
func (v *vocabulary) spelled(text string) (int32, bool) {
	token, plain := v.spell(nil, []byte(text))
	if !plain {
		id, ok := v.odd[text]
		return id, ok
	}
	return v.lookup(string(token))
}

// token returns the bytes of an id.
func (v *vocabulary) token(id int32) (string, bool) {
	if id < 0 || int(id) >= len(v.tokens) {
		return "", false
	}
	return v.tokens[id], v.tokens[id] != ""
}
