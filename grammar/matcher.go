package grammar

import (
	"math"
	"slices"
)

// Matcher follows one text through a grammar. It must not be used by two goroutines at
// once. Nothing has to be rolled back: Allowed evaluates draft tokens without changing the
// matcher.
type Matcher struct {
	g       *Grammar
	machine *machine
	walker  walker

	now    int32   // the state of the accepted text
	ahead  []int32 // tokens looked at last, and the states behind them
	states []int32

	spelled map[int32]int32 // by state: the token that begins the forced text; -1: none
	text    []byte          // forced text

	masks  []maskOf // used in turn
	turn   int
	filled map[int32]int // state to its place in masks
}

type maskOf struct {
	state int32
	bits  []uint64
}

// keptMasks is how many masks a matcher remembers. A text of JSON comes back to the same
// states: between two items of a list, inside strings.
const keptMasks = 32

// Matcher returns a matcher at the start of a text.
func (g *Grammar) Matcher() *Matcher {
	m := &Matcher{g: g, machine: newMachine(g.program), walker: walker{v: g.vocab}, spelled: map[int32]int32{}, filled: map[int32]int{}}
	m.now = m.machine.start()
	return m
}

// Accept makes id part of the text. An id that is not allowed is a mistake of the caller;
// the text can only end after it.
func (m *Matcher) Accept(id int32) {
	if len(m.ahead) > 0 && m.ahead[0] == id {
		m.now = m.states[0]
		m.ahead, m.states = slices.Delete(m.ahead, 0, 1), slices.Delete(m.states, 0, 1)
		return
	}
	m.now = m.next(m.now, id)
	m.ahead, m.states = m.ahead[:0], m.states[:0]
}

// Allowed is the set of tokens that may follow once the tokens ahead have followed the
// text: bit id%64 of word id/64. End tokens are in it exactly if the text may end there, and
// alone if it must; it is never empty. It is valid until the next call of a method.
func (m *Matcher) Allowed(ahead []int32) []uint64 {
	return m.mask(m.follow(ahead))
}

// follow is the state once the tokens ahead have followed the text.
func (m *Matcher) follow(ahead []int32) int32 {
	same := 0
	for same < len(ahead) && same < len(m.ahead) && ahead[same] == m.ahead[same] {
		same++
	}
	m.ahead, m.states = m.ahead[:same], m.states[:same]
	s := m.now
	if same > 0 {
		s = m.states[same-1]
	}
	for _, id := range ahead[same:] {
		s = m.next(s, id)
		m.ahead, m.states = append(m.ahead, id), append(m.states, s)
	}
	return s
}

// next is the state after one more token.
func (m *Matcher) next(s, id int32) int32 {
	if id < 0 || int(id) >= len(m.g.vocab.tokens) || m.g.vocab.tokens[id] == "" {
		return over // an end, or not allowed
	}
	s, _ = m.machine.feed(s, m.g.vocab.tokens[id])
	return s
}

// maxSettled bounds the text that is looked at for its first token, in bytes.
const maxSettled = 64

// spell is the token with which the vocabulary's encoder begins the forced text of a
// state, -1 if no text is forced, or if its first token depends on what follows. It depends only on
// the state, so that a mask does not depend on the tokenization of the text before.
func (m *Matcher) spell(s int32) int32 {
	if m.g.vocab.encode == nil {
		return -1
	}
	if id, ok := m.spelled[s]; ok {
		return id
	}
	m.text = m.text[:0]
	at := s
	for len(m.text) < maxSettled {
		step := m.machine.settle(at)
		if step.next < 0 {
			break
		}
		m.text, at = append(m.text, step.b), step.next
	}
	id := int32(-1)
	if len(m.text) > 0 {
		id = m.g.vocab.first(string(m.text), m.machine.states[at].first < m.machine.states[at].last)
	}
	m.spelled[s] = id
	return id
}

// mask is the set of tokens allowed in a state.
func (m *Matcher) mask(s int32) []uint64 {
	if i, ok := m.filled[s]; ok {
		return m.masks[i].bits
	}
	v := m.g.vocab
	if len(m.masks) < keptMasks {
		m.masks = append(m.masks, maskOf{bits: make([]uint64, v.words)})
		m.turn = len(m.masks) - 1
	} else {
		m.turn = (m.turn + 1) % keptMasks
		delete(m.filled, m.masks[m.turn].state)
		clear(m.masks[m.turn].bits)
	}
	m.filled[s] = m.turn
	m.masks[m.turn].state = s
	bits := m.masks[m.turn].bits
	if id := m.spell(s); id >= 0 {
		set(bits, id)
		return bits
	}
	// By number: the list of configs may move while frames are explored.
	for i := m.machine.states[s].first; i < m.machine.states[s].last; i++ {
		m.fill(bits, m.machine.configs[i])
	}
	if m.machine.states[s].ends {
		for _, id := range v.end {
			set(bits, id)
		}
	}
	for _, twin := range v.twins {
		if has(bits, twin[0]) {
			set(bits, twin[1])
		}
	}
	return bits
}

// fill adds the tokens that one config allows.
func (m *Matcher) fill(bits []uint64, c config) {
	node := &m.g.program.nodes[c.node]
	var f *facts
	if node.lex != nil {
		f = m.g.facts(&m.walker, node.lex, c.state)
	} else {
		f = m.g.vocab.textFacts(&m.walker, c.state)
	}
	least, room := limits(node, c.n)
	f.fill(m.g.vocab, bits, room)
	m.tight(bits, c, f.tight)
	if len(f.exits) == 0 {
		return
	}
	s := m.machine.behind(c.stack)
	for i := m.machine.states[s].first; i < m.machine.states[s].last; i++ {
		next := m.machine.configs[i]
		d := m.g.program.dfa(next.node)
		for class, to := range d.row(next.state) {
			if to < 0 {
				continue
			}
			for _, e := range f.exits[f.from[d.starts[class]]:f.from[d.starts[class+1]]] {
				if least <= int(e.chars) && int(e.chars) <= room {
					m.below(bits, next, e.node, m.g.vocab.nodes[e.node].end)
				}
			}
		}
	}
}

// tight adds the tokens after which a text can reach its required number of characters.
func (m *Matcher) tight(bits []uint64, c config, list []tightToken) {
	node, d := &m.g.program.nodes[c.node], m.g.program.dfa(c.node)
	for _, t := range list {
		if node.fits(d, t.state, c.n+t.chars) {
			set(bits, t.id)
		}
	}
}

// limits is how many characters of a text must and may follow the n that there are.
func limits(node *node, n int32) (least, room int) {
	if node.kind == nodeLex {
		return 0, math.MaxInt
	}
	if node.max == unlimited {
		return int(node.min - n), math.MaxInt
	}
	return int(node.min - n), int(node.max - n)
}

// below adds the tokens at the nodes from first up to end that a config allows.
func (m *Matcher) below(bits []uint64, c config, first, end int32) {
	node := &m.g.program.nodes[c.node]
	least, room := limits(node, c.n)
	w := &m.walker
	w.found, w.runs, w.tight = w.found[:0], w.runs[:0], w.tight[:0]
	exits := len(w.exits)
	w.walk(m.g.program.dfa(c.node), c.state, first, end, int(m.g.vocab.nodes[first].depth))
	for _, t := range w.found {
		if int(t.chars) <= room {
			set(bits, t.id)
		}
	}
	for _, run := range w.runs {
		for _, id := range run {
			set(bits, id)
		}
	}
	m.tight(bits, c, w.tight)
	// The list may grow, and move, below.
	for i := exits; i < len(w.exits); i++ {
		e := w.exits[i]
		if int(e.chars) < least || int(e.chars) > room {
			continue
		}
		s := m.machine.behind(c.stack)
		for j := m.machine.states[s].first; j < m.machine.states[s].last; j++ {
			m.below(bits, m.machine.configs[j], e.node+1, m.g.vocab.nodes[e.node].end)
		}
	}
	w.exits = w.exits[:exits]
}
