package grammar

import (
	"slices"
	"strings"
)

// trie is a tree of texts. Node 0 is the root.
type trie struct {
	next   [][]edge // by node, in the order of the bytes
	last   []bool   // by node: a text ends
	starts [256]bool
}

// edge is a byte and the node behind it.
type edge struct {
	b  byte
	to int32
}

// newTrie makes the tree of texts. The nodes at its leaves are one.
func (w *work) newTrie(texts []string) (*trie, error) {
	texts = slices.Compact(slices.Sorted(slices.Values(texts)))
	t := &trie{next: [][]edge{nil}, last: []bool{false}}
	var path []int32 // the nodes of the text before
	before, leaf := "", int32(-1)
	for n, text := range texts {
		if err := w.spend(len(text)/4 + 1); err != nil {
			return nil, err
		}
		common := 0
		for common < len(text) && common < len(before) && text[common] == before[common] {
			common++
		}
		at := int32(0)
		if path = path[:common]; common > 0 {
			at = path[common-1]
		}
		inner := n+1 < len(texts) && strings.HasPrefix(texts[n+1], text)
		for i := common; i < len(text); i++ {
			to := int32(len(t.next))
			if ends := i == len(text)-1 && !inner; ends && leaf >= 0 {
				to = leaf
			} else {
				t.next, t.last = append(t.next, nil), append(t.last, false)
				if ends {
					leaf = to
				}
			}
			t.next[at] = append(t.next[at], edge{text[i], to})
			t.starts[text[i]] = true
			if text[i] < 255 {
				t.starts[text[i]+1] = true
			}
			path, at = append(path, to), to
		}
		t.last[at] = true
		before = text
	}
	if len(t.next) > maxStates {
		return nil, errLarge
	}
	return t, nil
}

// choice is the automaton of some texts.
func (w *work) choice(texts []string) (*dfa, error) {
	if len(texts) == 0 {
		d := &dfa{}
		d.classes(new([256]bool))
		return d, nil
	}
	t, err := w.newTrie(texts)
	if err != nil {
		return nil, err
	}
	d := &dfa{accept: t.last}
	d.classes(&t.starts)
	n := len(t.next)
	d.next, d.leaf, d.loops = make([]int32, n*int(d.width)), make([]bool, n), make([]kinds, n)
	fill(d.next, -1)
	for s, edges := range t.next {
		d.leaf[s] = len(edges) == 0
		for _, e := range edges {
			d.row(int32(s))[d.class[e.b]] = e.to
		}
	}
	return d, nil
}

// but is the automaton of the texts of d except the given ones, all of which d accepts. All states of d
// have infinitely many texts.
func (w *work) but(d *dfa, texts []string) (*dfa, error) {
	t, err := w.newTrie(texts)
	if err != nil {
		return nil, err
	}
	for b := 1; b < 256; b++ {
		t.starts[b] = t.starts[b] || d.class[b] != d.class[b-1]
	}
	q := &dfa{}
	q.classes(&t.starts)
	// The nodes of the tree, then the states of d, to which everything else leads.
	nodes, width := len(t.next), int(q.width)
	n := nodes + len(d.accept)
	q.next = make([]int32, n*width)
	q.accept, q.leaf, q.loops = make([]bool, n), make([]bool, n), make([]kinds, n)
	copied := func(row []int32, s int32) {
		from := d.row(s)
		for k := range row {
			if row[k] = from[d.class[q.starts[k]]]; row[k] >= 0 {
				row[k] += int32(nodes)
			}
		}
	}
	state := make([]int32, nodes) // of d, at each node; nodes have higher numbers than their parents
	for s := range int32(nodes) {
		row := q.row(s)
		copied(row, state[s])
		for _, e := range t.next[s] {
			state[e.to] = row[q.class[e.b]] - int32(nodes) // behind a text always the same
			row[q.class[e.b]] = e.to
		}
		q.accept[s] = d.accept[state[s]] && !t.last[s]
	}
	for s := range int32(len(d.accept)) {
		copied(q.row(int32(nodes)+s), s)
		q.accept[nodes+int(s)], q.loops[nodes+int(s)] = d.accept[s], d.loops[s]
	}
	return q, w.spend(n * width / 16)
}
