package state

import (
	"errors"
	"fmt"
	"sync"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// ErrFull is returned when the pool's budget does not allow more memory. Closing a state
// or a snapshot frees some.
var ErrFull = errors.New("state: memory budget is used up")

// ErrFailed is wrapped by the errors of blocking calls of the device.
var ErrFailed = errors.New("state: the device failed in queued work")

// Pool is the memory of all sequences on one backend, within a budget. Released memory
// is kept for the next piece of its shape. One goroutine uses a pool, its states,
// snapshots and blocks at a time; only Stats, Used and Budget are safe for others.
type Pool struct {
	b       backend.Backend
	tick    backend.Tensor // a number, to wait for the device
	spare   map[shape][]*Block
	reclaim func(bytes int64)

	mu    sync.Mutex // protects stats
	stats Stats
}

// Stats is the memory of a pool in use, in bytes and in pieces. Everything but Budget and
// Spare is zero once all states, snapshots and blocks are released.
type Stats struct {
	Budget int64 // maximum number of bytes handed out at a time
	Used   int64 // handed out; a block with several references counts once
	Spare  int64 // released and kept for the next
	Pages  int   // among Used, of layers that see everything
	States int   // open
}

// shape is equal for pieces of memory that can replace one another.
type shape struct {
	page       bool
	window     int  // of the layers of a page: a split device places those of other layers elsewhere
	head       bool // see Layout: likewise
	t          dtype.Type
	rows, cols int
}

func (s shape) bytes() int64 { return int64(s.rows) * int64(s.cols) * int64(s.t.Size()) }

// pages is how many pages of that shape a number of tokens needs.
func (s shape) pages(tokens int) int {
	if s.bytes() == 0 {
		return 0
	}
	return pagesOf(tokens)
}

// pagesOf is how many pages a number of tokens is in.
func pagesOf(tokens int) int { return (max(tokens, 0) + backend.PageTokens - 1) / backend.PageTokens }

// first is the first page that a token behind n others sees.
func (s shape) first(n int) int {
	if s.window == 0 {
		return 0
	}
	return max(0, n+1-s.window) / backend.PageTokens
}

// span is the maximum number of pages that a number of consecutive tokens are in.
func (s shape) span(tokens int) int { return s.pages(tokens + backend.PageTokens - 1) }

// NewPool returns a pool with a budget in bytes.
func NewPool(b backend.Backend, budget int64) *Pool {
	return &Pool{b: b, spare: map[shape][]*Block{}, stats: Stats{Budget: budget}}
}

// Device is where the memory is.
func (p *Pool) Device() backend.Backend { return p.b }

// Stats is the current account. Any goroutine may call it.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

// Used is the number of bytes in use. Any goroutine may call it.
func (p *Pool) Used() int64 { return p.Stats().Used }

// Budget is the maximum number of bytes that the pool hands out.
func (p *Pool) Budget() int64 { return p.Stats().Budget }

// OnFull sets the function that is called with the number of missing bytes before a request is
// refused. It may release blocks and close snapshots, but not allocate. Nil: nothing
// is called.
func (p *Pool) OnFull(reclaim func(bytes int64)) { p.reclaim = reclaim }

// Open returns an empty state of that layout.
func (p *Pool) Open(l Layout) (*State, error) {
	s := &State{pool: p, layout: l, drafts: l.MaxDrafts}
	for _, page := range l.pages() {
		s.tables = append(s.tables, table{shape: page})
	}
	s.windows = make([]backend.Window, len(s.tables)-1)
	if full := l.full(s.drafts); !full.empty() {
		var err error
		if s.recurrent, err = p.layered(full.shape(), l, full.cols); err != nil {
			return nil, err
		}
		s.delta = full.carve(s.recurrent.t)
		if s.recurrent.used { // other memory is zero
			p.b.Fill(s.recurrent.t, 0)
		}
	}
	p.count(func(x *Stats) { x.States++ })
	return s, nil
}

// CopyOf returns a block with the numbers of t. The caller releases it.
func (p *Pool) CopyOf(t backend.Tensor) (*Block, error) {
	b, err := p.block(shape{t: t.Type, rows: t.Rows, cols: t.Cols})
	if err == nil {
		p.b.Copy(b.t, t)
	}
	return b, err
}

// Settle waits for all queued work of the device. After an error all results since the last
// blocking call are undefined.
func (p *Pool) Settle() (err error) {
	if p.tick.Mem == nil {
		if p.tick, err = p.b.Alloc(dtype.F32, 1, 1); err != nil {
			return err
		}
	}
	_, err = p.b.Host(p.tick)
	return failed(err)
}

// failed marks the error of a blocking call of the device with ErrFailed.
func failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrFailed, err)
}

// block hands out memory with undefined contents and one reference.
func (p *Pool) block(s shape) (*Block, error) {
	return p.take(s, func() (backend.Tensor, error) { return p.b.Alloc(s.t, s.rows, s.cols) })
}

// layered is block of a row that the layers of l have a number of columns of each.
func (p *Pool) layered(s shape, l Layout, cols func() []int) (*Block, error) {
	return p.take(s, func() (backend.Tensor, error) { return backend.AllocParts(p.b, s.t, l.parts(), cols()) })
}

// newPage is a page of that layout.
func (p *Pool) newPage(s shape, l Layout) (*Block, error) {
	return p.layered(s, l, func() []int { return l.pageCols(s.window) })
}

// take is block, with memory of alloc if there is no spare piece.
func (p *Pool) take(s shape, alloc func() (backend.Tensor, error)) (*Block, error) {
	if err := p.fit(s.bytes()); err != nil {
		return nil, err
	}
	list := p.spare[s]
	var b *Block
	if n := len(list); n > 0 {
		b = list[n-1]
		p.spare[s] = list[:n-1]
		p.count(func(x *Stats) { x.Spare -= s.bytes() })
	} else {
		if x := p.Stats(); x.Used+x.Spare+s.bytes() > x.Budget {
			p.drop()
		}
		t, err := p.alloc(s.bytes(), alloc)
		if err != nil {
			return nil, err
		}
		b = &Block{pool: p, shape: s, t: t}
	}
	b.refs = 1
	p.book(s, 1)
	return b, nil
}

// alloc allocates memory of the device. If it has less than the budget assumes, for example because another process has
// taken some, all spare memory is freed first.
func (p *Pool) alloc(bytes int64, alloc func() (backend.Tensor, error)) (backend.Tensor, error) {
	for {
		t, err := alloc()
		if err == nil || backend.Lost(err) {
			return t, err
		}
		if p.Stats().Spare == 0 && p.reclaim != nil {
			p.reclaim(bytes)
		}
		if p.Stats().Spare == 0 {
			return t, fmt.Errorf("%w: the device has no more memory: %w", ErrFull, err)
		}
		p.drop()
	}
}

// fit makes sure that n more bytes are within the budget.
func (p *Pool) fit(n int64) error {
	x := p.Stats()
	if missing := x.Used + n - x.Budget; missing > 0 && p.reclaim != nil {
		p.reclaim(missing)
		x = p.Stats()
	}
	if x.Used+n > x.Budget {
		return fmt.Errorf("%w: %d of %d bytes are in use and %d more are needed", ErrFull, x.Used, x.Budget, n)
	}
	return nil
}

// put takes back a block without references.
func (p *Pool) put(b *Block) {
	b.used = true
	p.spare[b.shape] = append(p.spare[b.shape], b)
	p.book(b.shape, -1)
	p.count(func(x *Stats) { x.Spare += b.Bytes() })
}

// book counts n pieces of a shape as handed out.
func (p *Pool) book(s shape, n int) {
	p.count(func(x *Stats) {
		x.Used += int64(n) * s.bytes()
		if s.page && s.window == 0 {
			x.Pages += n
		}
	})
}

// drop frees all spare memory.
func (p *Pool) drop() {
	for _, list := range p.spare {
		for _, b := range list {
			p.b.Free(b.t)
		}
	}
	clear(p.spare)
	p.count(func(x *Stats) { x.Spare = 0 })
}

func (p *Pool) count(change func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.stats)
}
