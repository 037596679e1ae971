package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
)

// Prompts of a chat.
const (
	firstPrompt = ">>> "
	nextPrompt  = "... "
)

// keyCtrlC is the byte of Ctrl-C on a terminal in raw mode.
const keyCtrlC = 3

// multiline opens and closes a text of several lines.
const multiline = `"""`

// Results of reading when the user pressed Ctrl-C.
var (
	errCtrlC   = errors.New("ctrl-c")
	errDropped = errors.New("ctrl-c after something was typed") // which is dropped
)

// lineReader reads lines from a terminal, with editing and history. The terminal
// is in raw mode only while a line is read, so that Ctrl-C is a key there and a signal
// everywhere else.
type lineReader struct {
	in      *os.File
	out     io.Writer
	keys    *keyReader
	history *history
	editor  *term.Terminal
}

func newLineReader(in *os.File, out io.Writer, h *history) *lineReader {
	r := &lineReader{in: in, out: out, history: h, keys: &keyReader{in: in}}
	r.reset()
	return r
}

// reset starts with an empty line. The editor has to be a new one after Ctrl-C: it keeps
// the line, and the key itself, for the next call.
func (r *lineReader) reset() {
	r.editor = term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{r.keys, r.out}, firstPrompt)
	r.editor.History = r.history
	r.editor.AutoCompleteCallback = func(line string, pos int, key rune) (string, int, bool) {
		if key != '\t' {
			return "", 0, false
		}
		typed, ok := completeMention(line[:pos])
		return typed + line[pos:], len(typed), ok
	}
}

// restore puts a text on the next line, to be changed and sent again. One of several lines stays in
// the history only: its line breaks would send it.
func (r *lineReader) restore(text string) {
	if text = console.Printable(text); !strings.ContainsAny(text, "\n\t") {
		r.keys.first = []byte(text)
	}
}

// keyReader records keys: the editor reports Ctrl-C as the end of input, and
// does not report the line.
type keyReader struct {
	first  []byte // is read as if it were typed before the rest
	in     io.Reader
	ctrlC  bool
	others bool
}

// clear forgets the recorded keys.
func (k *keyReader) clear() { k.ctrlC, k.others = false, false }

// Read implements io.Reader.
func (k *keyReader) Read(p []byte) (int, error) {
	var n int
	var err error
	if len(k.first) > 0 {
		n = copy(p, k.first)
		k.first = k.first[n:]
	} else {
		n, err = k.in.Read(p)
	}
	for _, key := range p[:n] {
		if key == keyCtrlC {
			k.ctrlC = true
		} else {
			k.others = true
		}
	}
	return n, err
}

// readMessage reads a message: a line, the lines of a paste, or the lines
// between two triple quotes. The error is io.EOF at the end of input, errCtrlC, errDropped,
// or console.ErrInterrupted when ctx was canceled.
func (r *lineReader) readMessage(ctx context.Context) (text string, err error) {
	fd := int(r.in.Fd())
	saved, err := term.MakeRaw(fd)
	if err != nil {
		return "", fmt.Errorf("terminal: %w", err)
	}
	if width, height, err := term.GetSize(fd); err == nil && width > 0 {
		_ = r.editor.SetSize(width, height) // writes nothing, as nothing is on the line yet
	}
	r.editor.SetBracketedPasteMode(true)
	defer func() {
		r.editor.SetBracketedPasteMode(false)
		if e := term.Restore(fd, saved); e != nil && err == nil {
			err = fmt.Errorf("terminal: %w", e)
		}
	}()
	r.editor.SetPrompt(firstPrompt)
	text, pasted, err := r.readLine(ctx)
	r.editor.SetPrompt(nextPrompt)
	for pasted && err == nil { // the line that the user ends is the last
		var line string
		line, pasted, err = r.readLine(ctx)
		text += "\n" + line
	}
	if err != nil {
		return "", err
	}
	return r.readQuoted(ctx, text)
}

// readQuoted reads on if text opens a triple quote, alone or as the argument of a command.
func (r *lineReader) readQuoted(ctx context.Context, text string) (string, error) {
	before, quoted, found := strings.Cut(text, multiline)
	if !found || strings.TrimSpace(before) != "" && !strings.HasPrefix(before, "/") {
		return text, nil
	}
	for {
		if end := strings.TrimRight(quoted, " \t"); strings.HasSuffix(end, multiline) {
			return before + strings.Trim(strings.TrimSuffix(end, multiline), "\n"), nil
		}
		line, _, err := r.readLine(ctx)
		if err != nil {
			return "", err
		}
		quoted += "\n" + line
	}
}

// readLine reads one line, and reports whether it was part of a paste that goes on.
func (r *lineReader) readLine(ctx context.Context) (line string, pasted bool, err error) {
	type result struct {
		line string
		err  error
	}
	done := make(chan result, 1)
	go func() { // a read cannot be interrupted; the end of the process ends it
		line, err := r.editor.ReadLine()
		done <- result{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", false, console.ErrInterrupted
	case got := <-done:
		switch {
		case errors.Is(got.err, term.ErrPasteIndicator):
			return got.line, true, nil
		case got.err == nil:
			r.keys.others = false
			return got.line, false, nil
		}
		_, _ = io.WriteString(r.out, "\r\n") // leave the line that was being typed
		return "", false, r.interruption(got.err)
	}
}

// interruption is the reason for the end of input that the editor reports.
func (r *lineReader) interruption(err error) error {
	switch {
	case !r.keys.ctrlC:
		return err
	case r.keys.others:
		err = errDropped
	default:
		err = errCtrlC
	}
	r.keys.clear()
	r.reset()
	return err
}
