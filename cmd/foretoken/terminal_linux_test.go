package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pseudoTerminal is a pseudo-terminal with the program on its other side, as its controlling
// terminal: keys become signals as on a real one.
type pseudoTerminal struct {
	t       *testing.T
	keys    *os.File // our side
	screen  *os.File // the program's
	program *exec.Cmd
	before  unix.Termios // the program started
	state   string       // XDG_STATE_HOME

	mu   sync.Mutex // protects what follows
	seen bytes.Buffer
	read int // of seen, by expect
}

// startTerminal runs the program on a new terminal.
func startTerminal(t *testing.T, args ...string) *pseudoTerminal {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(keys.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80})
	}
	if err != nil {
		t.Fatal(err)
	}
	screen, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m := &pseudoTerminal{t: t, keys: keys, screen: screen, program: exec.Command(self, args...), state: t.TempDir()}
	m.program.Env = append(os.Environ(), asProgram+"=1", "TERM=xterm", "NO_COLOR=", "XDG_STATE_HOME="+m.state)
	m.program.Stdin, m.program.Stdout, m.program.Stderr = screen, screen, screen
	m.program.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	m.before = m.modes()
	if err := m.program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = m.program.Process.Kill() // it has ended, unless the test went wrong
		_ = screen.Close()
		_ = keys.Close()
	})
	go m.watch()
	return m
}

// watch keeps what appears on the screen.
func (m *pseudoTerminal) watch() {
	buf := make([]byte, 4096)
	for {
		n, err := m.keys.Read(buf)
		m.mu.Lock()
		m.seen.Write(buf[:n])
		m.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// press sends keys.
func (m *pseudoTerminal) press(keys string) {
	m.t.Helper()
	if _, err := m.keys.WriteString(keys); err != nil {
		m.t.Fatal(err)
	}
}

// expect waits until text appears after what was expected before, and returns what came
// between.
func (m *pseudoTerminal) expect(text string) string {
	m.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		m.mu.Lock()
		rest := m.seen.String()[m.read:]
		at := strings.Index(rest, text)
		if at >= 0 {
			m.read += at + len(text)
		}
		m.mu.Unlock()
		if at >= 0 {
			return rest[:at]
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.t.Fatalf("%q did not appear; the screen ends with %q", text, m.seen.String()[m.read:])
	return ""
}

// prompted waits until the program reads keys.
func (m *pseudoTerminal) prompted() string {
	m.t.Helper()
	return m.expect("\x1b[?2004h>>> ")
}

// reply waits for what the program says to a line, up to the next prompt.
func (m *pseudoTerminal) reply() string {
	m.t.Helper()
	m.expect("\x1b[?2004l")
	return m.prompted()
}

// say enters a line, waits until texts appear, and for the next prompt.
func (m *pseudoTerminal) say(line string, texts ...string) {
	m.t.Helper()
	m.press(line + keyEnter)
	for _, text := range texts {
		m.expect(text)
	}
	m.prompted()
}

// leave presses keys that end the program.
func (m *pseudoTerminal) leave(keys string) {
	m.t.Helper()
	m.press(keys)
	if code := m.end(); code != exitOK {
		m.t.Errorf("exit code %d", code)
	}
}

// spoken waits until anything appears.
func (m *pseudoTerminal) spoken() {
	m.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		m.mu.Lock()
		more := m.seen.Len() > m.read
		m.mu.Unlock()
		if more {
			return
		}
	}
	m.t.Fatal("nothing appears")
}

// end waits for the program, and returns its exit code.
func (m *pseudoTerminal) end() int {
	m.t.Helper()
	done := make(chan error, 1)
	go func() { done <- m.program.Wait() }()
	select {
	case err := <-done:
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			m.t.Fatal(err)
		}
		return m.program.ProcessState.ExitCode()
	case <-time.After(patience):
		m.t.Fatal("the program does not end")
		return -1
	}
}

// modes are the settings of the terminal.
func (m *pseudoTerminal) modes() unix.Termios {
	m.t.Helper()
	modes, err := unix.IoctlGetTermios(int(m.screen.Fd()), unix.TCGETS)
	if err != nil {
		m.t.Fatal(err)
	}
	return *modes
}

const (
	keyUp        = "\x1b[A"
	keyLeft      = "\x1b[D"
	keyBackspace = "\x7f"
	keyEnter     = "\r"
	keyInterrupt = "\x03"
	keyEnd       = "\x04"
)

// Lines are edited, recalled and put together before the model sees them. Commands echo
// them, which needs no model to speak.
func TestChatEditsLines(t *testing.T) {
	m := startTerminal(t, "run")
	m.prompted()
	if m.modes() == m.before {
		t.Error("the terminal is not in raw mode while a line is read")
	}
	m.say("/systen"+keyBackspace+"m bc"+keyLeft+keyLeft+"a", "The system message is set.")
	m.press("/system" + keyEnter)
	if got := m.reply(); !strings.HasPrefix(got, "abc\r\n") {
		t.Errorf("the edited line is %q", got)
	}
	m.say(keyUp+keyUp+"d", "The system message is set.") // the line before the last
	m.press("/system \"\"\"one" + keyEnter)
	m.expect("... ")
	m.say("two\"\"\"", "The system message is set.")
	m.press("/system" + keyEnter)
	if got := m.reply(); !strings.HasPrefix(got, "one\r\ntwo\r\n") {
		t.Errorf("two lines between quotes are %q", got)
	}
	m.say("\x1b[200~/system three\nfour\x1b[201~", "The system message is set.")
	m.press("/system" + keyEnter)
	if got := m.reply(); !strings.HasPrefix(got, "three\r\nfour\r\n") {
		t.Errorf("two pasted lines are %q", got)
	}
	m.leave(keyEnd)
	if m.modes() != m.before {
		t.Error("the terminal is not as it was")
	}
	kept, err := os.ReadFile(filepath.Join(m.state, "foretoken", "history"))
	if err != nil || !strings.HasPrefix(string(kept), "/system abc\n") {
		t.Errorf("the history is %q, %v", kept, err)
	}
}

func TestChatCommands(t *testing.T) {
	m := startTerminal(t, "run", "--nohistory", "--seed", "5")
	m.prompted()
	for _, c := range []struct{ typed, says string }{
		{"/help", "/set NAME VALUE"},
		{"/?", "clear the conversation"},
		{"/dance", "Unknown command /dance"},
		{"/system", "There is no system message."},
		{"/clear", "The conversation is cleared."},
		{"/set temp 0.25", "temp is 0.25."},
		{"/set parameter top_k 7", "top-k is 7."},
		{"/set top-p 3", "top-p 3: want a number from 0 to 1"},
		{"/set stop END", "stop is \"END\"."},
		{"/set nothing 1", "Unknown setting nothing"},
		{"/set model x", "Unknown setting model"},
		{"/set temp", "Want a name and a value"},
		{"/set thinking maybe", "want on, off or default"},
		{"/set thinking off", "thinking is off."},
		{"/set ignore-eos maybe", "want true or false"},
		{"/set ignore_eos true", "ignore-eos is true."},
		{"/show", "temp: 0.25"},
		{"/show", "top-k: 7"},
		{"/show", "seed: 5"},
		{"/show", "speculative decoding: by auto, depth auto, accepted by the exact rule"},
		{"/set temp default", "temp is the default of the checkpoint."},
		{"/show", "temp: 0.8"},
		{"/set stop default", "stop is the default"},
		{"/show", "stop: none"},
	} {
		m.press(c.typed + keyEnter)
		if got := m.reply(); !strings.Contains(got, c.says) {
			t.Errorf("%s: %q, want %q", c.typed, got, c.says)
		}
	}
	m.press("dropped" + keyInterrupt)
	if got := m.reply(); strings.Contains(got, "Press Ctrl-C") {
		t.Errorf("Ctrl-C on a line that is not empty: %q", got)
	}
	m.press(keyInterrupt)
	m.expect("Press Ctrl-C again or Ctrl-D to leave.")
	m.prompted()
	m.say("/clear", "cleared")
	m.press(keyInterrupt)
	m.expect("Press Ctrl-C again")
	m.prompted()
	m.leave(keyInterrupt)
	if _, err := os.Stat(filepath.Join(m.state, "foretoken")); !os.IsNotExist(err) {
		t.Errorf("--nohistory leaves a file: %v", err)
	}
}

// The second answer is to a conversation that holds the first, and Ctrl-C ends an answer
// but not the chat. Portable code takes minutes for the tokens that are not to come.
func TestChatRemembersAndStops(t *testing.T) {
	m := startTerminal(t, "run", "--isa", "generic", "--max-tokens", "2", "--temp", "0", "--ignore-eos")
	m.prompted()
	m.say("Hi.", "2 tokens (length), ", "; prompt 12 tokens, ")
	m.say("/set max-tokens 3000", "max-tokens is 3000.")
	m.press("Hi." + keyEnter)
	m.expect("\x1b[?2004l")
	m.spoken()
	m.press(keyInterrupt)
	m.expect(" (canceled)") // perhaps with one token only, and so without a rate
	m.expect("; prompt 2")  // twenty and some
	m.prompted()
	m.say("/show", "4 messages so far")
	m.say("/clear")
	m.leave("/bye" + keyEnter)
}

// A message that does not fit is no reason to leave, and is not remembered.
func TestChatOutlivesErrors(t *testing.T) {
	m := startTerminal(t, "run", "--context", "20", "--max-tokens", "1", "--temp", "0", "--nohistory")
	m.prompted()
	m.say("Hi.", "1 token (")
	m.say("Hi.", "shorten the prompt, or raise --context (the model allows 4096)", "Type /clear")
	m.say("/show", "2 messages so far")
	m.say("/clear")
	m.say("/set logit-bias 9999=1", "logit-bias is 9999=1.")
	m.say("Hi.", "--logit-bias: 9999 is not a token of the model")
	m.say("/set logit-bias default")
	m.say("Hi.", "1 token (")
	m.leave(keyEnd)
}

// Without a template there is no conversation: each text is continued for itself.
func TestChatWithoutTemplate(t *testing.T) {
	m := startTerminal(t, "run", "--no-chat-template", "--max-tokens", "1", "--temp", "0", "--nohistory")
	for range 2 {
		m.prompted()
		m.press("Once upon a" + keyEnter)
		m.expect("\x1b[?2004l")
		m.expect(" time\r\n")
		m.expect("; prompt 3 tokens")
	}
	m.prompted()
	m.say("/system x", "There is no system message without the chat template.")
	m.leave("/exit" + keyEnter)
}

func TestInterruptSignalsEndTheProgram(t *testing.T) {
	m := startTerminal(t, "generate", "--isa", "generic", "--prompt", "Hi.", "--max-tokens", "3000", "--ignore-eos")
	m.spoken()
	m.press(keyInterrupt)
	if code := m.end(); code != exitInterrupted {
		t.Errorf("Ctrl-C: exit code %d", code)
	}
	m = startTerminal(t, "run")
	m.prompted()
	if err := m.program.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := m.end(); code != exitInterrupted || m.modes() != m.before {
		t.Errorf("terminated in a chat: exit code %d, terminal restored: %v", code, m.modes() == m.before)
	}
}
