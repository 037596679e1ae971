package grammar

import "slices"

// facts is what one state of an automaton says about the tokens, whatever comes after the
// automaton: which of them it takes whole, and where in which others it can be left.
type facts struct {
	// ids are the tokens taken whole, as a list if they are few and as a mask otherwise. In
	// an automaton that counts characters there are both, and the list is in order of the
	// characters needed, upTo[n] of them at most n.
	ids  []int32
	mask []uint64
	upTo []int32
	// plain says that all plain tokens are taken as well.
	plain bool
	// last are the tokens with whose last byte a counted text is complete.
	last []found
	// exits are nodes before which the automaton may have read all it wants, from[b] on
	// those of byte b.
	exits []exit
	from  [257]int32
}

// found is a token, with the characters counted in it.
type found struct{ id, chars int32 }

// exit is a node of the forest, with the characters counted before it.
type exit struct{ node, chars int32 }

// bytes is the memory of the facts, about.
func (f *facts) bytes() int {
	return 4*len(f.ids) + 8*len(f.mask) + 8*len(f.last) + 8*len(f.exits) + 1<<11
}

// walker walks along a vocabulary's forest with an automaton.
type walker struct {
	v      *Vocab
	states []int32 // by depth
	chars  []int32

	found []found   // tokens taken whole
	runs  [][]int32 // more of them
	last  []found   // see facts
	exits []exit    // nodes behind which the automaton may be left
}

// walk appends to found, runs, last and exits what d takes from state s on of the nodes from first
// up to end, which are at a depth of at least depth.
func (w *walker) walk(d *dfa, s, first, end int32, depth int) {
	if need := w.v.deepest - depth + 1; len(w.states) < need {
		w.states, w.chars = make([]int32, need), make([]int32, need)
	}
	if d.mark >= 0 {
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
	states, chars := w.states, w.chars
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
		if t == d.mark && from != 0 {
			c++
		}
		states[at+1], chars[at+1] = t, c
		i++
		switch {
		case d.accept[t]:
			if node.id >= 0 {
				w.last = append(w.last, found{node.id, c})
			}
			if i < node.end {
				w.exits = append(w.exits, exit{i - 1, c})
			}
			i = node.end // nothing follows the last quotation mark
		case node.id < 0:
		case t == d.mark:
			w.found = append(w.found, found{node.id, c})
		default: // a character has begun
			w.found = append(w.found, found{node.id, c + 1})
		}
	}
}

// facts works out what a state says about all tokens.
func (w *walker) facts(d *dfa, s int32) *facts {
	f := &facts{plain: s == d.mark}
	first := int32(0)
	if f.plain {
		first = w.v.plainEnd
	}
	w.found, w.runs, w.last, w.exits = w.found[:0], w.runs[:0], w.last[:0], w.exits[:0]
	w.walk(d, s, first, int32(len(w.v.nodes)-1), 0)
	f.last = slices.Clone(w.last)
	f.sort(w.v.nodes, w.exits)
	counts := d.mark >= 0
	if counts {
		slices.SortStableFunc(w.found, func(a, b found) int { return int(a.chars - b.chars) })
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

// fill adds to the mask the tokens that need at most room characters.
func (f *facts) fill(v *Vocab, mask []uint64, room int) {
	longest := len(f.upTo)
	if f.plain {
		longest = max(longest, len(v.plain)-1)
	}
	if f.mask != nil && room >= longest {
		or(mask, f.mask)
		return
	}
	if f.plain {
		or(mask, v.plain[min(room, len(v.plain)-1)])
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
