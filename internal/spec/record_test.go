package spec

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// TestRoundsOnRecord compares the decisions of a few hundred rounds with those on record: every change of the controller
// shows. The batches have sequences of different acceptance, fixed depths, copies, known tokens, and probabilities.
func TestRoundsOnRecord(t *testing.T) {
	want := [][5]float64{
		{1023, 70042, 66, 2.55659498, 0.32577663},
		{1411, 123413, 70, 3.67233321, 0.536445841},
		{1775, 206511, 66, 4.2611865, 0.648337442},
		{2756, 505720, 58, 5.92947901, 0.82822884},
		{1139, 96055, 64, 3.48785509, 0.896081945},
		{920, 60688, 74, 2.50279595, 0.400849563},
	}
	for i, n := range []int{1, 2, 4, 8, 3, 1} {
		c, records := NewController(), make([]*Record, n)
		rng := rand.New(rand.NewPCG(uint64(i), 31))
		for j := range records {
			if records[j] = new(Record); j == 2 {
				records[j].Fixed = 1
			}
		}
		var got [5]float64 // rows, depths by position, rounds of trials, price, the last chance that is worth a step
		for round := range 150 {
			batch, drafts, depths := make([]Run, n), make([]Draft, n), make([]int, n)
			for j := range batch {
				batch[j] = Run{Depth: MaxDepth - j%3, Sources: Computed.only()}
				if (round+j)%5 == 0 {
					batch[j].Sources = batch[j].Sources.With(CopyOf4)
				}
				if (round+j)%7 == 0 {
					batch[j].Known = 2
				}
			}
			c.Choose(batch, records)
			rows := n
			for j, run := range batch {
				for k := range run.Depth {
					if i < 4 && k > 0 && run.More != nil && run.Source == Computed && !run.More(drafts[j].Probs) {
						break
					}
					drafts[j].Tokens = append(drafts[j].Tokens, 1)
					if run.Source == Computed && i != 4 {
						drafts[j].Probs = append(drafts[j].Probs, float32(rng.Float64()))
						depths[j]++
					}
				}
			}
			deepest, total := 0, 0
			for _, d := range depths {
				deepest, total = max(deepest, d), total+d
			}
			c.ObserveDraft(Computed, depths, 0, time.Duration(1e6*(0.2+0.5*float64(deepest)+0.1*float64(total))))
			c.Trim(batch, records, drafts)
			for j := range drafts {
				d := len(drafts[j].Tokens)
				accepted := 0
				for accepted < d && (accepted < batch[j].Known || rng.Float64() < 0.85-0.1*float64(j%4)) {
					accepted++
				}
				rows += d
				got[1] += float64((round + 1) * (j + 1) * d)
				c.Report(records[j], Outcome{Drafted: d, Accepted: accepted, Tokens: 1 + accepted})
			}
			if got[0] += float64(rows); c.left >= trialRounds {
				got[2]++
			}
			c.ObservePass(rows, time.Duration(1e6*(8+0.6*float64(rows))*(1+0.1*rng.Float64())))
		}
		got[3], got[4] = c.price, c.least[0][3]
		for k, x := range got {
			if i >= len(want) || math.Abs(x-want[i][k]) > 1e-6*math.Abs(x) {
				t.Errorf("%d runs: %.9g", n, got)
				break
			}
		}
	}
}
