package grammar

import "slices"

// object is the node of objects: the members that have a name in the schema in the order
// of the schema, then any others. It is built from the end, like an array.
func (c *compiler) object(s *shape) (int32, error) {
	m, err := c.marks(objectOpen, objectClose, objectEmpty)
	if err != nil {
		return 0, err
	}
	allowed, err := c.allowedNames(s)
	if err != nil {
		return 0, err
	}
	names := s.names(allowed.list)
	other, err := c.other(s, names, allowed, m.colon)
	if err != nil {
		return 0, err
	}
	t, err := s.tally(len(names), len(c.nodes[other].list) > 0)
	if err != nil {
		return 0, err
	}
	// By the number of members before: rest follows a member, some is the members that
	// may come next.
	rest, some := make([]int32, t.top+1), make([]int32, t.top+1)
	for n := range rest {
		rest[n], some[n] = c.alt(), c.alt()
		if n >= t.least {
			rest[n] = c.seq(c.rep(c.seq(m.comma, other), 0, t.more(n)), m.close)
		}
		if t.more(n) > 0 {
			some[n] = c.seq(other, c.seq(c.rep(c.seq(m.comma, other), 0, t.more(n+1)), m.close))
		}
	}
	optional := true // no member that follows is required
	for i := len(names) - 1; i >= 0; i-- {
		key, value, err := c.named(s, names[i], allowed)
		if err != nil {
			return 0, err
		}
		demanded := s.demands[names[i]]
		optional = optional && !demanded
		before := slices.Clone(rest)
		for n := range min(i, t.top) + 1 {
			next := c.alt()
			if t.more(n) > 0 {
				c.nodes[next].list = append(c.nodes[next].list, c.seq(key, m.colon, value, before[min(n+1, t.top)]))
			}
			if !demanded {
				c.nodes[next].list = append(c.nodes[next].list, some[n])
			}
			some[n], rest[n] = next, c.alt(c.seq(m.comma, next))
			if optional && n >= t.least {
				c.nodes[rest[n]].list = append(c.nodes[rest[n]].list, m.close)
			}
		}
	}
	body := []int32{some[0]}
	if optional && s.members == 0 {
		body = append(body, m.empty)
	}
	return c.seq(m.open, c.alt(body...)), nil
}

// named is the nodes of the name and the value of a member that the schema names.
func (c *compiler) named(s *shape, name string, allowed nameSet) (key, value int32, err error) {
	if key, err = c.choice(c.key(name)); err != nil {
		return 0, 0, s.errorf("%w", err)
	}
	if !allowed.has(name) {
		return key, c.alt(), nil
	}
	schemas, err := c.member(s, name)
	if err != nil {
		return 0, 0, err
	}
	value, err = c.value(schemas)
	return key, value, err
}

// names lists the members that the shape names, in order, and then more.
func (s *shape) names(more []string) []string {
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
	for _, made := range []bool{false, true} { // keywords that only restrict members do not order them
		for _, v := range s.schemas {
			if p := v.member("properties"); p != nil && v.made == made {
				add(p.names)
			}
		}
	}
	add(s.required)
	add(more)
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
	d, err := c.expression(patternKey{expr: expr, extent: anywhere}, escaped)
	if err != nil {
		return nil, at.errorf("%w", err)
	}
	return d, nil
}

// other is the node of a member with a name outside of names.
func (c *compiler) other(s *shape, names []string, allowed nameSet, colon int32) (int32, error) {
	n := c.alt()
	if allowed.list != nil {
		return n, nil
	}
	var patterns []*value
	for _, v := range s.schemas {
		if p := v.member("patternProperties"); p != nil {
			patterns = append(patterns, p.list...)
		}
	}
	if len(patterns) > maxPatterns {
		return 0, s.errorf("more than %d patterns for the names of one object's members", maxPatterns)
	}
	classes, err := c.nameClasses(s, names, patterns, allowed.dfa)
	if err != nil {
		return 0, err
	}
	for _, class := range classes {
		schemas, ok := s.otherSchemas(patterns, class.set)
		if !ok {
			continue
		}
		value, err := c.value(schemas)
		if err != nil {
			return 0, err
		}
		c.nodes[n].list = append(c.nodes[n].list, c.seq(class.node, colon, value))
	}
	return n, nil
}

// otherSchemas is the schemas of an undeclared member that exactly the patterns
// of the set match. It is false if one of them allows nothing.
func (s *shape) otherSchemas(patterns []*value, set int) ([]*value, bool) {
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
	return list, !slices.ContainsFunc(list, (*value).never)
}

// never reports whether a schema is false.
func (v *value) never() bool { return v.kind == boolean && v.text == "false" }
