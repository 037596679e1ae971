// Package engine turns prompts into tokens by continuous batching and speculative decoding: one
// goroutine owns the model and its memory, and feeds every running sequence once per round.
// It deals in token ids; text, files and devices are elsewhere.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
)

var (
	// ErrClosed is returned for requests to an engine that no longer runs.
	ErrClosed = errors.New("engine: closed")
	// ErrBusy is returned for a request when Options.MaxQueue requests wait and its flow has its share of them.
	ErrBusy = errors.New("engine: too many requests are waiting")
	// ErrTooLarge is wrapped by the error for a request that the engine could never serve.
	ErrTooLarge = errors.New("engine: request is too large")
)

// RoundTokens is how many tokens a round feeds at most by default.
const RoundTokens = 512

// Options configure an Engine. The zero value is the default.
type Options struct {
	RoundTokens int           // maximum number of tokens fed in one round over all sequences; 0: the constant of that name
	MaxBatch    int           // maximum number of running sequences; 0: 16
	MaxQueue    int           // maximum number of waiting requests, above which each flow still has its share; 0: unlimited
	MaxRound    time.Duration // maximum time that a round should take while text is generated; 0: half as long again as without prompts
	Context     int           // maximum number of tokens of a sequence; 0: what the model was made for

	Cache bool         // have a prefix cache
	Disk  *prefix.Disk // and keep it on disk, for the next process; nil: not. The caller closes it after the engine
	// Shared is where other processes find it, and this one what they have stored; nil: nowhere. The caller closes it
	// after the engine.
	Shared *prefix.Shared
	// Observer hears which prefixes the cache can resume; nil: nobody does.
	Observer prefix.Observer

	// Tower makes the rows of pictures; nil: there are none. The engine is its only user.
	Tower       model.Tower
	TowerMemory int64 // maximum bytes of rows that are kept for the next request; 0: 256 MiB

	Drafter spec.Drafter // nil: no speculative decoding
	// Controller is what is known of costs and acceptance, as from a self-test; nil: nothing yet.
	// It belongs to the engine from New on.
	Controller *spec.Controller

	// Rehearse has a device prepare for rounds of all sizes before the first request: half a second of a GPU, which
	// rounds would otherwise wait for one after another.
	Rehearse bool

	Observe func(Round)  // called after every round, on the engine's goroutine; nil: nobody looks
	Broken  func(error)  // called once, on the engine's goroutine, when nothing is served any more: see ErrBroken; may be nil
	Log     *slog.Logger // of faults; nil: the default
}

// Engine runs requests on one model.
type Engine struct {
	model model.Model
	pool  *state.Pool
	cache *prefix.Cache // nil: none; the loop's, which locks the mutex to change it
	o     Options

	wake chan struct{} // a request has come, one was canceled, or the engine is to end
	done chan struct{} // closed when the loop has ended

	running  []*sequence  // in order of priority
	order    []*sequence  // the same, as a round found them
	batch    []*sequence  // that the running round feeds
	spans    []model.Span // of the batch
	choosing []*sequence  // of the batch, those that the pass gives tokens
	logits   spec.Logits  // of the pass, a group for each of them
	tally    tally        // of the batch
	phases   Phases       // of the running round
	drafting drafting
	left     int // tokens that it can still be fed
	pace     pace
	share    share
	sight    sight

	candidate  *sequence   // that is being admitted
	admissions uint64      // sequences that were admitted for the first time
	asked      []*sequence // scratch space of leaving
	unseen     bool        // an observer's fault was logged

	mu            sync.Mutex // protects what follows
	waiting       queue
	background    background
	conversations map[string]int // requests that have not ended, by conversation
	broken        error          // why nothing is served any more
	draining      bool           // no requests are taken
	closed        bool           // and those that run are ended
	stats         Stats
}

// New starts an engine. It is the only user of the pool and the model until Close.
func New(m model.Model, p *state.Pool, o Options) (*Engine, error) {
	if o.RoundTokens < 0 || o.MaxBatch < 0 || o.MaxQueue < 0 || o.MaxRound < 0 || o.Context < 0 {
		return nil, fmt.Errorf("engine: negative limit in %+v", o)
	}
	if o.RoundTokens == 0 {
		o.RoundTokens = RoundTokens
	}
	if o.MaxBatch == 0 {
		o.MaxBatch = 16
	}
	if o.Context == 0 {
		o.Context = m.Info().Context
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	e := &Engine{model: m, pool: p, o: o, wake: make(chan struct{}, 1), done: make(chan struct{}), conversations: map[string]int{}}
	if err := e.rehearse(); err != nil { // before anything is there to close
		return nil, err
	}
	e.sight = newSight(o.Tower, p.Device(), o.TowerMemory)
	e.drafting.device = p.Device()
	e.openCache()
	if o.Controller != nil {
		e.drafting.controller = *o.Controller
	}
	e.pace.cost = e.cost()
	go e.loop()
	return e, nil
}

// Generate starts a request. The stream must be read to its end, or ctx canceled.
func (e *Engine) Generate(ctx context.Context, r Request) (*Stream, error) {
	s, err := e.accept(r)
	if err != nil {
		return nil, err
	}
	// A sequence that waits, or that is left out of rounds, is dropped at once as well. The context is
	// code of the caller, which may call the engine: the mutex is not held.
	s.ctx, s.unwatch = ctx, context.AfterFunc(ctx, e.signal)
	if err := e.enqueue(s); err != nil {
		s.unwatch()
		return nil, err
	}
	e.signal()
	return &s.stream, nil
}

// enqueue has a request wait, or returns why it is refused.
func (e *Engine) enqueue(s *sequence) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.refusal(); err != nil {
		return err
	}
	if e.waiting.full(s.req.Flow, e.o.MaxQueue) {
		return ErrBusy
	}
	e.waiting.add(s)
	if key := s.req.Conversation; key != "" {
		e.conversations[key]++
		e.dropBackground(key)
	}
	return nil
}

// refusal is why nothing is accepted anymore, or nil. The mutex is held.
func (e *Engine) refusal() error {
	if e.draining {
		return ErrClosed
	}
	return e.broken
}

// accept is the sequence of a request that can be served.
func (e *Engine) accept(r Request) (*sequence, error) {
	s, err := newSequence(r, e.model.Info(), e.o.Context)
	if err == nil && len(r.Inputs) > 0 && e.o.Tower == nil {
		err = errNoTower
	}
	if err == nil {
		err = e.fit(s)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Drain takes no more requests and returns when all have ended, or ctx has, whose error it
// then returns. Background prefills are dropped. Close must follow.
func (e *Engine) Drain(ctx context.Context) error {
	e.mu.Lock()
	e.draining = true
	e.mu.Unlock()
	e.signal()
	select {
	case <-e.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends all sequences with ErrClosed and returns when the loop has ended. All states are then back in the pool,
// and the memory of the model's calls is released. The pool keeps its pages: another engine on the same pool uses
// them again, and closing the backend frees them. The model may be closed afterwards.
func (e *Engine) Close() {
	e.mu.Lock()
	e.draining, e.closed = true, true
	e.mu.Unlock()
	e.signal()
	<-e.done
}

// signal wakes the loop.
func (e *Engine) signal() {
	select {
	case e.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// loop goes on until the engine is to end.
func (e *Engine) loop() {
	defer close(e.done)
	for e.step() {
	}
	e.tidyBackground() // one may have come after the last look and before the end was known
	if err := try(e.sight.close); err != nil {
		e.blame(err)
	}
	if e.cache != nil {
		if err := try(e.cache.Close); err != nil {
			e.blame(err)
		}
	}
	// Rounds of another engine have other sizes: what a device has recorded of these would stay for as long as the model does.
	if err := try(e.model.Release); err != nil {
		e.blame(err)
	}
}

// step admits requests, then computes a round, or a chunk of a background prefill, or sleeps
// when there is nothing to do. It reports false when the engine is to end.
func (e *Engine) step() (more bool) {
	defer func() {
		if p := recover(); p != nil {
			e.collapse(newFault(p))
			more = true
		}
	}()
	if !e.admit() {
		return false
	}
	switch {
	case len(e.running) > 0:
		e.look()
		e.round()
	case e.prefillBackground():
	default:
		<-e.wake
	}
	return true
}
