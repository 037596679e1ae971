package tokenizer

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"unicode/utf8"

	"github.com/foretoken/foretoken/internal/jsontext"
)

// bpe merges the bytes or the characters of a word into tokens: always the adjacent pair of
// lowest rank first, the leftmost of equals (Sennrich et al., 2016).
type bpe struct {
	bytes        [256]int32  // the token of each byte, or of a character of one byte
	chars        *characters // nil: bytes are merged
	pairs        pairTable
	products     []int32 // by rank: the token that a merge makes
	ignoreMerges bool    // a word that is a token stays whole, without merges
}

// noRank is the rank of a pair that does not merge: after all others.
const noRank = 1<<32 - 1

// shortWord is the length in bytes up to which looking through all pairs for
// the best one beats keeping a queue of them.
const shortWord = 48

// maxWord cuts words so that positions fit 32 bits. It matters only for a text of a gigabyte
// without a break.
const maxWord = 1 << 30

// append appends the tokens of word to ids.
func (b *bpe) append(ids []int32, word string) []int32 {
	for len(word) > maxWord {
		ids = b.appendLong(ids, word[:maxWord])
		word = word[maxWord:]
	}
	if len(word) > shortWord {
		return b.appendLong(ids, word)
	}
	return b.appendShort(ids, word)
}

// spell writes the tokens of a word before all merges to ids, which has room for one a byte, and
// returns their number.
func (b *bpe) spell(ids []int32, word string) int {
	if b.chars != nil {
		return b.chars.spell(ids, word, &b.bytes)
	}
	for i := range len(word) {
		ids[i] = b.bytes[word[i]]
	}
	return len(word)
}

// appendShort is quadratic, on words too short for that to matter.
func (b *bpe) appendShort(ids []int32, word string) []int32 {
	var parts [shortWord]int32
	var ranks [shortWord]uint32 // of the pairs (i, i+1)
	n := b.spell(parts[:], word)
	for i := range n - 1 {
		ranks[i] = b.pairs.rank(parts[i], parts[i+1])
	}
	for n > 1 {
		best := 0
		for i := 1; i < n-1; i++ {
			if ranks[i] < ranks[best] {
				best = i
			}
		}
		if ranks[best] == noRank {
			break
		}
		parts[best] = b.products[ranks[best]]
		copy(parts[best+1:], parts[best+2:n])
		copy(ranks[best:], ranks[best+1:n-1])
		n--
		if best > 0 {
			ranks[best-1] = b.pairs.rank(parts[best-1], parts[best])
		}
		if best < n-1 {
			ranks[best] = b.pairs.rank(parts[best], parts[best+1])
		}
	}
	return append(ids, parts[:n]...)
}

// part is a piece of a long word in a list linked by positions. A part lives at
// the position of its first byte or character.
type part struct {
	id         int32
	prev, next int32  // -1 at the ends
	rank       uint32 // of the pair with next; noRank also once swallowed by prev
}

// appendLong takes n log n steps: a queue of pairs by rank and position. Pairs
// that a merge nearby has changed stay in the queue; they are skipped because their rank
// differs.
func (b *bpe) appendLong(ids []int32, word string) []int32 {
	spelled := make([]int32, len(word))
	spelled = spelled[:b.spell(spelled, word)]
	parts := make([]part, len(spelled))
	queue := make(rankQueue, 0, len(parts))
	for i, id := range spelled {
		parts[i] = part{id: id, prev: int32(i) - 1, next: int32(i) + 1, rank: noRank}
	}
	last := len(parts) - 1
	parts[last].next = -1
	for i := range last {
		if rank := b.pairs.rank(parts[i].id, parts[i+1].id); rank != noRank {
			parts[i].rank = rank
			queue = append(queue, queued(rank, int32(i)))
		}
	}
	queue.heapify()
	for len(queue) > 0 {
		rank, pos := queue.pop()
		left := &parts[pos]
		if left.rank != rank {
			continue
		}
		right := &parts[left.next]
		left.id = b.products[rank]
		left.next = right.next
		right.rank = noRank
		if left.next >= 0 {
			parts[left.next].prev = pos
		}
		b.pair(parts, pos, &queue)
		if left.prev >= 0 {
			b.pair(parts, left.prev, &queue)
		}
	}
	for i := int32(0); i >= 0; i = parts[i].next {
		ids = append(ids, parts[i].id)
	}
	return ids
}

// pair computes the rank of the part at pos with the next one.
func (b *bpe) pair(parts []part, pos int32, queue *rankQueue) {
	p := &parts[pos]
	p.rank = noRank
	if p.next < 0 {
		return
	}
	if p.rank = b.pairs.rank(p.id, parts[p.next].id); p.rank != noRank {
		queue.push(queued(p.rank, pos))
	}
}

// rankQueue is a binary heap of pairs, lowest rank first and then leftmost,
// which is the order of the packed numbers.
type rankQueue []uint64

func queued(rank uint32, pos int32) uint64 { return uint64(rank)<<32 | uint64(pos) }

func (q *rankQueue) push(x uint64) {
	h := append(*q, x)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if h[up] <= x {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = x
	*q = h
}

func (q *rankQueue) pop() (rank uint32, pos int32) {
	h := *q
	top, last := h[0], len(h)-1
	x := h[last]
	h = h[:last]
	if last > 0 {
		h.sift(0, x)
	}
	*q = h
	return uint32(top >> 32), int32(top & (1<<32 - 1))
}

// heapify makes a heap of numbers in any order.
func (q rankQueue) heapify() {
	for i := len(q)/2 - 1; i >= 0; i-- {
		q.sift(i, q[i])
	}
}

// sift puts x at i or below it, as deep as it must go.
func (q rankQueue) sift(i int, x uint64) {
	for {
		down := 2*i + 1
		if down >= len(q) {
			break
		}
		if down+1 < len(q) && q[down+1] < q[down] {
			down++
		}
		if x <= q[down] {
			break
		}
		q[i] = q[down]
		i = down
	}
	q[i] = x
}

// pairTable is an open-addressed hash table from pairs of tokens to the rank of
// their merge, at most half full. The multiplier is random, so that no file can
// be made to collide.
type pairTable struct {
	slots []pairSlot
	mul   uint64
	shift int
}

type pairSlot struct {
	left, right int32 // left is -1 in a free slot
	rank        uint32
}

func newPairTable(n int) pairTable {
	size := bits.Len(uint(2*n + 1))
	t := pairTable{slots: make([]pairSlot, 1<<size), mul: rand.Uint64() | 1, shift: 64 - size}
	for i := range t.slots {
		t.slots[i] = pairSlot{left: -1, rank: noRank}
	}
	return t
}

// slot returns the slot of a pair, or the free one where it belongs.
func (t *pairTable) slot(left, right int32) *pairSlot {
	key := uint64(left)<<32 | uint64(right)
	mask := uint64(len(t.slots) - 1)
	for i := key * t.mul >> t.shift; ; i = (i + 1) & mask {
		s := &t.slots[i]
		if s.left == left && s.right == right || s.left < 0 {
			return s
		}
	}
}

func (t *pairTable) rank(left, right int32) uint32 { return t.slot(left, right).rank }

// readBPE reads the array of merges, each "left right" or ["left", "right"]. c is nil for a
// byte-level vocabulary.
func readBPE(r *jsontext.Reader, v *vocabulary, c *characters) (bpe, error) {
	b := bpe{chars: c}
	for i := range b.bytes {
		id, ok := v.lookup(string([]byte{byte(i)}))
		if c != nil && (!ok || i >= utf8.RuneSelf) {
			id, ok = c.fallback[i], true
		}
		if !ok {
			return bpe{}, fmt.Errorf("no token for byte %#02x; the vocabulary is not byte-level", i)
		}
		b.bytes[i] = id
	}
	m := merges{
		chars:    c,
		vocab:    v,
		pairs:    make([]pairSlot, 0, len(v.tokens)), // each token has one merge, as a rule
		products: make([]int32, 0, len(v.tokens)),
	}
	if err := r.Array(func(i int) error {
		if err := m.read(r); err != nil {
			return fmt.Errorf("merge %d: %w", i, err)
		}
		return nil
	}); err != nil {
		return bpe{}, err
	}
	b.products = m.products
	if c != nil {
		c.finish()
	}
	b.pairs = newPairTable(len(m.pairs))
	for rank, p := range m.pairs {
		if p.left >= 0 {
			// The reference uses the last of duplicate pairs.
			p.rank = uint32(rank)
			*b.pairs.slot(p.left, p.right) = p
		}
	}
	return b, nil
}

// merges collects the merges of a file in the order of their ranks.
type merges struct {
	vocab    *vocabulary
	chars    *characters // nil: of a byte-level vocabulary
	pairs    []pairSlot
	products []int32

	spelled, bytes []byte // of the merge being read: both tokens, side by side
}

func (m *merges) read(r *jsontext.Reader) error {
	left, right, err := m.spelling(r)
	if err != nil {
		return err
	}
	var leftPlain, rightPlain bool
	m.bytes, leftPlain = m.vocab.spell(m.bytes[:0], left)
	n := len(m.bytes)
	m.bytes, rightPlain = m.vocab.spell(m.bytes, right)
	if !leftPlain || !rightPlain {
		return m.addOdd(string(left), string(right))
	}
	p := pairSlot{}
	if _, p.left = m.vocab.find(m.bytes[:n]); p.left < 0 {
		return fmt.Errorf("%q is not in the vocabulary", left)
	}
	if _, p.right = m.vocab.find(m.bytes[n:]); p.right < 0 {
		return fmt.Errorf("%q is not in the vocabulary", right)
	}
	_, product := m.vocab.find(m.bytes)
	if product < 0 {
		return fmt.Errorf("%q and %q make a token that is not in the vocabulary", left, right)
	}
	m.pairs = append(m.pairs, p)
	m.products = append(m.products, product)
	if m.chars != nil {
		m.chars.join(m.bytes[:n], m.bytes[n:])
	}
	return nil
}

// addOdd checks a merge of tokens outside the alphabet. It can never
// apply, but has a rank.
func (m *merges) addOdd(left, right string) error {
	for _, text := range []string{left, right, left + right} {
		if _, ok := m.vocab.spelled(text); !ok {
			return fmt.Errorf("%q is not in the vocabulary", text)
		}
		if m.chars != nil && byteSpelled(text) {
			return fmt.Errorf("%q is a byte, and merges of bytes are not supported", text)
		}
	}
	m.pairs = append(m.pairs, pairSlot{left: -1})
	m.products = append(m.products, -1)
	return nil
}

// spelling reads the two tokens as the file spells them. The results are valid
// until it reads the next.
func (m *merges) spelling(r *jsontext.Reader) (left, right []byte, err error) {
	if r.Kind() != jsontext.Array {
		text, err := r.Text()
		if err != nil {
			return nil, nil, err
		}
		left, right, ok := bytes.Cut(text, []byte(" "))
		if !ok || bytes.Contains(right, []byte(" ")) {
			return nil, nil, fmt.Errorf("%q is not two tokens with a space between", text)
		}
		return left, right, nil
	}
	n, middle := 0, 0
	m.spelled = m.spelled[:0]
	err = r.Array(func(i int) error {
		text, err := r.Text()
		n, middle = i+1, len(m.spelled)
		m.spelled = append(m.spelled, text...)
		return err
	})
	if err == nil && n != 2 {
		err = errors.New("a merge must name two tokens")
	}
	return m.spelled[:middle], m.spelled[middle:], err
}
