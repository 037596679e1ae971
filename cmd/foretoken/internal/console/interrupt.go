package console

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/foretoken/foretoken/internal/rescue"
)

// UnlessInterrupted does work. When ctx ends first it returns ErrInterrupted at once, and
// leaves the work to the end of the process.
func UnlessInterrupted[T any](ctx context.Context, work func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		r.err = rescue.Do(func() (err error) {
			r.value, err = work()
			return err
		})
		done <- r
	}()
	select {
	case <-ctx.Done():
		var none T
		return none, ErrInterrupted
	case r := <-done:
		if errors.Is(r.err, context.Canceled) {
			r.err = ErrInterrupted
		}
		return r.value, r.err
	}
}

// ErrInterrupted ends a command that was interrupted. The output so far has been printed.
var ErrInterrupted = errors.New("interrupted")

// Interruptible returns a context that Ctrl-C and SIGTERM cancel.
// A second signal has its usual effect, for a program that does not end; commands
// without such a context end at the first.
func Interruptible(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
