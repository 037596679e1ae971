package state

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
)

// TestNeedIsWhatASequenceTakes opens the states of a sequence and keeps rows of a drafter, in a pool of exactly that size.
func TestNeedIsWhatASequenceTakes(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	b := openPool(t, 0).b
	for range 100 {
		n := Need{Target: randomLayout(rng)}
		for range rng.IntN(3) {
			n.Drafts = append(n.Drafts, DraftNeed{Layout: randomLayout(rng), Ahead: rng.IntN(70), Rows: 1 + rng.IntN(8), Width: 1 + rng.IntN(16)})
		}
		tokens := 1 + rng.IntN(300)
		p := NewPool(b, n.Bytes(tokens))
		s := mustOpen(t, p, n.Target)
		err := s.Reserve(tokens)
		for _, x := range n.Drafts {
			if err == nil {
				err = mustOpen(t, p, x.Layout).Reserve(tokens + x.Ahead)
			}
			if err == nil {
				_, err = p.Rows(x.Rows).Add(backend.Tensor{Type: dtype.F32, Cols: x.Width})
			}
		}
		if x := p.Stats(); err != nil || x.Used != x.Budget {
			t.Fatalf("%+v: %d tokens take %d of %d bytes; error %v", n, tokens, x.Used, x.Budget, err)
		}
	}
}

// TestNeedTokensInvertsBytes compares the length with that found one by one, for random layouts and
// budgets around every page border.
func TestNeedTokensInvertsBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		n := Need{Target: randomLayout(rng)}
		for range rng.IntN(3) {
			n.Drafts = append(n.Drafts, DraftNeed{Layout: randomLayout(rng), Ahead: rng.IntN(20), Rows: rng.IntN(33), Width: 16})
		}
		const most = 400
		for range 60 {
			budget := n.Bytes(rng.IntN(most)) + int64(rng.IntN(3)-1)
			want := 0
			for tokens := 1; tokens <= most && n.Bytes(tokens) <= budget; tokens++ {
				want = tokens
			}
			if got := n.Tokens(budget, most); got != want {
				t.Fatalf("%+v: %d tokens in %d bytes, want %d", n, got, budget, want)
			}
		}
		if got := n.Tokens(math.MaxInt64, most); got != most {
			t.Fatalf("%+v: %d tokens in all memory there could be, want %d", n, got, most)
		}
	}
}
