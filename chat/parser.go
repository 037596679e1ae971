package chat

import (
	"bytes"
	"strings"
)

// EventKind says what an [Event] brings.
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
	Text string    // of content and reasoning: the text that is new
	Call *ToolCall // of a tool call; without an ID
}

// ToolFormat says which tool calls a [Parser] looks for.
type ToolFormat uint8

// The formats. A request that declares no tools should be parsed with ToolNone,
// so that an answer about tool calls stays text.
const (
	ToolAuto ToolFormat = iota // either of the two, told by how the call begins
	ToolXML                    // Qwen's <function=…><parameter=…>
	ToolJSON                   // Hermes' {"name": …, "arguments": …}
	ToolNone                   // tool calls are text
)

// ParserOptions says what answer to expect.
type ParserOptions struct {
	// Thinking says that the prompt opened a think block, so that the answer
	// begins inside it; see [Rendered.StartsThinking].
	Thinking bool
	// Tools are the declared tools. Their schemas give the arguments of XML
	// calls their types; undeclared ones are strings.
	Tools      []Tool
	ToolFormat ToolFormat
}

// Parser takes an answer apart while it is being generated. The events of a text
// say the same however it is cut into chunks, also within a character.
//
// Reasoning is the text between <think> and </think>. A block may begin only at
// the start of the answer, behind a little whitespace; tags anywhere else are
// text. Nothing inside it is a tool call. An unclosed block is reasoning to the
// end.
//
// A tool call is <tool_call>, a call in one of the two formats, </tool_call>, and
// comes as one event when it is complete: before that it may turn out to be no
// call. Then, and if the answer ends by itself within a call, its text is content;
// what is left of a call that was cut off, by a limit or a stop text, is dropped,
// as half of its arguments are of no use to anybody. Names are not checked against
// the declared tools.
//
// Newlines that only set blocks apart are dropped: those at the beginning and end
// of the reasoning, at the beginning of what follows it, and those before, between
// and after tool calls. All other text is given out as it came. Held back is only
// what may yet be part of a tag or of newlines to be dropped.
type Parser struct {
	options  ParserOptions
	state    parserState
	buf      []byte // not parsed yet; in stateCall it begins with the tag
	newlines int    // seen before buf and not given out yet
	fresh    bool   // at the beginning of a block: newlines are dropped
	call     callReader
	events   []Event
	kind     EventKind // of text
	text     []byte    // to be given out with the next event
}

type parserState uint8

const (
	stateStart parserState = iota // a think tag may come
	stateReasoning
	stateContent
	stateCall
)

const (
	callOpen  = "<tool_call>"
	callClose = "</tool_call>"
)

// NewParser returns a Parser for one answer.
func NewParser(o ParserOptions) *Parser { return &Parser{options: o} }

// Thinking reports whether the answer is inside a think block, as far as is known.
func (p *Parser) Thinking() bool {
	return p.state == stateReasoning || p.state == stateStart && p.options.Thinking
}

// Write takes the next chunk of the answer and returns what is certain after it.
func (p *Parser) Write(chunk string) []Event {
	p.buf = append(p.buf, chunk...)
	for p.step() {
	}
	return p.take()
}

// Cut ends an answer that a limit or a stop text has cut off and returns what was
// held back, except for what is, or may be, the beginning of a tool call.
func (p *Parser) Cut() []Event {
	if p.state == stateStart {
		p.leaveStart(p.buf)
		for p.step() {
		}
	}
	if p.state == stateCall || p.state == stateContent && len(p.buf) > 0 {
		p.buf, p.newlines = nil, 0 // newlines before a call only set it apart
	}
	return p.Close()
}

// Close ends the answer and returns what was held back.
func (p *Parser) Close() []Event {
	if p.state == stateStart {
		p.leaveStart(p.buf)
		for p.step() {
		}
	}
	kind := EventContent
	if p.state == stateReasoning {
		if kind = EventReasoning; len(p.buf) == 0 {
			p.newlines = 0 // they end the reasoning
		}
	}
	p.emit(kind, p.buf)
	p.flushNewlines(kind)
	p.buf = nil
	return p.take()
}

func (p *Parser) take() []Event {
	p.flushText()
	events := p.events
	p.events = nil
	return events
}

// step parses a piece of buf. It reports whether there may be more to parse
// before the next chunk.
func (p *Parser) step() bool {
	switch p.state {
	case stateStart:
		return p.stepStart()
	case stateReasoning:
		if p.until(EventReasoning, thinkClose) {
			p.newlines = 0
			p.buf = p.buf[len(thinkClose):]
			p.state, p.fresh = stateContent, true
			return true
		}
	case stateContent:
		if p.options.ToolFormat == ToolNone {
			p.give(EventContent, len(p.buf))
			p.flushNewlines(EventContent)
			return false
		}
		if p.until(EventContent, callOpen) {
			p.state = stateCall
			p.call = callReader{format: p.options.ToolFormat, tools: p.options.Tools, pos: len(callOpen)}
			return true
		}
	case stateCall:
		return p.stepCall()
	}
	return false
}

// maxLead is how many bytes of whitespace may come before a think tag.
const maxLead = 64

// stepStart looks for a think tag behind nothing but whitespace.
func (p *Parser) stepStart() bool {
	text := bytes.TrimLeft(p.buf, " \t\r\n")
	switch {
	case len(p.buf)-len(text) > maxLead:
	case bytes.HasPrefix(text, []byte(thinkOpen)):
		p.options.Thinking = true
		p.leaveStart(text[len(thinkOpen):])
		return true
	case strings.HasPrefix(thinkOpen, string(text[:min(len(text), len(thinkOpen))])):
		return false
	}
	p.leaveStart(p.buf)
	return true
}

// leaveStart goes on with rest as reasoning or as content.
func (p *Parser) leaveStart(rest []byte) {
	p.buf = rest
	p.state = stateContent
	if p.options.Thinking {
		p.state, p.fresh = stateReasoning, true
	}
}

// until gives out text up to the given tag, and reports whether buf now begins
// with it. What may be its beginning at the end of buf stays.
func (p *Parser) until(kind EventKind, tag string) bool {
	if i := bytes.Index(p.buf, []byte(tag)); i >= 0 {
		p.give(kind, i)
		return true
	}
	p.give(kind, len(p.buf)-partial(p.buf, tag))
	return false
}

// partial returns the length of the longest proper beginning of tag that text
// ends with.
func partial(text []byte, tag string) int {
	for n := min(len(tag)-1, len(text)); n > 0; n-- {
		if string(text[len(text)-n:]) == tag[:n] {
			return n
		}
	}
	return 0
}

// give gives out the first n bytes of buf, except for newlines that may have to
// be dropped: at the beginning of a block they are, at the end they wait.
func (p *Parser) give(kind EventKind, n int) {
	text := p.buf[:n]
	p.buf = p.buf[n:]
	if p.fresh {
		text = bytes.TrimLeft(text, "\n")
		p.fresh = len(text) == 0
	}
	body := bytes.TrimRight(text, "\n")
	p.emit(kind, body)
	p.newlines += len(text) - len(body)
}

// emit gives out text after the newlines that waited for it. Neighbors of the
// same kind become one event.
func (p *Parser) emit(kind EventKind, text []byte) {
	if len(text) == 0 {
		return
	}
	p.flushNewlines(kind)
	if kind != p.kind {
		p.flushText()
	}
	p.kind = kind
	p.text = append(p.text, text...)
}

func (p *Parser) flushText() {
	if len(p.text) > 0 {
		p.events = append(p.events, Event{Kind: p.kind, Text: string(p.text)})
		p.text = p.text[:0]
	}
}

func (p *Parser) flushNewlines(kind EventKind) {
	if n := p.newlines; n > 0 {
		p.newlines = 0
		p.emit(kind, bytes.Repeat([]byte("\n"), n))
	}
}

func (p *Parser) stepCall() bool {
	switch p.call.read(p.buf) {
	case callMore:
		return false
	case callDone:
		call := p.call.call
		p.flushText()
		p.events = append(p.events, Event{Kind: EventToolCall, Call: &call})
		p.buf = p.buf[p.call.pos:]
		p.newlines, p.fresh = 0, true
	case callBad:
		// The tag was text; what follows it may hold another one.
		p.fresh = false
		p.emit(EventContent, p.buf[:len(callOpen)])
		p.buf = p.buf[len(callOpen):]
	}
	p.state = stateContent
	return true
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
