package grammar

import "slices"

// facts is the relation of one state of an automaton to the tokens, independent of what follows the
// automaton: which tokens it takes whole, and where in which others it can be left.
type facts struct {
	// ids are the tokens taken whole, as a list if they are few and as a mask otherwise. In
	// an automaton that counts characters there are both, and the list is in order of the
	// characters that a text with the token needs at least, upTo[n] of them at most n.
	ids  []int32
	mask []uint64
	upTo []int32
	// plain: all plain tokens are taken as well, and complete a text with low
	// characters more.
	plain bool
	low   int32
	// tight are tokens that lead to tight states.
	tight []tightToken
	// exits are nodes before which the automaton may be complete; those of byte b begin at
	// from[b].
	exits []exit
	from  [257]int32
}

// found is a token, with the least number of characters of a text with it.
type found struct{ id, chars int32 }

// tightToken is a token with its characters and the state that it leads to.
type tightToken struct{ id, chars, state int32 }

// exit is a node of the forest, with the characters counted before it.
type exit struct{ node, chars int32 }

// bytes is the memory of the facts, about.
func (f *facts) bytes() int {
	return 4*len(f.ids) + 8*len(f.mask) + 4*len(f.upTo) + 12*len(f.tight) + 8*len(f.exits) + 1<<11
}

// walker walks along a vocabulary's forest with an automaton.
type walker struct {
	v      *Vocab
	states []int32 // by depth
	chars  []int32

	found  []found // tokens taken whole
	sorted []found
	runs   [][]int32 // more of them
	tight  []tightToken
	exits  []exit // nodes behind which the automaton may be left
}

// walk appends to found, runs, tight and exits the results of d from state s on for the nodes from first
// up to end, which are at a depth of at least depth.
func (w *walker) walk(d *dfa, s, first, end int32, depth int) {
	if need := w.v.deepest - depth + 1; len(w.states) < need {
		w.states, w.chars = make([]int32, need), make([]int32, need)
	}
	if d.meter != nil {
		w.count(d, s, first, end, depth)
		return
	}
	states, nodes := w.states, w.v.nodes
	states[0] = s
	for i := first; i < end; {
		node := &nodes[i]
		at := int(node.depth) - depth
		t := d.step(states[at], node.b)
		if t < 0 {
			i = node.end
			continue
		}
		if node.below&^d.loops[t] == 0 && i+1 < node.end && !d.accept[t] {
			w.runs = append(w.runs, w.v.order[node.first:nodes[node.end].first])
			i = node.end
			continue
		}
		states[at+1] = t
		i++
		if node.id >= 0 {
			w.found = append(w.found, found{id: node.id})
		}
		if d.accept[t] {
			if i < node.end {
				w.exits = append(w.exits, exit{node: i - 1})
			}
			if d.leaf[t] {
				i = node.end
			}
		}
	}
}

// count is walk for an automaton that counts characters.
func (w *walker) count(d *dfa, s, first, end int32, depth int) {
	states, chars, m := w.states, w.chars, d.meter
	states[0], chars[0] = s, 0
	for i := first; i < end; {
		node := &w.v.nodes[i]
		at := int(node.depth) - depth
		from := states[at]
		t := d.step(from, node.b)
		if t < 0 {
			i = node.end
			continue
		}
		c := chars[at]
		if m.counts(from, t) {
			c++
		}
		if node.below&^d.loops[t] == 0 && i+1 < node.end && !d.accept[t] { // every character leads back to t
			less := c + m.low[t] - int32(w.v.chars[i])
			for j, id := range w.v.order[node.first:w.v.nodes[node.end].first] {
				w.found = append(w.found, found{id, less + int32(w.v.lengths[int(node.first)+j])})
			}
			i = node.end
			continue
		}
		states[at+1], chars[at+1] = t, c
		i++
		switch {
		case node.id < 0:
		case m.tight[t] < 0:
			w.found = append(w.found, found{node.id, c + m.low[t]})
		default:
			w.tight = append(w.tight, tightToken{node.id, c, t})
		}
		if d.accept[t] && i < node.end {
			w.exits = append(w.exits, exit{i - 1, c})
		}
		if d.leaf[t] {
			i = node.end
		}
	}
}

// facts computes the relation of a state to all tokens.
func (w *walker) facts(d *dfa, s int32) *facts {
	f, counts := &facts{}, d.meter != nil
	if counts { // a state that every plain character leads back to is loose
		f.plain, f.low = d.loops[s] == kindNone-1, d.meter.low[s]
	}
	first := int32(0)
	if f.plain {
		first = w.v.plainEnd
	}
	w.found, w.runs, w.tight, w.exits = w.found[:0], w.runs[:0], w.tight[:0], w.exits[:0]
	w.walk(d, s, first, int32(len(w.v.nodes)-1), 0)
	f.tight = slices.Clone(w.tight)
	f.sort(w.v.nodes, w.exits)
	if counts {
		w.sort()
	}
	total := len(w.found)
	for _, run := range w.runs {
		total += len(run)
	}
	dense := total > w.v.size/32
	if counts || dense {
		f.mask = make([]uint64, w.v.words)
		w.fill(f.mask)
	}
	if f.plain {
		or(f.mask, w.v.plain[len(w.v.plain)-1])
	}
	if counts || !dense {
		f.ids = make([]int32, 0, total)
		for i, t := range w.found {
			for int(t.chars) > len(f.upTo) {
				f.upTo = append(f.upTo, int32(i))
			}
			f.ids = append(f.ids, t.id)
		}
		for _, run := range w.runs {
			f.ids = append(f.ids, run...)
		}
	}
	return f
}

// sort sorts the results by the number of characters needed.
func (w *walker) sort() {
	most := int32(0)
	for _, t := range w.found {
		most = max(most, t.chars)
	}
	next := make([]int32, most+2) // the place of the next token of each number
	for _, t := range w.found {
		next[t.chars+1]++
	}
	for n := range most + 1 {
		next[n+1] += next[n]
	}
	w.sorted = slices.Grow(w.sorted[:0], len(w.found))[:len(w.found)]
	for _, t := range w.found {
		w.sorted[next[t.chars]] = t
		next[t.chars]++
	}
	w.found, w.sorted = w.sorted, w.found
}

// fill adds the tokens taken whole to a mask.
func (w *walker) fill(mask []uint64) {
	for _, t := range w.found {
		set(mask, t.id)
	}
	for _, run := range w.runs {
		for _, id := range run {
			set(mask, id)
		}
	}
}

// sort lists the nodes after exits by their bytes.
func (f *facts) sort(nodes []trieNode, exits []exit) {
	children := func(visit func(child, chars int32)) {
		for _, e := range exits {
			for i := e.node + 1; i < nodes[e.node].end; i = nodes[i].end {
				visit(i, e.chars)
			}
		}
	}
	children(func(child, _ int32) { f.from[int(nodes[child].b)+1]++ })
	for b := range 256 {
		f.from[b+1] += f.from[b]
	}
	f.exits = make([]exit, f.from[256])
	next := f.from
	children(func(child, chars int32) {
		b := nodes[child].b
		f.exits[next[b]] = exit{child, chars}
		next[b]++
	})
}

// fill adds to the mask the tokens after which a text needs at most room characters.
func (f *facts) fill(v *Vocab, mask []uint64, room int) {
	longest := len(f.upTo)
	if f.plain {
		longest = max(longest, len(v.plain)-1+int(f.low))
	}
	if f.mask != nil && room >= longest {
		or(mask, f.mask)
		return
	}
	if f.plain && room >= int(f.low) {
		or(mask, v.plain[min(room-int(f.low), len(v.plain)-1)])
	}
	ids := f.ids
	if room < len(f.upTo) {
		ids = ids[:f.upTo[room]]
	}
	for _, id := range ids {
		set(mask, id)
	}
}

func or(mask, more []uint64) {
	for i, word := range more {
		mask[i] |= word
	}
}
