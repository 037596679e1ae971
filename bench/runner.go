package bench

import (
	"context"
	"slices"
	"sync"

	"github.com/foretoken/foretoken/engine"
	"github.com/foretoken/foretoken/spec"
)

// Runner answers requests, all at once, and says what it took.
type Runner func(ctx context.Context, batch []engine.Request) (*Run, error)

// Run is what came of a batch of requests.
type Run struct {
	Answers []Answer
	Rounds  []engine.Round // of all of them
}

// Answer is what came of one.
type Answer struct {
	Tokens  []int32
	Hash    uint64 // of the logits, if that was asked for
	Receipt spec.Receipt
}

// Recorder keeps the rounds of an engine, for which its Observe is to be that of the
// engine's options.
type Recorder struct {
	mu     sync.Mutex // protects what follows
	rounds []engine.Round
}

// Observe takes in a round.
func (r *Recorder) Observe(x engine.Round) {
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

// On is the runner for the engine that is observed. Nobody else may use the engine meanwhile.
func (r *Recorder) On(e *engine.Engine) Runner {
	return func(ctx context.Context, batch []engine.Request) (*Run, error) {
		ctx, cancel := context.WithCancel(ctx) // a fault of one ends the others
		defer cancel()
		r.take()
		streams := make([]*engine.Stream, len(batch))
		for i := range batch {
			var err error
			if streams[i], err = e.Generate(ctx, batch[i]); err != nil {
				return nil, err
			}
		}
		run := &Run{Answers: make([]Answer, len(batch))}
		for i, s := range streams {
			a := &run.Answers[i]
			for t, err := range s.Tokens() {
				if err != nil {
					return nil, err
				}
				a.Tokens = append(a.Tokens, t.ID)
			}
			result := s.Result()
			a.Hash, a.Receipt = result.LogitsHash, result.Receipt
		}
		run.Rounds = r.take()
		return run, nil
	}
}
