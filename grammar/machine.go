package grammar

import (
	"cmp"
	"math"
	"slices"
)

// machine runs a program over bytes. It holds all ways in which the text so far may be
// read at once. Stacks are shared and never change: one that was seen before has the same
// number again, and so has a state, so that going back is to remember a number.
type machine struct {
	p *program

	frames []frame // by number; 0 is the bottom, behind which the text ends
	lists  []int32 // of frames with several stacks
	frame  map[frame]int32
	sets   map[uint64][]int32 // numbers of frames that are several, by hash
	after  []int32            // by frame: the state behind it; -1: not known yet

	states  []state
	configs []config // of the states
	index   map[uint64][]int32
	settled map[int32]step // by state, computed on demand

	// Of the current step.
	next []config
	ends bool
	left []int32 // frames gone behind
	// stacks are those being merged.
	stacks []int32
}

// config is one way to read the text: inside a node that is a lex or a text, in a state of
// its automaton, with n characters counted, on top of a stack.
type config struct{ node, state, n, stack int32 }

// frame is a stack: go on in node with its k-th part, or k-th time, then with rest. A node
// of -1 means several stacks at once, numbers in lists[k:rest].
type frame struct{ node, k, rest int32 }

// state is a set of configs, in configs[first:last], and whether the text may end.
type state struct {
	first, last int32
	ends        bool
}

// step is the only byte that can follow in a state, and the state after it; next is -1 if there
// is none.
type step struct {
	next int32
	b    byte
}

// bottom is the node of frame 0, which has none.
const bottom = math.MaxInt32

// over is the state in which the text can only end.
const over = 0

func newMachine(p *program) *machine {
	m := &machine{
		p: p, frames: []frame{{node: bottom}}, after: []int32{-1}, frame: map[frame]int32{},
		sets: map[uint64][]int32{}, index: map[uint64][]int32{}, settled: map[int32]step{},
	}
	m.states = append(m.states, state{ends: true})
	m.index[hash(nil)] = []int32{over}
	return m
}

// start is the state before the first byte.
func (m *machine) start() int32 {
	m.begin()
	m.enter(m.p.root, 0)
	return m.intern()
}

// of is the configs of a state.
func (m *machine) of(s int32) []config { return m.configs[m.states[s].first:m.states[s].last] }

func (m *machine) begin() { m.next, m.left, m.ends = m.next[:0], m.left[:0], false }

// enter adds the ways to begin with node n.
func (m *machine) enter(n, stack int32) {
	switch node := &m.p.nodes[n]; node.kind {
	case nodeLex, nodeText:
		m.add(config{node: n, stack: stack})
	case nodeSeq:
		m.part(n, 0, stack)
	case nodeAlt:
		for _, choice := range node.list {
			m.enter(choice, stack)
		}
	case nodeRep:
		m.time(n, 0, stack)
	}
}

// part continues with part k of a sequence.
func (m *machine) part(n, k, stack int32) {
	list := m.p.nodes[n].list
	switch int(k) {
	case len(list):
		m.leave(stack)
	case len(list) - 1:
		m.enter(list[k], stack)
	default:
		m.enter(list[k], m.push(frame{n, k + 1, stack}))
	}
}

// time continues after k times of a repetition.
func (m *machine) time(n, k, stack int32) {
	node := &m.p.nodes[n]
	if k >= node.min {
		m.leave(stack)
		if node.max == unlimited {
			k = node.min // more do not matter
		}
	}
	if k < node.max {
		if node.max != unlimited || k < node.min {
			k++
		}
		m.enter(node.list[0], m.push(frame{n, k, stack}))
	}
}

// leave adds the ways to go on with a stack.
func (m *machine) leave(stack int32) {
	if stack == 0 {
		m.ends = true
		return
	}
	if slices.Contains(m.left, stack) {
		return
	}
	m.left = append(m.left, stack)
	f := m.frames[stack]
	switch {
	case f.node < 0:
		for i := f.k; i < f.rest; i++ {
			m.leave(m.lists[i])
		}
	case m.p.nodes[f.node].kind == nodeSeq:
		m.part(f.node, f.k, f.rest)
	default:
		m.time(f.node, f.k, f.rest)
	}
}

// add adds one config, and its successors if its automaton may be left.
func (m *machine) add(c config) {
	d := m.p.dfa(c.node)
	if !d.leaf[c.state] {
		m.next = append(m.next, c)
	}
	if !d.accept[c.state] {
		return
	}
	if n := &m.p.nodes[c.node]; n.kind == nodeLex || n.min <= c.n && c.n <= n.max {
		m.leave(c.stack)
	}
}

// read is the config after a byte, and false if the byte does not fit.
func (m *machine) read(c config, b byte) (config, bool) {
	node := &m.p.nodes[c.node]
	if node.kind == nodeLex {
		c.state = node.lex.step(c.state, b)
		return c, c.state >= 0
	}
	d, from := m.p.dfa(c.node), c.state
	if c.state = d.step(from, b); c.state < 0 {
		return c, false
	}
	if d.meter.counts(from, c.state) && (node.max != unlimited || c.n < node.min) {
		c.n++
	}
	return c, node.fits(d, c.state, c.n)
}

// feed is the state after text, and false if the text does not fit.
func (m *machine) feed(s int32, text string) (int32, bool) {
	if text == "" {
		return s, true
	}
	now := m.of(s)
	for i := range len(text) {
		m.begin()
		for _, c := range now {
			if c, ok := m.read(c, text[i]); ok {
				m.add(c)
			}
		}
		m.merge()
		if i < len(text)-1 {
			// m.next is overwritten, and the configs being read must not change: alternate at the end
			// of configs, which the next state overwrites.
			n := len(m.configs)
			m.configs = append(m.configs, m.next...)
			now = m.configs[n:]
			m.configs = m.configs[:n]
		}
	}
	if len(m.next) == 0 && !m.ends {
		return over, false
	}
	return m.intern(), true
}

// settle is the step that must follow in a state.
func (m *machine) settle(s int32) step {
	only, ok := m.settled[s]
	if ok {
		return only
	}
	if b, ok := m.only(s); !ok {
		only.next = -1
	} else {
		only.b = b
		only.next, _ = m.feed(s, string([]byte{b}))
	}
	m.settled[s] = only
	return only
}

// only is the one byte that can follow in a state; ok is false if there are others, or if the
// text may end.
func (m *machine) only(s int32) (b byte, ok bool) {
	if m.states[s].ends {
		return 0, false
	}
	for _, c := range m.of(s) {
		d := m.p.dfa(c.node)
		for class, to := range d.row(c.state) {
			first := byte(d.starts[class])
			if to < 0 {
				continue
			}
			if _, fits := m.read(c, first); !fits {
				continue // a string has its maximum length, or not yet its minimum
			}
			if ok && first != b || d.starts[class+1]-d.starts[class] > 1 {
				return 0, false
			}
			b, ok = first, true
		}
	}
	return b, ok
}

// behind is the state reached by leaving a stack.
func (m *machine) behind(stack int32) int32 {
	if s := m.after[stack]; s >= 0 {
		return s
	}
	m.begin()
	m.leave(stack)
	s := m.intern()
	m.after[stack] = s
	return s
}

// push is the number of a frame.
func (m *machine) push(f frame) int32 {
	if n, ok := m.frame[f]; ok {
		return n
	}
	n := m.newFrame(f)
	m.frame[f] = n
	return n
}

func (m *machine) newFrame(f frame) int32 {
	m.frames = append(m.frames, f)
	m.after = append(m.after, -1)
	return int32(len(m.frames) - 1)
}

// merge sorts the configs and merges those that differ only in their
// stacks: they have the same successors.
func (m *machine) merge() {
	slices.SortFunc(m.next, func(a, b config) int {
		return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.state, b.state), cmp.Compare(a.n, b.n), cmp.Compare(a.stack, b.stack))
	})
	m.next = slices.Compact(m.next)
	kept := m.next[:0]
	for i := 0; i < len(m.next); {
		c := m.next[i]
		j := i + 1
		for j < len(m.next) && m.next[j].node == c.node && m.next[j].state == c.state && m.next[j].n == c.n {
			j++
		}
		if j > i+1 {
			m.stacks = m.stacks[:0]
			for _, other := range m.next[i:j] {
				m.stacks = append(m.stacks, other.stack)
			}
			c.stack = m.several(m.stacks)
		}
		kept = append(kept, c)
		i = j
	}
	m.next = kept
}

// several is the number of a set of stacks. Stacks with the same top that
// differ further down become one, so that the number of ways does not multiply with depth.
func (m *machine) several(stacks []int32) int32 {
	var list []int32
	for _, s := range stacks {
		if f := m.frames[s]; f.node < 0 {
			list = append(list, m.lists[f.k:f.rest]...)
		} else {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b int32) int {
		f, g := m.frames[a], m.frames[b]
		return cmp.Or(cmp.Compare(f.node, g.node), cmp.Compare(f.k, g.k), cmp.Compare(f.rest, g.rest))
	})
	list = slices.Compact(list)
	kept := list[:0]
	for i := 0; i < len(list); {
		f := m.frames[list[i]]
		j := i + 1
		for j < len(list) && m.frames[list[j]].node == f.node && m.frames[list[j]].k == f.k {
			j++
		}
		s := list[i]
		if j > i+1 {
			rests := make([]int32, 0, j-i)
			for _, t := range list[i:j] {
				rests = append(rests, m.frames[t].rest)
			}
			s = m.push(frame{f.node, f.k, m.several(rests)})
		}
		kept = append(kept, s)
		i = j
	}
	if len(kept) == 1 {
		return kept[0]
	}
	return m.set(kept)
}

// set is the number of a list of stacks.
func (m *machine) set(list []int32) int32 {
	h := uint64(len(list))
	for _, s := range list {
		h = (h ^ uint64(uint32(s))) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	for _, n := range m.sets[h] {
		if f := m.frames[n]; slices.Equal(m.lists[f.k:f.rest], list) {
			return n
		}
	}
	first := int32(len(m.lists))
	m.lists = append(m.lists, list...)
	n := m.newFrame(frame{-1, first, int32(len(m.lists))})
	m.sets[h] = append(m.sets[h], n)
	return n
}

// intern is the number of the state of the step just made.
func (m *machine) intern() int32 {
	m.merge()
	h := hash(m.next)
	for _, s := range m.index[h] {
		if m.states[s].ends == m.ends && slices.Equal(m.of(s), m.next) {
			return s
		}
	}
	first := int32(len(m.configs))
	m.configs = append(m.configs, m.next...)
	s := int32(len(m.states))
	m.states = append(m.states, state{first, int32(len(m.configs)), m.ends})
	m.index[h] = append(m.index[h], s)
	return s
}

func hash(configs []config) uint64 {
	h := uint64(len(configs))
	for _, c := range configs {
		h = (h ^ uint64(uint32(c.node)) ^ uint64(uint32(c.state))<<32) * 0x9e3779b97f4a7c15
		h = (h ^ h>>29 ^ uint64(uint32(c.n)) ^ uint64(uint32(c.stack))<<32) * 0xbf58476d1ce4e5b9
		h ^= h >> 32
	}
	return h
}
