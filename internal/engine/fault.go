package engine

import (
	"errors"
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
)

// ErrBroken is wrapped by the error for requests to an engine that serves nothing more: its device
// is lost, or a fault has left its memory in a state that cannot be trusted. The model must be
// opened again, on a lost device by another process.
var ErrBroken = errors.New("engine: stopped by an internal error: open the model again")

// blame logs the fault that ended a sequence, or a panic; err may be nil. Other errors are only for its reader.
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

// stop makes the engine refuse everything from now on, and reports why, once.
func (e *Engine) stop(err error) {
	if e.broken != nil {
		return
	}
	e.locked(func() { e.broken = fmt.Errorf("%w: %w", ErrBroken, err) })
	e.o.Log.Error("no more requests are served", "error", err, "running", len(e.running))
	if e.o.Broken != nil {
		e.blame(try(func() { e.o.Broken(e.broken) }))
	}
}
