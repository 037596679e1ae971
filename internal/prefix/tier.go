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
	q := &store.Query{
		Tokens: len(text.Tokens) - 1, Known: c.known(salt, text), Token: c.tokenTime(), Limit: c.largest(), Drafters: len(c.o.Drafts), Windows: c.windows(), First: c.firstWindow,
		Ends: c.o.Target.Boundary()/backend.PageTokens + 1,
	}
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
			layouts += fmt.Sprintf("files of pages behind %v ", w) // entries of old files have these pages: they get other names
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
	return store.Names(nodes, c.firstWindow(n), n-at, text.key(nodes[len(nodes)-1], at, n))
}

// firstWindow is the first page of windows that an entry of n tokens needs.
func (c *Cache) firstWindow(n int) int {
	first := c.o.Target.FirstWindow(n)
	for _, l := range c.o.Drafts {
		first = min(first, l.FirstWindow(n-1))
	}
	return first
}

// windows is the number of windows of all layouts.
func (c *Cache) windows() (n int) {
	for _, l := range c.layouts() {
		n += len(l.Windows())
	}
	return n
}

// largest is the maximum size of a file of this model.
func (c *Cache) largest() int64 {
	const others = 8 << 20 // header, steps of positions, hidden row
	n := 2*c.pageBytes() + others
	for _, l := range c.layouts() {
		n += l.DeepBytes() + 2*l.WindowPageBytes()
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
	for bad = range depth(x.Len) - x.Skip {
		if err = c.unpackPages(&p, x.Files[bad]); err != nil {
			break
		}
	}
	if err == nil {
		bad, err = c.unpackEnd(&p, x)
	}
	if errors.Is(err, state.ErrFull) || errors.Is(err, state.ErrFailed) {
		bad = -1
	}
	return p, bad, err
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
			if b, rest, err = c.pool.ReadPage(l, 0, rest); err != nil {
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

// unpackEnd reads the entry behind the pages, with the states of drafters of which everything is there, and pages of windows.
// bad is the index of the file that is to blame for an error.
func (c *Cache) unpackEnd(p *parts, x *image) (bad int, err error) {
	n, last := len(x.text.Tokens), len(x.Files)-1
	bad = last
	windows := 0 // of the layouts before
	snapshot := func(l state.Layout, data []byte, n int) *state.Snapshot {
		if err != nil {
			return nil
		}
		var s *state.Snapshot
		s, err = c.pool.ReadSnapshot(l, data, func(w, i int) (*state.Block, error) {
			at := last - depth(x.Len) + i
			if at < depth(x.Len)-x.Skip || at >= last {
				return nil, fmt.Errorf("page %d of a window is not there", i)
			}
			bad = at
			b, rest, err := c.pool.ReadPage(l, l.Windows()[w], x.Files[at][windows+w])
			if err == nil && len(rest) > 0 {
				b.Release()
				return nil, fmt.Errorf("%d bytes after a page", len(rest))
			}
			if err == nil {
				bad = last
			}
			return b, err
		})
		if err == nil && (s.Len() != n || s.Detached() != depth(x.Len)) {
			err = fmt.Errorf("a snapshot of %d tokens after %d pages, want %d", s.Len(), s.Detached(), n)
		}
		windows += len(l.Windows())
		return s
	}
	end := x.Files[last]
	p.target = snapshot(c.o.Target, end[0], n)
	for i, l := range c.o.Drafts {
		if len(end[1+2*i]) == 0 || l.Paged() && slices.Contains(p.pages[1+i], nil) {
			windows += len(l.Windows())
		} else if p.drafts[i].state = snapshot(l, end[1+2*i], n-1); err == nil {
			p.drafts[i].hidden, err = c.pool.ReadRow(end[2+2*i])
		}
	}
	return bad, err
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
	if e.uses++; e.shared {
		return nil
	}
	pages := depth(len(text.Tokens))
	files, bytes := pages+1, int64(pages)*c.pageBytes()
	for i := c.firstWindow(len(text.Tokens)); i < pages; i++ {
		files, bytes = files+1, bytes+sum(c.windowPages(e, i))
	}
	bytes += sum(e.sections())
	if s.Wants(e.uses, c.tokenTime(), len(text.Tokens), files, bytes) {
		e.shared, err = c.spill(s.Write, salt, text, e)
	}
	return err
}

// spill writes the files of an entry and of the nodes before it to a tier. Results are those of write.
func (c *Cache) spill(write func([]store.Name, func(int) []store.Section) (bool, error), salt Salt, text Text, e *entry) (bool, error) {
	names := c.names(salt, &text)
	nodes := make([]*node, depth(len(text.Tokens)))
	for n, i := e.at, len(nodes)-1; i >= 0; n, i = n.parent, i-1 {
		nodes[i] = n
	}
	all, err := write(names, func(i int) (list []store.Section) {
		if i == len(names)-1 {
			return e.sections()
		}
		if i >= len(nodes) { // windows, the last one before the entry
			return c.windowPages(e, len(nodes)-(len(names)-1-i))
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

// windowPages are the sections of the file of page i of windows.
func (c *Cache) windowPages(e *entry, i int) (list []store.Section) {
	snapshots := []*state.Snapshot{e.target}
	for _, d := range e.drafts {
		snapshots = append(snapshots, d.state)
	}
	for k, l := range c.layouts() {
		pages := make([]*state.Block, len(l.Windows()))
		if snapshots[k] != nil {
			pages = snapshots[k].Window(i)
		}
		for _, p := range pages {
			list = append(list, p)
		}
	}
	return list
}

// sum is the bytes of sections.
func sum(sections []store.Section) (n int64) {
	for _, x := range sections {
		n += x.Bytes()
	}
	return n
}

// sections are those of the file of an entry: the target's snapshot, a snapshot and a row of each drafter.
func (e *entry) sections() []store.Section {
	list := []store.Section{e.target}
	for _, d := range e.drafts {
		list = append(list, d.state, d.hidden)
	}
	return list
}
