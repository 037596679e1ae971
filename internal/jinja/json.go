package jinja

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// AppendJSON appends v as JSON the way Python's json.dumps writes it with
// ensure_ascii off: keys in order, ", " and ": " between things. Values without
// a JSON form, and values nested deeper than [Limits] allows by default, are an
// error.
func AppendJSON(dst []byte, v Value) ([]byte, error) {
	limits := Limits{Steps: math.MaxInt, Bytes: math.MaxInt}.orDefault()
	r := &run{limits: limits, steps: limits.Steps, bytes: limits.Bytes}
	e := &jsonEncoder{run: r, item: ", ", key: ": ", dst: dst}
	if err := e.encode(v, 0); err != nil {
		return dst, fmt.Errorf("jinja: %w", err)
	}
	return e.dst, nil
}

// jsonEncoder writes JSON with the options of Python's json.dumps.
type jsonEncoder struct {
	*run
	dst       []byte
	ascii     bool
	sortKeys  bool
	indented  bool
	indent    string // of one level
	item, key string // separators
}

// filterToJSON is the tojson that Hugging Face puts in the place of Jinja's: it
// does not escape for HTML.
func filterToJSON(r *run, v Value, a args) (Value, error) {
	bound, err := a.bind("tojson", 0, "ensure_ascii", "indent", "separators", "sort_keys")
	if err != nil {
		return Value{}, err
	}
	e := &jsonEncoder{run: r, ascii: truthy(bound[0]), sortKeys: truthy(bound[3]), item: ", ", key: ": "}
	if indent := bound[1].or(None()); indent.kind != KindNone {
		if indent.kind != KindString {
			if indent, err = r.repeat(String(" "), indent); err != nil {
				return Value{}, err
			}
		}
		e.indented, e.indent, e.item = true, indent.str, ","
	}
	if bound[2].or(None()).kind != KindNone {
		parts, err := r.elements(bound[2])
		if err != nil {
			return Value{}, err
		}
		if len(parts) != 2 || parts[0].kind != KindString || parts[1].kind != KindString {
			return Value{}, errors.New("tojson takes separators as a pair of strings")
		}
		e.item, e.key = parts[0].str, parts[1].str
	}
	if err := e.encode(v, 0); err != nil {
		return Value{}, err
	}
	return String(string(e.dst)), r.alloc(len(e.dst))
}

func (e *jsonEncoder) write(s string) error {
	if err := e.alloc(len(s)); err != nil {
		return err
	}
	e.dst = append(e.dst, s...)
	return nil
}

func (e *jsonEncoder) encode(v Value, level int) error {
	if err := e.enter(); err != nil {
		return err
	}
	defer e.leave()
	switch v.kind {
	case KindString:
		return e.encodeString(v.str)
	case KindList, KindTuple:
		return e.encodeList(v.Items(), level)
	case KindMap:
		return e.encodeMap(v.Map(), level)
	}
	s, ok := jsonScalar(v)
	if !ok {
		return fmt.Errorf("object of type %s is not JSON serializable", v.typeName())
	}
	return e.write(s)
}

// jsonScalar returns the JSON form of a value that has neither quotes nor
// brackets.
func jsonScalar(v Value) (string, bool) {
	switch v.kind {
	case KindNone:
		return "null", true
	case KindBool:
		if v.truth() {
			return "true", true
		}
		return "false", true
	case KindInt:
		return string(appendInt(nil, v)), true
	case KindFloat:
		switch f := v.float(); {
		case math.IsNaN(f):
			return "NaN", true
		case math.IsInf(f, 1):
			return "Infinity", true
		case math.IsInf(f, -1):
			return "-Infinity", true
		}
		return string(appendFloat(nil, v.float())), true
	}
	return "", false
}

// newline begins a line of the given level, if there are lines.
func (e *jsonEncoder) newline(level int) error {
	if !e.indented {
		return nil
	}
	if err := e.write("\n"); err != nil {
		return err
	}
	for range level {
		if err := e.write(e.indent); err != nil {
			return err
		}
	}
	return e.step(level)
}

func (e *jsonEncoder) encodeList(items []Value, level int) error {
	if len(items) == 0 {
		return e.write("[]")
	}
	if err := e.write("["); err != nil {
		return err
	}
	for i, item := range items {
		if err := e.separate(i, level); err != nil {
			return err
		}
		if err := e.encode(item, level+1); err != nil {
			return err
		}
	}
	if err := e.newline(level); err != nil {
		return err
	}
	return e.write("]")
}

// separate writes the separator before the i-th element.
func (e *jsonEncoder) separate(i, level int) error {
	if i > 0 {
		if err := e.write(e.item); err != nil {
			return err
		}
	}
	return e.newline(level + 1)
}

func (e *jsonEncoder) encodeMap(m *Map, level int) error {
	if m.Len() == 0 {
		return e.write("{}")
	}
	keys, err := e.keys(m)
	if err != nil {
		return err
	}
	if e.sortKeys {
		if keys, err = e.sorted(keys, keys, false); err != nil {
			return err
		}
	}
	if err := e.write("{"); err != nil {
		return err
	}
	for i, key := range keys {
		if err := e.separate(i, level); err != nil {
			return err
		}
		name, ok := jsonScalar(key)
		if !ok {
			name = key.str // a map has no other keys
		}
		if err := e.encodeString(name); err != nil {
			return err
		}
		if err := e.write(e.key); err != nil {
			return err
		}
		k, _ := keyOf(key)
		if err := e.encode(m.entries[m.find(k)].value, level+1); err != nil {
			return err
		}
	}
	if err := e.newline(level); err != nil {
		return err
	}
	return e.write("}")
}

func (e *jsonEncoder) encodeString(s string) error {
	if err := e.alloc(len(s) + 2); err != nil {
		return err
	}
	start := len(e.dst)
	e.dst = append(e.dst, '"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			e.dst = append(e.dst, '\\', byte(c))
		case c == '\n':
			e.dst = append(e.dst, `\n`...)
		case c == '\r':
			e.dst = append(e.dst, `\r`...)
		case c == '\t':
			e.dst = append(e.dst, `\t`...)
		case c == '\b':
			e.dst = append(e.dst, `\b`...)
		case c == '\f':
			e.dst = append(e.dst, `\f`...)
		case c < 0x20 || e.ascii && c > 0x7e && c < 0x10000:
			e.dst = appendHex(append(e.dst, `\u`...), c, 4)
		case e.ascii && c >= 0x10000:
			c -= 0x10000
			e.dst = appendHex(append(e.dst, `\u`...), 0xd800+c>>10, 4)
			e.dst = appendHex(append(e.dst, `\u`...), 0xdc00+c&0x3ff, 4)
		default:
			e.dst = utf8.AppendRune(e.dst, c)
		}
	}
	e.dst = append(e.dst, '"')
	return e.alloc(max(0, len(e.dst)-start-len(s)-2))
}
