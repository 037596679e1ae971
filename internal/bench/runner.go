package bench

import (
	"context"
	"slices"
	"sync"

	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/spec"
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

// On is the runner for the engine that is observed. Nobody else may use the engine meanwhile.
func (r *Recorder) On(e *engine.Engine) Runner {
	return func(ctx context.Context, batch []engine.Request) (*Run, error) {
		ctx, cancel := context.WithCancel(ctx) // a fault of one ends the others
		defer cancel()
		r.take()
		streams, err := r.begin(ctx, e, batch)
		if err != nil {
			return nil, err
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
			a.Hash, a.Stats = result.LogitsHash, result.Speculation
		}
		run.Rounds = r.take()
		return run, nil
	}
}

// begin hands in a batch.
func (r *Recorder) begin(ctx context.Context, e *engine.Engine, batch []engine.Request) ([]*engine.Stream, error) {
	r.start.Lock()
	defer r.start.Unlock()
	streams := make([]*engine.Stream, len(batch))
	for i := range batch {
		var err error
		if streams[i], err = e.Generate(ctx, batch[i]); err != nil {
			return nil, err
		}
	}
	return streams, nil
}
