package grammar

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Limits on the expansion of a schema.
const (
	maxSteps        = 1 << 14 // schemas looked at, again where alternatives multiply; 0.1 s, and no schema of MaskBench that compiles needs more
	maxAlternatives = 1 << 10 // of one value
)

// JSON is any JSON value, and Object any JSON object.
func JSON() Source { return Schema([]byte(`true`)) }

// Object is any JSON object.
func Object() Source { return Schema([]byte(`{"type": "object"}`)) }

// Schema is the JSON values that a schema allows; docs/structured-output.md has their
// notation and the supported keywords. The schema is not kept.
func Schema(schema []byte) Source {
	root, err := parseValue(schema)
	return newSource("schema", "schema", []string{string(schema)}, func(b *builder) (int32, error) {
		if err != nil {
			return 0, fmt.Errorf("schema: %w", err)
		}
		if err := isSchema(root); err != nil {
			return 0, err
		}
		return newCompiler(b, root).value([]*value{root})
	})
}

// compiler turns a schema into nodes.
type compiler struct {
	*builder
	root  *value
	refs  *references
	rules map[string]int32    // nodes of the values that some schemas describe together
	known map[string][]*shape // and their shapes
	// others are automata of undeclared names, by all of their inputs.
	others map[string]*dfa
	// allowed are the names that propertyNames allows, by the schemas of these.
	allowed map[string]nameSet
	steps   int

	busy          map[string]bool     // shapes being worked out
	count         int                 // of values, internal ones included
	nots          map[*value]*value   // the negations of schemas
	negated       map[*value][]*value // and the ways to satisfy them
	ways          map[*value][]*value // ways to satisfy conditions and dependencies
	always, never *value              // the schemas true and false

	// For Bare: the text that no string contains, "" for none, and the excluded words.
	marker   string
	end      string // of a value, with the marker in it
	reserved []string
	quote    string // for Marked: around strings, in place of quotation marks; "": values are JSON
}

func newCompiler(b *builder, root *value) *compiler {
	last := root
	for len(last.list) > 0 {
		last = last.list[len(last.list)-1]
	}
	count := last.number + 1
	return &compiler{
		builder: b, root: root, refs: newReferences(root), rules: map[string]int32{}, known: map[string][]*shape{}, others: map[string]*dfa{}, allowed: map[string]nameSet{},
		busy: map[string]bool{}, nots: map[*value]*value{}, negated: map[*value][]*value{}, ways: map[*value][]*value{},
		always: &value{kind: boolean, text: "true", number: count}, never: &value{kind: boolean, text: "false", number: count + 1},
		count: count + 2,
	}
}

// value is the node of the values that all of the schemas allow. The same schemas have the
// same node, which is how recursion ends.
func (c *compiler) value(schemas []*value) (int32, error) {
	schemas, key := normal(schemas)
	if n, ok := c.rules[key]; ok {
		return n, nil
	}
	n := c.alt()
	c.rules[key] = n
	shapes, err := c.shapes(schemas)
	if err != nil {
		return 0, err
	}
	for _, s := range shapes {
		list, err := c.shape(s)
		if err != nil {
			return 0, err
		}
		c.nodes[n].list = append(c.nodes[n].list, list...)
	}
	return n, nil
}

// normal sorts schemas, drops empty and duplicate ones, and names the
// set.
func normal(schemas []*value) ([]*value, string) {
	list := slices.Clone(schemas)
	list = slices.DeleteFunc(list, func(v *value) bool {
		return v.kind == boolean && v.text == "true" || v.kind == object && len(v.list) == 0
	})
	slices.SortFunc(list, func(a, b *value) int { return a.number - b.number })
	list = slices.Compact(list)
	key := make([]byte, 0, 4*len(list))
	for _, v := range list {
		key = binary.LittleEndian.AppendUint32(key, uint32(v.number))
	}
	return list, string(key)
}
