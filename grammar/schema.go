package grammar

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Limits on what a schema may unfold to.
const (
	maxSteps        = 1 << 15 // schemas looked at, again and again where alternatives multiply
	maxAlternatives = 1 << 10 // of one value
)

// JSON is any JSON value, and Object any JSON object.
func JSON() Source { return Schema([]byte(`true`)) }

// Object is any JSON object.
func Object() Source { return Schema([]byte(`{"type": "object"}`)) }

// Schema is the JSON values that a schema allows; docs/structured-output.md says how they
// are written and which keywords there are. The schema is not kept.
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
	// others are automata of names that are none of some, by all that decides on them.
	others map[string]*dfa
	// allowed are the names that propertyNames allows, by the schemas of these.
	allowed map[string]nameSet
	steps   int

	// For Bare: what occurs in no string, "" for anything may, and the words that none is.
	marker   string
	end      string // of a value, with the marker in it
	reserved []string
}

func newCompiler(b *builder, root *value) *compiler {
	return &compiler{builder: b, root: root, refs: newReferences(root), rules: map[string]int32{}, known: map[string][]*shape{}, others: map[string]*dfa{}, allowed: map[string]nameSet{}}
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

// normal sorts schemas, drops those that say nothing or are there twice, and gives the set
// a name.
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

// unfolding is schemas on their way to shapes: those whose own keywords hold in any case,
// and groups of alternatives of each of which one must hold.
type unfolding struct {
	schemas []*value
	groups  []group
}

// group is a list under anyOf or oneOf.
type group struct {
	list *value
	path []*value // the schemas that led to it
}

// shapes lists what the schemas allow together, alternatives multiplied out. Every valid
// value has one of the shapes.
func (c *compiler) shapes(schemas []*value) ([]*shape, error) {
	schemas, key := normal(schemas)
	if list, ok := c.known[key]; ok {
		return list, nil
	}
	var u unfolding
	for _, v := range schemas {
		if err := c.unfold(&u, v, nil); err != nil {
			return nil, err
		}
	}
	list, err := c.multiply(u)
	c.known[key] = list
	return list, err
}

// unfold adds a schema and those it refers to.
func (c *compiler) unfold(u *unfolding, v *value, path []*value) error {
	if slices.Contains(path, v) {
		return v.errorf("refers to itself without end")
	}
	if c.steps++; c.steps > maxSteps {
		return v.errorf("the schema unfolds to more than %d parts", maxSteps)
	}
	if err := c.work.spend(1); err != nil {
		return v.errorf("%w", err)
	}
	if slices.Contains(u.schemas, v) {
		return nil
	}
	path = append(slices.Clone(path), v)
	if ref := v.member("$ref"); ref != nil && c.refs.former {
		to, err := c.refs.resolve(ref)
		if err != nil {
			return err
		}
		return c.unfold(u, to, path)
	}
	u.schemas = append(u.schemas, v)
	for i, name := range v.names {
		m := v.list[i]
		switch name {
		case "$ref":
			to, err := c.refs.resolve(m)
			if err != nil {
				return err
			}
			if err := c.unfold(u, to, path); err != nil {
				return err
			}
		case "allOf":
			if err := isList(m); err != nil {
				return err
			}
			for _, part := range m.list {
				if err := c.unfold(u, part, path); err != nil {
					return err
				}
			}
		case "anyOf", "oneOf":
			if err := isList(m); err != nil {
				return err
			}
			u.groups = append(u.groups, group{m, path})
		}
	}
	return nil
}

// multiply takes one alternative of the first group after the other.
func (c *compiler) multiply(u unfolding) ([]*shape, error) {
	if len(u.groups) == 0 {
		s, err := newShape(u.schemas)
		if err != nil || s.never {
			return nil, err
		}
		return []*shape{s}, nil
	}
	g := u.groups[0]
	var (
		found []*shape
		from  []int // alternative each is from
	)
	for i, v := range g.list.list {
		next := unfolding{slices.Clone(u.schemas), slices.Clone(u.groups[1:])}
		if err := c.unfold(&next, v, g.path); err != nil {
			return nil, err
		}
		list, err := c.multiply(next)
		if err != nil {
			return nil, err
		}
		for _, s := range list {
			found, from = append(found, s), append(from, i)
		}
		if len(found) > maxAlternatives {
			return nil, g.list.errorf("more than %d alternatives", maxAlternatives)
		}
	}
	if g.list.name != "oneOf" {
		return found, nil
	}
	for i := range found {
		for j := range i {
			if from[i] == from[j] {
				continue
			}
			apart, err := c.apart(found[i], found[j], 0)
			if err != nil {
				return nil, err
			}
			if !apart {
				return nil, g.list.errorf("alternatives %d and %d may both hold, which oneOf forbids; use anyOf, or a required const property with a value of its own in each", from[j], from[i])
			}
		}
	}
	return found, nil
}

// maxApart is how deep the difference between two alternatives may lie.
const maxApart = 4

// apart reports whether it is certain that no value has both shapes.
func (c *compiler) apart(a, b *shape, depth int) (bool, error) {
	common := a.types & b.types
	if err := c.work.spend(16 + len(a.enum)*len(b.enum)/16); err != nil {
		return false, c.root.errorf("%w", err) // a shape may have no schemas
	}
	switch {
	case common == 0:
		return true, nil
	case a.enum != nil && b.enum != nil:
		return !slices.ContainsFunc(a.enum, func(x *value) bool {
			return slices.ContainsFunc(b.enum, func(y *value) bool { return alike(x, y) })
		}), nil
	case common != typeObject || depth == maxApart:
		return false, nil
	}
	for _, name := range slices.Concat(a.required, b.required) {
		x, err := c.memberShapes(a, name)
		if err != nil {
			return false, err
		}
		y, err := c.memberShapes(b, name)
		if err != nil {
			return false, err
		}
		// A member that only one demands tells them apart if the other forbids it.
		if !a.demands[name] && len(x) > 0 || !b.demands[name] && len(y) > 0 {
			continue
		}
		apart := true
		for _, p := range x {
			for _, q := range y {
				ok, err := c.apart(p, q, depth+1)
				if err != nil {
					return false, err
				}
				apart = apart && ok
			}
		}
		if apart {
			return true, nil
		}
	}
	return false, nil
}

// alike reports whether two values may be equal. Numbers and structures are not looked at
// closely.
func alike(x, y *value) bool {
	if x.kind == y.kind && (x.kind == number || x.kind == array || x.kind == object) {
		return true
	}
	return x.kind == y.kind && x.text == y.text
}

// memberShapes is what an object of a shape may have as the member of a name; nothing if it
// must not have it.
func (c *compiler) memberShapes(s *shape, name string) ([]*shape, error) {
	schemas, err := c.member(s, name)
	if err != nil {
		return nil, err
	}
	return c.shapes(schemas)
}
