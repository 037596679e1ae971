package state

import (
	"math/rand/v2"
	"testing"
)

// TestNeedTokensInvertsBytes compares the closed form with a search, for random layouts and
// budgets around every page border.
func TestNeedTokensInvertsBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		n := Need{Target: randomLayout(rng), Ahead: rng.IntN(20)}
		if rng.IntN(3) > 0 {
			n.Draft, n.Rows, n.Width = randomLayout(rng), rng.IntN(33), 16
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
	}
}
