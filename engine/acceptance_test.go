package engine

import (
	"testing"

	"github.com/foretoken/foretoken/backend"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/model"
	"github.com/foretoken/foretoken/spec"
)

// TestAcceptanceOfGreedyText runs the real loop at depth 3 over the reference's prompts. A
// walk over the reference's own drafts gives the rates by position; rounds start more often
// at hard places, so they are below those of the head at every position.
func TestAcceptanceOfGreedyText(t *testing.T) {
	m, pool := openModel(t, golden.Dir(t, "tiny"), model.Options{Compute: backend.Float32, DraftVocab: -1})
	e, err := New(m, pool, Options{Drafter: m.Drafter()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var total spec.Receipt
	for i, c := range golden.Load(t, "tiny").Cases {
		ids, res, err := collect(e, Request{
			Prompt: c.Prompt, MaxTokens: len(c.Tokens) - len(c.Prompt), IgnoreEnd: true, LogProbs: -1, Depth: 3,
		})
		if err != nil {
			t.Fatal(err)
		}
		for j, id := range ids {
			if want := c.Tokens[len(c.Prompt)+j]; id != want {
				t.Fatalf("case %d: token %d is %d, the reference's is %d", i, j, id, want)
			}
		}
		add(&total, &res.Receipt)
	}
	for j, want := range []float64{0.708, 0.520, 0.387} {
		got := float64(total.At[j]) / float64(total.Tried[0])
		t.Logf("guess %d holds in %.4f of %d rounds, the reference's in %.3f", j+1, got, total.Tried[0], want)
		if got < want-2*golden.Tol.Acceptance {
			t.Errorf("guess %d holds in %.4f of the rounds, want %.3f", j+1, got, want)
		}
	}
}

func add(to, r *spec.Receipt) {
	to.Rounds += r.Rounds
	to.Drafted += r.Drafted
	to.Accepted += r.Accepted
	for j := range r.At {
		to.At[j] += r.At[j]
		to.Tried[j] += r.Tried[j]
	}
}
