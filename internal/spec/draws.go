package spec

import (
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/sampling"
)

// PlainDraw is a plain draw for a device.
func PlainDraw(p sampling.Plain) backend.Draw {
	return backend.Draw{Cols: p.Vocab, Temperature: p.Temperature, Noise: p.Noise, TopK: p.TopK, TopP: p.TopP, Levels: p.Levels}
}

// Draws are the draws that a device makes of the draft tokens of a call: of the first token of each run, then of the second of
// each run that wants two, and so on. Their columns are those of the rows of l. The memory of old is used again. The runs of
// the batch that want tokens are listed in who, the deepest first, and depth is how many tokens one of them gets. It reports
// false if a device cannot make the draws: a run draws in another way or needs distributions.
func (v *DraftVocab) Draws(old [][]backend.Draw, l *Logits, batch []Run, who []int, depth func(r *Run) int) (draws [][]backend.Draw, ok bool) {
	for _, i := range who {
		if _, ok := batch[i].Sampler.Plain(0); !ok || batch[i].Dists {
			return old, false
		}
	}
	deepest := depth(&batch[who[0]])
	draws = slices.Grow(old[:0], deepest)[:deepest]
	for k := range draws {
		draws[k] = draws[k][:0]
	}
	for _, i := range who {
		first, own := v.Own(&batch[i])
		for k := range depth(&batch[i]) {
			p, _ := batch[i].Sampler.Plain(k)
			how := PlainDraw(p)
			how.Cols, how.First, how.Own = l.counted(p.Vocab), first, own
			draws[k] = append(draws[k], how)
		}
	}
	return draws, true
}
