// Package rescue keeps a panic of one request, or of one model, from ending a process that has
// others. It knows nothing of either.
package rescue

import (
	"fmt"
	"runtime/debug"
)

// Error is the error for a panic that was just recovered. The first line says what it was; the
// stack is behind it, for the log.
func Error(p any) error { return fmt.Errorf("panic: %v\n%s", p, debug.Stack()) }

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
