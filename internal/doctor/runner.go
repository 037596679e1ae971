package doctor

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/measure"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/state"
)

// runner runs the model under examination.
type runner struct {
	ctx   context.Context
	m     model.Model
	b     backend.Backend
	pool  *state.Pool
	vocab int // ids that mean something
	width int
}

func newRunner(ctx context.Context, m model.Model, b backend.Backend, vocab int) *runner {
	return &runner{ctx: ctx, m: m, b: b, pool: state.NewPool(b, math.MaxInt64/2), vocab: min(vocab, m.Info().Vocab), width: m.Info().Width}
}

// prefill feeds ids to the model and calls visit with every row of logits.
func (r *runner) prefill(ids []int32, visit func(row int, logits []float32)) (*measure.Text, error) {
	s, err := r.pool.Open(r.m.Layout())
	if err != nil {
		return nil, err
	}
	defer s.Close()
	t := &measure.Text{IDs: ids}
	for at := 0; at < len(ids); at += measure.Chunk {
		part := ids[at:min(at+measure.Chunk, len(ids))]
		out, err := r.forward([]model.Span{{State: s, Tokens: part, Want: len(part)}})
		if err != nil {
			return nil, err
		}
		logits, err := out.Rows()
		if err != nil {
			return nil, err
		}
		for i, row := range logits {
			visit(at+i, row)
		}
		if err := r.keepHidden(out, []*measure.Text{t}, []int{len(part)}); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// forward is the model's, unless the examination has been called off.
func (r *runner) forward(batch []model.Span) (model.Output, error) {
	if err := r.ctx.Err(); err != nil {
		return model.Output{}, err
	}
	return r.m.Forward(batch)
}

// keepHidden adds the hidden rows of the last pass to its texts. A model that does
// not return them before and after its final norm has only the input of its head.
func (r *runner) keepHidden(out model.Output, texts []*measure.Text, rows []int) error {
	before, after := out.Hidden, out.Hidden
	if m, ok := r.m.(model.Examinable); ok {
		before, after = m.HiddenRows()
	}
	x, err := r.b.Host(before)
	if err != nil {
		return err
	}
	x = slices.Clone(x) // which the next call may overwrite
	y, err := r.b.Host(after)
	if err != nil {
		return err
	}
	at := 0
	for i, t := range texts {
		n := rows[i] * r.width
		t.Before = append(t.Before, x[at:at+n]...)
		t.After = append(t.After, y[at:at+n]...)
		at += n
	}
	return nil
}

// maxPerplexity stands for all that is worse, infinity among it, which JSON does not have.
const maxPerplexity = 1e12

// perplexity is that of a text, at most maxPerplexity.
func (r *runner) perplexity(ids []int32) (float64, error) {
	loss := 0.0
	_, err := r.prefill(ids, func(row int, logits []float32) {
		if row+1 < len(ids) {
			loss -= logProb(logits[:r.vocab], ids[row+1])
		}
	})
	if err == nil && math.IsNaN(loss) {
		err = measure.ErrNotANumber
	}
	return min(math.Exp(loss/float64(max(len(ids)-1, 1))), maxPerplexity), err
}

// logProb is the logarithm of a token's probability.
func logProb(logits []float32, id int32) float64 {
	top, sum := float64(slices.Max(logits)), 0.0
	for _, x := range logits {
		sum += math.Exp(float64(x) - top)
	}
	return float64(logits[id]) - top - math.Log(sum)
}

// continueAll has the model continue prompts greedily, all in one batch, by tokens tokens each,
// or by fewer, but at least minimum, at the deadline. End tokens do not end a text.
func (r *runner) continueAll(prompts [][]int32, tokens, minimum int, deadline time.Time) ([]*measure.Text, error) {
	texts, rows := make([]*measure.Text, len(prompts)), make([]int, len(prompts))
	spans := make([]model.Span, len(prompts))
	for i, ids := range prompts {
		s, err := r.pool.Open(r.m.Layout())
		if err != nil {
			return nil, err
		}
		defer s.Close()
		texts[i] = &measure.Text{IDs: slices.Clone(ids), Prompt: len(ids)}
		spans[i] = model.Span{State: s, Tokens: ids, Want: 1}
	}
	for n := range tokens {
		if n >= minimum && time.Now().After(deadline) {
			break
		}
		out, err := r.forward(spans)
		if err != nil {
			return nil, err
		}
		logits, err := out.Rows() // one of each span
		if err != nil {
			return nil, err
		}
		for i := range spans {
			rows[i] = len(spans[i].Tokens)
			id := measure.Argmax(logits[i][:r.vocab])
			if id < 0 {
				return nil, measure.ErrNotANumber
			}
			texts[i].IDs = append(texts[i].IDs, id)
			spans[i].Tokens = texts[i].IDs[len(texts[i].IDs)-1:]
		}
		if err := r.keepHidden(out, texts, rows); err != nil {
			return nil, err
		}
	}
	return texts, nil
}
