package engine

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/sampling"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/ngram"
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

// BenchmarkEdits decodes texts that are rewritten with small changes, in turns without drafts, with the head, with
// copies and with both. What the model says is dictated; its passes, the head's drafts and the copies are real.
func BenchmarkEdits(b *testing.B) {
	dir := golden.Dir(b, "tiny")
	m, pool := openModel(b, dir, model.Options{})
	data, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		b.Fatal(err)
	}
	tok, err := tokenizer.New(data)
	if err != nil {
		b.Fatal(err)
	}
	vocab := m.Info().Vocab
	s, err := sampling.New(sample.Options{Vocab: vocab}, nil)
	if err != nil {
		b.Fatal(err)
	}
	lookup, err := ngram.New(ngram.Options{})
	if err != nil {
		b.Fatal(err)
	}
	head := func() spec.Drafter { return &unaware{Drafter: m.Drafter(), s: s} }
	names := []string{"plain", "mtp", "ngram", "auto"}
	engines := make([]*Engine, len(names))
	for i, d := range []spec.Drafter{nil, head(), lookup, spec.Auto(head(), lookup)} {
		if engines[i], err = New(m, pool, Options{Drafter: d}); err != nil {
			b.Fatal(err)
		}
		defer engines[i].Close()
	}
	edits := golden.Edits(b)
	rates, ratios := make([][]float64, len(names)), make([][]float64, len(names))
	rounds, tokens, plain := make([]int, len(names)), 0, 0.0
	for b.Loop() {
		for _, e := range edits {
			answer := tok.Encode(e.Answer())
			r := Request{Prompt: tok.Encode(e.Prompt()), MaxTokens: len(answer), IgnoreEnd: true, NoForced: true}
			r.Sampling.Constraint = func() sample.Constraint {
				return &dictated{ids: answer, mask: make([]uint64, (vocab+63)/64)}
			}
			tokens += len(answer)
			for j, e := range engines {
				ids, res, err := collect(e, r)
				if err != nil || !slices.Equal(ids, answer) {
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
