package state

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// TestWindowsHoldNoMoreThanTheirBound feeds 128k tokens in calls of any length to layers with windows, with drafts, and with snapshots
// of which each has the pages that it needs. A pool of Need.Bytes is enough.
func TestWindowsHoldNoMoreThanTheirBound(t *testing.T) {
	const tokens, window, round = 128 << 10, 512, 512
	l := Layout{MaxDrafts: 8, Layers: []Layer{
		KV{Type: dtype.F16, Heads: 1, Key: 1, Value: 1, Window: window},
		KV{Type: dtype.F16, Heads: 1, Key: 1, Value: 1, Window: 1},
		Latent{Type: dtype.F16, Width: 1, Window: window},
	}}
	rng := rand.New(rand.NewPCG(1, 1))
	b := openPool(t, 0).b
	need := Need{Target: l, Round: round}
	budget := need.Bytes(tokens)
	if short := need.Bytes(window + 2*round); budget != short {
		t.Errorf("%d tokens need %d bytes, %d need %d", tokens, budget, window+2*round, short)
	}
	p := NewPool(b, budget)
	s := mustOpen(t, p, l)
	most := 0
	for s.Len() < tokens {
		n := min(1+rng.IntN(round), tokens-s.Len())
		if rng.IntN(2) > 0 {
			n = min(n, 9)
		}
		if err := s.Reserve(n); err != nil {
			t.Fatalf("%d tokens after %d: %v", n, s.Len(), err)
		}
		drafts := min(rng.IntN(9), n)
		seq := s.Seq(0, n, drafts, nil)
		for i, w := range l.Windows() {
			x := &seq.Windows[i]
			if from, to := max(0, seq.Pos+1-w)/backend.PageTokens, (seq.Pos+n+backend.PageTokens-1)/backend.PageTokens; x.First > from || x.First+len(x.Pages) < to {
				t.Fatalf("window of %d: pages [%d, %d) for tokens [%d, %d)", w, x.First, x.First+len(x.Pages), seq.Pos, seq.Pos+n)
			}
		}
		most = max(most, len(seq.Windows[0].Pages))
		s.Fed(n, drafts)
		s.Commit(rng.IntN(drafts + 1))
	}
	if bound := (window + truncated + round + 2*backend.PageTokens) / backend.PageTokens; most > bound || most < bound-2 {
		t.Errorf("at most %d pages, want about %d", most, bound)
	}
	snap, err := s.Save()
	if err != nil {
		t.Fatal(err)
	}
	if got := len(snap.Blocks()); got > window/backend.PageTokens+2 {
		t.Errorf("a snapshot has %d pages", got)
	}
	snap.Close()
	s.Close()
	if x := p.Stats(); x.Used != 0 {
		t.Errorf("after everything was closed: %+v", x)
	}
}

// TestSnapshotsHaveWhatTheNextTokenSees loads snapshots of all lengths.
func TestSnapshotsHaveWhatTheNextTokenSees(t *testing.T) {
	p := openPool(t, 1<<20)
	n := toy{p.b}
	l := Layout{Layers: []Layer{KV{Type: dtype.F16, Heads: 1, Key: 1, Value: 1, Window: 10}, KV{Type: dtype.F16, Heads: 1, Key: 1, Value: 1, Window: 1}}}
	s, other := mustOpen(t, p, l), mustOpen(t, p, l)
	var text []int32
	for i := range int32(150) {
		if err := s.Reserve(1); err != nil {
			t.Fatal(err)
		}
		n.feed(t, s, text, []int32{i}, 0)
		text = append(text, i)
		x, err := s.Save()
		if err == nil {
			err = other.Load(x)
		}
		if err != nil {
			t.Fatal(err)
		}
		n.check(t, "loaded", other, text)
		if x.Close(); other.CanTruncate(0) && i > 80 {
			t.Errorf("%d tokens can be forgotten", i+1)
		}
	}
}

// TestRepeat compares a state of repeated pages with one that was fed as many tokens.
func TestRepeat(t *testing.T) {
	p := openPool(t, 1<<20)
	n := toy{p.b}
	for _, window := range []int{0, 1, 100} {
		l := Layout{Layers: []Layer{KV{Type: dtype.F16, Heads: 1, Key: 1, Value: 1, Window: window}, KV{Type: dtype.F16, Heads: 1, Key: 1, Value: 1}}}
		s, fed := mustOpen(t, p, l), mustOpen(t, p, l)
		for _, x := range []*State{s, fed} {
			if err := x.Reserve(64); err != nil {
				t.Fatal(err)
			}
			n.feed(t, x, nil, make([]int32, 64), 0)
		}
		for _, tokens := range []int{700, 500} {
			if err := s.Repeat(tokens); err != nil {
				t.Fatal(err)
			}
			for left, m := tokens, 0; left > 0; left -= m {
				m = min(left, RoundTokens)
				if err := fed.Reserve(m); err != nil {
					t.Fatal(err)
				}
				fed.Seq(0, m, 0, nil)
				fed.Fed(m, 0)
			}
		}
		if s.Len() != 1264 || s.Next() != fed.Next() {
			t.Errorf("%d tokens, next %d", s.Len(), s.Next())
		}
		for i := range s.tables {
			x, y := &s.tables[i], &fed.tables[i]
			if x.first != y.first || len(x.pages) != len(y.pages) {
				t.Errorf("window %d: pages [%d, %d), fed [%d, %d)", window, x.first, x.end(), y.first, y.end())
			}
			for _, page := range x.pages {
				a, _ := page.AppendTo(nil)
				b, _ := x.pages[0].AppendTo(nil)
				if !bytes.Equal(a, b) || !bytes.ContainsFunc(a, func(r rune) bool { return r != 0 }) {
					t.Fatalf("window %d: a page of %x, the first has %x", window, a, b)
				}
			}
		}
		s.Close()
		fed.Close()
	}
}
