package chat

import (
	"strings"
)

// EventKind is the kind of an [Event].
type EventKind uint8

// The kinds of events.
const (
	EventContent   EventKind = iota // more of the answer
	EventReasoning                  // more of the reasoning
	EventToolCall                   // a whole tool call
)

// Event is a piece of an answer.
type Event struct {
	Kind EventKind
	Text string    // of content and reasoning: the new text
	Call *ToolCall // of a tool call; without an ID
}

// Answer is a whole answer, collected from events.
type Answer struct {
	ToolCalls          []ToolCall
	content, reasoning strings.Builder
}

// Add appends events to the answer.
func (a *Answer) Add(events []Event) {
	for _, e := range events {
		switch e.Kind {
		case EventContent:
			a.content.WriteString(e.Text)
		case EventReasoning:
			a.reasoning.WriteString(e.Text)
		case EventToolCall:
			a.ToolCalls = append(a.ToolCalls, *e.Call)
		}
	}
}

// Content returns the content so far.
func (a *Answer) Content() string { return a.content.String() }

// Reasoning returns the reasoning so far.
func (a *Answer) Reasoning() string { return a.reasoning.String() }
