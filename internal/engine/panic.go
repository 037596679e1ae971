package engine

import (
	"errors"
	"fmt"

	"github.com/foretoken/foretoken/internal/rescue"
)

// Fault is the error of a sequence that was ended by a panic: a bug, ours or that of a model,
// a drafter, a grammar or an observer.
type Fault struct{ rescue.Panic }

// Error is the text for the client. It has no stack, which is for the log.
func (f *Fault) Error() string { return fmt.Sprintf("engine: internal error: %v", f.What) }

func newFault(what any) *Fault { return &Fault{*rescue.New(what)} }

// caught makes a panic an error, where it is deferred.
func caught(err *error) {
	if p := recover(); p != nil {
		*err = newFault(p)
	}
}

// try calls f and returns its panic as an error.
func try(f func()) (err error) {
	defer caught(&err)
	f()
	return nil
}

// stackOf is the stack of a fault, and whether err is one.
func stackOf(err error) (stack string, fault bool) {
	var f *Fault
	if errors.As(err, &f) {
		return string(f.Stack), true
	}
	return "", false
}
