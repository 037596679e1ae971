// Command foretoken runs language models: as a chat, for one answer, from a script, as a server,
// or on files of requests.
//
// It knows flags, the environment, the terminal and how the packages of this module fit
// together. The packages know how a model computes, how a token is chosen and how a prompt
// is made.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
)

// Exit codes.
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
		console.Tell(stderr, console.Printable(fmt.Sprintf("foretoken: %v\n", err)))
	case exitUsage:
		console.Tell(stderr, console.Printable(fmt.Sprintf("foretoken: %v\nTry '%s --help'.\n", err, cmd.CommandPath())))
	}
	return code
}

// exitCode is the exit code for a command's error.
func exitCode(err error) int {
	var usage *flags.UsageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, console.ErrInterrupted):
		return exitInterrupted
	case errors.As(err, &usage):
		return exitUsage
	default:
		return exitError
	}
}
