package engine

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
)

// ErrBroken is wrapped by the error for requests to an engine that serves nothing more: its device
// is lost, or a fault has left its memory in a state that cannot be trusted. The model must be
// opened again, on a lost device by another process.
var ErrBroken = errors.New("engine: stopped by an internal error: open the model again")

// Fault is the error of a sequence that was ended by a panic: a bug, ours or that of a model,
// a drafter, a grammar or an observer.
type Fault struct {
	What  any    // was panicked with
	Stack []byte // for the log; the text of the error is for whoever asked
}

func (f *Fault) Error() string { return fmt.Sprintf("engine: internal error: %v", f.What) }

func newFault(what any) *Fault { return &Fault{What: what, Stack: debug.Stack()} }

// caught makes a panic an error, where it is deferred.
func caught(err *error) {
	if p := recover(); p != nil {
		*err = newFault(p)
	}
}

// try calls f and returns what it panicked with.
func try(f func()) (err error) {
	defer caught(&err)
	f()
	return nil
}

// blame logs what ended a sequence. Errors that are no faults are for its reader alone.
func (e *Engine) blame(err error) {
	if err == nil {
		return
	}
	if backend.Lost(err) {
		e.stop(err)
	}
	if stack, fault := stackOf(err); fault {
		e.o.Log.Error("a sequence ends with an internal error", "error", err, "stack", stack)
	}
}

// isolate deals with a round that went wrong. The states of all that were in it are
// undefined. One whose sampler has panicked is to blame and ends, and so is one that was alone when
// the model or the drafter has. An error without a panic is the device's, and maybe of what others
// have queued before: one that was alone ends when it comes again, and all others restart too. If
// nobody is known to be to blame, each is alone until it has caught up, so that those that are sound
// go on and the one that is not is found. On a lost device all end.
func (e *Engine) isolate(err error) {
	if backend.Lost(err) {
		e.lose(err)
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
	if !panicked {
		e.restartAll(!found)
		return
	}
	for _, s := range batch {
		e.restart(s, !found)
	}
}

// stackOf is the stack of a fault, and whether err is one.
func stackOf(err error) (stack string, fault bool) {
	var f *Fault
	if errors.As(err, &f) {
		return string(f.Stack), true
	}
	return "", false
}

// restart has a running sequence begin again, alone or not, unless it ends.
func (e *Engine) restart(s *sequence, alone bool) {
	if s.fault == nil && s.finish == "" {
		s.isolated = alone
		e.preempt(s)
	}
}

// restartAll restarts everything that has memory, for any of it may be wrong: a device tells the
// next who waits that something has failed, whoever has queued it. That may be one that is not in the
// round, as one that was just opened and waits for the prompts of others.
func (e *Engine) restartAll(alone bool) {
	for _, s := range slices.Clone(e.running) {
		e.restart(s, alone)
	}
	if s := e.background.current; s != nil && !e.background.active {
		s.release()
	}
}

// lose ends everything: the device is lost. Those that were in the round end here, all others before
// the next.
func (e *Engine) lose(err error) {
	e.stop(err)
	for _, s := range e.batch {
		if s.fault == nil && s.finish == "" {
			s.fault = e.broken
		}
	}
}

// stop has the engine refuse everything from now on, and tells why, once.
func (e *Engine) stop(err error) {
	if e.broken != nil {
		return
	}
	e.locked(func() { e.broken = fmt.Errorf("%w: %w", ErrBroken, err) })
	e.o.Log.Error("no more requests are served", "error", err, "running", len(e.running))
	if e.o.Broken == nil {
		return
	}
	if err := try(func() { e.o.Broken(e.broken) }); err != nil {
		e.blame(err)
	}
}

// collapse deals with a panic outside of a round's computation, in what all sequences share:
// the queue, the cache, the account of memory. All that run end with an error, and the cache
// is emptied. Then no memory may be in use; if some is, the account is wrong, and the engine
// refuses everything from now on rather than hand out pages that are still in use.
func (e *Engine) collapse(f *Fault) {
	list := slices.Clone(e.running)
	if s := e.candidate; s != nil {
		e.candidate = nil
		e.locked(func() {
			e.waiting.remove(func(w *sequence) bool { return w == s })
		})
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
	if err := try(e.sight.close); err != nil {
		e.blame(err)
	}
	if e.cache != nil {
		if err := try(e.cache.Close); err != nil {
			e.blame(err)
		}
		e.openCache()
	}
	if m := e.pool.Stats(); m.Used != 0 || m.States != 0 {
		e.o.Log.Error("memory leak: memory is in use without a sequence", "bytes", m.Used, "states", m.States)
		e.stop(f)
	}
}

// locked calls f with the mutex held, which a panic gives back.
func (e *Engine) locked(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}
