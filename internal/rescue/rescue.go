// Package rescue keeps a panic of one request, or of one model, from ending a process that has
// others. It knows nothing of either.
package rescue

import (
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"runtime/debug"
)

// Panic is the error for a panic that was recovered. Its text is one sentence, for the user; the stack is for the log.
type Panic struct {
	What  any // was panicked with
	Stack []byte
}

func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.What) }

// New is the Panic for what was just recovered. One that is raised again, as on another goroutine, stays as it is.
func New(what any) *Panic {
	if p, ok := what.(*Panic); ok {
		return p
	}
	return &Panic{What: what, Stack: debug.Stack()}
}

// Stack is the stack of the panic that err comes from, empty if it comes from none.
func Stack(err error) string {
	var p *Panic
	if errors.As(err, &p) {
		return string(p.Stack)
	}
	return ""
}

// Attr has a log show the stack of an error behind its text. It is for slog.HandlerOptions.ReplaceAttr.
func Attr(_ []string, a slog.Attr) slog.Attr {
	if err, ok := a.Value.Any().(error); ok {
		if stack := Stack(err); stack != "" {
			a.Value = slog.StringValue(err.Error() + "\n" + stack)
		}
	}
	return a
}

// To is deferred in every goroutine that touches a request or a model, and makes an error of a
// panic.
func To(err *error) {
	if p := recover(); p != nil {
		*err = New(p)
	}
}

// Do does work and returns its error, or its panic as one.
func Do(work func() error) (err error) {
	defer To(&err)
	return work()
}

// Seq yields what seq yields, and last an error if seq panics. A panic of the loop that ranges over it is
// the loop's own.
func Seq[T any](seq iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		looping := false // yield runs
		err := func() (err error) {
			defer func() {
				if looping {
					return
				}
				if p := recover(); p != nil {
					err = New(p)
				}
			}()
			seq(func(v T, err error) bool {
				looping = true
				more := yield(v, err)
				looping = false
				return more
			})
			return nil
		}()
		if err != nil {
			var none T
			yield(none, err)
		}
	}
}
