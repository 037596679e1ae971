package engine

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/state"
)

// isolate handles a failed round. The states of all its sequences are undefined. A sequence whose sampler panicked is at fault and
// ends, and so is one that was alone when the model or the drafter panicked. An error without a panic is the device's, maybe from
// work queued earlier: a sequence that was alone ends at the second error, and all others restart too. If no sequence is known to
// be at fault, each runs alone until it has caught up, so that the sound ones continue and the faulty one is found. On a lost
// device all end. See renew for one that has lost the contents of its memory.
func (e *Engine) isolate(err error) {
	if backend.Lost(err) {
		e.lose(err)
		return
	}
	if e.renew() {
		return
	}
	batch, found := slices.Clone(e.batch), false
	stack, panicked := stackOf(err)
	for _, s := range batch {
		alone := len(batch) == 1 && (panicked || s.isolated || s.background != nil)
		if s.fault == nil && (alone || s.sampler.Broken()) {
			found = true
			if s.finish == "" {
				s.fault = err
			}
		}
	}
	if found {
		e.o.Log.Error("a sequence ends with an internal error", "error", err, "stack", stack)
	} else {
		e.o.Log.Warn("a round failed; its sequences are retried one by one", "sequences", len(batch), "error", err, "stack", stack)
	}
	if !panicked || slices.ContainsFunc(batch, func(s *sequence) bool { return s.flying > 0 }) {
		e.restartAll(!found)
		return
	}
	for _, s := range batch {
		e.restart(s, !found)
	}
}

// restart has a running sequence begin again, unless it ends. It is fed alone if that is asked for, or after maxLosses.
func (e *Engine) restart(s *sequence, alone bool) {
	if s.fault == nil && s.finish == "" {
		s.isolated = alone || s.losses >= maxLosses
		e.preempt(s)
	}
}

// restartAll restarts everything that has memory, for any of it may be wrong: a device reports an
// error to the next blocking call, whichever sequence queued the work. That may be one outside
// of the round, such as one that was just opened and waits for the prompts of others.
func (e *Engine) restartAll(alone bool) {
	e.pipeline.discard()
	for _, s := range slices.Clone(e.running) {
		e.restart(s, alone)
	}
	if s := e.background.current; s != nil && !e.background.active {
		s.release()
	}
}

// maxLosses is how often the device may lose its memory while a sequence runs, without a token of it, before it is fed alone.
const maxLosses = 2

// renew makes a device usable again that has lost the contents of its memory, as one on a machine that has gone, and waits
// for it. Everything that was computed is dropped: all sequences restart, and the cache and the rows of images are
// emptied. It reports false if the device has lost nothing.
//
// A sequence may be the reason, as one that needs more memory than a machine has: after maxLosses it is fed alone, and ends if
// the contents are lost again. A background prefill is dropped at once.
func (e *Engine) renew() bool {
	device := e.pool.Device()
	lost, err := backend.Restore(device)
	switch {
	case err != nil:
		e.lose(err)
		return true
	case !lost:
		return false
	}
	e.o.Log.Warn("the device has lost its memory; all sequences start again", "device", device.Name(), "sequences", len(e.running))
	alone := slices.IndexFunc(e.running, func(s *sequence) bool { return s.isolated }) // no other was fed
	for i, s := range e.running {
		if s.losses++; i == alone && s.losses > maxLosses {
			s.fault = fmt.Errorf("engine: %s lost its memory %d times while this request ran, at last without others: its log has the reason", device.Name(), s.losses)
			e.o.Log.Error("a sequence ends", "error", s.fault)
		}
	}
	e.restartAll(false)
	if s := e.background.current; s != nil {
		e.endBackground(s)
	}
	if e.cache != nil {
		e.cache.Shrink(math.MaxInt64)
	}
	e.vision.close()
	return true
}

// lose ends everything: the device is lost. Sequences of the round end here, all others before the next.
func (e *Engine) lose(err error) {
	e.stop(err)
	for _, s := range e.batch {
		if s.fault == nil && s.finish == "" {
			s.fault = e.broken
		}
	}
}

// collapse handles a panic outside of a round's computation, in shared state: the queue, the cache, the account of memory. All
// running sequences end with an error, and the cache is emptied. Then no memory may be in use; if some is, the account is wrong, and
// the engine refuses everything from now on rather than hand out pages that are still in use.
func (e *Engine) collapse(f *Fault) {
	e.pipeline.discard()
	list := slices.Clone(e.running)
	if s := e.candidate; s != nil {
		e.candidate = nil
		e.locked(func() { e.waiting.Remove(func(w *sequence) bool { return w == s }) })
		list = append(list, s)
	}
	e.o.Log.Error("an internal error outside of the model ends all running sequences", "sequences", len(list), "error", f, "stack", string(f.Stack))
	for _, s := range list {
		if s.finish == "" && s.fault == nil {
			s.fault = f
		}
		e.end(s)
	}
	clear(e.running)
	e.running, e.batch, e.spans = e.running[:0], e.batch[:0], e.spans[:0]
	if s := e.background.current; s != nil {
		s.fault = f
		e.endBackground(s)
	}
	e.background.active = false
	e.blame(try(e.vision.close))
	if e.cache != nil {
		e.blame(try(e.cache.Close))
		e.openCache()
	}
	if m := e.pool.Stats(); m.Used != 0 || m.States != 0 {
		e.o.Log.Error("memory leak: memory is in use without a sequence", "bytes", m.Used, "states", m.States)
		e.stop(f)
	}
}

// suspectAll restarts all running sequences, and the pass for their images with them, if a step met a device error, which may come
// from work queued elsewhere. It reports false if the images are at fault: the error is not the device's, or it is a repeated one.
func (e *Engine) suspectAll(err error) bool {
	if e.renew() {
		return true
	}
	if !errors.Is(err, state.ErrFailed) || backend.Lost(err) || len(e.running) == 0 || slices.ContainsFunc(e.running, func(s *sequence) bool { return s.isolated }) {
		return false
	}
	e.o.Log.Warn("the device failed; all sequences are restarted, one by one", "error", err)
	e.restartAll(true)
	return true
}
