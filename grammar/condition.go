package grammar

// conditional is the two ways to satisfy if, then and else; nil if they demand nothing.
func (c *compiler) conditional(v, m *value) ([]*value, error) {
	then, otherwise := v.member("then"), v.member("else")
	if list, ok := c.ways[m]; ok || then == nil && otherwise == nil {
		return list, nil
	}
	yes, no := []*value{m}, []*value{c.not(m)}
	for _, branch := range []struct {
		schema *value
		to     *[]*value
	}{{then, &yes}, {otherwise, &no}} {
		if branch.schema == nil {
			continue
		}
		if err := isSchema(branch.schema); err != nil {
			return nil, err
		}
		*branch.to = append(*branch.to, branch.schema)
	}
	list := []*value{c.made(m, keyed{"allOf", madeList(m, yes...)}), c.made(m, keyed{"allOf", madeList(m, no...)})}
	c.ways[m] = list
	return list, isSchema(m)
}

// violateConditional lists the ways to violate if, then and else.
func (c *compiler) violateConditional(v, m *value) []*value {
	var list []*value
	if then := v.member("then"); then != nil {
		list = append(list, c.made(m, keyed{"allOf", madeList(m, m, c.not(then))}))
	}
	if otherwise := v.member("else"); otherwise != nil {
		list = append(list, c.made(m, keyed{"allOf", madeList(m, c.not(m), c.not(otherwise))}))
	}
	return list
}

// isDependencies checks the form of dependencies, dependentRequired and dependentSchemas.
func isDependencies(v *value) error {
	if v.kind != object {
		return v.errorf("is %s, want an object", kindNames[v.kind])
	}
	for _, m := range v.list {
		if m.kind == array && v.name != "dependentSchemas" {
			if _, err := m.strings(); err != nil {
				return err
			}
		} else if v.name == "dependentRequired" {
			return m.errorf("is %s, want a list of strings", kindNames[m.kind])
		} else if err := isSchema(m); err != nil {
			return err
		}
	}
	return nil
}

// dependency is the two ways to satisfy the dependencies of a member.
func (c *compiler) dependency(name string, m *value) []*value {
	if list, ok := c.ways[m]; ok {
		return list
	}
	present := c.of(typeObject, m, demand(m, name), keyed{"allOf", madeList(m, m)})
	if m.kind == array {
		names, _ := m.strings()
		present = c.of(typeObject, m, demand(m, append([]string{name}, names...)...))
	}
	list := []*value{c.made(m, c.property(m, name, c.never)), present}
	c.ways[m] = list
	return list
}

// violateDependencies lists the ways to have a member without its dependencies.
func (c *compiler) violateDependencies(m *value) []*value {
	var list []*value
	for i, name := range m.names {
		d := m.list[i]
		if d.kind != array {
			list = append(list, c.of(typeObject, d, demand(d, name), keyed{"allOf", madeList(d, c.not(d))}))
			continue
		}
		for _, other := range d.list {
			list = append(list, c.of(typeObject, d, demand(d, name), c.property(d, other.text, c.never)))
		}
	}
	return list
}
