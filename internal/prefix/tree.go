package prefix

import (
	"container/list"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/state"
)

// A page of the drafter has pairs of a position and the token after it, so its last pair
// needs the first token of the next page. The tree is therefore cut one token behind the
// ends of pages: a node stands for 1+depth*PageTokens tokens, which decide every number of
// its pages, the drafter's included. Boundaries lie between two nodes, at any token.

// depth is how many nodes, roots not counted, lie before a boundary of n tokens: as many as
// the pages before the one that its last token is in.
func depth(n int) int { return (n - 1) / backend.PageTokens }

// chunk is the tokens that a node adds to its parent's.
type chunk [backend.PageTokens]int32

// root is where a text's way through the tree begins.
type root struct {
	salt  Salt
	first int32 // token
}

// node is a prefix of texts that ends behind a page. It is there as long as an entry lies
// behind it.
type node struct {
	parent   *node // nil: a root
	root     root  // of a root
	chunk    chunk // of others
	pages    [2]*state.Block
	children map[chunk]*node
	entries  []*entry
}

// entry is a boundary: the state behind the pages of its node and those before.
type entry struct {
	at     *node
	rest   []int32         // tokens after the node's
	target *state.Snapshot // without the nodes' pages
	draft  *state.Snapshot // of the drafter, likewise; nil: not known
	hidden *state.Block    // nil if draft is
	hits   int             // not released
	used   uint64          // last, by the cache's clock
	place  *list.Element
}

// parts is what an entry and the nodes before it are made of. A page may be nil if its node
// is there already.
type parts struct {
	pages         [2][]*state.Block // of the nodes: the target's, the drafter's
	target, draft *state.Snapshot
	hidden        *state.Block
}

// release gives all parts back.
func (x *parts) release() {
	for _, list := range x.pages {
		for _, p := range list {
			p.Release()
		}
	}
	for _, s := range []*state.Snapshot{x.target, x.draft} {
		if s != nil {
			s.Close()
		}
	}
	x.hidden.Release()
	*x = parts{}
}

// path is the target's pages (kind 0) or the drafter's (kind 1) from the first one to n's.
func (n *node) path(kind int) []*state.Block {
	var pages []*state.Block
	for ; n.parent != nil; n = n.parent {
		if p := n.pages[kind]; p != nil {
			pages = append(pages, p)
		}
	}
	slices.Reverse(pages)
	return pages
}

// walk calls visit with the nodes on the way of tokens, and the tokens after each, until
// there is no further node.
func (c *Cache) walk(salt Salt, tokens []int32, visit func(n *node, rest []int32)) {
	if len(tokens) == 0 {
		return
	}
	n, tokens := c.roots[root{salt, tokens[0]}], tokens[1:]
	for n != nil {
		visit(n, tokens)
		if len(tokens) < backend.PageTokens {
			return
		}
		n, tokens = n.children[chunk(tokens[:backend.PageTokens])], tokens[backend.PageTokens:]
	}
}

// longest is the entry with the longest prefix of tokens that is not all of them.
func (c *Cache) longest(salt Salt, tokens []int32, drafts bool) (best *entry) {
	if len(tokens) == 0 {
		return nil
	}
	c.walk(salt, tokens[:len(tokens)-1], func(n *node, rest []int32) {
		for _, e := range n.entries {
			if len(e.rest) <= len(rest) && slices.Equal(e.rest, rest[:len(e.rest)]) && (!drafts || e.draft != nil) &&
				(best == nil || e.target.Len() > best.target.Len()) {
				best = e
			}
		}
	})
	return best
}

// exact is the entry of just these tokens, nil if there is none.
func (c *Cache) exact(salt Salt, tokens []int32) (found *entry) {
	c.walk(salt, tokens, func(n *node, rest []int32) {
		for _, e := range n.entries {
			if slices.Equal(e.rest, rest) {
				found = e
			}
		}
	})
	return found
}

// insert makes an entry of parts, or completes the one that is there. It owns the parts.
func (c *Cache) insert(salt Salt, tokens []int32, x parts) *entry {
	at := root{salt, tokens[0]}
	n := c.roots[at]
	if n == nil {
		n = &node{root: at}
		c.roots[at] = n
	}
	for i := range depth(len(tokens)) {
		key := chunk(tokens[1+i*backend.PageTokens:][:backend.PageTokens])
		child := n.children[key]
		if child == nil {
			child = &node{parent: n, chunk: key}
			if n.children == nil {
				n.children = map[chunk]*node{}
			}
			n.children[key] = child
		}
		n = child
		for kind, list := range x.pages {
			if i < len(list) && n.pages[kind] == nil && list[i] != nil {
				n.pages[kind] = list[i].Retain()
				c.book(1, list[i])
			}
		}
	}
	e := c.exact(salt, tokens)
	if e == nil {
		e = &entry{at: n, rest: slices.Clone(tokens[1+depth(len(tokens))*backend.PageTokens:]), target: x.target}
		e.place = c.recent.PushFront(e)
		n.entries = append(n.entries, e)
		c.book(1, x.target.Blocks()...)
		c.count(func(s *Stats) { s.Entries++ })
		x.target = nil
	}
	if e.draft == nil && x.draft != nil {
		e.draft, e.hidden = x.draft, x.hidden
		c.book(1, append(e.draft.Blocks(), e.hidden)...)
		x.draft, x.hidden = nil, nil
	}
	c.touch(e)
	x.release()
	return e
}

// remove takes an entry out, with the nodes that only it needed.
func (c *Cache) remove(e *entry) {
	c.recent.Remove(e.place)
	e.at.entries = slices.DeleteFunc(e.at.entries, func(x *entry) bool { return x == e })
	c.book(-1, e.target.Blocks()...)
	e.target.Close()
	if e.draft != nil {
		c.book(-1, append(e.draft.Blocks(), e.hidden)...)
		e.draft.Close()
		e.hidden.Release()
	}
	c.count(func(s *Stats) { s.Entries-- })
	for n := e.at; n != nil && len(n.entries) == 0 && len(n.children) == 0; n = n.parent {
		for _, p := range n.pages {
			if p != nil {
				c.book(-1, p)
				p.Release()
			}
		}
		if n.parent != nil {
			delete(n.parent.children, n.chunk)
		} else {
			delete(c.roots, n.root)
		}
	}
}

// book counts n references to blocks. A block of an entry and of a node is counted once.
func (c *Cache) book(n int, blocks ...*state.Block) {
	bytes := int64(0)
	for _, b := range blocks {
		had := c.blocks[b]
		if c.blocks[b] = had + n; had == 0 {
			bytes += b.Bytes()
		} else if had+n == 0 {
			delete(c.blocks, b)
			bytes -= b.Bytes()
		}
	}
	c.count(func(s *Stats) { s.Bytes += bytes })
}
