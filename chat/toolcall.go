package chat

import (
	"bytes"
	"errors"
	"strings"

	"github.com/foretoken/foretoken/internal/jinja"
)

// callReader reads one tool call from a buffer that grows. It goes on where it
// stopped, so that a call costs time in proportion to its length however small
// the chunks are.
type callReader struct {
	format ToolFormat
	tools  []Tool
	state  callState
	pos    int // of the next byte to look at
	start  int // of the name, key, value or JSON object being read
	end    int // of the value, while it is not certain that it ended
	key    string
	call   ToolCall

	// In a JSON object:
	depth           int
	quoted, escaped bool
}

type callState uint8

const (
	callBegin  callState = iota // whitespace, then '{' or <function=
	callName                    // up to '>'
	callInside                  // whitespace, then <parameter= or </function>
	callKey                     // up to '>'
	callValue                   // up to </parameter>
	callAfter                   // whitespace, then what must follow a parameter, else the value goes on
	callObject                  // a JSON object
	callEnd                     // whitespace, then </tool_call>
	callComplete
)

type callResult uint8

const (
	callMore callResult = iota // the buffer ends within the call
	callDone                   // the call is read; pos is behind it
	callBad                    // this is not a call
)

// ParameterEnd ends the value of a parameter in the format [ToolXML], after a newline that
// is no part of it. A value that has it may be cut short.
const ParameterEnd = "</parameter>"

const (
	functionOpen   = "<function="
	functionClose  = "</function>"
	parameterOpen  = "<parameter="
	parameterClose = ParameterEnd
	maxName        = 256 // bytes in the name of a function or parameter
)

var errNotCall = errors.New("not a tool call")

// read goes on reading. buf begins with the same bytes as at the time before.
func (r *callReader) read(buf []byte) callResult {
	for r.state != callComplete {
		more, err := r.step(buf)
		switch {
		case err != nil:
			return callBad
		case more:
			return callMore
		}
	}
	return callDone
}

// step reads one part of the call. More says that it needs a longer buffer.
func (r *callReader) step(buf []byte) (more bool, err error) {
	switch r.state {
	case callName, callKey:
		return r.readName(buf)
	case callValue:
		return r.readValue(buf), nil
	case callObject:
		return r.readObject(buf)
	}
	for r.pos < len(buf) && strings.IndexByte(" \t\r\n", buf[r.pos]) >= 0 {
		r.pos++
	}
	switch r.state {
	case callBegin:
		if r.format != ToolXML && r.pos < len(buf) && buf[r.pos] == '{' {
			r.state, r.start = callObject, r.pos
			return false, nil
		}
		if r.format == ToolJSON {
			return r.pos == len(buf), errUnless(r.pos == len(buf))
		}
		return r.expect(buf, map[string]callState{functionOpen: callName})
	case callInside:
		return r.expect(buf, map[string]callState{parameterOpen: callKey, functionClose: callEnd})
	case callAfter:
		return r.readAfter(buf)
	}
	return r.expect(buf, map[string]callState{callClose: callComplete})
}

func errUnless(ok bool) error {
	if ok {
		return nil
	}
	return errNotCall
}

// expect takes one of the given tags and goes to its state.
func (r *callReader) expect(buf []byte, tags map[string]callState) (more bool, err error) {
	rest := buf[r.pos:]
	for tag, state := range tags {
		if bytes.HasPrefix(rest, []byte(tag)) {
			r.pos += len(tag)
			r.state, r.start = state, r.pos
			return false, nil
		}
		more = more || len(rest) < len(tag) && strings.HasPrefix(tag, string(rest))
	}
	return more, errUnless(more)
}

// FitsXML reports whether a function or parameter of that name can be called in the format
// [ToolXML].
func FitsXML(name string) bool {
	return name != "" && len(name) <= maxName && !strings.ContainsAny(name, "<>\n") && strings.TrimSpace(name) == name
}

// readName reads the name of the function or of a parameter.
func (r *callReader) readName(buf []byte) (more bool, err error) {
	for ; r.pos < len(buf); r.pos++ {
		switch c := buf[r.pos]; {
		case c == '\n' || c == '<' || r.pos-r.start > maxName:
			return false, errNotCall
		case c == '>':
			name := strings.TrimSpace(string(buf[r.start:r.pos]))
			if name == "" {
				return false, errNotCall
			}
			r.pos++
			r.start = r.pos
			if r.state == callName {
				r.call = ToolCall{Name: name, Arguments: Arguments{&jinja.Map{}}}
				r.state = callInside
			} else {
				r.key, r.state = name, callValue
			}
			return false, nil
		}
	}
	return true, nil
}

// readValue looks for the end of a value.
func (r *callReader) readValue(buf []byte) (more bool) {
	i := bytes.Index(buf[r.pos:], []byte(parameterClose))
	if i < 0 {
		r.pos = max(r.pos, len(buf)-len(parameterClose)+1)
		return true
	}
	r.end = r.pos + i
	r.pos = r.end + len(parameterClose)
	r.state = callAfter
	return false
}

// readAfter decides whether the value ended: a closing tag within a value, which
// is not escaped, is hardly followed by what follows a parameter.
func (r *callReader) readAfter(buf []byte) (more bool, err error) {
	end, start := r.end, r.start
	more, err = r.expect(buf, map[string]callState{parameterOpen: callKey, functionClose: callEnd})
	switch {
	case more:
		return true, nil
	case err != nil:
		r.state, r.pos = callValue, end+1
		return false, nil
	}
	value := bytes.TrimSuffix(bytes.TrimPrefix(buf[start:end], []byte("\n")), []byte("\n"))
	r.call.Arguments.fields.Set(r.key, r.convert(string(value)))
	return false, nil
}

// convert gives an argument the type its tool declares.
func (r *callReader) convert(value string) jinja.Value {
	for _, t := range r.tools {
		if t.Name() == r.call.Name {
			return t.convert(r.key, value)
		}
	}
	return jinja.String(value)
}

// readObject looks for the end of a JSON object. A byte that JSON does not have
// at its place ends the attempt at once, so that a closing tag is not overlooked
// for a missing bracket.
func (r *callReader) readObject(buf []byte) (more bool, err error) {
	for ; r.pos < len(buf); r.pos++ {
		c := buf[r.pos]
		switch {
		case r.quoted:
			switch {
			case c < 0x20:
				return false, errNotCall
			case r.escaped:
				r.escaped = false
			case c == '\\':
				r.escaped = true
			case c == '"':
				r.quoted = false
			}
		case c == '"':
			r.quoted = true
		case c == '{' || c == '[':
			r.depth++
		case c == '}' || c == ']':
			if r.depth--; r.depth == 0 {
				r.pos++
				return false, r.finishObject(buf[r.start:r.pos])
			}
		case strings.IndexByte(" \t\r\n,:+-.", c) < 0 && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z'):
			return false, errNotCall
		}
	}
	return true, nil
}

func (r *callReader) finishObject(data []byte) error {
	v, err := jinja.DecodeJSON(data)
	if err != nil {
		return err
	}
	if r.call, err = toolCallFrom(v); err != nil {
		return err
	}
	if r.call.Arguments.fields == nil {
		r.call.Arguments.fields = &jinja.Map{}
	}
	r.call.ID = ""
	r.state = callEnd
	return nil
}
