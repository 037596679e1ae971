package flags

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"
)

// UsageError is an error of the command line.
type UsageError struct{ err error }

func (e *UsageError) Error() string { return e.err.Error() }

func (e *UsageError) Unwrap() error { return e.err }

// Usage is err as an error of the command line.
func Usage(err error) error { return &UsageError{err} }

// Usagef is a UsageError with a message.
func Usagef(format string, args ...any) error { return Usage(fmt.Errorf(format, args...)) }

// KnownCommand refuses unknown commands.
func KnownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return Usagef("unknown command %q; did you mean %s?", args[0], strings.Join(near, " or "))
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return Usagef("unknown command %q; the commands are %s", args[0], strings.Join(names, ", "))
}

// NoArguments refuses everything but flags.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usagef("%s takes no argument, but there is %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// KeyVariable names the variable with the API key, which a command line would show to all users of a machine.
const KeyVariable = "FORETOKEN_API_KEY"

// Loopback reports whether an address can be reached from this machine only.
func Loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
