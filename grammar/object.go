package grammar

import (
	"fmt"
	"slices"
)

// maxPatterns bounds the patterns of patternProperties that apply to one object: each set
// of them is a class of names of its own.
const maxPatterns = 4

// object is the node of objects: the members that have a name in the schema in the order
// of the schema, then any others. It is built from the end, like an array.
func (c *compiler) object(s *shape) (int32, error) {
	m, err := c.marks(objectOpen, objectClose, objectEmpty)
	if err != nil {
		return 0, err
	}
	if int(s.members) > max(1, len(s.required)) {
		return 0, s.fewMembers.errorf("minProperties above 1 is supported only up to the number of required properties")
	}
	names := s.names()
	other, err := c.other(s, names, m.colon)
	if err != nil {
		return 0, err
	}
	// rest is what follows a member, some the members that may come next.
	rest := c.seq(c.rep(c.seq(m.comma, other), 0, unlimited), m.close)
	some := c.seq(other, rest)
	optional := true // no member that follows is required
	for i := len(names) - 1; i >= 0; i-- {
		schemas, err := c.member(s, names[i])
		if err != nil {
			return 0, err
		}
		value, err := c.value(schemas)
		if err != nil {
			return 0, err
		}
		key, err := c.choice(`"` + inString(names[i]) + `"`)
		if err != nil {
			return 0, s.errorf("%w", err)
		}
		member := c.seq(key, m.colon, value, rest)
		if s.demands[names[i]] {
			optional = false
			some = c.alt(member)
		} else {
			some = c.alt(member, some)
		}
		rest = c.alt(c.seq(m.comma, some))
		if optional {
			c.nodes[rest].list = append(c.nodes[rest].list, m.close)
		}
	}
	body := []int32{some}
	if optional && s.members == 0 {
		body = append(body, m.empty)
	}
	return c.seq(m.open, c.alt(body...)), nil
}

// names lists the members that the shape knows by name, in order.
func (s *shape) names() []string {
	var names []string
	known := map[string]bool{}
	add := func(list []string) {
		for _, name := range list {
			if !known[name] {
				known[name] = true
				names = append(names, name)
			}
		}
	}
	for _, v := range s.schemas {
		if p := v.member("properties"); p != nil {
			add(p.names)
		}
	}
	add(s.required)
	return names
}

// member is the schemas of the member of a name.
func (c *compiler) member(s *shape, name string) ([]*value, error) {
	var list []*value
	for _, v := range s.schemas {
		own := len(list)
		if p := v.member("properties"); p != nil && p.member(name) != nil {
			list = append(list, p.member(name))
		}
		if p := v.member("patternProperties"); p != nil {
			for i, m := range p.list {
				d, err := c.namePattern(m, p.names[i])
				if err != nil {
					return nil, err
				}
				if d.matches(inString(name)) {
					list = append(list, m)
				}
			}
		}
		if p := v.member("additionalProperties"); p != nil && len(list) == own {
			list = append(list, p)
		}
	}
	return list, nil
}

// namePattern is the automaton of the names that a key of patternProperties is about.
func (c *compiler) namePattern(at *value, expr string) (*dfa, error) {
	key := patternKey{expr, anywhere}
	if d, ok := c.patterns[key]; ok {
		return d, nil
	}
	d, err := c.work.pattern(expr, escaped)
	if err != nil {
		return nil, at.errorf("%w", err)
	}
	c.patterns[key] = d
	return d, nil
}

// other is the node of a member whose name is none of the given.
func (c *compiler) other(s *shape, names []string, colon int32) (int32, error) {
	var patterns []*value
	for _, v := range s.schemas {
		if p := v.member("patternProperties"); p != nil {
			patterns = append(patterns, p.list...)
		}
	}
	if len(patterns) > maxPatterns {
		return 0, s.errorf("more than %d patterns for the names of one object's members", maxPatterns)
	}
	n := c.alt()
	for set := range 1 << len(patterns) {
		schemas := s.otherSchemas(patterns, set)
		if slices.ContainsFunc(schemas, func(v *value) bool { return v.kind == boolean && v.text == "false" }) {
			continue
		}
		key, err := c.otherNames(s, names, patterns, set)
		if err != nil {
			return 0, err
		}
		value, err := c.value(schemas)
		if err != nil {
			return 0, err
		}
		c.nodes[n].list = append(c.nodes[n].list, c.seq(key, colon, value))
	}
	return n, nil
}

// otherSchemas is the schemas of a member without a name in the schema that the patterns
// of the set match, and no others.
func (s *shape) otherSchemas(patterns []*value, set int) []*value {
	var list []*value
	for _, v := range s.schemas {
		own := len(list)
		for i, p := range patterns {
			if p.parent.parent == v && set>>i&1 != 0 {
				list = append(list, p)
			}
		}
		if p := v.member("additionalProperties"); p != nil && len(list) == own {
			list = append(list, p)
		}
	}
	return list
}

// otherNames is the node of the strings that are none of the names and that the patterns
// of the set match, and no others.
func (c *compiler) otherNames(s *shape, names []string, patterns []*value, set int) (int32, error) {
	if len(names)+len(patterns) == 0 {
		if c.marker != "" {
			return c.anyMarkedText()
		}
		return c.text(0, unlimited), nil
	}
	exprs := make([]string, len(patterns))
	for i, p := range patterns {
		exprs[i] = p.name
	}
	key := fmt.Sprintf("%q %q %b", names, exprs, set)
	if n, ok := c.others[key]; ok {
		return n, nil
	}
	insides := make([]string, len(names))
	for i, name := range names {
		insides[i] = inString(name)
	}
	known, err := c.work.choice(insides)
	if err != nil {
		return 0, s.errorf("%w", err)
	}
	list := []*dfa{ours()[anyInside], known}
	for _, p := range patterns {
		d, err := c.namePattern(p, p.name)
		if err != nil {
			return 0, err
		}
		list = append(list, d)
	}
	d, err := c.work.combine(list, func(each []bool) bool {
		for i := range patterns {
			if each[2+i] != (set>>i&1 != 0) {
				return false
			}
		}
		return each[0] && !each[1]
	})
	if err != nil {
		return 0, s.errorf("%w", err)
	}
	node, err := c.quoted(d)
	c.others[key] = node
	return node, err
}
