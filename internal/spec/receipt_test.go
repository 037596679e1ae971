package spec

import (
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"
)

// TestSummaryFollowsCostModel has a sequence alone on a machine with known costs: passes of
// 10, 12, 13 and 14 ms, 2 ms a guess, and three guesses in each of its rounds.
func TestSummaryFollowsCostModel(t *testing.T) {
	c, r := NewController(), &Record{Fixed: 3}
	r.Drafter, r.Rule = "mtp", Ratio
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for rows, cost := range []int{0, 10, 12, 13, 14} {
		if rows > 0 {
			c.Verified(rows, rows-1, ms(cost))
		}
	}
	r.Count(0, 0) // the end of the prompt
	for _, accepted := range []int{3, 0, 2, 1} {
		r.Count(3, accepted)
		r.Spent(ms(14), 1)
		r.Draft += ms(6)
	}
	c.Settle(&r.Stats)
	s := r.Summary()
	near := func(name string, got, want float64) {
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	near("beta", float64(s.Beta), 1.4)
	near("delta", float64(s.Delta), 0.2)
	near("speedup_estimate", float64(s.SpeedupEstimate), 2.5/(1.4+3*0.2))
	near("tokens_per_round", s.TokensPerRound, 11.0/5)
	near("mean_depth", s.MeanDepth, 12.0/5)
	near("draft_ms", s.DraftMS, 24)
	near("verify_ms", s.VerifyMS, 56)
	if s.Rounds != 5 || s.Drafted != 12 || s.Accepted != 6 || !slices.Equal(s.AcceptedByPosition, []int{3, 2, 1}) {
		t.Errorf("%+v", s)
	}
}

// TestSummaryInCompany shares rounds among four: a plain round of four is then the unit.
func TestSummaryInCompany(t *testing.T) {
	c, r := NewController(), &Record{Fixed: 1}
	c.Verified(4, 0, 20*time.Millisecond)
	c.Verified(8, 4, 24*time.Millisecond)
	for range 10 {
		r.Count(1, 1)
		r.Spent(6*time.Millisecond, 4)
		r.Draft += time.Millisecond
	}
	c.Settle(&r.Stats)
	if s := r.Summary(); s.Beta != 1.2 || math.Abs(float64(s.Delta)-0.2) > 1e-12 || math.Abs(float64(s.SpeedupEstimate)-2/1.4) > 1e-12 {
		t.Errorf("%+v", s)
	}
}

// TestSummaryInventsNothing: what was not measured is null.
func TestSummaryInventsNothing(t *testing.T) {
	c, r := NewController(), &Record{Fixed: 2}
	c.Verified(3, 2, time.Millisecond) // never a plain round
	r.Count(2, 1)
	r.Spent(time.Millisecond, 1)
	c.Settle(&r.Stats)
	text, err := json.Marshal(r.Summary())
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"rounds":1,"drafted":2,"accepted":1,"accepted_by_position":[1,0],"tokens_per_round":2,"mean_depth":2,` +
		`"rule":"exact","drafter":"","draft_ms":0,"verify_ms":1,"beta":null,"delta":null,"speedup_estimate":null}`
	if string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	empty := new(Stats)
	c.Settle(empty)
	if text, err := json.Marshal(empty.Summary()); err != nil {
		t.Errorf("%s, %v", text, err)
	}
}

func TestReceiptCountsCopies(t *testing.T) {
	c, r := NewController(), &Record{Fixed: 3}
	batch := []Run{{Depth: 8, Sources: CopyOf8.only()}}
	c.Choose(batch, []*Record{r})
	r.Count(batch[0].Depth, 2)
	if s := r.Summary(); s.Copied != 3 || s.CopiedAccepted != 2 {
		t.Errorf("%+v", s)
	}
}
