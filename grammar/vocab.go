package grammar

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"
)

// Limits on a vocabulary. Longer tokens are left out: a grammar never allows them.
const (
	maxVocab    = 1 << 21
	maxTokenLen = 255
)

// Vocab is the tokens of one tokenizer, prepared for grammars. It may be used by several goroutines at once.
type Vocab struct {
	size   int // ids
	words  int // of a mask
	tokens []string
	end    []int32

	// nodes is a forest of the tokens' bytes in depth-first order. It holds the
	// plain tokens first, those of whole characters that may be in a JSON string
	// unescaped, and from plainEnd on the rest.
	nodes    []trieNode // and one more behind the last
	order    []int32    // the tokens in the order of their nodes
	chars    []uint8    // by node: the characters of plain tokens up to it
	lengths  []uint8    // in the order of order: the characters of plain tokens
	plainEnd int32
	deepest  int
	// twins lists ids by pairs of the one in the forest and another with the same bytes.
	twins [][2]int32

	// plain[n] is the mask of the plain tokens of at most n characters; no token is longer than
	// the last n.
	plain [][]uint64
	// text is the facts within a JSON string, by state of textDFA.
	text []atomic.Pointer[facts]

	// encode is nil where settled text may be spelled in any way.
	encode func(text string, more bool) []int32

	learned atomic.Int64 // bytes of facts that grammars remember
}

// SetEncoder restricts forced text to the tokenizer's encoding: if the grammar allows only one
// text, only the token with which encode begins it is allowed, and no other tokenization.
// The set of possible texts does not change. It must be called before the vocabulary is used;
// several goroutines call encode at once.
//
// encode returns the ids of a text, or the first of them; if more is true, other text
// follows, and ids that may depend on it are left out.
func (v *Vocab) SetEncoder(encode func(text string, more bool) []int32) { v.encode = encode }

// trieNode is one byte of one or more tokens.
type trieNode struct {
	end   int32 // the node after those below this one
	id    int32 // the token that ends here; -1: none
	first int32 // number of tokens that end at nodes before this one
	below kinds // of the bytes below this one
	depth uint8
	b     byte
}

// NewVocab prepares a vocabulary: tokens[id] is the bytes that id adds to the text, empty
// for an id that must never be allowed, such as a control token. end lists the ids that
// end a text; their bytes are ignored. Every byte of UTF-8 must be a token, so
// that no text can get stuck. tokens and end are not kept.
func NewVocab(tokens []string, end []int32) (*Vocab, error) {
	if len(tokens) > maxVocab {
		return nil, fmt.Errorf("grammar: vocabulary of %d ids, want at most %d", len(tokens), maxVocab)
	}
	v := &Vocab{size: len(tokens), words: (len(tokens) + 63) / 64, tokens: make([]string, len(tokens)), end: slices.Clone(end)}
	for _, id := range end {
		if id < 0 || int(id) >= len(tokens) {
			return nil, fmt.Errorf("grammar: end id %d is outside of the vocabulary of %d", id, len(tokens))
		}
	}
	if len(end) == 0 {
		return nil, fmt.Errorf("grammar: the vocabulary has no end id")
	}
	list := make([]entry, 0, len(tokens))
	var single [256]bool
	for id, token := range tokens {
		if token == "" || len(token) > maxTokenLen || slices.Contains(end, int32(id)) {
			continue
		}
		if len(token) == 1 {
			single[token[0]] = true
		}
		v.tokens[id] = token
		list = append(list, entry{token, int32(id), plainLength(token)})
	}
	for b := range 256 {
		if !single[b] && b != 0xC0 && b != 0xC1 && b < 0xF5 {
			return nil, fmt.Errorf("grammar: the vocabulary has no token for byte %#02x", b)
		}
	}
	slices.SortFunc(list, func(a, b entry) int {
		return cmp.Or(cmp.Compare(min(b.plain, 1), min(a.plain, 1)), cmp.Compare(a.token, b.token), cmp.Compare(a.id, b.id))
	})
	v.plant(list)
	v.measure(list)
	v.text = make([]atomic.Pointer[facts], len(textDFA().accept))
	return v, nil
}

// entry is a token on its way into the forest.
type entry struct {
	token string
	id    int32
	plain int // its characters if it is plain, otherwise 0
}

// plainLength counts the characters of a plain token, and is 0 for any other.
func plainLength(token string) int {
	if !utf8.ValidString(token) {
		return 0
	}
	for _, r := range token {
		if mustEscape(r) {
			return 0
		}
	}
	return utf8.RuneCountInString(token)
}

// plant makes the forest of sorted tokens.
func (v *Vocab) plant(list []entry) {
	var path []int32 // the nodes of the token before
	last := entry{}
	for _, e := range list {
		if e.plain == 0 && last.plain > 0 {
			v.close(path)
			path, last = path[:0], entry{}
			v.plainEnd = int32(len(v.nodes))
		}
		if e.token == last.token {
			v.twins = append(v.twins, [2]int32{last.id, e.id})
			continue
		}
		common := 0
		for common < len(path) && common < len(e.token) && e.token[common] == last.token[common] {
			common++
		}
		v.close(path[common:])
		path = path[:common]
		for i := common; i < len(e.token); i++ {
			path = append(path, int32(len(v.nodes)))
			v.nodes = append(v.nodes, trieNode{id: -1, first: int32(len(v.order)), depth: uint8(i), b: e.token[i]})
			v.chars = append(v.chars, uint8(utf8.RuneCountInString(e.token[:i+1])))
		}
		v.nodes[path[len(path)-1]].id = e.id
		v.order = append(v.order, e.id)
		v.lengths = append(v.lengths, uint8(e.plain))
		v.tell(path, e)
		v.deepest = max(v.deepest, len(e.token))
		last = e
	}
	v.close(path)
	v.nodes = append(v.nodes, trieNode{id: -1, first: int32(len(v.order))})
}

// tell records at the nodes of a token the kinds of the bytes below each.
func (v *Vocab) tell(path []int32, e entry) {
	below := kinds(0)
	if e.plain == 0 {
		below = kindNone
	}
	for i := len(path) - 1; i >= 0; i-- {
		v.nodes[path[i]].below |= below
		below |= kindOf[e.token[i]]
	}
}

// close ends nodes below which nothing more comes.
func (v *Vocab) close(path []int32) {
	for _, n := range path {
		v.nodes[n].end = int32(len(v.nodes))
	}
}

// measure makes the masks of plain tokens by length.
func (v *Vocab) measure(list []entry) {
	byLength := [][]int32{nil}
	for _, e := range list {
		for len(byLength) <= e.plain {
			byLength = append(byLength, nil)
		}
		if e.plain > 0 {
			byLength[e.plain] = append(byLength[e.plain], e.id)
		}
	}
	mask := make([]uint64, v.words)
	for _, ids := range byLength {
		if len(ids) > 0 {
			mask = slices.Clone(mask)
		}
		for _, id := range ids {
			set(mask, id)
		}
		v.plain = append(v.plain, mask)
	}
}

// first is the token with which encode begins a text, -1 if it is unknown or not
// allowed; more is true if other text follows.
func (v *Vocab) first(text string, more bool) int32 {
	ids := v.encode(text, more)
	if len(ids) == 0 || ids[0] < 0 || int(ids[0]) >= len(v.tokens) {
		return -1
	}
	if token := v.tokens[ids[0]]; token == "" || !strings.HasPrefix(text, token) {
		return -1 // a control token, or text that the encoder changes
	}
	return ids[0]
}

func set(mask []uint64, id int32) { mask[id>>6] |= 1 << (id & 63) }

func has(mask []uint64, id int32) bool {
	return uint(id)>>6 < uint(len(mask)) && mask[id>>6]>>(id&63)&1 != 0
}
