package engine

import (
	"path/filepath"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/sampling"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/ngram"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/internal/tokenizer"
	"github.com/foretoken/foretoken/sample"
)

// dictated allows one text only.
type dictated struct {
	ids  []int32
	at   int
	mask []uint64
}

func (d *dictated) Allowed(ahead []int32) []uint64 {
	clear(d.mask)
	if n := d.at + len(ahead); n < len(d.ids) {
		d.mask[d.ids[n]>>6] = 1 << (d.ids[n] & 63)
		return d.mask
	}
	return nil
}

func (d *dictated) Accept(int32) { d.at++ }

// unaware is a head that does not know what is dictated.
type unaware struct {
	spec.Drafter
	s    *sampling.Sampler
	runs []spec.Run
}

func (u *unaware) Draft(batch []spec.Run) ([]spec.Draft, error) {
	u.runs = append(u.runs[:0], batch...)
	for i := range u.runs {
		u.runs[i].Sampler = u.s
	}
	return u.Drafter.Draft(u.runs)
}

// author is the trained model with its tokenizer.
type author struct {
	model *headed
	pool  *state.Pool
	tok   *tokenizer.Tokenizer
	free  *sampling.Sampler // greedy, without a constraint
}

func openAuthor(b *testing.B) *author {
	b.Helper()
	dir := golden.Dir(b, "tiny")
	m, pool := openModel(b, dir, model.Options{})
	data := filetest.Read(b, filepath.Join(dir, "tokenizer.json"))
	tok, err := tokenizer.New(data)
	if err != nil {
		b.Fatal(err)
	}
	s, err := sampling.New(sample.Options{Vocab: m.Info().Vocab}, nil)
	if err != nil {
		b.Fatal(err)
	}
	return &author{m, pool, tok, s}
}

// engine is an engine with a drafter, until the benchmark ends.
func (a *author) engine(b *testing.B, d spec.Drafter) *Engine {
	b.Helper()
	e, err := New(a.model, a.pool, Options{Drafter: d})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(e.Close)
	return e
}

// edit is the request for an edit, whose answer is dictated.
func (a *author) edit(e golden.Edit) Request {
	answer := a.tok.Encode(e.Answer())
	r := Request{Prompt: a.tok.Encode(e.Prompt()), MaxTokens: len(answer), IgnoreEnd: true, NoForced: true}
	r.Sampling.Constraint = func() sample.Constraint {
		return &dictated{ids: answer, mask: make([]uint64, (a.model.Info().Vocab+63)/64)}
	}
	return r
}

// BenchmarkEdits decodes texts that are rewritten with small changes: without drafts, with the head, with
// copies and with both, alternating. The model's tokens are dictated; its passes, the head's drafts and the copies are real.
func BenchmarkEdits(b *testing.B) {
	a := openAuthor(b)
	lookup, err := ngram.New(ngram.Options{})
	if err != nil {
		b.Fatal(err)
	}
	head := func() spec.Drafter { return &unaware{Drafter: a.model.Drafter(), s: a.free} }
	names := []string{"plain", "mtp", "ngram", "auto"}
	engines := make([]*Engine, len(names))
	for i, d := range []spec.Drafter{nil, head(), lookup, spec.Auto(head(), lookup)} {
		engines[i] = a.engine(b, d)
	}
	edits := golden.Edits(b)
	rates, ratios := make([][]float64, len(names)), make([][]float64, len(names))
	rounds, tokens, plain := make([]int, len(names)), 0, 0.0
	for b.Loop() {
		for _, e := range edits {
			r := a.edit(e)
			tokens += r.MaxTokens
			for j, e := range engines {
				ids, res, err := collect(e, r)
				if err != nil || len(ids) != r.MaxTokens {
					b.Fatal(err, ids)
				}
				rate := float64(res.Tokens-1) / res.Decode.Seconds()
				if j == 0 {
					plain = rate
				}
				rates[j], ratios[j] = append(rates[j], rate), append(ratios[j], rate/plain)
				rounds[j] += res.Speculation.Rounds
			}
		}
	}
	for j, name := range names {
		b.ReportMetric(middle(rates[j]), name+"-tok/s")
		if j > 0 {
			b.ReportMetric(middle(ratios[j]), name+"/plain")
			b.ReportMetric(float64(tokens)/float64(rounds[j]), name+"-tok/round")
		}
	}
}
