package engine

import (
	"math"
	"sync"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
)

// TestAcceptanceOfGreedyText runs the real loop at depth 3 over the reference's prompts, and
// compares it with a walk over the reference's own drafts. Ours are not the same beyond the
// first: the head's KV cache has true pairs here, and its own stream there.
func TestAcceptanceOfGreedyText(t *testing.T) {
	m, pool := openModel(t, golden.Dir(t, "tiny"), model.Options{Compute: backend.Float32})
	m.draftVocab = -1
	e, err := New(m, pool, Options{Drafter: m.Drafter()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var total spec.Stats
	f := golden.Load(t, "tiny")
	results := make([]Result, len(f.Cases))
	var all sync.WaitGroup
	for i, c := range f.Cases {
		all.Go(func() { // a batch is faster, and changes nothing
			ids, res, err := collect(e, Request{
				Prompt: c.Prompt, MaxTokens: len(c.Tokens) - len(c.Prompt), IgnoreEnd: true, Depth: 3,
			})
			if err != nil {
				t.Error(err)
			}
			for j, id := range ids {
				if want := c.Tokens[len(c.Prompt)+j]; id != want {
					t.Errorf("case %d: token %d is %d, the reference's is %d", i, j, id, want)
					break
				}
			}
			results[i] = res
		})
	}
	all.Wait()
	for i := range results {
		add(&total, &results[i].Speculation)
	}
	rates, rounds := walk(f)
	for j, want := range rates {
		got := float64(total.AcceptedAt[j]) / float64(total.DraftedAt[0])
		t.Logf("draft token %d is accepted in %.4f of %d rounds, the reference's in %.4f of %d", j+1, got, total.DraftedAt[0], want, rounds)
		if math.Abs(got-want) > 2*golden.Tol.Acceptance {
			t.Errorf("draft token %d is accepted in %.4f of the rounds, the reference's in %.4f", j+1, got, want)
		}
	}
}

// walk decodes the reference's texts with the reference's drafts: the share of rounds in which
// the first one, two and three are accepted. Rounds start more often at hard places, so these
// are below Fixture.Acceptance, which is over every position.
func walk(f *golden.Fixture) (rates [3]float64, rounds int) {
	for _, c := range f.Cases {
		drafts := [3][]int32{c.Draft1, c.Draft2, c.Draft3}
		for row := len(c.Prompt) - 1; row+1+len(drafts) < len(c.Tokens); row++ {
			rounds++
			for j := range drafts {
				if drafts[j][row-j] != c.Tokens[row+2] {
					break
				}
				rates[j]++
				row++
			}
		}
	}
	for j := range rates {
		rates[j] /= float64(rounds)
	}
	return rates, rounds
}

func add(to, r *spec.Stats) {
	to.Rounds += r.Rounds
	to.Drafted += r.Drafted
	to.Accepted += r.Accepted
	for j := range r.AcceptedAt {
		to.AcceptedAt[j] += r.AcceptedAt[j]
		to.DraftedAt[j] += r.DraftedAt[j]
	}
}
