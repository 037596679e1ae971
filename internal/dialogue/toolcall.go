package dialogue

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/dialogue/values"
	"github.com/foretoken/foretoken/internal/jinja"
)

// callReader reads one tool call from a growing buffer. It resumes at its last
// position, so that a call costs time in proportion to its length, for any size of
// chunks.
type callReader struct {
	fields *jinja.Map // of the arguments
	form   *callForm
	tools  []chat.Tool
	bare   bool // it begins with the tag of the name and ends with form.last
	state  callState
	pos    int // of the next byte to look at
	start  int // of the name, key, value or JSON object being read
	end    int // of the value, while it is not certain that it ended
	seen   int // passes has searched everything before it
	key    string
	call   chat.ToolCall

	// In a JSON object, or one with marked strings:
	depth           int
	quoted, escaped bool
	marked          bool // in a marked string
	fresh           bool // a value or a key may begin
}

type callState uint8

const (
	callOpening  callState = iota // the tag, or two of them
	callBegin                     // whitespace, then the beginning of the format
	callName                      // up to the end of a name
	callInside                    // whitespace, then a parameter or the end
	callKey                       // up to the end of a key
	callKeyEnd                    // the end of a key and the beginning of a value
	callValue                     // up to the closing tag
	callAfter                     // whitespace, then the tag after a parameter, else the value goes on
	callKind                      // up to the separator
	callFence                     // whitespace, then the fence of the arguments
	callObject                    // a JSON object
	callMarked                    // an object with marked strings
	callFenceEnd                  // whitespace, then the end of the fence or of the call
	callEnd                       // whitespace, then the closing tag
	callComplete
)

type callResult uint8

const (
	callMore callResult = iota // the buffer ends within the call
	callDone                   // the call is read; pos is behind it
	callBad                    // this is not a call
)

const (
	callOpen  = "<tool_call>"
	callClose = "</tool_call>"

	// Qwen's:
	functionOpen   = "<function="
	functionClose  = "</function>"
	parameterOpen  = "<parameter="
	parameterClose = "</parameter>"

	// GLM's:
	argKeyOpen    = "<arg_key>"
	argKeyClose   = "</arg_key>"
	argValueOpen  = "<arg_value>"
	argValueClose = "</arg_value>"

	// DeepSeek's:
	deepSeekBegin = "<｜tool▁calls▁begin｜>" // before all calls
	deepSeekEnd   = "<｜tool▁calls▁end｜>"   // after all of them
	deepSeekOpen  = "<｜tool▁call▁begin｜>"
	deepSeekClose = "<｜tool▁call▁end｜>"
	deepSeekSep   = "<｜tool▁sep｜>"

	// Gemma's:
	markedOpen  = "<|tool_call>"
	markedClose = "<tool_call|>"
	markedCall  = "call:"
	markedQuote = `<|"|>`

	fence     = "```"
	fenceJSON = "```json"

	maxName = 256 // bytes in the name of a function or parameter
)

// callForm is the tags of a format. White space may be between them.
type callForm struct {
	begin, end  string // around several calls; "": nothing
	open, close string // around a call
	object      bool   // a JSON object may stand there, with name and arguments

	// A name, with single arguments. Parts that begin with a tag end with one, and the others at the
	// next tag.
	name            string // before the name; "": nothing
	key, keyEnd     string // around the name of a parameter; keyEnd "": it ends as the tag does
	value, valueEnd string // around its value; value "": nothing
	last            string // after all arguments; "": nothing
	lines           bool   // values are on separate lines
	guess           bool   // an argument without a type is the JSON value of its text

	sep string // between kind and name, or name and object; "": the arguments are no object

	quote string // around strings of the arguments, an object with bare keys behind the name; "": they are not such
}

// bare reports whether a call may begin with the tag of its name.
func (f *callForm) bare() bool { return f.name != "" && f.last != "" }

// callForms are the forms of the formats.
var callForms = map[ToolFormat]*callForm{
	ToolAuto: {
		open: callOpen, close: callClose, object: true,
		name: functionOpen, key: parameterOpen, valueEnd: parameterClose, last: functionClose, lines: true,
	},
	ToolXML: {
		open: callOpen, close: callClose,
		name: functionOpen, key: parameterOpen, valueEnd: parameterClose, last: functionClose, lines: true,
	},
	ToolJSON: {open: callOpen, close: callClose, object: true},
	ToolGLM: {
		open: callOpen, close: callClose, object: true,
		key: argKeyOpen, keyEnd: argKeyClose, value: argValueOpen, valueEnd: argValueClose, guess: true,
	},
	ToolMarked:   {open: markedOpen, close: markedClose, name: markedCall, quote: markedQuote},
	ToolDeepSeek: {begin: deepSeekBegin, end: deepSeekEnd, open: deepSeekOpen, close: deepSeekClose, sep: deepSeekSep},
}

// tags are the first tags of calls.
func (f *callForm) tags() []string {
	if f.begin != "" {
		return []string{f.begin, f.open}
	}
	return []string{f.open}
}

var errNotCall = errors.New("not a tool call")

// read continues reading. buf begins with the same bytes as before.
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

// after is the tags that may follow white space in a state, and their next states.
func (r *callReader) after() map[string]callState {
	f := r.form
	switch r.state {
	case callOpening:
		tags := map[string]callState{f.open: callBegin}
		if f.sep != "" {
			tags[f.open] = callKind
		}
		if f.begin != "" && r.pos == 0 {
			tags[f.begin] = callOpening
		}
		if r.bare {
			tags[f.name] = callName
		}
		return tags
	case callBegin:
		if f.name == "" {
			return nil
		}
		return map[string]callState{f.name: callName}
	case callInside, callAfter:
		if f.last == "" {
			return map[string]callState{f.key: callKey, f.close: callComplete}
		}
		if r.bare {
			return map[string]callState{f.key: callKey, f.last: callComplete}
		}
		return map[string]callState{f.key: callKey, f.last: callEnd}
	case callKeyEnd:
		return map[string]callState{f.value: callValue}
	case callFence:
		return map[string]callState{fenceJSON: callFence, fence: callFence}
	case callFenceEnd:
		return map[string]callState{fence: callEnd, f.close: callComplete}
	}
	return map[string]callState{f.close: callComplete}
}

// step reads one part of the call. more reports that it needs a longer buffer.
func (r *callReader) step(buf []byte) (more bool, err error) {
	switch r.state {
	case callName, callKey:
		if r.form.quote != "" {
			return r.readMarkedName(buf)
		}
		return r.readName(buf)
	case callMarked:
		return r.readMarked(buf)
	case callValue:
		return r.readValue(buf), nil
	case callKind:
		return r.readKind(buf)
	case callObject:
		return r.readObject(buf)
	}
	for r.pos < len(buf) && strings.IndexByte(" \t\r\n", buf[r.pos]) >= 0 {
		r.pos++
	}
	switch {
	case r.pos == len(buf):
		return true, nil
	case buf[r.pos] == '{' && (r.state == callBegin && r.form.object || r.state == callFence):
		r.state, r.start = callObject, r.pos
		return false, nil
	case r.state == callBegin && r.form.key != "" && r.form.name == "":
		r.state, r.start = callName, r.pos
		return false, nil
	case r.state == callAfter:
		return r.readAfter(buf)
	}
	return r.expect(buf)
}

func errUnless(ok bool) error {
	if ok {
		return nil
	}
	return errNotCall
}

// expect consumes one of the possible tags and enters its state.
func (r *callReader) expect(buf []byte) (more bool, err error) {
	rest := buf[r.pos:]
	tags := r.after()
	found := ""
	for tag := range tags {
		if bytes.HasPrefix(rest, []byte(tag)) && len(tag) > len(found) {
			found = tag
		}
		more = more || len(rest) < len(tag) && strings.HasPrefix(tag, string(rest))
	}
	if more || found == "" {
		return more, errUnless(more)
	}
	r.pos += len(found)
	r.state, r.start = tags[found], r.pos
	return false, nil
}

// readName reads the name of the function or of a parameter: up to the end of the tag that it
// stands in, or up to the next tag.
func (r *callReader) readName(buf []byte) (more bool, err error) {
	inside := r.form.keyEnd == ""
	for ; r.pos < len(buf); r.pos++ {
		switch c := buf[r.pos]; {
		case r.pos-r.start > maxName:
			return false, errNotCall
		case inside && c == '>', !inside && c == '<':
			return r.finishName(buf)
		case inside && (c == '\n' || c == '<'):
			return false, errNotCall
		case !inside && c > ' ' && bytes.Contains(bytes.TrimLeft(buf[r.start:r.pos], " \t\r\n"), []byte("\n")):
			return false, errNotCall // the line break was not around the name
		}
	}
	return true, nil
}

// finishName reads the name that ends at pos, and its end tag.
func (r *callReader) finishName(buf []byte) (more bool, err error) {
	name := strings.TrimSpace(string(buf[r.start:r.pos]))
	if name == "" {
		return false, errNotCall
	}
	end := ">"
	if r.form.keyEnd != "" {
		if end = r.form.keyEnd; r.state == callName {
			end = ""
		}
	}
	if rest := string(buf[r.pos:]); !strings.HasPrefix(rest, end) {
		more = strings.HasPrefix(end, rest)
		return more, errUnless(more)
	}
	r.pos += len(end)
	switch r.start = r.pos; {
	case r.state == callName:
		r.call, r.fields = chat.ToolCall{Name: name}, &jinja.Map{}
		if r.bare && !r.declared() {
			return false, errNotCall
		}
		r.state = callInside
	case r.form.value != "":
		r.key, r.state = name, callKeyEnd
	default:
		r.key, r.state = name, callValue
	}
	return false, nil
}

// readKind reads the text before the separator: the name, or the kind of a call, whose name
// and fenced arguments follow.
func (r *callReader) readKind(buf []byte) (more bool, err error) {
	rest := buf[r.start:]
	i := bytes.Index(rest, []byte(r.form.sep))
	more = i < 0
	if more {
		i = len(rest) - partial(rest, r.form.sep)
	}
	if i > maxName || bytes.ContainsAny(rest[:i], "\n<{") {
		return false, errNotCall
	}
	if more {
		return true, nil
	}
	r.pos = r.start + i + len(r.form.sep)
	name := strings.TrimSpace(string(rest[:i]))
	body := bytes.TrimLeft(buf[r.pos:], " \t\r\n")
	if len(body) == 0 {
		return true, nil
	}
	if body[0] != '{' {
		end := bytes.IndexAny(body, "\n<`{")
		if end > maxName || end < 0 && len(body) > maxName {
			return false, errNotCall
		}
		if end < 0 {
			return true, nil
		}
		name = strings.TrimSpace(string(body[:end]))
		r.pos = len(buf) - len(body) + end
	}
	if name == "" {
		return false, errNotCall
	}
	r.call = chat.ToolCall{Name: name}
	r.state = callFence
	return false, nil
}

// readValue looks for the end of a value.
func (r *callReader) readValue(buf []byte) (more bool) {
	tag := r.form.valueEnd
	i := bytes.Index(buf[r.pos:], []byte(tag))
	if i < 0 {
		r.pos = max(r.pos, len(buf)-len(tag)+1)
		return true
	}
	r.end = r.pos + i
	r.pos = r.end + len(tag)
	r.state = callAfter
	return false
}

// readAfter decides whether the value ended: a closing tag within a value, which
// is not escaped, is hardly followed by the tag after a parameter.
func (r *callReader) readAfter(buf []byte) (more bool, err error) {
	end, start := r.end, r.start
	more, err = r.expect(buf)
	switch {
	case more:
		return true, nil
	case err != nil:
		r.state, r.pos = callValue, end+1
		return false, nil
	}
	value := buf[start:end]
	if r.form.lines {
		value = bytes.TrimSuffix(bytes.TrimPrefix(value, []byte("\n")), []byte("\n"))
	}
	r.fields.Set(r.key, r.convert(string(value)))
	return false, nil
}

// convert gives an argument the type its tool declares.
func (r *callReader) convert(value string) jinja.Value {
	var tool chat.Tool
	if i := r.tool(); i >= 0 {
		tool = r.tools[i]
	}
	return convert(tool, r.key, value, r.form.guess)
}

// tool is the index of the called tool; negative: there is none.
func (r *callReader) tool() int {
	return slices.IndexFunc(r.tools, func(t chat.Tool) bool { return t.Name() == r.call.Name })
}

// declared reports whether there is a tool of the call's name.
func (r *callReader) declared() bool { return r.tool() >= 0 }

// passes reports whether buf has a tag, which is always the same.
func (r *callReader) passes(buf []byte, tag string) bool {
	found := bytes.Contains(buf[r.seen:], []byte(tag))
	r.seen = max(r.seen, len(buf)-len(tag)+1)
	return found
}

// opening is the length of the tag that buf begins with, and of the tag of a name behind it, which
// does not begin another call.
func (r *callReader) opening(buf []byte) int {
	if r.bare {
		return len(r.form.name)
	}
	n := bytes.IndexByte(buf, '>') + 1
	rest := bytes.TrimLeft(buf[n:], " \t\r\n")
	if r.form.name != "" && bytes.HasPrefix(rest, []byte(r.form.name)) {
		n = len(buf) - len(rest) + len(r.form.name)
	}
	return n
}

// readObject looks for the end of a JSON object. A byte that is invalid
// at its place ends the attempt at once, so that a missing bracket does not hide
// a closing tag.
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
	if r.form.sep != "" { // they are the arguments
		r.fields, r.state = v.Map(), callFenceEnd
		return errUnless(v.Kind() == jinja.KindMap)
	}
	if err = values.ReadToolCall(&r.call, v); err != nil {
		return err
	}
	if r.fields = *values.Arguments(&r.call.Arguments); r.fields == nil {
		r.fields = &jinja.Map{}
	}
	r.call.ID = ""
	r.state = callEnd
	return nil
}
