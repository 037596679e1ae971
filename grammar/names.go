package grammar

import (
	"fmt"
	"slices"
)

// Limits on the names of one object's members.
const (
	maxPatterns = 16      // under patternProperties
	maxClasses  = 32      // of names that the same patterns match
	maxTally    = 1 << 13 // distinguished numbers of members before each one
)

// tally is how the members of an object are counted.
type tally struct {
	least int   // minimum number of members, if that does not follow from the required ones
	most  int32 // maximum number of members
	top   int   // numbers from this on are not distinguished
}

// more is how many members may follow n of them.
func (t tally) more(n int) int32 {
	if t.most == unlimited {
		return unlimited
	}
	return t.most - int32(n)
}

// tally is how the members of a shape with names names are counted. An open one may have
// others, whose names may come twice: only their maximum number can be enforced.
func (s *shape) tally(names int, open bool) (tally, error) {
	t := tally{most: s.mostMembers}
	if !open && int(t.most) >= names {
		t.most = unlimited
	}
	if int(s.members) > max(1, len(s.required)) {
		if t.least = int(s.members); open {
			return t, s.fewMembers.errorf("minProperties above 1 is supported up to the number of required properties, or if all names are listed; set additionalProperties to false")
		}
		t.top = min(names, t.least)
	}
	if t.most != unlimited {
		t.top = min(names, int(t.most))
	}
	if names*(t.top+1) > maxTally {
		return t, s.errorf("minProperties and maxProperties beside %d properties are not supported; leave them out", names)
	}
	return t, nil
}

// nameSet is the names that members may have: those of the list or, if it is nil, all that the
// automaton accepts as the insides of strings.
type nameSet struct {
	list []string
	dfa  *dfa
}

func (n nameSet) has(name string) bool {
	if n.list != nil {
		return slices.Contains(n.list, name)
	}
	return n.dfa == ours()[anyInside] || n.dfa.matches(inString(name))
}

// allowedNames is the names that propertyNames leaves to the members of a shape.
func (c *compiler) allowedNames(s *shape) (nameSet, error) {
	var schemas []*value
	for _, v := range s.schemas {
		if p := v.member("propertyNames"); p != nil {
			schemas = append(schemas, p)
		}
	}
	schemas, key := normal(schemas)
	if len(schemas) == 0 {
		return nameSet{dfa: ours()[anyInside]}, nil
	}
	if n, ok := c.allowed[key]; ok {
		return n, nil
	}
	shapes, err := c.shapes(schemas)
	if err != nil {
		return nameSet{}, err
	}
	listed := []string{}
	var parts []*dfa
	for _, p := range shapes {
		switch {
		case p.types&typeString == 0:
		case p.enum != nil:
			for _, v := range p.enum {
				fits, err := c.fits(p, v, false)
				if err != nil {
					return nameSet{}, err
				}
				if fits && v.kind == text {
					listed = append(listed, v.text)
				}
			}
		default:
			d, err := c.exactInside(p)
			if err != nil {
				return nameSet{}, err
			}
			parts = append(parts, d)
		}
	}
	n := nameSet{list: listed}
	if len(parts) > 0 {
		n.list = nil
		if n.dfa, err = c.union(parts, listed); err != nil {
			return nameSet{}, s.errorf("%w", err)
		}
	}
	c.allowed[key] = n
	return n, nil
}

// union is the automaton of the texts of some automata, and of some names.
func (c *compiler) union(parts []*dfa, names []string) (*dfa, error) {
	if len(names) > 0 {
		d, err := c.work.choice(insides(names))
		if err != nil {
			return nil, err
		}
		parts = append(parts, d)
	}
	if len(parts) == 1 {
		return parts[0], nil
	}
	return c.work.combine(parts, func(each []bool) bool { return slices.Contains(each, true) })
}

// insides spells names as the insides of strings.
func insides(names []string) []string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = inString(name)
	}
	return list
}

// nameClass is the names that the same set of patterns matches.
type nameClass struct {
	set  int
	node int32
}

// nameClasses groups the allowed names, except the given ones, by the patterns that match
// them. Classes without a name, and those that allow no value, are left out.
func (c *compiler) nameClasses(s *shape, names []string, patterns []*value, allowed *dfa) ([]nameClass, error) {
	if len(names)+len(patterns) == 0 && allowed == ours()[anyInside] {
		if c.quote != "" {
			n, err := c.fixed(bareKey)
			return []nameClass{{node: n}}, err
		}
		if c.marker != "" {
			n, err := c.anyMarkedText()
			return []nameClass{{node: n}}, err
		}
		return []nameClass{{node: c.text(0, unlimited)}}, nil
	}
	var classes []nameClass
	var split func(set, i int) error // by patterns from i on
	split = func(set, i int) error {
		if _, ok := s.otherSchemas(patterns, set); !ok && i == len(patterns) {
			return nil
		}
		d, err := c.classNames(s, names, patterns[:i], set, allowed)
		if err != nil || len(d.accept) == 0 {
			return err
		}
		if i < len(patterns) {
			if err := split(set, i+1); err != nil || patterns[i].never() {
				return err
			}
			return split(set|1<<i, i+1)
		}
		if len(classes) == maxClasses {
			return s.errorf("the patterns for names distinguish more than %d kinds of members", maxClasses)
		}
		length := span{0, unlimited}
		for i, p := range patterns {
			if set>>i&1 != 0 {
				length = length.and(c.relaxed[nameKey(p)].length)
			}
		}
		n, err := c.quotedKey(d, length)
		classes = append(classes, nameClass{set, n})
		return err
	}
	return classes, split(0, 0)
}

// nameKey is the expression of a member of patternProperties.
func nameKey(p *value) patternKey { return patternKey{expr: p.name, extent: anywhere} }

// classNames is the automaton of the allowed names, except the given ones, that exactly the
// patterns of the set match. Lengths of patterns that match are ignored.
func (c *compiler) classNames(s *shape, names []string, patterns []*value, set int, allowed *dfa) (*dfa, error) {
	exprs := make([]string, len(patterns))
	for i, p := range patterns {
		exprs[i] = p.name
	}
	key := fmt.Sprintf("%q %q %b %p", names, exprs, set, allowed)
	if d, ok := c.others[key]; ok {
		return d, nil
	}
	list := []*dfa{allowed}
	match := false
	if last := len(patterns) - 1; last >= 0 {
		rest, err := c.classNames(s, names, patterns[:last], set&^(1<<last), allowed)
		if err != nil {
			return nil, err
		}
		var d *dfa
		if match = set>>last != 0; match {
			var r relaxed
			r, err = c.relaxedExpression(patterns[last], nameKey(patterns[last]))
			d = r.dfa
		} else {
			d, err = c.namePattern(patterns[last], exprs[last])
		}
		if err != nil {
			return nil, err
		}
		list = []*dfa{rest, d}
	}
	d := list[0]
	if len(list) == 1 && len(names) > 0 {
		var err error
		if d, err = c.butNames(allowed, names); err != nil {
			return nil, s.errorf("%w", err)
		}
	}
	if len(list) > 1 {
		var err error
		if d, err = c.work.combine(list, func(each []bool) bool { return each[0] && each[1] == match }); err != nil {
			return nil, s.errorf("%w", err)
		}
	}
	c.others[key] = d
	return d, nil
}

// butNames is the automaton of the allowed names except the given ones.
func (c *compiler) butNames(allowed *dfa, names []string) (*dfa, error) {
	if allowed == ours()[anyInside] {
		return c.work.but(allowed, insides(names))
	}
	known, err := c.work.choice(insides(names))
	if err != nil {
		return nil, err
	}
	return c.work.combine([]*dfa{allowed, known}, func(each []bool) bool { return each[0] && !each[1] })
}
