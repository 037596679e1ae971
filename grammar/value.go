package grammar

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/foretoken/foretoken/internal/jsontext"
)

// Limits on a schema as a text.
const (
	maxSchemaBytes = 1 << 20
	maxSchemaDepth = 128
)

// value is a JSON value with its place in the schema. The members of an object keep their
// order.
type value struct {
	kind   jsontext.Kind
	text   string // of a string: itself; of a number or boolean: its JSON
	list   []*value
	names  []string       // of an object's members, whose values are list
	index  map[string]int // of the names
	number int            // counts the values of a schema
	made   bool           // it is not in the text, but stands for something there

	parent *value
	name   string // in the parent
}

const (
	null    = jsontext.Null
	boolean = jsontext.Bool
	number  = jsontext.Number
	text    = jsontext.String
	array   = jsontext.Array
	object  = jsontext.Object
)

var kindNames = [...]string{
	null: "null", boolean: "a boolean", number: "a number", text: "a string", array: "an array", object: "an object",
}

// parseValue reads one JSON text.
func parseValue(data []byte) (root *value, err error) {
	count, limits := 0, jsontext.Limits{Bytes: maxSchemaBytes, Depth: maxSchemaDepth, Replace: true}
	err = jsontext.Read(data, limits, func(r *jsontext.Reader) error {
		root, err = readValue(r, nil, "", &count)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("not valid JSON for a schema: %w", err)
	}
	return root, nil
}

// readValue reads the value with the given name in its parent; count is the number of values
// read before.
func readValue(r *jsontext.Reader, parent *value, name string, count *int) (v *value, err error) {
	v = &value{parent: parent, name: name, number: *count, kind: r.Kind()}
	*count++
	switch v.kind {
	case array:
		err = r.Array(func(i int) error { return v.add(r, strconv.Itoa(i), count) })
	case object:
		v.index = map[string]int{}
		err = r.Object(func(key []byte) error {
			name := string(key)
			if _, twice := v.index[name]; twice {
				return r.Errorf("%s has two members %q", v.pointer(), name)
			}
			v.index[name] = len(v.names)
			v.names = append(v.names, name)
			return v.add(r, name, count)
		})
	default:
		var scalar []byte
		scalar, err = r.Scalar()
		v.text = string(scalar)
	}
	return v, err
}

// add reads an element of an array or the value of an object's member.
func (v *value) add(r *jsontext.Reader, name string, count *int) error {
	m, err := readValue(r, v, name, count)
	v.list = append(v.list, m)
	return err
}

// member is the value of an object's member, or nil.
func (v *value) member(name string) *value {
	if len(v.names) <= 8 { // comparing is faster than hashing, and most schemas have few keywords
		if i := slices.Index(v.names, name); i >= 0 {
			return v.list[i]
		}
		return nil
	}
	if i, ok := v.index[name]; ok {
		return v.list[i]
	}
	return nil
}

// The escapes of names in JSON pointers.
var (
	pointerEscape   = strings.NewReplacer("~", "~0", "/", "~1")
	pointerUnescape = strings.NewReplacer("~1", "/", "~0", "~")
)

// pointer is the place of v as a JSON pointer (RFC 6901) in a URI fragment's clothes.
func (v *value) pointer() string {
	if v.parent == nil {
		return "#"
	}
	return v.parent.pointer() + "/" + pointerEscape.Replace(v.name)
}

// follow is the value that a pointer behind "#" leads to, or nil.
func (v *value) follow(pointer string) *value {
	if pointer == "" {
		return v
	}
	if pointer[0] != '/' {
		return nil
	}
	for part := range strings.SplitSeq(pointer[1:], "/") {
		part = pointerUnescape.Replace(part)
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
