package remote

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// maxLayers bounds the recurrent states of a sequence.
const maxLayers = 1 << 16

// needs is what operations ask of the lists of their pass. The shapes of a recording are checked once, lists each time.
type needs struct {
	ids, want, rows     int        // lengths; -1: any
	vocab, from, blocks int        // ids, wanted rows and blocks are below
	pages               []pageNeed // by Place.Window
	delta               []*backend.DeltaNet
}

// pageNeed is what operations ask of a table of pages.
type pageNeed struct {
	bytes  int  // of a page; 0: there need not be pages
	sees   int  // positions that a row sees up to its own
	own    bool // rows see themselves
	before bool // rows see what comes before them, and there is something
}

func newNeeds() needs {
	return needs{ids: -1, want: -1, rows: -1, vocab: maxSize, from: maxSize, blocks: maxSize}
}

// cost is what a recording takes of the limit of a node, whose operations have a number of bytes in their frame.
func (n *needs) cost(ops int) int { return recordBytes + ops + 32*len(n.pages) + 8*len(n.delta) }

// same sets a length, which all operations of a pass have in common.
func same(n *int, x int) {
	if *n >= 0 && *n != x {
		refuse("operations of a pass with lists of %d and %d", *n, x)
	}
	*n = x
}

// recurrent adds a layer with the recurrent state at an index.
func (n *needs) recurrent(index int, d *backend.DeltaNet) {
	if index >= maxLayers {
		refuse("DeltaNet with state %d", index)
	}
	for len(n.delta) <= index {
		n.delta = append(n.delta, nil)
	}
	n.delta[index] = d
}

// paged adds a layer with pages.
func (n *needs) paged(at *backend.Place, a *backend.Attention) {
	if at.Window > maxLayers {
		refuse("Attend with window %d", at.Window)
	}
	for len(n.pages) <= at.Window {
		n.pages = append(n.pages, pageNeed{})
	}
	sees := backend.MaxWindow
	if a.Window > 0 {
		sees = min(a.Window, sees)
	}
	x := &n.pages[at.Window]
	x.bytes, x.sees = max(x.bytes, at.Page+a.PageBytes(at.Type)), max(x.sees, sees)
	x.own, x.before = x.own || !a.Before, x.before || a.Before
}

// check panics unless the lists of a pass are as its operations need them.
func (n *needs) check(p *backend.Pass) {
	if n.ids >= 0 && len(p.IDs) != n.ids || n.want >= 0 && len(p.Want) != n.want || n.blocks < maxSize && p.Only == nil {
		refuse("a pass with %d ids, %d wanted rows and blocks %v, want %d and %d", len(p.IDs), len(p.Want), p.Only, n.ids, n.want)
	}
	for _, id := range p.IDs {
		if id < 0 || int(id) >= n.vocab {
			refuse("a pass with id %d of %d", id, n.vocab)
		}
	}
	for _, r := range p.Want {
		if r < 0 || int(r) >= n.from {
			refuse("a pass that wants row %d of %d", r, n.from)
		}
	}
	checkBlocks(p.Only, n.blocks)
	rows := 0
	for i := range p.Batch {
		s := &p.Batch[i]
		if s.First != rows || s.N < 0 || s.N > maxDim || s.Drafts < 0 || s.Drafts > s.N || s.Accepted < 0 || s.Accepted > maxDim ||
			s.Pos < 0 || s.Pos > backend.MaxWindow || s.Positions != nil && len(s.Positions) != s.N {
			refuse("a pass with %d rows at %d, %d drafts, %d accepted, position %d", s.N, s.First, s.Drafts, s.Accepted, s.Pos)
		}
		rows += s.N
		n.checkPages(s)
		n.checkDelta(s)
	}
	if n.rows >= 0 && rows != n.rows {
		refuse("a pass with sequences of %d rows, want %d", rows, n.rows)
	}
}

func (n *needs) checkPages(s *backend.Seq) {
	for w, need := range n.pages {
		if need.bytes == 0 {
			continue
		}
		if w > len(s.Windows) {
			refuse("%d windows, want %d", len(s.Windows), w)
		}
		first, pages := s.Table(&backend.Place{Window: w})
		to := s.Pos + s.N
		if !need.own {
			to--
		}
		if need.before && s.Pos == 0 || to > (first+len(pages))*backend.PageTokens || first*backend.PageTokens > max(0, s.Pos+1-need.sees) {
			refuse("%d rows from position %d on that see %d positions in pages [%d, %d)", s.N, s.Pos, need.sees, first, first+len(pages))
		}
		for i := range pages {
			if t := &pages[i]; t.Mem == nil || t.Type != dtype.I8 || numbers(t) < need.bytes || t.Offset%alignment != 0 {
				refuse("a page of %d bytes of %v at %d, want %d", numbers(t), t.Type, t.Offset, need.bytes)
			}
		}
	}
}

func (n *needs) checkDelta(s *backend.Seq) {
	for i, d := range n.delta {
		if d == nil {
			continue
		}
		if i >= len(s.Delta) {
			refuse("%d recurrent layers, want more", len(s.Delta))
		}
		drafts, parts := max(s.Drafts, s.Accepted), s.Delta[i].Tensors()
		for j, want := range [...][2]int{
			{d.ValueHeads * d.KeyDim, d.ValueDim},
			{d.Kernel - 1 + drafts, d.Channels()},
			{drafts, d.KeyHeads * d.KeyDim},
			{drafts, d.ValueHeads * d.ValueDim},
			{drafts, d.ValueHeads},
		} {
			if t := parts[j]; t.Rows < want[0] || t.Cols != want[1] || want[0] > 0 && t.Mem == nil {
				refuse("a recurrent layer with %d×%d numbers, want %d×%d", t.Rows, t.Cols, want[0], want[1])
			}
		}
	}
}

// numbers is how many numbers of its memory a view spans.
func numbers(t *backend.Tensor) int {
	if t.Rows == 0 || t.Cols == 0 {
		return 0
	}
	return (t.Rows-1)*t.Stride + t.Cols
}

// rows lists the fields of a sequence but its state.
func (c *coder) rows(s *backend.Seq) {
	for _, n := range [...]*int{&s.First, &s.N, &s.Pos, &s.Drafts, &s.Accepted} {
		c.size(n)
	}
	list(c, &s.Positions, func(c *coder, p *[3]int32) {
		for i := range p {
			c.i32(&p[i])
		}
	})
}

// page and recurrent list parts of the state of a sequence.
func (c *coder) page(t *backend.Tensor) {
	c.tensor(t)
	c.changes(t)
}

func (c *coder) recurrent(r *backend.Recurrent) {
	for _, t := range r.Tensors() {
		c.may(t)
		c.changes(t)
	}
}

// handle is memory or a weight, at either end.
type handle struct {
	number uint64
	bytes  int64
	users  int            // recordings and states of sequences that name it: it is not freed before them
	t      backend.Tensor // all of the memory
	w      backend.Weight
}

// cost is what a handle takes of the budget.
func (h *handle) cost() int64 { return max(h.bytes, handleBytes) }

// uses is the handles that a recording or the state of a sequence names.
type uses map[*handle]struct{}

func (u uses) add(h *handle) {
	if _, ok := u[h]; u != nil && !ok {
		u[h] = struct{}{}
		h.users++
	}
}

// release is called when the recording or state is dropped.
func (u uses) release() {
	for h := range u {
		h.users--
	}
}
