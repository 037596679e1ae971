package grammar

import (
	"encoding/binary"
	"slices"
)

// nfa is an automaton over bytes on its way to a dfa. It is built from the end: a node is
// made after the nodes that follow it, and loops are closed with patch.
type nfa struct {
	nodes []nfaNode
	ends  []int32 // of edges: the memory of their to
	full  bool    // there were more nodes than allowed
}

type nfaNode struct {
	kind   nfaKind
	lo, hi byte    // of an edge
	to     []int32 // one node for an edge, any number for the others
}

type nfaKind uint8

const (
	nfaSplit nfaKind = iota // all of to, without a byte
	nfaBegin                // to, if no byte has been read
	nfaEnd                  // to, if no byte follows
	nfaEdge                 // to[0] after a byte from lo to hi
	nfaMatch                // accepted, if no byte follows
)

func (n *nfa) add(node nfaNode) int32 {
	if len(n.nodes) >= maxNodes {
		n.full = true
		return 0
	}
	n.nodes = append(n.nodes, node)
	return int32(len(n.nodes) - 1)
}

func (n *nfa) match() int32 { return n.add(nfaNode{kind: nfaMatch}) }

func (n *nfa) split(to ...int32) int32 { return n.add(nfaNode{kind: nfaSplit, to: to}) }

func (n *nfa) edge(lo, hi byte, to int32) int32 {
	n.ends = append(n.ends, to)
	return n.add(nfaNode{kind: nfaEdge, lo: lo, hi: hi, to: n.ends[len(n.ends)-1 : len(n.ends) : len(n.ends)]})
}

// text is the node from which text leads to the node to.
func (n *nfa) text(text string, to int32) int32 {
	for i := len(text) - 1; i >= 0; i-- {
		to = n.edge(text[i], text[i], to)
	}
	return to
}

// patch adds to the targets of a node that is not an edge.
func (n *nfa) patch(node int32, to ...int32) {
	n.nodes[node].to = append(n.nodes[node].to, to...)
}

// subsets makes an nfa deterministic.
type subsets struct {
	*nfa
	d      *dfa
	seen   []int32 // by node: the last walk that came by
	walk   int32
	todo   []int32
	steps  int
	states [][]int32
	index  map[string]int32
	key    []byte
	single []int32 // by node: the state of that node alone, with its closure; -1: not known yet
	active []*nfaNode
	heads  []int32
	found  []int32 // the last closure
}

// dfa is the deterministic automaton of n from start.
func (n *nfa) dfa(w *work, start int32) (*dfa, error) {
	if n.full {
		return nil, errLarge
	}
	d := &dfa{}
	var starts [256]bool
	for i := range n.nodes {
		if e := &n.nodes[i]; e.kind == nfaEdge {
			starts[e.lo] = true
			if e.hi < 255 {
				starts[e.hi+1] = true
			}
		}
	}
	d.classes(&starts)
	c := subsets{nfa: n, d: d, seen: make([]int32, len(n.nodes)), single: make([]int32, len(n.nodes)), index: map[string]int32{}}
	fill(c.single, -1)
	c.number(c.closure([]int32{start}, nfaBegin))
	for i := 0; i < len(c.states); i++ { // the list grows
		if len(c.states) > maxStates {
			return nil, errLarge
		}
		if err := w.spend(c.steps); err != nil {
			return nil, err
		}
		c.steps = int(d.width)/16 + 1
		d.accept = append(d.accept, c.accepts(c.states[i]))
		c.expand(c.states[i])
	}
	return d.trim(), nil
}

// expand adds the row of a state: its edges in the order of their bytes, and for each range
// of bytes the targets of its edges.
func (c *subsets) expand(state []int32) {
	from := len(c.d.next)
	c.d.next = slices.Grow(c.d.next, int(c.d.width))[:from+int(c.d.width)]
	row := c.d.next[from:]
	fill(row, -1)
	edges := c.active[:0]
	for _, s := range state {
		if e := &c.nodes[s]; e.kind == nfaEdge {
			edges = append(edges, e)
		}
	}
	c.steps += len(edges)
	slices.SortStableFunc(edges, func(a, b *nfaNode) int { return int(a.lo) - int(b.lo) })
	first := 0 // of the edges that may include at or later bytes
	for at := 0; first < len(edges); {
		at = max(at, int(edges[first].lo))
		end := 256
		c.heads = c.heads[:0]
		for i := first; i < len(edges); i++ {
			e := edges[i]
			c.steps++
			if int(e.lo) > at {
				end = min(end, int(e.lo))
				break
			}
			if int(e.hi) < at {
				if i == first {
					first++
				}
				continue
			}
			end = min(end, int(e.hi)+1)
			c.heads = append(c.heads, e.to[0])
		}
		if len(c.heads) > 0 {
			to := c.target()
			for k := c.d.class[at]; int(k) < int(c.d.width) && int(c.d.starts[k]) < end; k++ {
				row[k] = to
			}
		}
		at = end
		if at == 256 {
			break
		}
	}
	c.active = edges
}

// target is the state of the heads together.
func (c *subsets) target() int32 {
	head := c.heads[0]
	if slices.ContainsFunc(c.heads, func(h int32) bool { return h != head }) {
		return c.number(c.closure(c.heads, nfaSplit))
	}
	if c.single[head] < 0 {
		c.single[head] = c.number(c.closure(c.heads[:1], nfaSplit))
	}
	return c.single[head]
}

// closure is the nodes that can be reached from heads without a byte, in ascending order: edges,
// matches and ends. Conditions of the given kind are true. The next call overwrites it.
func (c *subsets) closure(heads []int32, holds nfaKind) []int32 {
	c.walk++
	found := c.found[:0]
	todo := append(c.todo[:0], heads...)
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if c.seen[s] == c.walk {
			continue
		}
		c.seen[s] = c.walk
		c.steps++
		node := &c.nodes[s]
		switch {
		case node.kind == nfaSplit || node.kind == holds:
			todo = append(todo, node.to...)
		case node.kind != nfaBegin:
			found = append(found, s)
		}
	}
	slices.Sort(found)
	c.todo, c.found = todo, found
	return found
}

// accepts reports whether a text may end in a state.
func (c *subsets) accepts(state []int32) bool {
	match := func(s int32) bool { return c.nodes[s].kind == nfaMatch }
	if !slices.ContainsFunc(state, func(s int32) bool { return c.nodes[s].kind == nfaEnd }) {
		return slices.ContainsFunc(state, match)
	}
	return slices.ContainsFunc(c.closure(state, nfaEnd), match)
}

func (c *subsets) number(state []int32) int32 {
	if len(state) == 0 {
		return -1
	}
	c.key = c.key[:0]
	for _, s := range state {
		c.key = binary.LittleEndian.AppendUint32(c.key, uint32(s))
	}
	if id, ok := c.index[string(c.key)]; ok {
		return id
	}
	id := int32(len(c.states))
	c.index[string(c.key)] = id
	c.states = append(c.states, slices.Clone(state))
	return id
}
