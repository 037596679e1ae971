// Package console has the streams of a command: input and output, which of them is a terminal,
// progress bars, the log of packages below it, and interruption.
package console

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/foretoken/foretoken/internal/plot"
)

// Step announces the next step on standard error.
func (c *Console) Step(what string) { c.Remark(what + " …") }

// maxInput is the maximum size of a text from a file or a pipe, in bytes.
const maxInput = 64 << 20

// Console is the input and output of a command, and which of it is a terminal.
type Console struct {
	In       io.Reader
	Out, Err io.Writer

	InTerminal, OutTerminal, ErrTerminal bool
	Plain                                bool // no colors, though it be a terminal
}

func New(cmd *cobra.Command) *Console {
	c := &Console{In: cmd.InOrStdin(), Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr()}
	c.InTerminal, c.OutTerminal, c.ErrTerminal = isTerminal(c.In), isTerminal(c.Out), isTerminal(c.Err)
	c.Plain = os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb"
	return c
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Piped reports whether something was piped or redirected into the command: neither a
// terminal nor another device such as /dev/null.
func (c *Console) Piped() bool {
	f, ok := c.In.(*os.File)
	if !ok {
		return c.In != nil
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice == 0
}

// ReadText reads a text to its end, without the line break that ends its last line.
func (c *Console) ReadText() (string, error) {
	data, err := ReadAll(c.In, "standard input")
	text := strings.TrimSuffix(string(data), "\n")
	return strings.TrimSuffix(text, "\r"), err
}

// ReadAll reads r, which is called name in errors, up to maxInput.
func ReadAll(r io.Reader, name string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	case len(data) > maxInput:
		return nil, fmt.Errorf("%s: more than %d bytes", name, maxInput)
	}
	return data, nil
}

// Remark writes a line about the work to standard error, faint if that is possible.
func (c *Console) Remark(line string) {
	if c.ErrTerminal && !c.Plain {
		line = Faint(line)
	}
	Tell(c.Err, line+"\n")
}

// Tell writes to standard error. Errors of that cannot be reported.
func Tell(w io.Writer, text string) { _, _ = io.WriteString(w, text) }

// Faint is text in a faint color.
func Faint(text string) string { return "\x1b[2m" + text + "\x1b[0m" }

// Print writes a model's text to standard output. On a terminal it removes
// control characters: the output of a model must not move the cursor or worse.
func (c *Console) Print(text string) error {
	if c.OutTerminal {
		text = Printable(text)
	}
	return c.Write(text)
}

// Write writes text of our own to standard output.
func (c *Console) Write(text string) error {
	if text == "" {
		return nil
	}
	if _, err := io.WriteString(c.Out, text); err != nil {
		return &OutputError{Err: err}
	}
	return nil
}

// Printable is text without control characters other than line breaks and tabs.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
}

// OutputError distinguishes a fault of standard output from one of the model.
type OutputError struct{ Err error }

func (e *OutputError) Error() string { return "standard output: " + e.Err.Error() }

func (e *OutputError) Unwrap() error { return e.Err }

// IsOutputError reports whether err came from writing.
func IsOutputError(err error) bool {
	var e *OutputError
	return errors.As(err, &e)
}

// PlotStyle is the style for standard output: bars in ASCII unless it is a terminal that is not
// dumb, and colors only if they are enabled.
func (c *Console) PlotStyle() plot.Style {
	s := plot.Style{ASCII: !c.OutTerminal || os.Getenv("TERM") == "dumb", Color: c.OutTerminal && !c.Plain}
	if out, ok := c.Out.(*os.File); ok && c.OutTerminal {
		if width, _, err := term.GetSize(int(out.Fd())); err == nil && width > 0 {
			s.Width = min(width, 100)
		}
	}
	return s
}
