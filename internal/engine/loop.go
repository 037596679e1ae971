package engine

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/engine/schedule"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/state"
)

// New starts an engine. It is the only user of the pool and the model until Close.
func New(m model.Model, p *state.Pool, o Options) (*Engine, error) {
	if o.RoundTokens < 0 || o.MaxBatch < 0 || o.MaxQueue < 0 || o.MaxRound < 0 || o.Context < 0 {
		return nil, fmt.Errorf("engine: negative limit in %+v", o)
	}
	o.RoundTokens, o.MaxBatch = cmp.Or(o.RoundTokens, RoundTokens), cmp.Or(o.MaxBatch, 16)
	o.Context, o.Log = cmp.Or(o.Context, m.Info().Context), cmp.Or(o.Log, slog.Default())
	e := &Engine{model: m, pool: p, o: o, shadow: shadow{Shadow: o.Shadow}, wake: make(chan struct{}, 1), done: make(chan struct{}), conversations: map[string]int{}}
	if o.Controller != nil {
		e.drafting.controller = *o.Controller
	}
	if err := e.openParts(); err != nil {
		return nil, err
	}
	if err := e.rehearse(); err != nil { // before anything is there to close
		return nil, err
	}
	e.openPipeline()
	e.vision = newVisionQueue(o.Tower, p.Device(), o.TowerMemory)
	e.drafting.device = p.Device()
	e.openCache()
	e.sched = schedule.Scheduler[*sequence]{RoundTokens: o.RoundTokens, MaxRound: o.MaxRound, Cost: e.cost()}
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
	if e.waiting.Full(s.req.Flow, e.o.MaxQueue) {
		return ErrBusy
	}
	e.waiting.Add(s)
	if key := s.req.Conversation; key != "" {
		e.conversations[key]++
		e.dropBackground(key)
	}
	return nil
}

// Drain refuses new requests and returns when all have ended, or ctx has, whose error it
// then returns. Background prefills are dropped. Close must follow.
func (e *Engine) Drain(ctx context.Context) error {
	e.locked(func() { e.draining = true })
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
	e.locked(func() { e.draining, e.closed = true, true })
	e.signal()
	<-e.done
}

// loop runs until the engine is to end.
func (e *Engine) loop() {
	defer close(e.done)
	for e.step() {
	}
	e.tidyBackground() // one may have come after the last check and before the end was known
	e.blame(try(e.vision.close))
	if e.cache != nil {
		e.blame(try(e.cache.Close))
	}
	// Rounds of another engine have other sizes: the device would keep the recorded passes for as long as the model.
	e.blame(try(e.model.Release))
}

// step admits requests, then computes a round, or a chunk of a background prefill, or sleeps
// when there is nothing to do, until the device is lost or a request comes. It reports false when the engine is to end.
func (e *Engine) step() (more bool) {
	defer func() {
		if p := recover(); p != nil {
			e.collapse(newFault(p))
			more = true
		}
	}()
	if len(e.pipeline.flying) == 0 {
		e.renew()
	}
	if !e.admit() {
		return false
	}
	switch {
	case len(e.running) > 0:
		e.runTower()
		e.round()
	case e.prefillBackground():
	default:
		ctx, stop := context.WithCancel(context.Background())
		if e.broken == nil { // otherwise a lost device stays so
			backend.WhenLost(ctx, e.pool.Device(), e.signal)
		}
		<-e.wake
		stop()
	}
	return true
}
