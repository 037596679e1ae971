package terminal

import (
	"strings"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
)

// shown is an answer while it is being shown: reasoning apart from the rest.
type shown struct {
	chat.Answer
	c    *console.Console
	hide bool // the reasoning

	last     chat.EventKind
	began    bool // something was shown
	lineOpen bool // the last line shown has not ended
}

// newShown returns an empty answer.
func newShown(c *console.Console, hideThinking bool) *shown { return &shown{c: c, hide: hideThinking} }

// write shows more of the answer.
func (s *shown) write(p foretoken.Piece) error { return s.show(p.Events) }

// end ends the line.
func (s *shown) end() error {
	if s.began && s.last == chat.EventReasoning {
		if err := s.leaveReasoning(); err != nil {
			return err
		}
	}
	if s.lineOpen {
		return s.c.Write("\n")
	}
	return nil
}

func (s *shown) show(events []chat.Event) error {
	s.Add(events)
	for _, e := range events {
		if e.Kind == chat.EventReasoning && s.hide {
			continue
		}
		if err := s.change(e.Kind); err != nil {
			return err
		}
		if err := s.text(e); err != nil {
			return err
		}
	}
	return nil
}

// colored reports whether reasoning is marked by color; else it is by tags.
func (s *shown) colored() bool { return s.c.OutTerminal && !s.c.Plain }

// change separates reasoning and answer.
func (s *shown) change(kind chat.EventKind) error {
	if s.began && s.last == kind {
		return nil
	}
	if s.began && s.last == chat.EventReasoning {
		if err := s.leaveReasoning(); err != nil {
			return err
		}
		if err := s.c.Write("\n"); err != nil {
			return err
		}
	}
	s.began, s.last = true, kind
	if kind == chat.EventReasoning && !s.colored() {
		return s.c.Write("<think>\n")
	}
	return nil
}

// leaveReasoning ends the last line of the reasoning.
func (s *shown) leaveReasoning() error {
	s.lineOpen = false
	if s.colored() {
		return s.c.Write("\n")
	}
	return s.c.Write("\n</think>\n")
}

func (s *shown) text(e chat.Event) error {
	s.lineOpen = !strings.HasSuffix(e.Text, "\n")
	if e.Kind == chat.EventReasoning && s.colored() {
		return s.c.Write(console.Faint(console.Printable(e.Text)))
	}
	return s.c.Print(e.Text)
}
