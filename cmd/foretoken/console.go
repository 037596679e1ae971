package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// maxInput is the maximum size of a text from a file or a pipe, in bytes.
const maxInput = 64 << 20

// console is where a command reads and writes, and what of it is a terminal.
type console struct {
	in       io.Reader
	out, err io.Writer

	inTerminal, outTerminal, errTerminal bool
	plain                                bool // no colors, though it be a terminal
}

func newConsole(cmd *cobra.Command) *console {
	c := &console{in: cmd.InOrStdin(), out: cmd.OutOrStdout(), err: cmd.ErrOrStderr()}
	c.inTerminal, c.outTerminal, c.errTerminal = isTerminal(c.in), isTerminal(c.out), isTerminal(c.err)
	c.plain = os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb"
	return c
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// piped reports whether something was piped or redirected into the command: neither a
// terminal nor another device such as /dev/null.
func (c *console) piped() bool {
	f, ok := c.in.(*os.File)
	if !ok {
		return c.in != nil
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice == 0
}

// readText reads a text to its end, without the line break that ends its last line.
func (c *console) readText() (string, error) {
	data, err := readAll(c.in, "standard input")
	text := strings.TrimSuffix(string(data), "\n")
	return strings.TrimSuffix(text, "\r"), err
}

// readAll reads r, which is called name in errors, up to maxInput.
func readAll(r io.Reader, name string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	case len(data) > maxInput:
		return nil, fmt.Errorf("%s: more than %d bytes", name, maxInput)
	}
	return data, nil
}

// remark writes a line about the work to standard error, faint if that is possible.
func (c *console) remark(line string) {
	if c.errTerminal && !c.plain {
		line = faint(line)
	}
	tell(c.err, line+"\n")
}

// tell writes to standard error. If that is not possible there is nowhere left to say so.
func tell(w io.Writer, text string) { _, _ = io.WriteString(w, text) }

// faint is text in a faint color.
func faint(text string) string { return "\x1b[2m" + text + "\x1b[0m" }

// print writes a model's text to standard output. On a terminal it leaves out the
// characters that would steer it: what a model says is not to move the cursor or worse.
func (c *console) print(text string) error {
	if c.outTerminal {
		text = printable(text)
	}
	return c.write(text)
}

// write writes text of our own to standard output.
func (c *console) write(text string) error {
	if text == "" {
		return nil
	}
	if _, err := io.WriteString(c.out, text); err != nil {
		return &outputError{err}
	}
	return nil
}

// printable is text without control characters other than line breaks and tabs.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
}

// outputError tells a fault of standard output from one of the model.
type outputError struct{ err error }

func (e *outputError) Error() string { return "standard output: " + e.err.Error() }
func (e *outputError) Unwrap() error { return e.err }

// isOutputError reports whether err came from writing.
func isOutputError(err error) bool {
	var e *outputError
	return errors.As(err, &e)
}
