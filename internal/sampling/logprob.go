package sampling

import (
	"cmp"
	"math"
	"slices"

	"github.com/foretoken/foretoken/internal/exactmath"
	"github.com/foretoken/foretoken/internal/topk"
	"github.com/foretoken/foretoken/sample"
)

// LogProbs reports on one row of logits as the model gave them: without bias,
// penalties, temperature and truncation. chosen is the log-probability of id, -Inf
// if the row does not have it or holds no number for it. best lists the top most
// likely ids, likeliest first and equals by id; there are fewer if the row has
// fewer. Pass only the logits of real ids, without a matrix's padding. Accuracy
// is about 1e-7 absolute. The caller owns best.
func LogProbs(logits []float32, id int32, top int) (chosen float32, best []sample.LogProb) {
	logits = logits[:min(len(logits), maxVocab)]
	blocks := topk.Maxima(nil, logits)
	highest := topk.Max(blocks)
	switch {
	case math.IsInf(float64(highest), -1):
		return highest, nil
	case math.IsInf(float64(highest), 1):
		return LogProbs(finite(nil, logits), id, top)
	}
	sc := newScale(highest, 1)
	var w scratch
	total := sc.masses(&w.sums, logits, blocks, sc.lowest(floorLevel), nil)
	logTotal := exactmath.Log(float64(total) * (1.0 / (1 << weightBits)))

	chosen = float32(math.Inf(-1))
	if id >= 0 && int(id) < len(logits) && logits[id] > float32(math.Inf(-1)) {
		chosen = float32(sc.score(logits[id]) - logTotal)
	}
	if top <= 0 {
		return chosen, nil
	}
	w.topK(logits, blocks, top, -math.MaxFloat32)
	slices.SortFunc(w.keys, func(a, b uint64) int { return cmp.Compare(b, a) })
	best = make([]sample.LogProb, len(w.keys))
	for i, k := range w.keys {
		best[i] = sample.LogProb{ID: topk.ID(k), LogProb: float32(sc.score(topk.Logit(k)) - logTotal)}
	}
	return chosen, best
}
