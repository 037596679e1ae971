// Package measure is shared by the self-test of a head, foretoken doctor and foretoken bench:
// costs of passes and drafts, acceptance of draft tokens, the fastest draft vocabulary
// and depth, and the statistics of repeated measurements. It knows models, drafters
// and states, but no engine, family, file or text, and prints nothing.
package measure

import (
	"errors"
	"slices"
	"time"

	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/sampling"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/sample"
)

// ErrNotANumber reports NaN or infinite output, which damaged weights produce.
var ErrNotANumber = errors.New("measure: the model's output is not a number: its weights are damaged; fetch or convert the model again")

// Sequence is one greedily decoded sequence of a model and its drafter, whose steps are timed
// one by one.
type Sequence struct {
	model     model.Model
	drafter   spec.Drafter // nil: none
	sampler   *sampling.Sampler
	target    *state.State
	draft     *state.State // nil without a drafter
	hostState any
	out       model.Output // of the last pass
	logits    spec.Logits  // its rows
}

// Open takes the states of a sequence from the pool. Tokens are chosen among the first vocab
// ids. d may be nil. The caller closes the sequence and does not use m and d elsewhere until then.
func Open(m model.Model, d spec.Drafter, pool *state.Pool, vocab int) (s *Sequence, err error) {
	s = &Sequence{model: m, drafter: d}
	if err := tap(m, d); err != nil {
		return nil, err
	}
	if s.sampler, err = sampling.New(sample.Options{Vocab: vocab}, nil); err != nil {
		return nil, err
	}
	if s.target, err = pool.Open(m.Layout()); err != nil {
		return nil, err
	}
	if d != nil {
		if s.draft, err = pool.Open(d.Layout()); err != nil {
			s.target.Close()
			return nil, err
		}
	}
	return s, nil
}

// Fork opens another sequence that has seen the same tokens, without a drafter.
func (s *Sequence) Fork(pool *state.Pool) (*Sequence, error) {
	saved, err := s.target.Save()
	if err != nil {
		return nil, err
	}
	defer saved.Close()
	f, err := pool.Open(s.target.Layout())
	if err != nil {
		return nil, err
	}
	if err := f.Load(saved); err != nil {
		f.Close()
		return nil, err
	}
	return &Sequence{model: s.model, sampler: s.sampler, target: f}, nil
}

// Close returns the states to the pool.
func (s *Sequence) Close() {
	s.target.Close()
	if s.draft != nil {
		s.draft.Close()
	}
}

// Len is how many tokens the model has seen.
func (s *Sequence) Len() int { return s.target.Len() }

// Prefill feeds tokens, the last want of which get logits, and returns how long it took.
func (s *Sequence) Prefill(tokens []int32, want int) (time.Duration, error) {
	start := time.Now()
	err := s.forward(tokens, 0, want)
	if err == nil {
		err = s.out.Wait()
	}
	return time.Since(start), err
}

// Repeat adds n tokens that are not computed, after computed ones. The times of later passes are those after n computed tokens.
func (s *Sequence) Repeat(n int) error { return s.target.Repeat(n) }

// Pass feeds a token with draft tokens after it, verifies them, and rolls all of them back. It
// returns how many were accepted and how long the pass took with the verification. Like an engine it waits for that
// alone.
func (s *Sequence) Pass(token int32, drafts ...int32) (accepted int, took time.Duration, err error) {
	start := time.Now()
	if err := s.forward(append([]int32{token}, drafts...), len(drafts), len(drafts)+1); err != nil {
		return 0, 0, err
	}
	next := int32(-1)
	s.logits.Begin(s.out.Device, s.out.Logits)
	s.logits.Ask(s.sampler, drafts, len(drafts)+1)
	err = s.logits.Resolve(func(_ int, rows []sampling.Row) (ok bool) {
		accepted, next, ok = spec.Exact.Verify(s.sampler, spec.Draft{Tokens: drafts}, rows)
		return ok
	})
	took = time.Since(start)
	switch {
	case err != nil:
		return 0, 0, err
	case next < 0:
		return 0, 0, ErrNotANumber
	}
	s.target.Commit(0)
	return accepted, took, nil
}

func (s *Sequence) forward(tokens []int32, drafts, want int) (err error) {
	s.out, err = s.model.Forward([]model.Span{{State: s.target, Tokens: tokens, Drafts: drafts, Want: want, Short: s.drafter == nil}})
	return err
}

// Draft has the drafter catch up with one row of the last pass and draft depth tokens after
// text, whose last token is the one that follows the row. The tokens are valid until the next
// call.
func (s *Sequence) Draft(text []int32, row, depth int) (tokens []int32, took time.Duration, err error) {
	start, rows := time.Now(), s.out.Hidden
	if len(spec.TapsOf(s.drafter)) > 0 {
		rows = s.out.Taps
	}
	drafts, err := s.drafter.Draft([]spec.Run{{
		State: s.draft, Target: s.target, HostState: &s.hostState, Text: text, Hidden: rows.RowRange(row, row+1), Depth: depth, Sampler: s.sampler,
	}})
	if err != nil {
		return nil, 0, err
	}
	return drafts[0].Tokens, time.Since(start), nil
}

// TimeDraft is how long Draft takes, with the draft vocabulary limited to vocab frequent tokens
// if vocab is not 0 and the drafter allows it. The draft state is rolled back, so that the next
// call does the same work.
func (s *Sequence) TimeDraft(text []int32, row, depth, vocab int) (time.Duration, error) {
	if d, ok := s.drafter.(spec.VocabLimiter); ok && vocab > 0 {
		d.LimitVocab(vocab)
	}
	n := s.draft.Len()
	_, took, err := s.Draft(text, row, depth)
	if err == nil {
		s.draft.Truncate(n)
	}
	return took, err
}

// greedy sets ids to the most likely token after each row of the last pass.
func (s *Sequence) greedy(ids []int32) error {
	s.logits.Begin(s.out.Device, s.out.Logits)
	s.logits.Ask(s.sampler, make([]int32, len(ids)-1), len(ids)) // its distribution does not depend on them
	err := s.logits.Resolve(func(_ int, rows []sampling.Row) bool {
		for i, row := range rows {
			d, ok := s.sampler.DistOf(row, nil)
			if !ok {
				return false
			}
			ids[i] = s.sampler.Draw(d)
		}
		return true
	})
	if err == nil && slices.Min(ids) < 0 {
		return ErrNotANumber
	}
	return err
}
