package prefix

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/state"
)

// sections is how many a file has: a page of the target and of each drafter, or the target's snapshot and a snapshot and a row of
// each drafter, at the end of an entry.
func (c *Cache) sections(end bool) int {
	if end {
		return 1 + 2*len(c.o.Drafts)
	}
	return 1 + len(c.o.Drafts)
}

// tier is where files are written to.
type tier interface {
	has(n name, readable bool) bool
	fits(j *job, bytes int64) bool
	queue(j job)
	log() *slog.Logger
}

// image is an entry on its way from the disk or from a shared store.
type image struct {
	salt   Salt
	text   Text
	skip   int        // pages that the tree had at the request
	used   []name     // all files that the entry needs
	names  []name     // those to read
	files  [][][]byte // sections of the pages, then of the entry; nil: one could not be read
	remote bool       // some came from a shared store
}

// query is the search for a prefix.
type query struct {
	salt  Salt
	text  Text
	have  int     // tokens that Find would find
	known int     // pages that the tree has, from the first one on
	token float64 // seconds to compute one; 0: not known
}

// Fetch searches the disk and the shared store for a longer prefix of the salt's text than Find
// would return now. If there may be one, it is read in the background, and done is called from
// another goroutine, once, when Find should be called again. It reports whether there is anything to
// wait for.
func (c *Cache) Fetch(salt Salt, text Text, done func()) bool {
	if c.o.Disk == nil && c.o.Shared == nil || len(text.Tokens) < 2 {
		return false
	}
	q := query{salt: salt, text: text, known: c.known(salt, text)}
	if c.o.TokenTime != nil {
		q.token = c.o.TokenTime()
	}
	if e := c.longest(salt, text, false); e != nil {
		q.have = e.target.Len()
	}
	x := c.plan(&q, false)
	limit := c.largest()
	if c.promising(&q, x) {
		q.text.Tokens = slices.Clone(text.Tokens)
		if c.o.Shared.later(func() {
			defer done() // in any case: the request waits
			if !c.fetchShared(&q, x, limit) && x != nil {
				c.read(x, limit)
				c.arrive(x)
			}
		}) {
			return true
		}
	}
	if x == nil {
		return false
	}
	return c.o.Disk.later(func() {
		defer done()
		c.read(x, limit)
		c.arrive(x)
	})
}

// arrive hands an image that was read to the next call of Find.
func (c *Cache) arrive(x *image) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed && x.files != nil {
		c.arrived = append(c.arrived, x)
	}
}

// read reads an image from the disk.
func (c *Cache) read(x *image, limit int64) {
	c.o.Disk.touch(x.used)
	for i, n := range x.names {
		file := c.o.Disk.read(n, c.sections(i == len(x.names)-1), limit)
		if file == nil {
			x.files = nil
			return
		}
		x.files = append(x.files, file)
	}
}

// plan finds the longest entry on the disk, or with shared also among the known ones of the shared store,
// nil if none is longer than the tree's.
func (c *Cache) plan(q *query, shared bool) (best *image) {
	have, at := q.have, 1
	fed := len(q.text.Tokens) - 1
	var pages []name
	k := c.root(q.salt).next(&q.text, 0, 1)
	for {
		for _, n := range c.entries(k, shared) {
			if end := at + n.rest; end <= fed && end > have && k.next(&q.text, at, end) == n.end {
				have = end
				best = &image{salt: q.salt, text: Text{slices.Clone(q.text.Tokens[:end]), q.text.Inputs}, used: append(slices.Clone(pages), n)}
			}
		}
		end := at + backend.PageTokens
		if end > fed {
			break
		}
		k = k.next(&q.text, at, end)
		page := name{node: k, rest: -1}
		if at = end; !c.has(page, shared) && (!shared || len(pages) >= q.known) {
			break
		}
		pages = append(pages, page)
	}
	if best != nil {
		best.skip = min(q.known, len(best.used)-1)
		best.names = best.used[best.skip:]
	}
	return best
}

// entries are the names of a node's entries.
func (c *Cache) entries(k key, shared bool) (list []name) {
	if c.o.Disk != nil {
		list = c.o.Disk.entries(k)
	}
	if shared {
		list = append(list, c.o.Shared.entries(k)...)
	}
	return list
}

// has reports whether a file can be read.
func (c *Cache) has(n name, shared bool) bool {
	return c.local(n) || shared && c.o.Shared.has(n, true)
}

// root is the key of all texts of this model and of a salt.
func (c *Cache) root(salt Salt) key {
	layouts := ""
	for _, l := range c.layouts() {
		l.MaxDrafts = 0 // of the workspace only
		layouts += fmt.Sprintf(" %+v", l)
	}
	fingerprint := ""
	if c.o.Disk != nil {
		fingerprint = c.o.Disk.o.Fingerprint
	} else {
		fingerprint = c.o.Shared.o.Fingerprint
	}
	return rootKey(fmt.Sprintf("%q%s %x", fingerprint, layouts, salt))
}

// largest is the maximum size of a file of this model.
func (c *Cache) largest() int64 {
	const others = 8 << 20 // header, steps of positions, hidden row
	n := 2*c.pageBytes() + others
	for _, l := range c.layouts() {
		n += l.DeepBytes()
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
			c.ignore(x.names[bad], err)
		}
		return
	}
	e := c.insert(x.salt, x.text, p)
	e.shared = e.shared || x.remote
	e.spilled = !x.remote
}

// ignore records that a file with a right checksum is useless.
func (c *Cache) ignore(n name, err error) {
	if d := c.o.Disk; d != nil && d.has(n, true) {
		d.ignore(n, err)
	} else if c.o.Shared != nil {
		c.o.Shared.ignore(n, fmt.Errorf("%w: %w", errForeign, err))
	}
}

// unpack brings an image to the device. If a file is to blame for an error, bad is its
// index, else -1.
func (c *Cache) unpack(x *image) (p parts, bad int, err error) {
	p = c.noParts()
	if c.known(x.salt, x.text) < x.skip {
		return p, -1, errors.New("a preceding block of the prefix was evicted")
	}
	c.hold(x, &p)
	last := len(x.files) - 1
	known := []bool{true} // by kind
	for i := range c.o.Drafts {
		known = append(known, c.hasDraft(x, &p, i))
	}
	for i, file := range x.files {
		if i == last {
			err = c.unpackEnd(&p, x, file, known)
		} else {
			err = c.unpackPages(&p, file, known)
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

// hold adds the tree's pages of an image. They stay, whatever the cache evicts for the
// rest of it.
func (c *Cache) hold(x *image, to *parts) {
	c.walk(x.salt, x.text, func(n *node, _ int) {
		if n.parent == nil || len(to.pages[0]) == x.skip {
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

// hasDraft reports whether an image has the state of drafter i, all of it.
func (c *Cache) hasDraft(x *image, p *parts, i int) bool {
	paged, last := c.o.Drafts[i].Paged(), len(x.files)-1
	if paged && slices.Contains(p.pages[1+i], nil) || len(x.files[last][1+2*i]) == 0 {
		return false
	}
	return !paged || !slices.ContainsFunc(x.files[:last], func(file [][]byte) bool { return len(file[1+i]) == 0 })
}

func (c *Cache) unpackPages(p *parts, file [][]byte, known []bool) error {
	for kind, l := range c.layouts() {
		if !l.Paged() || !known[kind] {
			continue
		}
		b, rest, err := c.pool.ReadPage(l, file[kind])
		if err != nil {
			return err
		}
		p.pages[kind] = append(p.pages[kind], b)
		if len(rest) > 0 {
			return fmt.Errorf("%d bytes after a page", len(rest))
		}
	}
	return nil
}

func (c *Cache) unpackEnd(p *parts, x *image, file [][]byte, known []bool) (err error) {
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
		if d := &p.drafts[i]; known[1+i] {
			if d.state = snapshot(l, file[1+2*i], n-1); err == nil {
				d.hidden, err = c.pool.ReadRow(file[2+2*i])
			}
		}
	}
	return err
}

// spill queues the parts of an entry and the nodes before it that a tier lacks, the first
// pages first. If not all of it fits into the queue, the rest waits for the next entry
// on the same path, and spill reports false. An error is state.ErrFailed.
func (c *Cache) spill(d tier, salt Salt, text Text, e *entry) (all bool, err error) {
	var j job
	defer func() { d.queue(j) }()
	var path []*node
	for n := e.at; n.parent != nil; n = n.parent {
		path = append(path, n)
	}
	k, at := c.root(salt).next(&text, 0, 1), 1
	for i := len(path) - 1; i >= 0; i-- {
		k = k.next(&text, at, at+backend.PageTokens)
		at += backend.PageTokens
		pages := path[i].pages
		if all, err = c.pack(d, &j, name{node: k, rest: -1}, c.sections(false), blockBytes(pages), func(b []byte) ([]byte, error) {
			return appendBlocks(b, pages)
		}); !all {
			return false, err
		}
	}
	n := name{node: k, rest: len(e.rest), end: k.next(&text, at, len(text.Tokens))}
	return c.pack(d, &j, n, c.sections(true), e.bytes(), e.appendTo)
}

// bytes is the size of an entry without pages.
func (e *entry) bytes() int64 {
	n := e.target.Bytes()
	for _, d := range e.drafts {
		if d.state != nil {
			n += d.state.Bytes() + d.hidden.Bytes()
		}
	}
	return n
}

// pack adds a file with sections of size bytes to a job unless the tier has it. It reports
// whether the queue has space. An error is that of write, which reads memory of the device.
func (c *Cache) pack(d tier, j *job, n name, sections int, size int64, write func([]byte) ([]byte, error)) (bool, error) {
	if d.has(n, false) {
		j.used = append(j.used, n)
		return true, nil
	}
	if !d.fits(j, int64(fileHeader+8*sections)+size) {
		return false, nil
	}
	data, err := write(startFile(n.key(), sections, size+sha256.Size))
	if err != nil {
		d.log().Warn("prefix cache: state not read", "error", err)
		return false, fmt.Errorf("prefix: %w", err)
	}
	j.names, j.data = append(j.names, n), append(j.data, data)
	return true, nil
}

func blockBytes(blocks []*state.Block) (n int64) {
	for _, b := range blocks {
		if b != nil {
			n += b.Bytes()
		}
	}
	return n
}

// appendBlocks writes one section per block.
func appendBlocks(b []byte, blocks []*state.Block) (_ []byte, err error) {
	for i, x := range blocks {
		from := len(b)
		if x != nil {
			if b, err = x.AppendTo(b); err != nil {
				return nil, err
			}
		}
		endSection(b, i, from)
	}
	return b, nil
}

// appendTo writes the sections of an entry.
func (e *entry) appendTo(b []byte) (_ []byte, err error) {
	from := len(b)
	if b, err = e.target.AppendTo(b); err != nil {
		return nil, err
	}
	endSection(b, 0, from)
	for i, d := range e.drafts {
		for j, write := range []func([]byte) ([]byte, error){d.state.AppendTo, d.hidden.AppendTo} {
			from = len(b)
			if d.state != nil {
				if b, err = write(b); err != nil {
					return nil, err
				}
			}
			endSection(b, 1+2*i+j, from)
		}
	}
	return b, nil
}
