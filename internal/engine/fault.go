package engine

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
)

// ErrBroken is wrapped by the error for requests to an engine whose memory a fault has left
// in a state that cannot be trusted. It serves nothing more; the model must be opened again.
var ErrBroken = errors.New("engine: stopped by a fault, open the model again")

// Fault is the error of a sequence that was ended by a panic: a bug, ours or that of a model,
// a drafter, a grammar or an observer.
type Fault struct {
	What  any    // was panicked with
	Stack []byte // for the log; the text of the error is for whoever asked
}

func (f *Fault) Error() string { return fmt.Sprintf("engine: internal fault: %v", f.What) }

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
	var f *Fault
	if errors.As(err, &f) {
		e.o.Log.Error("a sequence ends with a fault", "error", err, "stack", string(f.Stack))
	}
}

// isolate deals with a round that went wrong. The states of all that were in it are
// undefined. One that was alone, or whose sampler has panicked, is to blame and ends. If
// nobody is known to be, all are restarted, each alone until it has caught up, so that those
// that are sound go on and the one that is not is found.
func (e *Engine) isolate(err error) {
	batch, found := slices.Clone(e.batch), false
	var stack []byte
	if f := (*Fault)(nil); errors.As(err, &f) {
		stack = f.Stack
	}
	for _, s := range batch {
		if s.fault == nil && (len(batch) == 1 || s.sampler.Broken()) {
			found = true
			if s.finish == "" {
				s.fault = err
			}
		}
	}
	if found {
		e.o.Log.Error("a sequence ends with a fault", "error", err, "stack", string(stack))
	} else {
		e.o.Log.Warn("a round of several sequences has failed; they go on one by one", "sequences", len(batch), "error", err, "stack", string(stack))
	}
	for _, s := range batch {
		if s.fault == nil && s.finish == "" {
			s.isolated = !found
			e.preempt(s)
		}
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
			e.waiting = slices.DeleteFunc(e.waiting, func(w *sequence) bool { return w == s })
		})
		list = append(list, s)
	}
	e.o.Log.Error("a fault outside of the model ends all sequences that run", "sequences", len(list), "error", f, "stack", string(f.Stack))
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
		e.o.Log.Error("memory is in use that no sequence has; no more requests are served", "bytes", m.Used, "states", m.States)
		e.locked(func() { e.broken = fmt.Errorf("%w: %w", ErrBroken, f) })
	}
}

// locked calls f with the mutex held, which a panic gives back.
func (e *Engine) locked(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}
