package grammar

import (
	"errors"
	"slices"
)

// unfolding is schemas on their way to shapes, in the order of the text: schemas whose own
// keywords hold in any case, and groups of alternatives that are still to be chosen from.
type unfolding struct {
	parts []part
	rest  []part // parts that follow the added ones
}

// part is a schema or a group.
type part struct {
	schema *value
	*group
}

// group is alternatives, at least one of which must hold.
type group struct {
	at   *value // their position
	list []*value
	path []*value // the schemas that led to it
	only bool     // exactly one of them must hold
	not  *value   // the schema that must not hold; the alternatives are the ways to violate it
	some *value   // the schema that excludes a member; the alternatives are the members
}

// chosen lists the schemas among parts.
func chosen(parts []part) []*value {
	list := make([]*value, 0, len(parts))
	for _, p := range parts {
		if p.schema != nil {
			list = append(list, p.schema)
		}
	}
	return list
}

// errBusy reports that shapes are requested while they are computed: in a schema that refers to
// itself the difference between two alternatives is in themselves.
var errBusy = errors.New("depends on itself")

// shapes lists the shapes of a conjunction of schemas, alternatives multiplied out. Every valid
// value has one of the shapes.
func (c *compiler) shapes(schemas []*value) ([]*shape, error) {
	schemas, key := normal(schemas)
	if list, ok := c.known[key]; ok {
		return list, nil
	}
	if c.busy[key] {
		return nil, errBusy
	}
	c.busy[key] = true
	defer delete(c.busy, key)
	var u unfolding
	for _, v := range schemas {
		if err := c.unfold(&u, v, nil); err != nil {
			return nil, err
		}
	}
	list, err := c.multiply(u.parts)
	if err != nil {
		return nil, err
	}
	c.known[key] = list
	return list, nil
}

// unfold adds a schema and those it refers to.
func (c *compiler) unfold(u *unfolding, v *value, path []*value) error {
	if slices.Contains(path, v) {
		return v.errorf("refers to itself without end")
	}
	if c.steps++; c.steps > maxSteps {
		return v.errorf("the schema expands to more than %d parts", maxSteps)
	}
	if err := c.work.spend(1); err != nil {
		return v.errorf("%w", err)
	}
	same := func(p part) bool { return p.schema == v }
	if slices.ContainsFunc(u.parts, same) || slices.ContainsFunc(u.rest, same) {
		return nil
	}
	path = append(slices.Clone(path), v)
	if ref := v.alone(c.refs); ref != nil {
		return c.relate(u, v, "$ref", ref, path)
	}
	u.parts = append(u.parts, part{schema: v})
	for i, name := range v.names {
		if err := c.relate(u, v, name, v.list[i], path); err != nil {
			return err
		}
	}
	return nil
}

// alone is the reference beside which other keywords are ignored, as in former drafts, or
// nil.
func (v *value) alone(r *references) *value {
	if r.former {
		return v.member("$ref")
	}
	return nil
}

// relate adds the keyword m of a schema v that refers to other schemas.
func (c *compiler) relate(u *unfolding, v *value, name string, m *value, path []*value) error {
	add := func(g group) { u.parts = append(u.parts, part{group: &g}) }
	switch name {
	case someMember:
		if v.made {
			add(group{at: m, path: path, some: m})
		}
	case "$ref":
		to, err := c.refs.resolve(m)
		if err != nil {
			return err
		}
		return c.unfold(u, to, path)
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
		add(group{at: m, list: m.list, path: path, only: name == "oneOf"})
	case "not":
		list, err := c.negate(m)
		if err != nil {
			return err
		}
		add(group{at: m, list: list, path: path, not: m})
	case "if":
		list, err := c.conditional(v, m)
		if err != nil || list == nil {
			return err
		}
		add(group{at: m, list: list, path: path})
	case "dependencies", "dependentRequired", "dependentSchemas":
		if err := isDependencies(m); err != nil {
			return err
		}
		for i, member := range m.names {
			add(group{at: m.list[i], list: c.dependency(member, m.list[i]), path: path})
		}
	}
	return nil
}

// multiply tries each alternative of the first group. Alternatives that
// contradict the common conditions are left out at once.
func (c *compiler) multiply(parts []part) ([]*shape, error) {
	if err := c.work.spend(16 * len(parts)); err != nil {
		return nil, c.root.errorf("%w", err)
	}
	s, err := newShape(chosen(parts))
	if err != nil || s.never || c.contradicts(s) {
		return nil, err
	}
	at := slices.IndexFunc(parts, func(p part) bool { return p.group != nil })
	if at < 0 {
		if s.refused != nil {
			return nil, s.refused.errorf("the values that %.60s excludes cannot be expressed; say what is allowed", s.refused.text)
		}
		return []*shape{s}, nil
	}
	g := parts[at].group
	if g.not != nil && c.excludes(s, g.not) {
		return c.multiply(slices.Concat(parts[:at], parts[at+1:]))
	}
	if g.only {
		return c.exactlyOne(parts, at)
	}
	alternatives := g.list
	if g.some != nil {
		if alternatives, err = c.violateOthers(s, g.some); err != nil {
			return nil, err
		}
	}
	var found []*shape
	for _, v := range alternatives {
		list, err := c.choose(parts, at, v)
		if err != nil {
			return nil, err
		}
		if found = append(found, list...); len(found) > maxAlternatives {
			return nil, g.at.errorf("more than %d alternatives", maxAlternatives)
		}
	}
	return found, nil
}

// contradicts reports whether certainly nothing has a shape: no value of its enum
// fits, or a required member is impossible.
func (c *compiler) contradicts(s *shape) bool {
	if s.enum != nil {
		return !slices.ContainsFunc(s.enum, func(v *value) bool {
			fits, err := c.fits(s, v, false)
			return fits || err != nil
		})
	}
	if s.types != typeObject || len(s.schemas) == 1 {
		return false
	}
	return slices.ContainsFunc(s.required, func(name string) bool {
		list, err := c.memberShapes(s, name)
		return err == nil && len(list) == 0
	})
}

// choose lists the shapes with some schemas in place of the group at a place.
func (c *compiler) choose(parts []part, at int, list ...*value) ([]*shape, error) {
	next := unfolding{parts: slices.Clone(parts[:at]), rest: parts[at+1:]}
	for _, v := range list {
		if err := c.unfold(&next, v, parts[at].path); err != nil {
			return nil, err
		}
	}
	return c.multiply(append(next.parts, next.rest...))
}

// exactlyOne lists the shapes of each alternative of a group, without values that another
// alternative allows too.
func (c *compiler) exactlyOne(parts []part, at int) ([]*shape, error) {
	g := parts[at].group
	lists := make([][]*shape, len(g.list))
	total := 0
	for i, v := range g.list {
		var err error
		if lists[i], err = c.choose(parts, at, v); err != nil {
			return nil, err
		}
		if total += len(lists[i]); total > maxAlternatives {
			return nil, g.at.errorf("more than %d alternatives", maxAlternatives)
		}
	}
	var found []*shape
	for i, v := range g.list {
		both, err := c.overlaps(lists, i)
		if err != nil {
			return nil, err
		}
		alone := lists[i]
		if len(both) > 0 {
			schemas := []*value{v}
			for _, j := range both {
				schemas = append(schemas, c.not(g.list[j]))
			}
			if alone, err = c.choose(parts, at, schemas...); err != nil {
				return nil, g.at.errorf("alternatives %d and %d may both hold, which oneOf forbids; use anyOf, or a required const property with a different value in each (%w)", min(i, both[0]), max(i, both[0]), err)
			}
		}
		found = append(found, alone...)
	}
	return found, nil
}

// overlaps lists the alternatives that may be true together with alternative i, given the shapes
// of each.
func (c *compiler) overlaps(lists [][]*shape, i int) ([]int, error) {
	var both []int
	for j := range lists {
		if j == i {
			continue
		}
		apart, err := c.allApart(lists[i], lists[j], 0)
		if err != nil {
			return nil, err
		}
		if !apart {
			both = append(both, j)
		}
	}
	return both, nil
}

// excludes reports whether it is certain that nothing of shape s is valid against a schema.
func (c *compiler) excludes(s *shape, schema *value) bool {
	list, err := c.shapes([]*value{schema})
	if err != nil {
		return false
	}
	apart, err := c.allApart([]*shape{s}, list, 0)
	return err == nil && apart
}
