package grammar

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Limits on a schema as a text.
const (
	maxSchemaBytes = 1 << 20
	maxSchemaDepth = 128
)

// value is a JSON value with its place in the schema. The members of an object keep their
// order.
type value struct {
	kind   valueKind
	text   string // of a string: itself; of a number or boolean: as it is written
	list   []*value
	names  []string       // of an object's members, whose values are list
	index  map[string]int // of the names
	number int            // counts the values of a schema

	parent *value
	name   string // in the parent
}

type valueKind uint8

const (
	null valueKind = iota
	boolean
	number
	text
	array
	object
)

var kindNames = [...]string{"null", "a boolean", "a number", "a string", "an array", "an object"}

// parseValue reads one JSON text.
func parseValue(data []byte) (*value, error) {
	if len(data) > maxSchemaBytes {
		return nil, fmt.Errorf("%d bytes, want at most %d", len(data), maxSchemaBytes)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	p := valueParser{d: d}
	v, err := p.value(nil, "", 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more text follows the JSON value")
	}
	return v, nil
}

type valueParser struct {
	d     *json.Decoder
	count int
}

func (p *valueParser) value(parent *value, name string, depth int) (*value, error) {
	if depth > maxSchemaDepth {
		return nil, fmt.Errorf("nested more than %d deep", maxSchemaDepth)
	}
	t, err := p.d.Token()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	v := &value{parent: parent, name: name, number: p.count}
	p.count++
	switch t := t.(type) {
	case nil:
		v.kind, v.text = null, "null"
	case bool:
		v.kind, v.text = boolean, strconv.FormatBool(t)
	case json.Number:
		v.kind, v.text = number, t.String()
	case string:
		v.kind, v.text = text, t
	case json.Delim:
		v.kind = array
		if t == '{' {
			v.kind = object
		}
		if err := p.members(v, depth); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// members reads what is inside an array or object, and its end.
func (p *valueParser) members(v *value, depth int) error {
	v.index = map[string]int{}
	for p.d.More() {
		name := strconv.Itoa(len(v.list))
		if v.kind == object {
			t, err := p.d.Token()
			if err != nil {
				return fmt.Errorf("not JSON: %w", err)
			}
			name, _ = t.(string) // the decoder takes nothing else there
			if _, twice := v.index[name]; twice {
				return fmt.Errorf("%s has two members %q", v.pointer(), name)
			}
			v.index[name] = len(v.names)
			v.names = append(v.names, name)
		}
		m, err := p.value(v, name, depth+1)
		if err != nil {
			return err
		}
		v.list = append(v.list, m)
	}
	if _, err := p.d.Token(); err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	return nil
}

// member is the value of an object's member, nil if there is none.
func (v *value) member(name string) *value {
	if i, ok := v.index[name]; ok {
		return v.list[i]
	}
	return nil
}

// pointer is the place of v as a JSON pointer (RFC 6901) in a URI fragment's clothes.
func (v *value) pointer() string {
	if v.parent == nil {
		return "#"
	}
	name := strings.NewReplacer("~", "~0", "/", "~1").Replace(v.name)
	return v.parent.pointer() + "/" + name
}

// follow is the value that a pointer behind "#" leads to, nil if there is none.
func (v *value) follow(pointer string) *value {
	if pointer == "" {
		return v
	}
	if pointer[0] != '/' {
		return nil
	}
	for part := range strings.SplitSeq(pointer[1:], "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch v.kind {
		case object:
			v = v.member(part)
		case array:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(v.list) {
				return nil
			}
			v = v.list[i]
		default:
			return nil
		}
		if v == nil {
			return nil
		}
	}
	return v
}

// canonical spells a value in the shortest way. Members keep their order.
func (v *value) canonical() string {
	switch v.kind {
	case text:
		return `"` + inString(v.text) + `"`
	case array, object:
		parts := make([]string, len(v.list))
		for i, m := range v.list {
			parts[i] = m.canonical()
			if v.kind == object {
				parts[i] = `"` + inString(v.names[i]) + `":` + parts[i]
			}
		}
		if v.kind == array {
			return "[" + strings.Join(parts, ",") + "]"
		}
		return "{" + strings.Join(parts, ",") + "}"
	default:
		return v.text
	}
}

// errorf is an error that names the value's place.
func (v *value) errorf(format string, args ...any) error {
	return fmt.Errorf("schema: %s: %w", v.pointer(), fmt.Errorf(format, args...))
}
