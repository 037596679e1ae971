package grammar

import (
	"errors"
	"slices"
)

// meter is the numbers of characters in the texts of an automaton. Lengths are
// counted beside the automaton: a product with a count would have one copy of it for each
// character of the longest text.
type meter struct {
	// whole reports the states in which a character is complete. Each entry into one of them
	// counts, except for the quotation mark that leads out of state 0.
	whole  []bool
	quoted bool
	// low is the least number of characters that completes a text from each state. In a
	// loose state every greater number does so too; the other states have an index in tight.
	low   []int32
	tight []int32 // -1: loose
	count int32   // of the tight states
}

// counts reports whether a step between two states completes a character.
func (m *meter) counts(from, to int32) bool { return m.whole[to] && (from != 0 || !m.quoted) }

// measured is the automaton of strings in quotation marks, in their shortest form, or of plain
// texts, with a meter.
func (d *dfa) measured(quoted bool) (*dfa, error) {
	const start, inside, escape, end = 10, 0, 9, 11 // 1 to 3: missing bytes of a character, 4 to 8: of an escape
	next := func(at int, b byte) int {
		switch {
		case at == start && quoted:
			return inside
		case at == escape && b == 'u':
			return 7 // four digits
		case at == escape || at == 1 || at == 4:
			return inside
		case at == 2 || at == 3 || 4 < at && at < escape:
			return at - 1
		case quoted && b == '"':
			return end
		case quoted && b == '\\':
			return escape
		case b >= 0xF0:
			return 3
		case b >= 0xE0:
			return 2
		case b >= 0xC0:
			return 1
		}
		return inside
	}
	at := make([]int, len(d.accept)) // position of each state in a character; -1: not known yet
	for s := range at {
		at[s] = -1
	}
	at[0] = inside
	if quoted {
		at[0] = start
	}
	for todo := []int32{0}; len(todo) > 0; {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for k, to := range d.row(s) {
			if to < 0 {
				continue
			}
			place := next(at[s], byte(d.starts[k]))
			if at[to] < 0 {
				at[to] = place
				todo = append(todo, to)
			} else if at[to] != place {
				return nil, errors.New("the characters cannot be counted")
			}
		}
	}
	m := *d
	m.meter = &meter{whole: make([]bool, len(at)), quoted: quoted}
	for s := range at {
		m.meter.whole[s] = at[s] == inside
	}
	m.findLows()
	return &m, nil
}

// findLows fills in low and tight.
func (d *dfa) findLows() {
	m := d.meter
	first, before := d.before()
	m.low, m.tight = make([]int32, len(d.accept)), make([]int32, len(d.accept))
	fill(m.low, -1)
	now, next := d.accepting(), []int32(nil)
	for n := int32(0); len(now) > 0; n++ {
		next = next[:0]
		for len(now) > 0 {
			s := now[len(now)-1]
			now = now[:len(now)-1]
			if m.low[s] >= 0 {
				continue
			}
			m.low[s] = n
			for _, p := range before[first[s]:first[s+1]] {
				if m.counts(p, s) {
					next = append(next, p)
				} else {
					now = append(now, p)
				}
			}
		}
		now, next = next, now
	}
	// A state from which a character leads back is loose, and so is one from which the
	// shortest way leads to a loose one.
	var todo []int32
	for s := range m.tight {
		if s := int32(s); m.counts(s, s) && slices.Contains(d.row(s), s) {
			todo = append(todo, s)
		}
	}
	loose := make([]bool, len(m.tight))
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if loose[s] {
			continue
		}
		loose[s] = true
		for _, p := range before[first[s]:first[s+1]] {
			if m.low[p] == m.low[s]+m.weight(p, s) {
				todo = append(todo, p)
			}
		}
	}
	for s, ok := range loose {
		if m.tight[s] = -1; !ok {
			m.tight[s] = m.count
			m.count++
		}
	}
}

func (m *meter) weight(from, to int32) int32 {
	if m.counts(from, to) {
		return 1
	}
	return 0
}

// maxReach bounds the numbers that a reach lists for all states.
const maxReach = 1 << 22

// reach lists for each tight state the numbers of characters that complete a text: up to
// first+period, and from there on the last period again and again.
type reach struct {
	bits          [][]uint64 // by number in tight
	words         int        // of all of them
	first, period int32
}

// bytes is the memory of the list, about.
func (r *reach) bytes() int { return 24*len(r.bits) + 8*r.words }

// reach lists numbers up to most.
func (w *work) reach(d *dfa, most int32) (*reach, error) {
	m := d.meter
	r := &reach{bits: make([][]uint64, m.count), first: most, period: 1}
	first, before := d.before()
	// enough is the number from which on a step to a loose state completes a text.
	enough, last := make([]int32, len(m.tight)), int32(0)
	fill(enough, unlimited)
	for s := range int32(len(m.tight)) {
		if m.tight[s] >= 0 {
			continue
		}
		for _, p := range before[first[s]:first[s+1]] {
			enough[p] = min(enough[p], m.low[s]+m.weight(p, s))
		}
	}
	var loose []int32 // tight states with a step to a loose one
	for s, n := range enough {
		if m.tight[s] >= 0 && n < unlimited {
			loose = append(loose, int32(s))
			last = max(last, n)
		}
	}
	var now, todo, old []int32
	since := int32(-1) // the number of old
	for n := int32(0); n <= most; n++ {
		todo = todo[:0]
		for _, s := range now {
			for _, p := range before[first[s]:first[s+1]] {
				if m.counts(p, s) {
					todo = append(todo, p)
				}
			}
		}
		if n == 0 {
			todo = append(todo, d.accepting()...)
		}
		for _, s := range loose {
			if enough[s] <= n {
				todo = append(todo, s)
			}
		}
		words := r.words
		now = r.level(now[:0], m, n, todo, first, before)
		if err := w.spend(len(now)/2 + len(loose)/16 + 4*(r.words-words) + 1); err != nil {
			return nil, err
		}
		if since >= 0 && slices.Equal(now, old) { // each set follows from the one before
			r.first, r.period = since, n-since
			break
		}
		if n > last && n&(n-1) == 0 {
			old, since = append(old[:0], now...), n
		}
		if int(m.count)*int(n) > maxReach {
			return nil, errLarge
		}
	}
	return r, nil
}

// level records number n for some states and for their predecessors without a character,
// and returns the tight ones in order.
func (r *reach) level(now []int32, m *meter, n int32, todo, first, before []int32) []int32 {
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if m.tight[s] < 0 || r.listed(m.tight[s], n) {
			continue
		}
		row := &r.bits[m.tight[s]]
		for int(n)/64 >= len(*row) {
			*row = append(*row, 0)
			r.words++
		}
		(*row)[n/64] |= 1 << (n % 64)
		now = append(now, s)
		for _, p := range before[first[s]:first[s+1]] {
			if !m.counts(p, s) {
				todo = append(todo, p)
			}
		}
	}
	slices.Sort(now)
	return now
}

func (r *reach) listed(tight, n int32) bool {
	row := r.bits[tight]
	return int(n)/64 < len(row) && row[n/64]>>(n%64)&1 != 0
}

// any reports whether a number from lo to hi completes a text.
func (r *reach) any(tight, lo, hi int32) bool {
	for n := lo; n <= hi; n++ {
		at := n
		if n > r.first {
			at = r.first + (n-r.first)%r.period
		}
		if r.listed(tight, at) {
			return true
		}
	}
	return false
}

// fits reports whether a text of the node can be completed from a state, with n characters.
func (n *node) fits(d *dfa, state, chars int32) bool {
	m := d.meter
	if n.max != unlimited && n.max-chars < m.low[state] {
		return false
	}
	t := m.tight[state]
	if t < 0 {
		return true
	}
	least, most := max(0, n.min-chars), n.max-chars
	if n.max == unlimited {
		if least == 0 {
			return true
		}
		most = unlimited
	}
	// A way that is longer by as many characters as there are states has a loop, and is
	// shorter without it, but not too short.
	return n.reach.any(t, least, min(most, min(least, unlimited-1-maxStates)+int32(len(d.accept))))
}

// counted is the node of the texts of an automaton whose number of characters is in a range.
func (b *builder) counted(d *dfa, length span, quoted bool) (int32, error) {
	if length == (span{0, unlimited}) || len(d.accept) == 0 {
		return b.automaton(d)
	}
	if length.least > length.most {
		return b.alt(), nil
	}
	key := countedKey{d, length}
	if n, ok := b.lengths[key]; ok {
		return n, nil
	}
	l, ok := b.measured[d]
	if !ok {
		m, err := d.measured(quoted)
		if err == nil {
			l, err = b.newLex(m)
		}
		if err != nil {
			return 0, err
		}
		b.measured[d] = l
	}
	n := node{kind: nodeText, lex: l, min: length.least, max: length.most}
	// fits needs no greater number.
	most := min(length.most, min(length.least, unlimited-1-maxStates)+int32(len(d.accept)))
	var err error
	if n.reach, err = b.work.reach(l.dfa, most); err != nil {
		return 0, err
	}
	id := b.alt()
	if n.fits(l.dfa, 0, 0) {
		id = b.add(n)
	}
	b.lengths[key] = id
	return id, nil
}

// countedKey is an automaton and the range of the lengths of its texts.
type countedKey struct {
	of     *dfa
	length span
}
