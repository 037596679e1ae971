package spec

import (
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"
)

// TestSummaryFollowsCostModel has a sequence alone on a machine with known costs: passes of
// 10, 12, 13 and 14 ms, 2 ms a draft, and three drafts in each of its rounds.
func TestSummaryFollowsCostModel(t *testing.T) {
	c, r := NewController(), &Record{Fixed: 3}
	r.Drafter, r.Rule = "mtp", Ratio
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for rows, cost := range []int{0, 10, 12, 13, 14} {
		if rows > 0 {
			c.ObservePass(rows, rows-1, ms(cost))
		}
	}
	c.Report(r, Outcome{Rows: 9, Tokens: 1, Prefill: true, Batch: 1, Verify: ms(50)}) // the end of the prompt
	for _, accepted := range []int{3, 0, 2, 1} {
		c.Report(r, Outcome{Rows: 4, Drafted: 3, Accepted: accepted, Tokens: 1 + accepted, Batch: 1, Verify: ms(14)})
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

// TestSummaryInABatch shares rounds among four: a plain round of four is then the unit.
func TestSummaryInABatch(t *testing.T) {
	c, r := NewController(), &Record{Fixed: 1}
	c.ObservePass(4, 0, 20*time.Millisecond)
	c.ObservePass(8, 4, 24*time.Millisecond)
	for range 10 {
		c.Report(r, Outcome{Rows: 2, Drafted: 1, Accepted: 1, Tokens: 2, Batch: 4, Verify: 6 * time.Millisecond})
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
	c.ObservePass(3, 2, time.Millisecond) // never a plain round
	c.Report(r, Outcome{Rows: 3, Drafted: 2, Accepted: 1, Tokens: 2, Batch: 1, Verify: time.Millisecond})
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

func TestStatsCountCopies(t *testing.T) {
	c, r := NewController(), &Record{Fixed: 3}
	batch := []Run{{Depth: 8, Sources: CopyOf8.only()}}
	c.Choose(batch, []*Record{r})
	c.Report(r, Outcome{Drafted: batch[0].Depth, Accepted: 2, Tokens: 3})
	if s := r.Summary(); s.Copied != 3 || s.CopiedAccepted != 2 {
		t.Errorf("%+v", s)
	}
}
