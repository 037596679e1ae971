package spec

import (
	"math"
	"testing"
	"time"
)

// TestStatsFollowTheCostModel has a sequence alone on a machine with known costs: passes of
// 10, 12, 13 and 14 ms, 2 ms a draft, and three drafts in each of its rounds.
func TestStatsFollowTheCostModel(t *testing.T) {
	c, r := NewController(), &Record{Fixed: 3}
	r.Drafter, r.Rule = "mtp", Ratio
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for range 64 {
		for _, rows := range []int{1, 1, 2, 3, 4} {
			c.ObservePass(rows, ms([]int{10, 12, 13, 14}[rows-1]))
		}
	}
	c.Report(r, Outcome{Rows: 9, Tokens: 1, Prefill: true, Batch: 1, Verify: ms(50)}) // the end of the prompt
	for _, accepted := range []int{3, 0, 2, 1} {
		c.Report(r, Outcome{Rows: 4, Drafted: 3, Accepted: accepted, Tokens: 1 + accepted, Batch: 1, Verify: ms(14)})
		r.Draft += ms(6)
	}
	c.Settle(&r.Stats)
	s := &r.Stats
	near := func(name string, got, want float64) {
		if math.Abs(got-want) > 0.02 {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	near("beta", s.Beta, 1.4)
	near("delta", s.Delta, 0.2)
	near("speedup", s.Speedup(), 2.5/(1.4+3*0.2))
	near("mean depth", s.MeanDepth(), 12.0/5)
	if s.Rounds != 5 || s.Drafted != 12 || s.Accepted != 6 || s.Draft != ms(24) || s.Verify != ms(56) ||
		s.DraftedAt != [MaxDepth]int{4, 4, 4} || s.AcceptedAt != [MaxDepth]int{3, 2, 1} {
		t.Errorf("%+v", s)
	}
}

// TestStatsInABatch shares rounds among four: a plain round of four is then the unit.
func TestStatsInABatch(t *testing.T) {
	c, r := NewController(), &Record{Fixed: 1}
	for range 64 {
		c.ObservePass(4, 20*time.Millisecond)
		c.ObservePass(4, 20*time.Millisecond)
		c.ObservePass(8, 24*time.Millisecond)
	}
	for range 10 {
		c.Report(r, Outcome{Rows: 2, Drafted: 1, Accepted: 1, Tokens: 2, Batch: 4, Verify: 6 * time.Millisecond})
		r.Draft += time.Millisecond
	}
	c.Settle(&r.Stats)
	if s := &r.Stats; math.Abs(s.Beta-1.2) > 0.02 || math.Abs(s.Delta-0.2) > 0.01 || math.Abs(s.Speedup()-2/1.4) > 0.02 {
		t.Errorf("%+v", s)
	}
}

// TestStatsInventNothing: what was not measured is 0.
func TestStatsInventNothing(t *testing.T) {
	c, r := NewController(), &Record{Fixed: 2}
	c.ObservePass(3, time.Millisecond) // never a plain round
	c.Report(r, Outcome{Rows: 3, Drafted: 2, Accepted: 1, Tokens: 2, Batch: 1, Verify: time.Millisecond})
	for _, s := range []*Stats{&r.Stats, {}} {
		if c.Settle(s); s.Beta != 0 || s.Delta != 0 || s.Speedup() != 0 {
			t.Errorf("%+v", s)
		}
	}
}

func TestStatsCountCopies(t *testing.T) {
	c, r := NewController(), &Record{Fixed: 3}
	batch := []Run{{Depth: 8, Sources: CopyOf8.only()}}
	c.Choose(batch, []*Record{r})
	c.Report(r, Outcome{Drafted: batch[0].Depth, Accepted: 2, Tokens: 3})
	if s := &r.Stats; s.Copied != 3 || s.CopiedAccepted != 2 {
		t.Errorf("%+v", s)
	}
}
