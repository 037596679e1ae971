// Command foretoken runs language models: as a chat, for one answer, from a script, as a server,
// or on files of requests.
//
// It knows flags, the environment, the terminal and how the packages of this module fit
// together. What a model computes, how a token is chosen and what a prompt looks like is
// theirs.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// What the program says to its caller.
const (
	exitOK          = 0
	exitError       = 1
	exitUsage       = 2
	exitInterrupted = 130 // as shells report a command ended by Ctrl-C
)

func main() {
	boundGarbage()
	os.Exit(execute(context.Background(), newRootCommand(), os.Stderr))
}

// execute runs the command and prints its error, if any, once. It returns the exit code. The
// error may have words of a checkpoint in it, such as its template's, which are not to steer a
// terminal.
func execute(ctx context.Context, root *cobra.Command, stderr io.Writer) int {
	cmd, err := root.ExecuteContextC(ctx)
	code := exitCode(err)
	switch code {
	case exitError:
		tell(stderr, printable(fmt.Sprintf("foretoken: %v\n", err)))
	case exitUsage:
		tell(stderr, printable(fmt.Sprintf("foretoken: %v\nTry '%s --help'.\n", err, cmd.CommandPath())))
	}
	return code
}

// errInterrupted ends a command that was told to stop. What there was has been printed.
var errInterrupted = errors.New("interrupted")

// usageError is a mistake in what the user typed.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// usagef is a usageError with a message.
func usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

// exitCode is the exit code for a command's error.
func exitCode(err error) int {
	var usage *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	case errors.As(err, &usage):
		return exitUsage
	default:
		return exitError
	}
}

// interruptible returns a context that Ctrl-C cancels, and so does being told to end by the system.
// A second signal has its usual effect, for a program that does not come to its end; commands
// without such a context end at the first.
func interruptible(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
