// Package engine turns prompts into tokens, many at a time: one goroutine owns the network
// and the memory, and feeds every running sequence once per round. It deals in token ids;
// text, files and devices are elsewhere.
package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/foretoken/foretoken/model"
	"github.com/foretoken/foretoken/spec"
	"github.com/foretoken/foretoken/state"
)

// ErrClosed is returned for requests to an engine that no longer runs.
var ErrClosed = errors.New("engine: closed")

// errNoNumber is what comes of damaged weights.
var errNoNumber = errors.New("engine: the network's output is not a number; the weights or the memory are damaged")

// Options configure an Engine. The zero value is the default.
type Options struct {
	RoundTokens int // most tokens fed in one round over all sequences; 0: 512
	MaxBatch    int // most sequences fed in one round; 0: 16
	Context     int // most tokens of a sequence; 0: what the model was made for

	Drafter spec.Drafter // guesses tokens; nil: none
	// Controller is what is known of costs and guesses, as from SelfTest; nil: nothing yet.
	// It belongs to the engine from New on.
	Controller *spec.Controller
}

// Engine runs requests on one model.
type Engine struct {
	model model.Model
	pool  *state.Pool
	o     Options

	wake chan struct{} // a request has come, or Close was called
	done chan struct{} // closed when the loop has ended

	// Of the running round.
	fed   []*sequence
	spans []model.Span
	draft drafting

	mu      sync.Mutex // protects what follows
	waiting []*sequence
	closed  bool
}

// New starts an engine. It owns the pool and is the model's only user until Close.
func New(m model.Model, p *state.Pool, o Options) (*Engine, error) {
	if o.RoundTokens < 0 || o.MaxBatch < 0 || o.Context < 0 {
		return nil, fmt.Errorf("engine: negative limit in %+v", o)
	}
	if o.RoundTokens == 0 {
		o.RoundTokens = 512
	}
	if o.MaxBatch == 0 {
		o.MaxBatch = 16
	}
	if o.Context == 0 {
		o.Context = m.Info().Context
	}
	e := &Engine{model: m, pool: p, o: o, wake: make(chan struct{}, 1), done: make(chan struct{})}
	if o.Controller != nil {
		e.draft.Controller = *o.Controller
	}
	go e.loop()
	return e, nil
}

// Close ends all sequences with ErrClosed and returns when the loop has ended. The model
// and the pool may be closed afterwards.
func (e *Engine) Close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.nudge()
	<-e.done
}

// Generate starts a request. The stream must be read to its end, or ctx cancelled.
func (e *Engine) Generate(ctx context.Context, r Request) (*Stream, error) {
	s, err := newSequence(ctx, r, e.model.Info(), e.o.Context)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, ErrClosed
	}
	e.waiting = append(e.waiting, s)
	e.nudge()
	return &s.stream, nil
}

func (e *Engine) nudge() {
	select {
	case e.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// loop admits, rounds, and sleeps when there is nothing to do.
func (e *Engine) loop() {
	defer close(e.done)
	var running []*sequence
	for {
		var open bool
		running, open = e.admit(running)
		if !open {
			for _, s := range running {
				e.end(s, ErrClosed)
			}
			return
		}
		if len(running) == 0 {
			<-e.wake
			continue
		}
		running = e.round(running)
	}
}

// admit drops cancelled sequences and takes in waiting ones. It reports false when the
// engine is closed; everything waiting is then part of the result.
func (e *Engine) admit(running []*sequence) ([]*sequence, bool) {
	kept := running[:0]
	for _, s := range running {
		if err := s.ctx.Err(); err != nil {
			e.end(s, err)
			continue
		}
		kept = append(kept, s)
	}
	running = kept
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.waiting) > 0 && (e.closed || len(running) < e.o.MaxBatch) {
		s := e.waiting[0]
		e.waiting = e.waiting[1:]
		if !e.closed {
			if err := e.open(s); err != nil {
				e.end(s, err)
				continue
			}
		}
		running = append(running, s)
	}
	return running, !e.closed
}

// open gives a sequence its memory.
func (e *Engine) open(s *sequence) error {
	var err error
	s.started = time.Now()
	if s.target, err = e.pool.Open(e.model.Layout()); err != nil {
		return err
	}
	if d := e.o.Drafter; d != nil && s.req.Depth != 0 {
		s.memory, err = e.pool.Open(d.Layout())
		s.record.Drafter, s.record.Rule = d.Name(), s.req.Rule
	}
	return err
}

// end gives a sequence's memory back and closes its stream.
func (e *Engine) end(s *sequence, err error) {
	for _, m := range []*state.State{s.target, s.memory} {
		if m != nil {
			m.Close()
		}
	}
	s.target, s.memory = nil, nil
	e.draft.Settle(&s.record.Receipt)
	s.stream.close(s.result(), err)
}

// round feeds every sequence once: a prompt's chunk, a token, a token with guesses differ
// only in the span. It returns the sequences that go on.
func (e *Engine) round(batch []*sequence) []*sequence {
	if err := e.forward(batch); err != nil {
		for _, s := range e.fed { // their memories are undefined now
			s.fault = err
		}
	}
	kept := batch[:0]
	for _, s := range batch {
		switch {
		case s.fault != nil:
			e.end(s, s.fault)
		case s.finish != "":
			e.end(s, nil)
		default:
			kept = append(kept, s)
		}
	}
	clear(batch[len(kept):])
	return kept
}

// forward feeds spans of the batch and verifies what came out. A panic below becomes an
// error: it ends the sequences of this round, not the engine.
func (e *Engine) forward(batch []*sequence) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("engine: %v\n%s", p, debug.Stack())
		}
	}()
	e.fed, e.spans = e.fed[:0], e.spans[:0]
	budget := e.o.RoundTokens
	for _, s := range batch {
		span := s.span(budget)
		if len(span.Tokens) == 0 {
			continue
		}
		if s.fault = s.target.Reserve(len(span.Tokens)); s.fault != nil {
			continue
		}
		budget -= len(span.Tokens)
		e.fed, e.spans = append(e.fed, s), append(e.spans, span)
	}
	if len(e.spans) == 0 {
		return nil
	}
	start := time.Now()
	out, err := e.model.Forward(e.spans)
	if err != nil {
		return err
	}
	e.draft.begin()
	first := 0
	for i, s := range e.fed {
		n := len(e.spans[i].Tokens) - e.spans[i].Guesses
		if e.spans[i].Want > 0 {
			held := s.advance(out.Logits[i])
			e.draft.Held(&s.record, e.spans[i].Guesses, held)
			s.record.Count(e.spans[i].Guesses, held)
			n += held
		}
		e.draft.add(s, out.Hidden, first, n)
		first += len(e.spans[i].Tokens)
	}
	e.draft.verified(e.fed, e.spans, time.Since(start))
	return e.draft.run(e.o.Drafter)
}

// advance takes the guesses that hold and the token after them into the text. It returns
// how many guesses hold.
func (s *sequence) advance(logits [][]float32) int {
	held, next := s.req.Rule.Verify(s.sampler, s.draft, logits)
	if next < 0 {
		s.fault = errNoNumber
		return 0
	}
	s.target.Keep(held)
	for i := range held + 1 {
		id := next
		if i < held {
			id = s.draft.Tokens[i]
		}
		if !s.append(id, logits[i]) {
			break
		}
	}
	return held
}
