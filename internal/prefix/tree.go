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

// depth is the number of nodes, without the root, before a boundary of n tokens: the
// number of pages before that of its last token.
func depth(n int) int { return (n - 1) / backend.PageTokens }

// root is where a text's way through the tree begins.
type root struct {
	salt  Salt
	first int32  // token
	row   digest // if it is none
}

// node is a prefix of texts that ends behind a page. It exists as long as there is an entry
// behind it.
type node struct {
	parent   *node          // nil: a root
	root     root           // of a root
	chunk    chunk          // of others
	pages    []*state.Block // the target's, those of the drafters
	children map[chunk]*node
	entries  []*entry
}

// entry is a boundary: the state behind the pages of its node and those before.
type entry struct {
	at      *node
	rest    []int32         // tokens after the node's
	rows    digest          // of their rows
	target  *state.Snapshot // without the nodes' pages
	drafts  []draft         // likewise
	hits    int             // not released
	used    uint64          // last, by the cache's clock
	uses    int             // stored, found
	spilled bool            // handed to the disk, or from there
	shared  bool            // written to the shared store, or nothing to write
	shown   *boundary       // the observer's boundary; nil: it was not told
	place   *list.Element
}

// draft is a drafter's part of an entry. The state is nil if it is not known; then there is no row.
type draft struct {
	state  *state.Snapshot
	hidden *state.Block
}

// blocks are the blocks of memory, without the nodes' pages.
func (d *draft) blocks() []*state.Block { return append(d.state.Blocks(), d.hidden) }

// release releases the memory.
func (d *draft) release() {
	if d.state != nil {
		d.state.Close()
	}
	d.hidden.Release()
	*d = draft{}
}

// lacks reports whether one of the drafters has seen the text of n tokens, but is not part of the entry.
func (e *entry) lacks(drafts []Draft, n int) bool {
	for i := range min(len(drafts), len(e.drafts)) {
		if e.drafts[i].state == nil && drafts[i].complete(n) {
			return true
		}
	}
	return false
}

// whole reports whether an entry has the states of all drafters.
func (e *entry) whole() bool {
	return !slices.ContainsFunc(e.drafts, func(d draft) bool { return d.state == nil })
}

// parts is the parts of an entry and the nodes before it. A page may be nil if its node
// exists already.
type parts struct {
	pages  [][]*state.Block // of the nodes: the target's, those of the drafters
	target *state.Snapshot
	drafts []draft
}

// noParts is parts with nothing in them.
func (c *Cache) noParts() parts {
	n := len(c.o.Drafts)
	return parts{pages: make([][]*state.Block, 1+n), drafts: make([]draft, n)}
}

// release releases all parts.
func (x *parts) release() {
	for _, list := range x.pages {
		for _, p := range list {
			p.Release()
		}
	}
	if x.target != nil {
		x.target.Close()
	}
	for i := range x.drafts {
		x.drafts[i].release()
	}
	*x = parts{}
}

// path is the target's pages (kind 0) or those of drafter i (kind 1+i) from the first one to n's.
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

// walk calls visit with the nodes of a text, and the number of tokens up to each, until
// there is no further node.
func (c *Cache) walk(salt Salt, text Text, visit func(n *node, at int)) {
	if len(text.Tokens) == 0 {
		return
	}
	n := c.roots[text.root(salt)]
	for at := 1; n != nil; at += backend.PageTokens {
		visit(n, at)
		if len(text.Tokens)-at < backend.PageTokens {
			return
		}
		n = n.children[text.chunk(at)]
	}
}

// follows reports whether the entry's tokens after its node equal those of a text from at on.
func (e *entry) follows(text *Text, at int) bool {
	rest := text.Tokens[at:]
	return len(e.rest) <= len(rest) && slices.Equal(e.rest, rest[:len(e.rest)]) && e.rows == text.digest(at, at+len(e.rest))
}

// longest is the entry with the longest prefix of a text that is not all of it, and with the states of all drafters if
// drafts is set.
func (c *Cache) longest(salt Salt, text Text, drafts bool) (best *entry) {
	if len(text.Tokens) == 0 {
		return nil
	}
	text = text.until(len(text.Tokens) - 1)
	c.walk(salt, text, func(n *node, at int) {
		for _, e := range n.entries {
			if (best == nil || e.target.Len() > best.target.Len()) && (!drafts || e.whole()) && e.follows(&text, at) {
				best = e
			}
		}
	})
	return best
}

// exact is the entry of exactly this text, or nil.
func (c *Cache) exact(salt Salt, text Text) (found *entry) {
	c.walk(salt, text, func(n *node, at int) {
		for _, e := range n.entries {
			if len(e.rest) == len(text.Tokens)-at && e.follows(&text, at) {
				found = e
			}
		}
	})
	return found
}

// insert makes an entry of parts, or completes the one that is there. It owns the parts.
func (c *Cache) insert(salt Salt, text Text, x parts) *entry {
	at, length := text.root(salt), len(text.Tokens)
	n := c.roots[at]
	if n == nil {
		n = &node{root: at, pages: make([]*state.Block, len(x.pages))}
		c.roots[at] = n
	}
	for i := range depth(length) {
		key := text.chunk(1 + i*backend.PageTokens)
		child := n.children[key]
		if child == nil {
			child = &node{parent: n, chunk: key, pages: make([]*state.Block, len(x.pages))}
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
	e := c.exact(salt, text)
	if e == nil {
		from := 1 + depth(length)*backend.PageTokens
		e = &entry{at: n, rest: slices.Clone(text.Tokens[from:]), rows: text.digest(from, length), target: x.target, drafts: make([]draft, len(x.drafts))}
		e.place = c.recent.PushFront(e)
		n.entries = append(n.entries, e)
		c.book(1, x.target.Blocks()...)
		c.count(func(s *Stats) { s.Entries++ })
		x.target = nil
	}
	for i := range e.drafts {
		if d := &e.drafts[i]; d.state == nil && x.drafts[i].state != nil {
			*d, x.drafts[i] = x.drafts[i], draft{}
			e.spilled, e.shared = false, false // the files of the entry lack the drafter
			c.book(1, d.blocks()...)
		}
	}
	c.touch(e)
	x.release()
	c.show(salt, &text, e)
	return e
}

// remove removes an entry, with the nodes that only it needed.
func (c *Cache) remove(e *entry) {
	c.recent.Remove(e.place)
	e.at.entries = slices.DeleteFunc(e.at.entries, func(x *entry) bool { return x == e })
	c.book(-1, e.target.Blocks()...)
	e.target.Close()
	for i := range e.drafts {
		if d := &e.drafts[i]; d.state != nil {
			c.book(-1, d.blocks()...)
			d.release()
		}
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
	c.hide(e)
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
