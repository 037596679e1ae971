package spec

import (
	"math"
	"testing"
	"time"
)

// headMachine is a controller that knows a machine: a pass takes 10 ms and 0.1 ms a row, a step of the head 1 ms, whatever the
// number of runs. Four of five drafts are accepted.
func headMachine(r *Record) *Controller {
	c := NewController()
	for range 60 {
		for rows := 1; rows <= 40; rows++ {
			c.ObservePass(rows, 10*time.Millisecond+time.Duration(rows)*100*time.Microsecond)
		}
		for _, runs := range []int{1, 4} {
			for depth := 1; depth <= 4; depth++ {
				depths := make([]int, runs)
				for i := range depths {
					depths[i] = depth
				}
				c.ObserveDraft(Computed, depths, 0, time.Duration(depth)*time.Millisecond)
			}
		}
		for i := range 5 {
			accepted := MaxDepth
			if i == 0 {
				accepted = 0
			}
			c.Report(r, Outcome{Rows: 1 + MaxDepth, Drafted: MaxDepth, Accepted: accepted, Tokens: 1 + accepted, Batch: 1})
		}
	}
	return c
}

// TestRateIsTokensPerSecond compares rates with tokens and times of a known machine.
func TestRateIsTokensPerSecond(t *testing.T) {
	r := new(Record)
	if n := NewController().Rate(r, 0); n != 0 {
		t.Errorf("%v tokens per second before anything is known", n)
	}
	c := headMachine(r)
	for depth, want := range []float64{1 / 0.0101, 1.8 / 0.0112, 2.6 / 0.0123, 3.4 / 0.0134} {
		// All of the drafts after the first are accepted with it.
		if got := c.Rate(r, depth); math.Abs(got/want-1) > 0.05 {
			t.Errorf("depth %d: %.1f tokens per second, want %.1f", depth, got, want)
		}
	}
}

// TestStepsOfTheHeadAreShared has a batch draft: a step that all runs take costs each of them less than a step that one of
// them takes alone, and alone there is no difference.
func TestStepsOfTheHeadAreShared(t *testing.T) {
	for _, n := range []int{1, 4} {
		known := new(Record)
		c := headMachine(known)
		batch, records := make([]Run, n), make([]*Record, n)
		for asked := 0; asked < 8; {
			for i := range batch {
				batch[i], records[i] = Run{Depth: 4, Sources: Computed.only()}, &Record{accepted: known.accepted}
			}
			if c.Choose(batch, records); batch[0].More == nil || batch[0].Depth == 0 {
				c.Report(records[0], Outcome{Rows: 1, Tokens: 1, Batch: n})
				continue
			}
			asked++
			row := (c.least[0][0] - c.least[0][MaxDepth-1]) / c.price // a step costs a tenth of a pass
			if want := -0.1 * (1 - 1/float64(n)); math.Abs(row-want) > 0.02 {
				t.Fatalf("%d runs: a draft of all costs %.3f more than a draft of one, want %.3f", n, row, want)
			}
			if batch[0].More(nil) != (c.chanceOf(0, 0, nil) > c.least[0][0]) {
				t.Fatalf("%d runs: the first draft is asked for, or not, against its gain", n)
			}
		}
	}
}
