package doctor

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/qwen35"
	"github.com/foretoken/foretoken/internal/state"
)

// errNoNumber is what comes of damaged weights.
var errNoNumber = errors.New("doctor: the network's output is not a number: its weights are damaged; fetch or convert the model again")

// chunk is how many rows are read at once: their logits are kept, and a vocabulary is large.
const chunk = 32

// patient is a model under examination.
type patient struct {
	ctx   context.Context
	m     *qwen35.Model
	b     backend.Backend
	pool  *state.Pool
	vocab int // ids that mean something
	width int
}

// text is a text with what the network has made of it.
type text struct {
	ids    []int32
	prompt int // how many of them the model did not choose itself

	before, after []float32 // hidden rows before and after the final norm, [len(ids)-1 or more, width]
}

func newPatient(ctx context.Context, m *qwen35.Model, b backend.Backend, vocab int) *patient {
	return &patient{ctx: ctx, m: m, b: b, pool: state.NewPool(b, math.MaxInt64/2), vocab: min(vocab, m.Info().Vocab), width: m.Info().Width}
}

// read feeds ids to the network and calls see with every row of logits.
func (p *patient) read(ids []int32, see func(row int, logits []float32)) (*text, error) {
	s, err := p.pool.Open(p.m.Layout())
	if err != nil {
		return nil, err
	}
	defer s.Close()
	t := &text{ids: ids}
	for at := 0; at < len(ids); at += chunk {
		part := ids[at:min(at+chunk, len(ids))]
		out, err := p.forward([]model.Span{{State: s, Tokens: part, Want: len(part)}})
		if err != nil {
			return nil, err
		}
		for i, logits := range out.Logits[0] {
			see(at+i, logits)
		}
		if err := p.remember([]*text{t}, []int{len(part)}); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// forward is the network's, unless the examination has been called off.
func (p *patient) forward(batch []model.Span) (model.Output, error) {
	if err := p.ctx.Err(); err != nil {
		return model.Output{}, err
	}
	return p.m.Forward(batch)
}

// remember adds the hidden rows of the last pass to the texts it was over.
func (p *patient) remember(texts []*text, rows []int) error {
	before, after := p.m.HiddenRows()
	x, err := p.b.Host(before)
	if err != nil {
		return err
	}
	y, err := p.b.Host(after)
	if err != nil {
		return err
	}
	at := 0
	for i, t := range texts {
		n := rows[i] * p.width
		t.before = append(t.before, x[at:at+n]...)
		t.after = append(t.after, y[at:at+n]...)
		at += n
	}
	return nil
}

// perplexity is that of a text.
func (p *patient) perplexity(ids []int32) (float64, error) {
	loss := 0.0
	_, err := p.read(ids, func(row int, logits []float32) {
		if row+1 < len(ids) {
			loss -= logProb(logits[:p.vocab], ids[row+1])
		}
	})
	if err == nil && math.IsNaN(loss) {
		err = errNoNumber
	}
	return math.Exp(loss / float64(max(len(ids)-1, 1))), err
}

// logProb is the logarithm of a token's probability.
func logProb(logits []float32, id int32) float64 {
	top, sum := float64(slices.Max(logits)), 0.0
	for _, x := range logits {
		sum += math.Exp(float64(x) - top)
	}
	return float64(logits[id]) - top - math.Log(sum)
}

// continueAll lets the model continue prompts, all at once, with its favorite tokens: so many,
// or fewer when time is up, but at least as many as say something. End tokens do not end.
func (p *patient) continueAll(prompts [][]int32, tokens, least int, deadline time.Time) ([]*text, error) {
	texts, rows := make([]*text, len(prompts)), make([]int, len(prompts))
	spans := make([]model.Span, len(prompts))
	for i, ids := range prompts {
		s, err := p.pool.Open(p.m.Layout())
		if err != nil {
			return nil, err
		}
		defer s.Close()
		texts[i] = &text{ids: slices.Clone(ids), prompt: len(ids)}
		spans[i] = model.Span{State: s, Tokens: ids, Want: 1}
	}
	for n := range tokens {
		if n >= least && time.Now().After(deadline) {
			break
		}
		out, err := p.forward(spans)
		if err != nil {
			return nil, err
		}
		for i := range spans {
			rows[i] = len(spans[i].Tokens)
			id := argmax(out.Logits[i][0][:p.vocab])
			if id < 0 {
				return nil, errNoNumber
			}
			texts[i].ids = append(texts[i].ids, id)
			spans[i].Tokens = texts[i].ids[len(texts[i].ids)-1:]
		}
		if err := p.remember(texts, rows); err != nil {
			return nil, err
		}
	}
	return texts, nil
}

// argmax is the id of the highest logit, the lowest of several; -1 if one is not a number.
func argmax(logits []float32) int32 {
	best := 0
	for i, x := range logits {
		if x != x {
			return -1
		}
		if x > logits[best] {
			best = i
		}
	}
	return int32(best)
}

// upload brings hidden rows to the device. The caller frees them.
func (p *patient) upload(rows []float32) (backend.Tensor, error) {
	t, err := p.b.Alloc(dtype.F32, len(rows)/p.width, p.width)
	if err == nil {
		err = p.b.Write(t, rows)
	}
	return t, err
}
