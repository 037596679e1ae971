package dialogue

import (
	"bytes"
	"strings"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/dialogue/values"
)

// ToolFormat is the format of tool calls that a [Parser] looks for.
type ToolFormat uint8

// The formats. A request that declares no tools should be parsed with ToolNone,
// so that an answer about tool calls stays text.
const (
	ToolAuto     ToolFormat = iota // ToolXML or ToolJSON, by the beginning of the call
	ToolXML                        // Qwen's <function=…><parameter=…>
	ToolJSON                       // Hermes' {"name": …, "arguments": …}
	ToolNone                       // tool calls are text
	ToolGLM                        // GLM's name<arg_key>…</arg_key><arg_value>…</arg_value>, or ToolJSON
	ToolDeepSeek                   // DeepSeek's name<｜tool▁sep｜>{…}, or with the object fenced
	ToolMarked                     // Gemma's call:name{key:<|"|>text<|"|>,…}
)

// ParserOptions describe the expected answer.
type ParserOptions struct {
	// Thinking: the prompt opened a think block, so that the answer
	// begins inside it; see [Rendered.StartsThinking].
	Thinking bool
	// Thought: the prompt closed a think block without the separator after it:
	// leading newlines of the answer are dropped.
	Thought bool
	// Tags are those of think blocks; see [Thinking].
	Tags ThinkTags
	// Tools are the declared tools. Their schemas give the arguments of XML and
	// GLM calls their types; undeclared ones are strings, or in GLM's format the JSON
	// value of the text.
	Tools      []chat.Tool
	ToolFormat ToolFormat
	// Exact: only calls behind the think block and with all of their tags
	// are calls, as a grammar requires. Otherwise the parser also reads calls
	// of declared tools, and think blocks, in known variants that models write; see [Parser].
	Exact bool
}

// Parser splits an answer into events while it is being generated. The events of a text
// do not depend on how it is cut into chunks, even within a character.
//
// Reasoning is the text between the think tags. A block may begin only at
// the start of the answer, behind a little whitespace; tags anywhere else are
// text, unless they are tags of blocks that may be anywhere. An unclosed block is reasoning to the end.
//
// A tool call stands between the tags of its format and is one event when it is complete: before that
// it may turn out not to be a call. Then, and if the answer ends by itself within a call, its text is
// content. If a limit or a stop text cuts a call off, its text is dropped: half of its arguments are of
// no use. Names are not checked against the declared tools.
//
// Unless Exact, two mistakes of models are read as calls, if the tool is declared.
// GLM and Qwen models, the latter with <function=…>, forget to close the think
// block before a call: if no answer follows a closing tag, a call in the block
// ends it. Qwen models forget <tool_call> before <function=…>. Gemma models end an answer in place of its
// last call.
//
// Newlines that only separate blocks are dropped: those at the beginning and end
// of the reasoning, at the beginning of the text after it, and those before, between
// and after tool calls. All other text is unchanged. The parser holds back only
// text that may be part of a tag or of newlines to be dropped, and text that follows a
// call in a think block.
type Parser struct {
	options  ParserOptions
	state    parserState
	buf      []byte    // not parsed yet; in stateCall it begins with the tag
	newlines int       // seen before buf and not emitted yet
	fresh    bool      // at the beginning of a block: newlines are dropped
	form     *callForm // of calls; nil: there are none
	thought  *callForm // of calls that end a think block; nil: none do
	tags     ThinkTags // of think blocks
	label    string    // may come next, in a block that has just begun
	thinks   bool      // a block has begun before
	stray    bool      // the closing tag of a call is dropped while the block is fresh
	call     callReader
	outer    parserState // that the call was found in
	block    bool        // a tag of several calls is to be closed
	events   []chat.Event
	kind     chat.EventKind // of text
	text     []byte         // to be emitted with the next event
}

type parserState uint8

const (
	stateStart parserState = iota // a think tag may come
	stateReasoning
	stateContent
	stateCall
	stateThought // buf begins with a call in a think block that may yet be closed
)

// NewParser returns a Parser for one answer.
func NewParser(o ParserOptions) *Parser {
	p := &Parser{options: o, form: callForms[o.ToolFormat], tags: o.Tags.Known()}
	if !o.Exact {
		p.thought = map[ToolFormat]*callForm{
			ToolAuto: callForms[ToolXML], ToolXML: callForms[ToolXML], ToolGLM: callForms[ToolGLM],
		}[o.ToolFormat]
	}
	return p
}

// Thinking reports whether the answer is inside a think block, as far as is known.
func (p *Parser) Thinking() bool {
	return p.state == stateReasoning || p.state == stateStart && p.options.Thinking
}

// Write takes the next chunk of the answer and returns the events that are certain after it.
func (p *Parser) Write(chunk string) []chat.Event {
	p.buf = append(p.buf, chunk...)
	for p.step() {
	}
	return p.take()
}

// Cut ends an answer that a limit or a stop text has cut off and returns the held
// text, except for a beginning or a possible beginning of a tool call.
func (p *Parser) Cut() []chat.Event {
	p.settle()
	if p.state == stateCall || p.state == stateContent && len(p.buf) > 0 {
		p.buf, p.newlines = nil, 0 // newlines before a call only set it apart
	}
	return p.Close()
}

// Close ends the answer and returns the held text.
func (p *Parser) Close() []chat.Event {
	p.settle()
	if p.state == stateCall && !p.options.Exact && p.call.form.quote != "" && p.call.state == callEnd && p.call.pos == len(p.buf) {
		p.endCall()
	}
	kind := chat.EventContent
	if p.state == stateReasoning || p.state == stateCall && p.outer == stateReasoning {
		if kind = chat.EventReasoning; len(p.buf) == 0 {
			p.newlines = 0 // they end the reasoning
		}
	}
	p.emit(kind, p.buf)
	p.flushNewlines(kind)
	p.buf = nil
	return p.take()
}

// settle decides at the end of an answer what the held text is.
func (p *Parser) settle() {
	switch p.state {
	case stateStart:
		p.leaveStart(p.buf)
	case stateThought:
		p.buf, _, _ = bytes.Cut(p.buf, []byte(p.tags.Close))
		p.newlines, p.fresh, p.state = 0, true, stateContent
	default:
		return
	}
	for p.step() {
	}
}

func (p *Parser) take() []chat.Event {
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
		if p.label != "" && !p.dropLabel() {
			return false
		}
		tags := []string{p.tags.Close}
		if p.thought != nil {
			tags = append(tags, p.thought.open)
		}
		switch tag := p.until(chat.EventReasoning, tags...); tag {
		case "":
		case p.tags.Close:
			p.newlines = 0
			p.buf = p.buf[len(tag):]
			p.state, p.fresh = stateContent, true
			return true
		default:
			p.beginCall(p.thought, tag)
			return true
		}
	case stateContent:
		return p.stepContent()
	case stateCall:
		return p.stepCall()
	case stateThought:
		return p.stepThought()
	}
	return false
}

// stepContent emits text up to the next call, and drops closing tags that belong to the last one.
func (p *Parser) stepContent() bool {
	tags := p.contentTags()
	if len(tags) == 0 {
		p.give(chat.EventContent, len(p.buf))
		p.flushNewlines(chat.EventContent)
		return false
	}
	tag := p.until(chat.EventContent, tags...)
	switch {
	case tag == "":
		return false
	case tag == p.tags.Open:
		p.beginThought(p.buf[len(tag):])
	case tag == p.tags.Close:
		p.buf = p.buf[len(tag):]
	case p.block && tag == p.form.end:
		p.buf = p.buf[len(tag):]
		p.newlines, p.fresh, p.block = 0, true, false
	case p.stray && tag == p.form.close:
		if p.fresh { // otherwise it is text, and the next step handles it
			p.buf = p.buf[len(tag):]
			p.newlines = 0
		}
	default:
		p.beginCall(p.form, tag)
	}
	return true
}

// contentTags are the tags that end or interrupt content.
func (p *Parser) contentTags() (tags []string) {
	if p.tags.Anywhere && !p.options.Exact {
		tags = append(tags, p.tags.Open, p.tags.Close)
	}
	if p.form == nil {
		return tags
	}
	tags = append(tags, p.form.tags()...)
	if p.form.bare() && !p.options.Exact {
		tags = append(tags, p.form.name)
	}
	if p.block {
		tags = append(tags, p.form.end)
	}
	if p.stray = p.stray && p.fresh; p.stray {
		tags = append(tags, p.form.close)
	}
	return tags
}

// beginThought begins a think block whose text follows the tag.
func (p *Parser) beginThought(rest []byte) {
	p.buf, p.label = rest, p.tags.Label
	p.state, p.fresh, p.newlines = stateReasoning, true, 0
	if p.thinks {
		p.newlines = 1 // two blocks are separate lines
	}
	p.thinks = true
}

// dropLabel drops the label of a think block that has begun. It reports whether it is known if
// there is one.
func (p *Parser) dropLabel() bool {
	if len(p.buf) < len(p.label) && strings.HasPrefix(p.label, string(p.buf)) {
		return false
	}
	p.buf = bytes.TrimPrefix(p.buf, []byte(p.label))
	p.label = ""
	return true
}

// beginCall begins a call with buf, which begins with tag.
func (p *Parser) beginCall(form *callForm, tag string) {
	p.outer, p.state = p.state, stateCall
	p.call = callReader{form: form, tools: p.options.Tools, bare: tag == form.name}
}

// maxLead is how many bytes of whitespace may come before a think tag.
const maxLead = 64

// stepStart looks for a think tag after whitespace only.
func (p *Parser) stepStart() bool {
	text := bytes.TrimLeft(p.buf, " \t\r\n")
	switch {
	case len(p.buf)-len(text) > maxLead:
	case bytes.HasPrefix(text, []byte(p.tags.Open)):
		p.beginThought(text[len(p.tags.Open):])
		return true
	case strings.HasPrefix(p.tags.Open, string(text[:min(len(text), len(p.tags.Open))])):
		return false
	}
	p.leaveStart(p.buf)
	return true
}

// leaveStart continues with rest as reasoning or as content.
func (p *Parser) leaveStart(rest []byte) {
	p.buf = rest
	p.state, p.fresh = stateContent, p.options.Thought
	if p.options.Thinking {
		p.state, p.fresh, p.thinks = stateReasoning, true, true
	}
}

// until emits text up to the first of the given tags, and returns the one that
// buf now begins with, "" if there is none. A possible beginning of a tag at the
// end of buf stays.
func (p *Parser) until(kind chat.EventKind, tags ...string) (tag string) {
	at, held := len(p.buf), 0
	for _, t := range tags {
		if i := bytes.Index(p.buf[:min(len(p.buf), at+len(t))], []byte(t)); i >= 0 && i < at {
			at, tag = i, t
		}
		held = max(held, partial(p.buf, t))
	}
	if tag == "" {
		at -= held
	}
	p.give(kind, at)
	return tag
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

// give emits the first n bytes of buf, except for newlines that may have to
// be dropped: at the beginning of a block they are, at the end they wait.
func (p *Parser) give(kind chat.EventKind, n int) {
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

// emit emits text after the newlines that waited for it. Adjacent texts of the
// same kind become one event.
func (p *Parser) emit(kind chat.EventKind, text []byte) {
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
		p.events = append(p.events, chat.Event{Kind: p.kind, Text: string(p.text)})
		p.text = p.text[:0]
	}
}

func (p *Parser) flushNewlines(kind chat.EventKind) {
	if n := p.newlines; n > 0 {
		p.newlines = 0
		p.emit(kind, bytes.Repeat([]byte("\n"), n))
	}
}

func (p *Parser) stepCall() bool {
	result := p.call.read(p.buf)
	if p.outer == stateReasoning {
		text := p.buf
		if result == callDone {
			text = text[:p.call.pos]
		}
		if p.call.passes(text, p.tags.Close) || result == callDone && !p.call.declared() {
			result = callBad
		}
	}
	switch result {
	case callMore:
		return false
	case callDone:
		if p.outer == stateReasoning {
			p.state = stateThought
			break
		}
		p.endCall()
	case callBad:
		// The tag was text; the following text may contain another one.
		kind := chat.EventContent
		if p.outer == stateReasoning {
			kind = chat.EventReasoning
		}
		n := p.call.opening(p.buf)
		p.fresh = false
		p.emit(kind, p.buf[:n])
		p.buf = p.buf[n:]
		p.state = p.outer
	}
	return true
}

// endCall emits the call at the beginning of buf.
func (p *Parser) endCall() {
	call := p.call.call
	*values.Arguments(&call.Arguments) = p.call.fields
	p.flushText()
	p.events = append(p.events, chat.Event{Kind: chat.EventToolCall, Call: &call})
	p.block = p.block || p.form.begin != "" && bytes.HasPrefix(p.buf, []byte(p.form.begin))
	p.buf = p.buf[p.call.pos:]
	p.newlines, p.fresh, p.state = 0, true, stateContent
	p.stray = p.call.bare
}

// stepThought looks for an answer behind a think block with a call in it. If there is one, all of the
// block is reasoning.
func (p *Parser) stepThought() bool {
	if !p.call.passes(p.buf, p.tags.Close) {
		return false
	}
	at := bytes.Index(p.buf, []byte(p.tags.Close))
	if len(bytes.TrimSpace(p.buf[at+len(p.tags.Close):])) == 0 {
		p.call.seen = at // to be found again
		return false
	}
	p.give(chat.EventReasoning, at)
	p.state = stateReasoning
	return true
}
