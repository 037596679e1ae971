package state

import (
	"errors"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/split"
	"github.com/foretoken/foretoken/internal/dtype"
)

func init() { backendtest.Divide = split.New }

// layout is a small model with memory in pages and recurrent memory.
var (
	kv     = KV{Type: dtype.F16, Heads: 1, Key: 8, Value: 8}
	delta  = Delta{KeyHeads: 1, ValueHeads: 2, KeyDim: 4, ValueDim: 4, Kernel: 4}
	layout = Layout{Layers: []Layer{delta, kv, delta, kv, delta}, MaxDrafts: 3}
)

func openPool(t *testing.T, budget int64) *Pool {
	t.Helper()
	b := backendtest.Open(t, backend.Options{Threads: 1})
	return NewPool(b, budget)
}

func mustOpen(t *testing.T, p *Pool, l Layout) *State {
	t.Helper()
	s, err := p.Open(l)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPoolAccountsForEveryByte(t *testing.T) {
	p := openPool(t, 1<<20)
	s := mustOpen(t, p, layout)
	if p.Used() != layout.RecurrentBytes() {
		t.Errorf("an empty state uses %d bytes, want %d", p.Used(), layout.RecurrentBytes())
	}
	for _, n := range []int{1, backend.PageTokens, backend.PageTokens + 1} {
		if err := s.Reserve(n); err != nil {
			t.Fatal(err)
		}
		pages := int64((n + backend.PageTokens - 1) / backend.PageTokens)
		if want := layout.RecurrentBytes() + pages*layout.PageBytes(); p.Used() != want {
			t.Errorf("%d tokens use %d bytes, want %d", n, p.Used(), want)
		}
	}
	snap, err := s.Save()
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	s.Close() // once more does no harm
	snap.Close()
	if p.Used() != 0 {
		t.Errorf("%d bytes in use after everything was closed", p.Used())
	}
}

// TestRowsAreCollected fills a collection of rows twice.
func TestRowsAreCollected(t *testing.T) {
	p := openPool(t, 1<<10)
	one, err := p.b.Alloc(dtype.F32, 2, 4)
	if err != nil {
		t.Fatal(err)
	}
	rows := p.Rows(4)
	for turn := range 2 {
		rows.Keep(0)
		for i := range 2 {
			p.b.Fill(one, float32(10*turn+i))
			to, err := rows.Add(one)
			if err != nil {
				t.Fatal(err)
			}
			p.b.Copy(to, one)
		}
		got, err := p.b.Host(rows.Tensor())
		if err != nil {
			t.Fatal(err)
		}
		if rows.Len() != 4 || rows.Free() != 0 || got[7] != float32(10*turn) || got[8] != float32(10*turn+1) {
			t.Errorf("%d rows, %d free: %v", rows.Len(), rows.Free(), got)
		}
	}
	if rows.Keep(0); rows.Len() != 0 || rows.Free() != 4 {
		t.Errorf("%d rows after all were dropped", rows.Len())
	}
	if p.Used() != 4*4*4 {
		t.Errorf("%d bytes in use", p.Used())
	}
	rows.Close()
	if p.Used() != 0 {
		t.Errorf("%d bytes in use after everything was closed", p.Used())
	}
	large := p.Rows(1 << 10)
	if _, err := large.Add(one); !errors.Is(err, ErrFull) || large.Len() != 0 {
		t.Error("rows beyond the budget")
	}
}

// TestPoolStaysWithinItsBudget fills a pool. A refused request changes nothing, and closing frees memory for any shape.
func TestPoolStaysWithinItsBudget(t *testing.T) {
	p := openPool(t, layout.RecurrentBytes()+2*layout.PageBytes())
	s := mustOpen(t, p, layout)
	if err := s.Reserve(2 * backend.PageTokens); err != nil {
		t.Fatal(err)
	}
	used := p.Used()
	if err := s.Reserve(5 * backend.PageTokens); !errors.Is(err, ErrFull) {
		t.Errorf("error %v, want ErrFull", err)
	}
	if _, err := p.Open(layout); !errors.Is(err, ErrFull) {
		t.Errorf("error %v, want ErrFull", err)
	}
	if _, err := s.Save(); !errors.Is(err, ErrFull) {
		t.Errorf("error %v, want ErrFull", err)
	}
	if p.Used() != used {
		t.Errorf("%d bytes in use after refusals, %d before", p.Used(), used)
	}
	s.Close()
	wide := kv
	wide.Key, wide.Value = 2*kv.Key, 2*kv.Value
	o := mustOpen(t, p, Layout{Layers: []Layer{delta, wide, delta, wide, delta}, MaxDrafts: 3})
	if err := o.Reserve(backend.PageTokens); err != nil {
		t.Errorf("memory of a closed state is not there for another layout: %v", err)
	}
	o.Close()
}

// TestPoolKeepsWhatFits releases memory, and takes as much of another shape as the budget allows beside it. Nothing is freed
// until one byte more is needed.
func TestPoolKeepsWhatFits(t *testing.T) {
	p := openPool(t, 100)
	p.OnFull(func(bytes int64) { t.Errorf("%d bytes are to be reclaimed", bytes) })
	take := func(cols int) *Block {
		t.Helper()
		b, err := p.block(shape{t: dtype.I8, rows: 1, cols: cols})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	check := func(used, spare int64) {
		t.Helper()
		if x := p.Stats(); x.Used != used || x.Spare != spare {
			t.Errorf("%d bytes are used and %d spare, want %d and %d", x.Used, x.Spare, used, spare)
		}
	}
	take(40).Release()
	rest := take(60)
	check(60, 40)
	take(40)
	check(100, 0)
	rest.Release()
	check(40, 60)
	take(59)
	check(99, 0)
}

// crowded is a device with a few bytes of free memory.
type crowded struct {
	backend.Backend
	left int64
}

func (c *crowded) Alloc(t dtype.Type, rows, cols int) (backend.Tensor, error) {
	n := shape{t: t, rows: rows, cols: cols}.bytes()
	if n > c.left {
		return backend.Tensor{}, errors.New("out of memory")
	}
	c.left -= n
	return c.Backend.Alloc(t, rows, cols)
}

func (c *crowded) Free(t backend.Tensor) {
	c.left += shape{t: t.Type, rows: t.Rows, cols: t.Cols}.bytes()
	c.Backend.Free(t)
}

// TestPoolOnACrowdedDevice has a device run out of memory below the budget: unused memory is freed for it, and the error is
// that of a full budget.
func TestPoolOnACrowdedDevice(t *testing.T) {
	p := openPool(t, 1<<20)
	p.b = &crowded{p.b, 100}
	var spare []*Block
	p.OnFull(func(bytes int64) {
		if bytes != 70 {
			t.Errorf("%d bytes are to be reclaimed, want 70", bytes)
		}
		if len(spare) > 0 {
			spare[0].Release()
			spare = spare[1:]
		}
	})
	take := func(cols int) (*Block, error) { return p.block(shape{t: dtype.I8, rows: 1, cols: cols}) }
	for _, cols := range []int{20, 30, 40} {
		b, err := take(cols)
		if err != nil {
			t.Fatal(err)
		}
		spare = append(spare, b)
	}
	if _, err := take(70); err != nil {
		t.Errorf("%v, though there was enough to spare", err)
	}
	if x := p.Stats(); x.Used != 70 || x.Spare != 0 || len(spare) != 0 {
		t.Errorf("%+v, and %d pieces that can be spared", x, len(spare))
	}
	if _, err := take(70); !errors.Is(err, ErrFull) {
		t.Errorf("error %v, want ErrFull", err)
	}
}

func TestOpenForgetsWhoWasThereBefore(t *testing.T) {
	p := openPool(t, 1<<20)
	s := mustOpen(t, p, layout)
	ones := make([]float32, s.delta[0].State.Rows*s.delta[0].State.Cols)
	for i := range ones {
		ones[i] = 1
	}
	if err := p.b.Write(s.delta[0].State, ones); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = mustOpen(t, p, layout)
	defer s.Close()
	x, err := p.b.Host(s.delta[0].State)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range x {
		if v != 0 {
			t.Fatalf("number %d of a new state is %v", i, v)
		}
	}
}

func TestCommitCountsDrafts(t *testing.T) {
	s := mustOpen(t, openPool(t, 1<<20), layout)
	defer s.Close()
	if err := s.Reserve(20); err != nil {
		t.Fatal(err)
	}
	step := func(n, drafts int) {
		s.Seq(0, n, drafts, nil)
		s.Fed(n, drafts)
	}
	step(5, 0)
	step(4, 3)
	if s.Len() != 6 {
		t.Errorf("%d tokens before Commit, want 6", s.Len())
	}
	s.Commit(2)
	if s.Len() != 8 || s.Seq(0, 1, 0, nil).Accepted != 2 || s.Seq(0, 1, 0, nil).Pos != 8 {
		t.Errorf("%d tokens, %+v after Commit(2)", s.Len(), s.Seq(0, 1, 0, nil))
	}
	step(2, 1) // its draft is never committed
	step(1, 0)
	if s.Len() != 10 || s.Seq(0, 1, 0, nil).Accepted != 0 {
		t.Errorf("%d tokens after a dropped draft, want 10", s.Len())
	}
}

// TestMistakesPanic lists calls that only a programming error makes.
func TestMistakesPanic(t *testing.T) {
	p := openPool(t, 1<<20)
	s := mustOpen(t, p, layout)
	defer s.Close()
	paged := Layout{Layers: []Layer{kv}}
	saved := func(l Layout) (*State, *Snapshot) {
		s := mustOpen(t, p, l)
		if err := s.Reserve(3); err != nil {
			t.Fatal(err)
		}
		s.Seq(0, 3, 0, nil)
		s.Fed(3, 0)
		x, err := s.Save()
		if err != nil {
			t.Fatal(err)
		}
		return s, x
	}
	three, snap := saved(paged)
	recurrent, _ := saved(layout)
	_, parted := saved(paged)
	page := parted.Detach(1)[0]
	for name, f := range map[string]func(){
		"commit without drafts":       func() { s.Commit(1) },
		"negative commit":             func() { s.Commit(-1) },
		"no space":                    func() { s.Seq(0, 1, 0, nil) },
		"too many drafts":             func() { s.Seq(0, 9, 8, nil) },
		"more drafts":                 func() { s.Seq(0, 1, 2, nil) },
		"negative drafts":             func() { s.Seq(0, 0, -1, nil) },
		"another number of positions": func() { s.Seq(0, 0, 0, make([][3]int32, 1)) },
		"shared page":                 func() { three.Seq(0, 1, 0, nil) },
		"recurrent truncate":          func() { s.Truncate(0) },
		"negative truncate":           func() { three.Truncate(-1) },
		"truncate to more":            func() { three.Truncate(4) },
		"negative cut":                func() { _, _ = three.SaveFirst(-1) },
		"cut to more":                 func() { _, _ = three.SaveFirst(4) },
		"recurrent cut":               func() { _, _ = recurrent.SaveFirst(2) },
		"negative detach":             func() { snap.Detach(-1) },
		"detach of more":              func() { snap.Detach(2) },
		"detach twice":                func() { parted.Detach(0) },
		"released too often":          func() { page.Release(); page.Release(); page.Release() },
	} {
		func() {
			defer func() {
				if text, ours := recover().(string); !ours || !strings.HasPrefix(text, "state: ") {
					t.Errorf("%s: %q is no panic of ours", name, text)
				}
			}()
			f()
		}()
	}
}

func TestLoadRefusesAnotherLayout(t *testing.T) {
	p := openPool(t, 1<<20)
	s := mustOpen(t, p, layout)
	defer s.Close()
	snap, err := s.Save()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	other := layout
	other.MaxDrafts++
	o := mustOpen(t, p, other)
	defer o.Close()
	if err := o.Load(snap); err == nil {
		t.Error("a snapshot of another layout was loaded")
	}
}

// TestDeepenTakesWhatItSays compares the memory of a deepened state with its layout's figure, and refuses drafts beyond
// its space.
func TestDeepenTakesWhatItSays(t *testing.T) {
	p := openPool(t, layout.RecurrentBytes()+layout.DeepBytes())
	s := mustOpen(t, p, layout)
	defer s.Close()
	other := mustOpen(t, p, layout)
	if err := s.Deepen(); !errors.Is(err, ErrFull) || s.Drafts() != layout.MaxDrafts || p.Used() != 2*layout.RecurrentBytes() {
		t.Errorf("without memory: %v, space for %d drafts, %d bytes", err, s.Drafts(), p.Used())
	}
	other.Close()
	for range 2 {
		if err := s.Deepen(); err != nil || s.Drafts() != 4*layout.MaxDrafts || p.Used() != layout.DeepBytes() {
			t.Errorf("%v, space for %d drafts, %d bytes, want %d", err, s.Drafts(), p.Used(), layout.DeepBytes())
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("more drafts than there is space for were described")
		}
	}()
	s.Seq(0, s.Drafts()+1, s.Drafts()+1, nil)
}
