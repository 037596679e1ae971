package dialogue

import (
	"bytes"
	"strings"

	"github.com/foretoken/foretoken/chat"
	"github.com/foretoken/foretoken/internal/jinja"
)

// maxMarkedDepth bounds the nesting of marked arguments.
const maxMarkedDepth = 100

// readMarkedName reads the name of the function, up to its arguments.
func (r *callReader) readMarkedName(buf []byte) (more bool, err error) {
	for ; r.pos < len(buf); r.pos++ {
		c := buf[r.pos]
		if c == '{' {
			break
		}
		if r.pos-r.start > maxName || strings.IndexByte("\n<>}`", c) >= 0 {
			return false, errNotCall
		}
	}
	if r.pos == len(buf) {
		return true, nil
	}
	name := strings.TrimSpace(string(buf[r.start:r.pos]))
	if name == "" {
		return false, errNotCall
	}
	r.call = chat.ToolCall{Name: name}
	r.state, r.start = callMarked, r.pos
	return false, nil
}

// readMarked looks for the end of the arguments: an object of JSON, but for keys without quotation marks and
// strings between marks. Strings and keys of JSON are read as well.
func (r *callReader) readMarked(buf []byte) (more bool, err error) {
	for r.pos < len(buf) {
		c, rest := buf[r.pos], buf[r.pos:]
		switch {
		case r.quoted:
			r.quoted, r.escaped = c != '"' || r.escaped, c == '\\' && !r.escaped
		case c == r.form.quote[0] && bytes.HasPrefix(rest, []byte(r.form.quote)):
			r.marked, r.fresh = !r.marked, false
			r.pos += len(r.form.quote)
			continue
		case c == r.form.quote[0] && strings.HasPrefix(r.form.quote, string(rest)):
			return true, nil
		case r.marked:
		case c == '"' && r.fresh:
			r.quoted = true
		case c == '{' || c == '[':
			if r.depth++; r.depth > maxMarkedDepth {
				return false, errNotCall
			}
		case c == '}' || c == ']':
			if r.depth--; r.depth == 0 {
				r.pos++
				return false, r.finishMarked(buf[r.start:r.pos])
			}
		}
		if !r.marked && !r.quoted && c > ' ' {
			r.fresh = strings.IndexByte("{[,:", c) >= 0
		}
		r.pos++
	}
	return true, nil
}

// finishMarked reads the arguments that have been found.
func (r *callReader) finishMarked(data []byte) error {
	m := markedValue{data, r.form.quote}
	v, err := m.read()
	if err == nil && len(m.rest) > 0 {
		err = errNotCall
	}
	r.fields, r.state = v.Map(), callEnd
	return err
}

// markedValue reads marked values. Their nesting is bounded by readMarked.
type markedValue struct {
	rest  []byte
	quote string
}

// next skips white space and consumes one of the given bytes, if it is next.
func (m *markedValue) next(any string) (c byte, ok bool) {
	m.rest = bytes.TrimLeft(m.rest, " \t\r\n")
	if len(m.rest) == 0 || strings.IndexByte(any, m.rest[0]) < 0 {
		return 0, false
	}
	c = m.rest[0]
	m.rest = m.rest[1:]
	return c, true
}

// read reads a value: words that are none of JSON's or Python's, nor numbers, are strings.
func (m *markedValue) read() (jinja.Value, error) {
	switch c, _ := m.next("{["); c {
	case '{':
		fields := &jinja.Map{}
		err := m.list('}', func() error {
			key, err := m.text(":")
			if _, ok := m.next(":"); err != nil || !ok {
				return errNotCall
			}
			v, err := m.read()
			name, _ := key.Text()
			fields.Set(name, v)
			return err
		})
		return jinja.Dict(fields), err
	case '[':
		var items []jinja.Value
		err := m.list(']', func() error {
			v, err := m.read()
			items = append(items, v)
			return err
		})
		return jinja.List(items), err
	}
	return m.text(",]}")
}

// list reads parts with commas between them, up to the end. One comma too many is ignored.
func (m *markedValue) list(end byte, read func() error) error {
	for {
		if _, ok := m.next(string(end)); ok {
			return nil
		}
		if err := read(); err != nil {
			return err
		}
		if _, ok := m.next(","); !ok && (len(m.rest) == 0 || m.rest[0] != end) {
			return errNotCall
		}
	}
}

// text reads a string, or a word up to one of the given bytes, or a key.
func (m *markedValue) text(ends string) (jinja.Value, error) {
	if after, ok := bytes.CutPrefix(m.rest, []byte(m.quote)); ok {
		text, rest, ok := bytes.Cut(after, []byte(m.quote))
		m.rest = rest
		return jinja.String(string(text)), errUnless(ok)
	}
	n := bytes.IndexAny(m.rest, ends)
	if len(m.rest) > 0 && m.rest[0] == '"' {
		n = 1
		for n < len(m.rest) && m.rest[n] != '"' {
			if m.rest[n] == '\\' {
				n++
			}
			n++
		}
		n++
	}
	if n < 0 || n > len(m.rest) {
		return jinja.Value{}, errNotCall
	}
	word := bytes.TrimRight(m.rest[:n], " \t\r\n")
	m.rest = m.rest[n:]
	if len(word) == 0 || bytes.IndexByte(word, '\n') >= 0 {
		return jinja.Value{}, errNotCall
	}
	if ends == ":" && word[0] != '"' {
		return jinja.String(string(word)), nil
	}
	switch string(word) {
	case "None":
		return jinja.None(), nil
	case "True", "False":
		return jinja.Bool(word[0] == 'T'), nil
	}
	if v, err := jinja.DecodeJSON(word); err == nil && v.Kind() != jinja.KindMap && v.Kind() != jinja.KindList {
		return v, nil
	}
	return jinja.String(string(word)), nil
}
