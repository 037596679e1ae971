package prefix

import (
	"errors"
	"fmt"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/prefix/store"
	"github.com/foretoken/foretoken/internal/state"
)

// image is an entry on its way from the disk or from a shared store.
type image struct {
	*store.Found
	salt Salt
	text Text
}

// Fetch searches the disk and the shared store for a longer prefix of the salt's text than Find
// would return now. If there may be one, it is read in the background, and done is called from
// another goroutine, once, when Find should be called again. It reports whether there is anything to
// wait for. The prefix that Find would return now counts as used: making space for the text evicts it last.
func (c *Cache) Fetch(salt Salt, text Text, done func()) bool {
	here := c.longest(salt, text, false)
	if here != nil {
		c.touch(here)
	}
	if !c.tiered() || len(text.Tokens) < 2 {
		return false
	}
	q := &store.Query{Tokens: len(text.Tokens) - 1, Known: c.known(salt, text), Token: c.tokenTime(), Limit: c.largest(), Drafters: len(c.o.Drafts)}
	if here != nil {
		q.Have = here.target.Len()
	}
	text = Text{slices.Clone(text.Tokens[:q.Tokens]), text.Inputs}
	q.Nodes = c.nodes(salt, &text)
	q.End = func(node, rest int) store.Key {
		at := 1 + node*backend.PageTokens
		return text.key(q.Nodes[node], at, at+rest)
	}
	return c.o.Fetch(q, func(x *store.Found) { c.arrive(&image{x, salt, text.until(x.Len)}) }, done)
}

// tiered reports whether there is a disk or a shared store.
func (c *Cache) tiered() bool { return c.o.Disk != nil || c.o.Shared != nil }

// tokenTime is the option's, 0 if it is not known.
func (c *Cache) tokenTime() float64 {
	if c.o.TokenTime == nil {
		return 0
	}
	return c.o.TokenTime()
}

// arrive hands an image that was read to the next call of Find.
func (c *Cache) arrive(x *image) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.arrived = append(c.arrived, x)
	}
}

// nodes are the keys of the nodes of a text, the root's first. They tell models and salts apart.
func (c *Cache) nodes(salt Salt, text *Text) []store.Key {
	layouts := ""
	for _, l := range c.layouts() {
		l.MaxDrafts = 0 // of the workspace only
		layouts += fmt.Sprintf("%+v ", l)
		if w := l.Windows(); w != nil {
			layouts += fmt.Sprintf("released behind %v ", w) // old files have these pages: they get other names
		}
	}
	list := []store.Key{text.key(c.o.Root(fmt.Sprintf("%s%x", layouts, salt)), 0, 1)}
	for at := 1; at+backend.PageTokens <= len(text.Tokens); at += backend.PageTokens {
		list = append(list, text.key(list[len(list)-1], at, at+backend.PageTokens))
	}
	return list
}

// names are the files of an entry.
func (c *Cache) names(salt Salt, text *Text) []store.Name {
	n, at := len(text.Tokens), 1+depth(len(text.Tokens))*backend.PageTokens
	nodes := c.nodes(salt, text)
	return store.Names(nodes, n-at, text.key(nodes[len(nodes)-1], at, n))
}

// largest is the maximum size of a file of this model.
func (c *Cache) largest() int64 {
	const others = 8 << 20 // header, steps of positions, hidden row
	n := 2*c.pageBytes() + others
	for _, l := range c.layouts() {
		n += l.DeepBytes() + l.WindowBytes()
	}
	return n
}

// layouts are those of the target and of the drafters.
func (c *Cache) layouts() []state.Layout { return append([]state.Layout{c.o.Target}, c.o.Drafts...) }

// pageBytes is the memory of a page of all of them.
func (c *Cache) pageBytes() (n int64) {
	for _, l := range c.layouts() {
		n += l.PageBytes()
	}
	return n
}

// known is how many pages on the way of a text are in the tree.
func (c *Cache) known(salt Salt, text Text) int {
	n := -1 // the root has no page
	c.walk(salt, text, func(*node, int) { n++ })
	return max(n, 0)
}

// settle puts fetched entries into the tree, as long as there is memory.
func (c *Cache) settle() {
	c.mu.Lock()
	arrived := c.arrived
	c.arrived = nil
	c.mu.Unlock()
	for _, x := range arrived {
		c.admit(x)
	}
}

// admit makes an entry of an image. Failing to costs no more than a miss.
func (c *Cache) admit(x *image) {
	p, bad, err := c.unpack(x)
	if err != nil {
		p.release()
		if bad >= 0 {
			c.o.Ignore(x.Names[bad], err)
		}
		return
	}
	e := c.insert(x.salt, x.text, p)
	e.shared = e.shared || x.Remote
	e.spilled = !x.Remote
}

// unpack brings an image to the device. If a file is to blame for an error, bad is its
// index, else -1.
func (c *Cache) unpack(x *image) (p parts, bad int, err error) {
	p = c.noParts()
	if c.known(x.salt, x.text) < x.Skip {
		return p, -1, errors.New("a preceding block of the prefix was evicted")
	}
	c.retain(x, &p)
	last := len(x.Files) - 1
	for i, file := range x.Files {
		if i == last {
			err = c.unpackEnd(&p, x, file)
		} else {
			err = c.unpackPages(&p, file)
		}
		if err != nil {
			if errors.Is(err, state.ErrFull) || errors.Is(err, state.ErrFailed) {
				i = -1
			}
			return p, i, err
		}
	}
	return p, -1, nil
}

// retain adds the tree's pages of an image. They stay, whatever the cache evicts for the
// rest of it.
func (c *Cache) retain(x *image, to *parts) {
	c.walk(x.salt, x.text, func(n *node, _ int) {
		if n.parent == nil || len(to.pages[0]) == x.Skip {
			return
		}
		for kind, p := range n.pages {
			if p != nil {
				p.Retain()
			}
			to.pages[kind] = append(to.pages[kind], p)
		}
	})
}

// unpackPages reads the pages of a node. Those of drafters may be missing.
func (c *Cache) unpackPages(p *parts, file [][]byte) error {
	for kind, l := range c.layouts() {
		if !l.Paged() {
			continue
		}
		var b *state.Block
		rest := file[kind]
		if len(rest) > 0 || kind == 0 {
			var err error
			if b, rest, err = c.pool.ReadPage(l, rest); err != nil {
				return err
			}
		}
		p.pages[kind] = append(p.pages[kind], b)
		if len(rest) > 0 {
			return fmt.Errorf("%d bytes after a page", len(rest))
		}
	}
	return nil
}

// unpackEnd reads the entry behind the pages, with the states of drafters of which everything is there.
func (c *Cache) unpackEnd(p *parts, x *image, file [][]byte) (err error) {
	n := len(x.text.Tokens)
	snapshot := func(l state.Layout, data []byte, n int) *state.Snapshot {
		if err != nil {
			return nil
		}
		var s *state.Snapshot
		if s, err = c.pool.ReadSnapshot(l, data); err == nil && (s.Len() != n || l.Paged() && s.Detached() != depth(len(x.text.Tokens))) {
			err = fmt.Errorf("a snapshot of %d tokens after %d pages, want %d", s.Len(), s.Detached(), n)
		}
		return s
	}
	p.target = snapshot(c.o.Target, file[0], n)
	for i, l := range c.o.Drafts {
		if len(file[1+2*i]) > 0 && (!l.Paged() || !slices.Contains(p.pages[1+i], nil)) {
			if p.drafts[i].state = snapshot(l, file[1+2*i], n-1); err == nil {
				p.drafts[i].hidden, err = c.pool.ReadRow(file[2+2*i])
			}
		}
	}
	return err
}

// writeThrough passes a stored or found entry on to the disk, and to the shared store once it was used
// often enough. An entry that is computed faster than fetched is not shared. The error is state.ErrFailed.
func (c *Cache) writeThrough(salt Salt, text Text, e *entry) (err error) {
	if d := c.o.Disk; d != nil && !e.spilled {
		e.spilled = true // even if parts do not fit into the queue
		if _, err := c.spill(d.Write, salt, text, e); err != nil {
			return err
		}
	}
	s := c.o.Shared
	if s == nil {
		return nil
	}
	e.uses++
	pages := depth(len(text.Tokens))
	bytes := int64(pages) * c.pageBytes()
	for _, x := range e.sections() {
		bytes += x.Bytes()
	}
	if !e.shared && s.Wants(e.uses, c.tokenTime(), len(text.Tokens), pages+1, bytes) {
		e.shared, err = c.spill(s.Write, salt, text, e)
	}
	return err
}

// spill writes the files of an entry and of the nodes before it to a tier. Results are those of write.
func (c *Cache) spill(write func([]store.Name, func(int) []store.Section) (bool, error), salt Salt, text Text, e *entry) (bool, error) {
	names := c.names(salt, &text)
	nodes := make([]*node, len(names)-1)
	for n, i := e.at, len(nodes)-1; i >= 0; n, i = n.parent, i-1 {
		nodes[i] = n
	}
	all, err := write(names, func(i int) (list []store.Section) {
		if i == len(nodes) {
			return e.sections()
		}
		for _, p := range nodes[i].pages {
			list = append(list, p)
		}
		return list
	})
	if err != nil {
		err = fmt.Errorf("prefix: %w", err)
	}
	return all, err
}

// sections are those of the file of an entry: the target's snapshot, a snapshot and a row of each drafter.
func (e *entry) sections() []store.Section {
	list := []store.Section{e.target}
	for _, d := range e.drafts {
		list = append(list, d.state, d.hidden)
	}
	return list
}
