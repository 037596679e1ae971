package state

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// toyLayout has one layer of each kind in float32.
var toyLayout = Layout{
	Layers: []Layer{
		KV{Type: dtype.F32, Heads: 1, Key: 1, Value: 1},
		Delta{KeyHeads: 1, ValueHeads: 1, KeyDim: 1, ValueDim: 1, Kernel: 4},
		Delta{KeyHeads: 1, ValueHeads: 1, KeyDim: 1, ValueDim: 1, Kernel: 4},
	},
	MaxDrafts: 3,
}

// toy is a model with a predictable state, for any layout. The part of a layer in a page is divided evenly into slots. A
// slot has bytes of a hash of the layer and of all tokens up to its own. State is the hash of all committed tokens, in which
// kept drafts are replayed. The tail is the last tokens.
type toy struct{ b backend.Backend }

func mix(h float32, id int32) float32 { return float32((int(h)*31 + int(id) + 7) % 65521) }

func (n toy) get(t *testing.T, x backend.Tensor, row int) float32 {
	t.Helper()
	v, err := n.b.Host(x.RowRange(row, row+1))
	if err != nil {
		t.Fatal(err)
	}
	for _, y := range v {
		if y != v[0] {
			t.Fatalf("numbers of one row are %v", v)
		}
	}
	return v[0]
}

func (n toy) set(t *testing.T, x backend.Tensor, row int, v float32) {
	t.Helper()
	y := make([]float32, x.Cols)
	for i := range y {
		y[i] = v
	}
	if err := n.b.Write(x.RowRange(row, row+1), y); err != nil {
		t.Fatal(err)
	}
}

// slots calls visit with the slot of position pos in the page of every layer, and its expected bytes.
func slots(l Layout, h float32, pos int, visit func(window, at int, want []byte)) {
	for i, p := range l.Places() {
		if l.Layers[i] == nil {
			continue
		}
		_, bytes := l.Layers[i].Paged()
		want := make([]byte, bytes/backend.PageTokens)
		for j := range want {
			want[j] = byte(int(h)>>(8*(j%2)) + i + j)
		}
		if len(want) > 0 {
			visit(p.Window, p.Page+pos%backend.PageTokens*len(want), want)
		}
	}
}

// feed changes a state, which has recorded the tokens, like Forward.
func (n toy) feed(t *testing.T, s *State, before, tokens []int32, drafts int) {
	t.Helper()
	seq := s.Seq(0, len(tokens), drafts, nil)
	h := float32(0)
	for _, id := range before {
		h = mix(h, id)
	}
	for i, id := range tokens {
		h = mix(h, id)
		slots(s.layout, h, seq.Pos+i, func(window, at int, want []byte) {
			first, pages := seq.Table(&backend.Place{Window: window})
			page := pages[(seq.Pos+i)/backend.PageTokens-first]
			if err := n.b.WriteBytes(page.ColRange(at, at+len(want)), want); err != nil {
				t.Fatal(err)
			}
		})
	}
	for i, p := range s.layout.Places() {
		if recurs(s.layout.Layers[i]) {
			n.recur(t, s.layout.Layers[i].(Delta), &seq.Delta[p.Delta], &seq, tokens)
		}
	}
	s.Fed(len(tokens), drafts)
}

// recur is feed for a recurrent layer.
func (n toy) recur(t *testing.T, l Delta, d *backend.Recurrent, seq *backend.Seq, tokens []int32) {
	t.Helper()
	h := n.get(t, d.State, 0)
	for i := range seq.Accepted {
		h = mix(h, int32(n.get(t, d.Keys, i)))
	}
	var inputs []float32
	for i := range l.Kernel - 1 {
		inputs = append(inputs, n.get(t, d.Tail, seq.Accepted+i))
	}
	for i, id := range tokens {
		inputs = append(inputs, float32(id))
		if g := i - (len(tokens) - seq.Drafts); g < 0 {
			h = mix(h, id)
		} else {
			for _, x := range []backend.Tensor{d.Keys, d.Deltas, d.Decays} {
				n.set(t, x, g, float32(id))
			}
		}
	}
	for i := range d.State.Rows {
		n.set(t, d.State, i, h)
	}
	for i, v := range inputs[len(inputs)-seq.Drafts-(l.Kernel-1):] {
		n.set(t, d.Tail, i, v)
	}
}

// check compares a state with the tokens it was fed.
func (n toy) check(t *testing.T, what string, s *State, tokens []int32) {
	t.Helper()
	if s.Len() != len(tokens) {
		t.Fatalf("%s: %d tokens, want %d", what, s.Len(), len(tokens))
	}
	h, pages := float32(0), make([][]byte, len(s.tables))
	for i, id := range tokens {
		h = mix(h, id)
		for w := range s.tables {
			x := &s.tables[w]
			first := 0 // token that the next one sees
			if x.shape.window > 0 {
				first = max(0, len(tokens)+1-x.shape.window)
			}
			if x.shape.bytes() > 0 && i >= first && (i%backend.PageTokens == 0 || pages[w] == nil) {
				pages[w] = make([]byte, x.shape.bytes())
				if err := n.b.ReadBytes(pages[w], x.tensors[i/backend.PageTokens-x.first]); err != nil {
					t.Fatal(err)
				}
			}
		}
		slots(s.layout, h, i, func(window, at int, want []byte) {
			if pages[window] == nil { // no later token sees it
				return
			}
			if got := pages[window][at:][:len(want)]; !bytes.Equal(got, want) {
				t.Fatalf("%s: slot %d of %d, window %d, is %v, want %v", what, i, len(tokens), window, got, want)
			}
		})
	}
	for i, p := range s.layout.Places() {
		if !recurs(s.layout.Layers[i]) {
			continue
		}
		d, kernel := s.delta[p.Delta], s.layout.Layers[i].(Delta).Kernel
		for r := range d.State.Rows {
			got := n.get(t, d.State, r)
			for k := range s.kept {
				id := n.get(t, d.Keys, k)
				if a, b := n.get(t, d.Deltas, k), n.get(t, d.Decays, k); a != id || b != id {
					t.Fatalf("%s: layer %d: draft %d is %v, %v and %v", what, i, k, id, a, b)
				}
				got = mix(got, int32(id))
			}
			if got != h {
				t.Fatalf("%s: layer %d has %v after replay, want %v", what, i, got, h)
			}
		}
		for k := range kernel - 1 {
			want := float32(0)
			if at := len(tokens) - (kernel - 1) + k; at >= 0 {
				want = float32(tokens[at])
			}
			if got := n.get(t, d.Tail, s.kept+k); got != want {
				t.Fatalf("%s: layer %d: input %d is %v, want %v", what, i, k, got, want)
			}
		}
	}
}

// shadow is a state and its expected contents, which are copied with it.
type shadow struct {
	s      *State
	tokens []int32
	loaded int // tokens that came with a snapshot
}

type shadowSnapshot struct {
	x      *Snapshot
	before []*Block
	tokens []int32
}

// random is a sequence of operations on many states and snapshots that share pages.
type random struct {
	t      *testing.T
	rng    *rand.Rand
	layout Layout
	n      toy
	pool   *Pool
	states []*shadow
	snaps  []*shadowSnapshot
}

func (r *random) pick() *shadow { return r.states[r.rng.IntN(len(r.states))] }

func (r *random) feed(x *shadow) {
	count := 1 + r.rng.IntN(4)
	if r.rng.IntN(4) == 0 {
		count = 1 + r.rng.IntN(2*backend.PageTokens)
	}
	tokens := make([]int32, count)
	for i := range tokens {
		tokens[i] = int32(r.rng.IntN(1000))
	}
	if r.rng.IntN(8) == 0 {
		if err := x.s.Deepen(); err != nil && !errors.Is(err, ErrFull) {
			r.t.Fatal(err)
		} else if err == nil && x.s.Drafts() != r.layout.DeepDrafts() {
			r.t.Fatalf("a deepened state has space for %d drafts", x.s.Drafts())
		}
		r.n.check(r.t, "after Deepen", x.s, x.tokens)
	}
	drafts := r.rng.IntN(min(count, x.s.Drafts()) + 1)
	err := x.s.Reserve(count)
	r.n.check(r.t, "after Reserve", x.s, x.tokens)
	if errors.Is(err, ErrFull) {
		return
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.n.feed(r.t, x.s, x.tokens, tokens, drafts)
	kept := r.rng.IntN(drafts + 1)
	if kept > 0 || r.rng.IntN(2) == 0 {
		x.s.Commit(kept)
	}
	x.tokens = append(slices.Clone(x.tokens), tokens[:count-drafts+kept]...)
}

func (r *random) save(x *shadow) {
	snap, err := x.s.Save()
	if errors.Is(err, ErrFull) {
		return
	}
	if err != nil {
		r.t.Fatal(err)
	}
	y := &shadowSnapshot{x: snap, tokens: x.tokens}
	y.before = snap.Detach(r.rng.IntN(pagesOf(snap.len) + 1))
	if r.rng.IntN(4) == 0 {
		r.rewrite(y)
	}
	r.snaps = append(r.snaps, y)
}

// rewrite replaces a snapshot by one read from its bytes.
func (r *random) rewrite(y *shadowSnapshot) {
	data, err := y.x.AppendTo(nil)
	if err != nil {
		r.t.Fatal(err)
	}
	x, err := r.pool.ReadSnapshot(r.layout, data, func(w, i int) (*Block, error) { return y.x.Window(i)[w].Retain(), nil })
	if errors.Is(err, ErrFull) {
		return
	}
	if err != nil {
		r.t.Fatal(err)
	}
	y.x.Close()
	y.x = x
}

func (r *random) load(x *shadow) {
	y := r.snaps[r.rng.IntN(len(r.snaps))]
	err := x.s.Load(y.x, y.before...)
	switch {
	case err == nil:
		x.tokens, x.loaded = y.tokens, len(y.tokens)
	case !errors.Is(err, ErrFull) || y.x.kept <= x.s.Drafts(): // only a deepened state takes more
		r.t.Fatal(err)
	default:
		r.n.check(r.t, "after Load without memory", x.s, x.tokens)
	}
}

func (r *random) close(i int) {
	r.snaps[i].x.Close()
	for _, p := range r.snaps[i].before {
		p.Release()
	}
	r.snaps = slices.Delete(r.snaps, i, i+1)
}

// account compares the counters of the pool with the memory of states and snapshots.
func (r *random) account() {
	r.t.Helper()
	refs := map[*Block]int{}
	for _, x := range r.states {
		for i := range x.s.tables {
			for _, p := range x.s.tables[i].pages {
				refs[p]++
			}
		}
		if x.s.recurrent != nil {
			refs[x.s.recurrent]++
		}
	}
	for _, y := range r.snaps {
		for _, b := range append(y.x.Blocks(), y.before...) {
			refs[b]++
		}
	}
	used, pages := int64(0), 0
	for b, n := range refs {
		if b.refs != n {
			r.t.Fatalf("a block has %d references, want %d", b.refs, n)
		}
		used += b.Bytes()
		if b.shape.page && b.shape.window == 0 {
			pages++
		}
	}
	spare := int64(0)
	for shape, list := range r.pool.spare {
		spare += int64(len(list)) * shape.bytes()
	}
	got := r.pool.Stats()
	if got.Used != used || got.Spare != spare || got.Pages != pages || got.States != len(r.states) || got.Used > got.Budget || got.Used+got.Spare > got.Budget {
		r.t.Fatalf("%+v, want %d bytes, %d spare ones, %d pages, %d states", got, used, spare, pages, len(r.states))
	}
}

// truncate forgets tokens, a few of them at any time, unless there is recurrent memory.
func (r *random) truncate(x *shadow) {
	n := max(x.loaded, len(x.tokens)-r.rng.IntN(truncated))
	if recurrent := len(x.s.delta) > 0; recurrent == x.s.CanTruncate(n) {
		r.t.Fatalf("%+v: %d of %d tokens: %t", r.layout, n, len(x.tokens), recurrent)
	}
	if m := r.rng.IntN(len(x.tokens) + 1); x.s.CanTruncate(m) {
		n = m
	}
	if x.s.CanTruncate(n) {
		x.tokens, x.loaded = x.tokens[:n], min(x.loaded, n)
		x.s.Truncate(n)
	}
}

// TestSharedMemoryEqualsDeepCopies runs random operations on states of random layouts, in a
// pool that is often full, and compares every state with a deep copy.
func TestSharedMemoryEqualsDeepCopies(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			r := &random{t: t, rng: rand.New(rand.NewPCG(seed, 1)), layout: toyLayout}
			if seed > 0 {
				r.layout = randomLayout(r.rng)
			}
			r.pool = openPool(t, 6*r.layout.RecurrentBytes()+14*r.layout.PageBytes()+6*r.layout.WindowBytes())
			r.n = toy{r.pool.b}
			for range 3 {
				r.states = append(r.states, &shadow{s: mustOpen(t, r.pool, r.layout)})
			}
			for range 400 {
				switch op := r.rng.IntN(10); {
				case op < 6:
					r.feed(r.pick())
				case op < 7:
					r.save(r.pick())
				case op < 8 && len(r.snaps) > 0:
					r.load(r.pick())
				case op < 9 && len(r.snaps) > 0:
					r.close(r.rng.IntN(len(r.snaps)))
				default:
					x := r.pick()
					x.s.Close()
					if s, err := r.pool.Open(r.layout); err == nil {
						x.s, x.tokens, x.loaded = s, nil, 0
					} else {
						t.Fatal(err) // its memory was just released
					}
				}
				if op := r.rng.IntN(20); op == 0 {
					r.truncate(r.pick())
				}
				for i, x := range r.states {
					r.n.check(t, fmt.Sprintf("state %d", i), x.s, x.tokens)
				}
				r.account()
			}
			for len(r.snaps) > 0 {
				r.close(0)
			}
			for _, x := range r.states {
				x.s.Close()
			}
			if x := r.pool.Stats(); x.Used != 0 || x.Pages != 0 || x.States != 0 {
				t.Errorf("after everything was closed: %+v", x)
			}
		})
	}
}

// TestSharedPageIsCopiedOnlyWhenWritten follows the pages of two states from one prefix.
func TestSharedPageIsCopiedOnlyWhenWritten(t *testing.T) {
	p := openPool(t, 1<<20)
	n := toy{p.b}
	a := mustOpen(t, p, toyLayout)
	defer a.Close()
	text := make([]int32, backend.PageTokens+10)
	if err := a.Reserve(len(text)); err != nil {
		t.Fatal(err)
	}
	n.feed(t, a, nil, text, 0)
	snap, err := a.Save()
	if err != nil {
		t.Fatal(err)
	}
	b := mustOpen(t, p, toyLayout)
	defer b.Close()
	if err := b.Load(snap); err != nil {
		t.Fatal(err)
	}
	pages := func(want int) {
		t.Helper()
		if got := p.Stats().Pages; got != want {
			t.Errorf("%d pages, want %d", got, want)
		}
	}
	pages(2)
	for i, s := range []*State{a, b} {
		if err := s.Reserve(1); err != nil {
			t.Fatal(err)
		}
		n.feed(t, s, text, []int32{int32(i + 1)}, 0)
	}
	pages(4) // the first page, and the second three times
	snap.Close()
	pages(3)
	n.check(t, "first", a, append(slices.Clone(text), 1))
	n.check(t, "second", b, append(slices.Clone(text), 2))
}

func TestSnapshotIsAsSmallAsItCanBe(t *testing.T) {
	p := openPool(t, 1<<20)
	s := mustOpen(t, p, layout)
	defer s.Close()
	if err := s.Reserve(9); err != nil {
		t.Fatal(err)
	}
	for kept := range layout.MaxDrafts + 1 {
		s.Seq(0, 4, 3, nil)
		s.Fed(4, 3)
		s.Commit(kept)
		before := p.Used()
		snap, err := s.Save()
		if err != nil {
			t.Fatal(err)
		}
		keys, values, heads := delta.KeyHeads*delta.KeyDim, delta.ValueHeads*delta.ValueDim, delta.ValueHeads
		numbers := 0
		for _, n := range []int{delta.ValueHeads * delta.KeyDim * delta.ValueDim, (delta.Kernel - 1) * (2*keys + values), kept * keys, kept * values, kept * heads} {
			numbers += (n + line - 1) / line * line
		}
		if got, want := p.Used()-before, int64(4*numbers*3); got != want {
			t.Errorf("kept=%d: a snapshot takes %d bytes, want %d", kept, got, want)
		}
		snap.Close()
		s.Fed(0, 0)
		s.len = 0
	}
}

// TestOnFullMakesSpace has a snapshot closed when memory is short. The page that the state
// shared with it is then the state's own and need not be copied.
func TestOnFullMakesSpace(t *testing.T) {
	p := openPool(t, toyLayout.RecurrentBytes()+toyLayout.copied(0).shape().bytes()+toyLayout.PageBytes())
	s := mustOpen(t, p, toyLayout)
	defer s.Close()
	if err := s.Reserve(1); err != nil {
		t.Fatal(err)
	}
	toy{p.b}.feed(t, s, nil, []int32{5}, 0)
	snap, err := s.Save()
	if err != nil {
		t.Fatal(err)
	}
	var missing int64
	p.OnFull(func(bytes int64) {
		missing = bytes
		snap.Close()
	})
	if err := s.Reserve(1); err != nil {
		t.Fatal(err)
	}
	if missing != toyLayout.PageBytes() {
		t.Errorf("asked for %d bytes, want %d", missing, toyLayout.PageBytes())
	}
	toy{p.b}.feed(t, s, []int32{5}, []int32{6}, 0)
	toy{p.b}.check(t, "after making space", s, []int32{5, 6})
	p.OnFull(nil)
	if err := s.Reserve(3 * backend.PageTokens); !errors.Is(err, ErrFull) {
		t.Errorf("error %v, want ErrFull", err)
	}
}

// TestSnapshotOfPagesIsPages reads a snapshot that has only pages.
func TestSnapshotOfPagesIsPages(t *testing.T) {
	p := openPool(t, 1<<20)
	s := mustOpen(t, p, Layout{Layers: []Layer{kv}})
	defer s.Close()
	if err := s.Reserve(100); err != nil {
		t.Fatal(err)
	}
	toy{p.b}.feed(t, s, nil, make([]int32, 100), 0)
	x, err := s.Save()
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	data, err := x.AppendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	y, err := p.ReadSnapshot(s.layout, data, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer y.Close()
	if len(x.Blocks()) != 2 || len(y.Blocks()) != 2 {
		t.Errorf("%d pieces of memory, read as %d, want two pages", len(x.Blocks()), len(y.Blocks()))
	}
	if err := s.Load(y); err != nil {
		t.Fatal(err)
	}
	toy{p.b}.check(t, "read", s, make([]int32, 100))
}

func TestReadSnapshotRefusesMalformedBytes(t *testing.T) {
	p := openPool(t, 1<<20)
	s := mustOpen(t, p, toyLayout)
	if err := s.Reserve(3); err != nil {
		t.Fatal(err)
	}
	toy{p.b}.feed(t, s, nil, []int32{1, 2, 3}, 2)
	s.Commit(1)
	snap, err := s.Save()
	if err != nil {
		t.Fatal(err)
	}
	good, err := snap.AppendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	snap.Close()
	s.Close()
	change := func(at int, v byte) []byte {
		b := slices.Clone(good)
		b[at] = v
		return b
	}
	for name, data := range map[string][]byte{
		"nothing":              nil,
		"a cut header":         good[:11],
		"cut pages":            good[:100],
		"cut recurrent memory": good[:len(good)-1],
		"more":                 append(slices.Clone(good), 0),
		"more tokens":          change(1, 1),
		"billions of tokens":   change(3, 0xff),
		"more to replay":       change(4, 3),
		"too many to replay":   change(4, 4),
		"nothing to replay":    change(4, 0),
		"pages elsewhere":      change(8, 1),
		"too many elsewhere":   change(8, 2),
	} {
		if x, err := p.ReadSnapshot(toyLayout, data, nil); err == nil {
			t.Errorf("%s: read a snapshot of %d tokens", name, x.Len())
		}
	}
	if n := p.Used(); n != 0 {
		t.Errorf("%d bytes in use after refusals", n)
	}
}
