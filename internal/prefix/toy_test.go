package prefix

import (
	"bytes"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/state"
)

// A model and a drafter whose states are easy to predict.
var (
	toyTarget = state.Layout{
		Layers: []state.Layer{
			state.KV{Type: dtype.F32, Heads: 1, Key: 1, Value: 1},
			state.Delta{KeyHeads: 1, ValueHeads: 1, KeyDim: 1, ValueDim: 1, Kernel: 2},
		},
		MaxDrafts: 2,
	}
	toyMemory = state.Layout{Layers: []state.Layer{state.KV{Type: dtype.F32, Heads: 1, Key: 2, Value: 2}}}

	// mixtures are layouts of models and of their drafters.
	mixtures = [][2]state.Layout{
		{toyTarget, toyMemory},
		{
			{
				Layers: []state.Layer{
					state.Latent{Type: dtype.I8, Width: 3, Rotary: 2},
					state.Delta{KeyHeads: 1, ValueHeads: 2, KeyDim: 2, ValueDim: 3, Kernel: 2},
					nil,
					state.KV{Type: dtype.F16, Heads: 2, Key: 3, Value: 5, Window: 9},
					state.Delta{KeyHeads: 1, ValueHeads: 1, KeyDim: 1, ValueDim: 1, Kernel: 2},
				},
				MaxDrafts: 1,
			},
			{Layers: []state.Layer{state.Latent{Type: dtype.F16, Width: 2, Rotary: 2}}},
		},
		{{Layers: []state.Layer{state.Delta{KeyHeads: 1, ValueHeads: 1, KeyDim: 8, ValueDim: 8, Kernel: 2}}}, toyMemory},
		{{Layers: []state.Layer{state.KV{Type: dtype.I4, Heads: 1, Key: 2, Value: 1}, state.Latent{Type: dtype.F32, Width: 2}}}, toyMemory},
		{
			{Layers: []state.Layer{
				state.KV{Type: dtype.F16, Heads: 1, Key: 2, Value: 2, Window: 70},
				state.KV{Type: dtype.F16, Heads: 1, Key: 4, Value: 4},
				state.KV{Type: dtype.F16, Heads: 1, Key: 2, Value: 1, Window: 1},
			}},
			{Layers: []state.Layer{state.KV{Type: dtype.F16, Heads: 1, Key: 2, Value: 2, Window: 40}}},
		},
	}
)

// toy is a device with such models on it.
type toy struct {
	t              *testing.T
	b              backend.Backend
	pool           *state.Pool
	target, memory state.Layout
	row            backend.Tensor // a hidden row
}

func newToy(t *testing.T, budget int64) *toy {
	t.Helper()
	b := backendtest.Open(t, backend.Options{Threads: 1})
	row, err := b.Alloc(dtype.F32, 1, 4)
	if err != nil {
		t.Fatal(err)
	}
	return &toy{t, b, state.NewPool(b, budget), toyTarget, toyMemory, row}
}

// newMixture is a toy of that mixture, with memory for pages pages and recurrent recurrent states.
func newMixture(t *testing.T, mixture, pages, recurrent int) *toy {
	t.Helper()
	m := mixtures[mixture]
	n := newToy(t, int64(pages)*(m[0].PageBytes()+m[1].PageBytes())+int64(recurrent)*(m[0].RecurrentBytes()+m[0].WindowBytes()+m[1].WindowBytes()))
	n.target, n.memory = m[0], m[1]
	return n
}

// text is a sequence on the toy: its tokens and its states.
type text struct {
	*toy
	tokens         []int32
	target, memory *state.State
	next           int32 // the token that the last pair has
}

// open returns a text of no tokens, nil if there is no memory for it.
func (n *toy) open() *text {
	n.t.Helper()
	x := &text{toy: n}
	var err error
	if x.target, err = n.pool.Open(n.target); err != nil {
		return nil
	}
	if x.memory, err = n.pool.Open(n.memory); err != nil {
		n.t.Fatal(err)
	}
	return x
}

func (x *text) close() {
	x.target.Close()
	x.memory.Close()
}

func mix(h float32, id int32) float32 { return float32((int(h)*31 + int(id) + 7) % 65521) }

// hash is the target's state after tokens.
func hash(tokens []int32) (h float32) {
	for _, id := range tokens {
		h = mix(h, id)
	}
	return h
}

func (n *toy) write(x backend.Tensor, row int, v float32) {
	n.t.Helper()
	y := make([]float32, x.Cols)
	for i := range y {
		y[i] = v
	}
	if err := n.b.Write(x.RowRange(row, row+1), y); err != nil {
		n.t.Fatal(err)
	}
}

func (n *toy) read(x backend.Tensor, row int) float32 {
	n.t.Helper()
	v, err := n.b.Host(x.RowRange(row, row+1))
	if err != nil {
		n.t.Fatal(err)
	}
	return v[0]
}

// slots are even shares of pages for position at, one of each table with pages that a token behind len others sees.
func slots(l state.Layout, seq *backend.Seq, at, len int) (list []backend.Tensor) {
	for i, window := range append([]int{0}, l.Windows()...) {
		first, pages := seq.Table(&backend.Place{Window: i})
		if window == 0 && !l.Paged() || window > 0 && at < len+1-window {
			continue
		}
		page := pages[at/backend.PageTokens-first]
		n := page.Cols / backend.PageTokens
		list = append(list, page.ColRange(at%backend.PageTokens*n, at%backend.PageTokens*n+n))
	}
	return list
}

// put fills slots with bytes of a number.
func (n *toy) put(slots []backend.Tensor, v float32) {
	n.t.Helper()
	for _, slot := range slots {
		if err := n.b.WriteBytes(slot, slotBytes(slot, v)); err != nil {
			n.t.Fatal(err)
		}
	}
}

// has reports whether slots were filled with a number.
func (n *toy) has(slots []backend.Tensor, v float32) bool {
	n.t.Helper()
	for _, slot := range slots {
		got := make([]byte, slot.Cols)
		if err := n.b.ReadBytes(got, slot); err != nil {
			n.t.Fatal(err)
		}
		if !bytes.Equal(got, slotBytes(slot, v)) {
			return false
		}
	}
	return true
}

func slotBytes(slot backend.Tensor, v float32) []byte {
	b := make([]byte, slot.Cols)
	for i := range b {
		b[i] = byte(int(v)>>(8*(i%2)) + i)
	}
	return b
}

// feed appends tokens; the drafter gets all pairs, the last of them with the token next.
// Without memory it feeds nothing and reports false.
func (x *text) feed(next int32, tokens ...int32) bool {
	x.t.Helper()
	if x.target.Reserve(len(tokens)) != nil || x.memory.Reserve(len(tokens)+1) != nil {
		return false
	}
	seq := x.target.Seq(0, len(tokens), 0, nil)
	for _, id := range tokens {
		at := len(x.tokens)
		x.tokens = append(x.tokens, id)
		x.put(slots(x.toy.target, &seq, at, at), hash(x.tokens))
	}
	for _, d := range seq.Delta {
		for i := range d.State.Rows {
			x.write(d.State, i, hash(x.tokens))
		}
		x.write(d.Tail, 0, float32(tokens[len(tokens)-1]))
	}
	x.target.Fed(len(tokens), 0)
	x.catchUp(next)
	return true
}

// catchUp feeds the drafter all pairs that it lacks; the last token's has next.
func (x *text) catchUp(next int32) {
	x.t.Helper()
	n := len(x.tokens) - x.memory.Len()
	seq := x.memory.Seq(0, n, 0, nil)
	for at := seq.Pos; at < len(x.tokens); at++ {
		x.put(slots(x.toy.memory, &seq, at, at), hash(append(x.tokens[:at+1:at+1], x.after(at, next))))
	}
	x.memory.Fed(n, 0)
	x.next = next
}

func (x *text) after(at int, next int32) int32 {
	if at+1 < len(x.tokens) {
		return x.tokens[at+1]
	}
	return next
}

// check compares the states with the tokens. next is the token the last pair has, -1 if
// there is none.
func (x *text) check(what string, next int32) {
	x.t.Helper()
	pairs := len(x.tokens)
	if next < 0 {
		pairs--
	}
	if x.target.Len() != len(x.tokens) || x.memory.Len() != pairs {
		x.t.Fatalf("%s: %d tokens and %d pairs, want %d and %d", what, x.target.Len(), x.memory.Len(), len(x.tokens), pairs)
	}
	if len(x.tokens) == 0 {
		return
	}
	// The pages are those that the next call would read.
	if x.target.Reserve(0) != nil || x.memory.Reserve(0) != nil {
		x.t.Fatalf("%s: no room for nothing", what)
	}
	seq, pair := x.target.Seq(0, 0, 0, nil), x.memory.Seq(0, 0, 0, nil)
	for at := range x.tokens {
		if want := hash(x.tokens[:at+1]); !x.has(slots(x.toy.target, &seq, at, len(x.tokens)), want) {
			x.t.Fatalf("%s: slot %d of %d is not %v", what, at, len(x.tokens), want)
		}
		if at >= pairs {
			break
		}
		want := hash(append(x.tokens[:at+1:at+1], x.after(at, next)))
		if !x.has(slots(x.toy.memory, &pair, at, pairs), want) {
			x.t.Fatalf("%s: pair %d of %d is not %v", what, at, pairs, want)
		}
	}
	last := float32(x.tokens[len(x.tokens)-1])
	for _, d := range seq.Delta {
		for i := range d.State.Rows {
			if s, tail := x.read(d.State, i), x.read(d.Tail, 0); s != hash(x.tokens) || tail != last {
				x.t.Fatalf("%s: recurrent memory %v and %v, want %v and %v", what, s, tail, hash(x.tokens), last)
			}
		}
	}
}

// store stores the states of the text.
func (x *text) store(c *Cache) error { return x.storeWith(c, x.memory) }

// storeWith is store with another state of the drafter, or without one.
func (x *text) storeWith(c *Cache, memory *state.State) error {
	x.t.Helper()
	x.write(x.row, 0, hash(x.tokens)+0.5)
	return c.Store(Salt{}, Text{Tokens: x.tokens}, x.target, Draft{memory, x.row})
}

// restore restores the states of a hit and checks them. If it lacks that of the drafter, the pairs are fed again.
func (x *text) restore(h *Hit, tokens []int32) {
	x.t.Helper()
	if err := h.Restore(x.target, x.memory); err != nil {
		x.t.Fatal(err)
	}
	x.tokens = append([]int32(nil), tokens[:h.Len()]...)
	if h.Hidden(0).Rows == 0 {
		if n := x.memory.Len(); n != 0 {
			x.t.Fatalf("%d pairs restored without a hidden row", n)
		}
		if err := x.memory.Reserve(len(x.tokens)); err != nil {
			x.t.Fatal(err)
		}
		x.catchUp(tokens[h.Len()])
		x.check("after restoring the target", x.next)
		return
	}
	x.check("after restoring", -1)
	if got, want := x.read(h.Hidden(0), 0), hash(x.tokens)+0.5; got != want {
		x.t.Fatalf("hidden row %v, want %v", got, want)
	}
}
