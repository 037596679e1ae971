package bench

import (
	"context"
	"slices"
	"sync"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/spec"
)

// Runner answers requests, all at once, and says what it took.
type Runner func(ctx context.Context, batch []engine.Request) (*Run, error)

// Run is the result of a batch of requests.
type Run struct {
	Answers []Answer
	Rounds  []engine.Round // of all of them
}

// Answer is the result of one request.
type Answer struct {
	Tokens []int32
	Hash   uint64 // of the logits, if that was asked for
	Stats  spec.Stats
}

// Recorder keeps the rounds of an engine, for which its Observe is to be that of the
// engine's options.
type Recorder struct {
	start  sync.Mutex // held while a batch is handed in
	mu     sync.Mutex // protects what follows
	rounds []engine.Round
}

// Observe adds a round. The first of a batch lasts until all of it is handed in, so that the
// next has all sequences, however late this goroutine comes to run.
func (r *Recorder) Observe(x engine.Round) {
	r.start.Lock()
	r.start.Unlock() //nolint:staticcheck // SA2001: it is held elsewhere, and waited for here
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rounds = append(r.rounds, x)
}

// take returns the rounds since it was last called.
func (r *Recorder) take() []engine.Round {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := slices.Clone(r.rounds)
	r.rounds = r.rounds[:0]
	return list
}

// starter begins to answer a request. wait returns the answer when it has ended.
type starter func(ctx context.Context, q *engine.Request) (wait func() (Answer, error), err error)

// On is the runner for the engine that is observed. The engine must have no other users meanwhile.
func (r *Recorder) On(e *engine.Engine) Runner {
	return r.runner(func(ctx context.Context, q *engine.Request) (func() (Answer, error), error) {
		s, err := e.Generate(ctx, *q)
		return func() (a Answer, err error) {
			for t, err := range s.Tokens() {
				if err != nil {
					return a, err
				}
				a.Tokens = append(a.Tokens, t.ID)
			}
			result := s.Result()
			a.Hash, a.Stats = result.LogitsHash, result.Speculation
			return a, nil
		}, err
	})
}

// OnModel is the runner for a model whose OnRound is ObserveModel. The model must have no other users
// meanwhile.
func (r *Recorder) OnModel(m *foretoken.Model) Runner {
	return r.runner(func(ctx context.Context, q *engine.Request) (func() (Answer, error), error) {
		depth := foretoken.Depth(q.Depth)
		if q.Depth == spec.DepthAuto {
			depth = foretoken.DepthAuto
		}
		answer, err := m.Generate(ctx, foretoken.Request{
			Prompt: &foretoken.Prompt{IDs: q.Prompt}, MaxTokens: q.MaxTokens, Sampling: &q.Sampling, IgnoreEnd: q.IgnoreEnd,
			Hash: q.Hash, Depth: depth, Rule: foretoken.Rule(q.Rule.String()), Raw: true,
		})
		return func() (a Answer, err error) {
			err = answer.Wait()
			for _, t := range answer.Tokens {
				a.Tokens = append(a.Tokens, t.ID)
			}
			s := &answer.Result.Speculation
			a.Hash = answer.LogitsHash()
			a.Stats = spec.Stats{
				Rounds: s.Rounds, Drafted: s.Drafted, Accepted: s.Accepted, DraftedAt: s.DraftedAt, AcceptedAt: s.AcceptedAt,
				Copied: s.Copied, CopiedAccepted: s.CopiedAccepted, Beside: s.Beside, BesideAccepted: s.BesideAccepted, Draft: s.Draft, Verify: s.Verify,
			}
			return a, err
		}, err
	})
}

// ObserveModel is Observe for a model's OnRound.
func (r *Recorder) ObserveModel(x foretoken.Round) { r.Observe(engine.Round(x)) }

// runner hands in whole batches and waits for their answers.
func (r *Recorder) runner(start starter) Runner {
	return func(ctx context.Context, batch []engine.Request) (*Run, error) {
		ctx, cancel := context.WithCancel(ctx) // a fault of one ends the others
		defer cancel()
		r.take()
		waits, err := r.begin(ctx, start, batch)
		if err != nil {
			return nil, err
		}
		run := &Run{Answers: make([]Answer, len(batch))}
		for i, wait := range waits {
			if run.Answers[i], err = wait(); err != nil {
				return nil, err
			}
		}
		run.Rounds = r.take()
		return run, nil
	}
}

// begin hands in a batch.
func (r *Recorder) begin(ctx context.Context, start starter, batch []engine.Request) ([]func() (Answer, error), error) {
	r.start.Lock()
	defer r.start.Unlock()
	waits := make([]func() (Answer, error), len(batch))
	for i := range batch {
		var err error
		if waits[i], err = start(ctx, &batch[i]); err != nil {
			return nil, err
		}
	}
	return waits, nil
}
