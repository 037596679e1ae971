//go:build unix

package kernel

import (
	"fmt"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
)

// TestPromptEqualsPages compares the kernels of prompts, portable ones too, with those of single
// queries, which define attention.
func TestPromptEqualsPages(t *testing.T) {
	trials := 24
	if testing.Short() {
		trials = 4
	}
	for _, x := range append(newVectorTrials(t), newVectorTrial(t, &Generic)) {
		for i := range trials {
			d, values := lanes*(1+x.rng.IntN(9)), PromptStrip*(1+x.rng.IntN(3))
			if i == 1 {
				d, values = 256, 256
			}
			x.prompt(d, values, 1+x.rng.IntN(20), i%4 == 0)
		}
	}
}

// prompt takes tiles tiles of queries and two pages, the first of halves and the other of floats.
func (x *vectorTrial) prompt(d, dv, tiles int, special bool) {
	x.t.Helper()
	what := fmt.Sprintf("d=%d values=%d tiles=%d", d, dv, tiles)
	n, k := tiles*PromptQueries, &x.v.Prompt
	_, pq := x.fill(0, (n+PromptStrip-1)/PromptStrip*PromptStrip*d, special)
	q := x.guard[0][trialSize-len(pq):]
	k.Rows32(q, append([]float32(nil), pq...), d)
	last := func(i, n int) []float32 { return x.guard[i][trialSize-n:] }
	rows, want := make([]*float32, n), make([]float32, n*dv)
	out := last(7, n*dv)
	for i := range rows {
		rows[i] = &out[i*dv]
	}
	sums := make([]SoftmaxSum, n)
	all := make([]float32, 2*n)
	for page := range 2 {
		keys, pkeys := x.fill(1, PageTokens*d, special)
		values, pvalues := x.fill(2, PageTokens*dv, special)
		laid, strip := last(3, PageTokens*d), last(4, PageTokens*PromptStrip)
		var lay func(column int)
		if page == 0 {
			hk, hv := halvesOf(x.guard[1])[2*trialSize-len(keys):], halvesOf(x.guard[2])[2*trialSize-len(values):]
			for i, v := range pkeys {
				hk[i] = dtype.ToF16(v)
				pkeys[i] = dtype.FromF16(hk[i])
			}
			for i, v := range pvalues {
				hv[i] = dtype.ToF16(v)
				pvalues[i] = dtype.FromF16(hv[i])
			}
			k.Rows16(laid, hk, d)
			lay = func(column int) { k.Values16(strip, hv[column:], dv) }
		} else {
			k.Rows32(laid, keys, d)
			lay = func(column int) { k.Values32(strip, values[column:], dv) }
		}
		for i := range laid {
			x.same("keys "+what, laid[promptAt(i/d, i%d, d):][:1], pkeys[i:][:1])
		}
		scores, wantScores := last(5, n*PageTokens), make([]float32, n*PageTokens)
		k.Scores(scores, q, laid, last(6, PromptSums), nil, d, 0.125)
		scores32(wantScores, pq[:n*d], pkeys, nil, d, PageTokens, 0.125)
		x.same("scores "+what, scores, wantScores)
		top, weight := last(6, n), last(1, n)
		now := make([]SoftmaxSum, n)
		k.Softmax(scores, top, weight)
		for i := range now {
			now[i].Top, now[i].Weight = softmax(wantScores[i*PageTokens:][:PageTokens])
			if top[i] != now[i].Top {
				x.t.Fatalf("%s %s: top %d is %v, want %v", x.name, what, i, top[i], now[i].Top)
			}
			x.same("weight "+what, weight[i:][:1], []float32{now[i].Weight})
		}
		x.same("weights "+what, scores, wantScores)
		sum := make([]float32, n*dv)
		weigh32(sum, wantScores, pvalues, nil, dv, PageTokens)
		var old, more []float32
		if page == 0 {
			copy(all, top)
			copy(all[n:], weight)
			copy(want, sum)
			copy(sums, now)
		} else {
			old, more = last(3, n), make([]float32, n)
			k.Factors(old, more, all[:n], all[n:], top, weight)
			for i := range sums {
				merge(want[i*dv:][:dv], sum[i*dv:][:dv], &sums[i], &now[i])
				x.same("tops "+what, all[i:][:1], []float32{sums[i].Top})
				x.same("sums of weights "+what, all[n+i:][:1], []float32{sums[i].Weight})
			}
		}
		for column := 0; column < dv; column += PromptStrip {
			lay(column)
			k.Weigh(rows, scores, strip, old, more, nil, column)
		}
		x.same("sums "+what, out, want)
	}
}
