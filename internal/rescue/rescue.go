// Package rescue keeps a panic of one request, or of one model, from ending a process that has
// others. It knows nothing of either.
package rescue

import (
	"fmt"
	"runtime/debug"
)

// Panic is the error for a panic that was recovered. The first line of its text says what it was; the stack is behind it,
// for the log.
type Panic struct {
	What  any // was panicked with
	Stack []byte
}

func (p *Panic) Error() string { return fmt.Sprintf("panic: %v\n%s", p.What, p.Stack) }

// New is the Panic for what was just recovered. One that is raised again, as on another goroutine, stays as it is.
func New(what any) *Panic {
	if p, ok := what.(*Panic); ok {
		return p
	}
	return &Panic{What: what, Stack: debug.Stack()}
}

// Error is New as an error.
func Error(p any) error { return New(p) }

// To is deferred in every goroutine that touches a request or a model, and makes an error of a
// panic.
func To(err *error) {
	if p := recover(); p != nil {
		*err = Error(p)
	}
}

// Do does work and returns its error, or its panic as one.
func Do(work func() error) (err error) {
	defer To(&err)
	return work()
}
