package grammar

import (
	"slices"
	"strconv"

	"github.com/foretoken/foretoken/internal/jsontext"
)

// A schema is violated if one of its keywords is. Each way to violate a keyword is written as
// a schema, so that negations need no other code.

// numeric are the types of numbers.
const numeric = typeInteger | typeFraction

// Keywords of internal schemas, without an equivalent in JSON Schema.
const (
	madeTypes   = "types"        // a set of types, as a number
	notPattern  = "not pattern"  // strings that the expression does not match
	notFormat   = "not format"   // strings that are not of a format
	notValues   = "not values"   // strings and numbers that are not in a list
	notMultiple = "not multiple" // numbers that are not multiples
	someItem    = "some item"    // a schema that an item is valid against
	someMember  = "some member"  // a member that patternProperties or additionalProperties of a schema exclude
	notHad      = "not had"      // not supported: the name of the keyword
)

// keyed is a member of a made object.
type keyed struct {
	name string
	*value
}

// made is a schema that stands for something at a place of the text.
func (c *compiler) made(at *value, members ...keyed) *value {
	v := &value{kind: object, index: map[string]int{}, parent: at.parent, name: at.name, made: true, number: c.count}
	c.count++
	for i, m := range members {
		v.index[m.name] = i
		v.names, v.list = append(v.names, m.name), append(v.list, m.value)
	}
	return v
}

// madeList is a list of values.
func madeList(at *value, list ...*value) *value {
	return &value{kind: array, list: list, parent: at.parent, name: at.name}
}

// madeText is a scalar.
func madeText(at *value, kind jsontext.Kind, s string) *value {
	return &value{kind: kind, text: s, parent: at.parent, name: at.name}
}

// of is an internal schema of values of some types.
func (c *compiler) of(t types, at *value, members ...keyed) *value {
	first := keyed{madeTypes, madeText(at, number, strconv.Itoa(int(t)))}
	return c.made(at, append([]keyed{first}, members...)...)
}

// counted is the keyword name with a number.
func counted(at *value, name string, n int32) keyed {
	return keyed{name, madeText(at, number, strconv.Itoa(int(n)))}
}

// demand is the keyword required.
func demand(at *value, names ...string) keyed {
	list := make([]*value, len(names))
	for i, name := range names {
		list[i] = madeText(at, text, name)
	}
	return keyed{"required", madeList(at, list...)}
}

// property is the keyword properties with one member.
func (c *compiler) property(at *value, name string, schema *value) keyed {
	return keyed{"properties", c.made(at, keyed{name, schema})}
}

// not is the negation of a schema.
func (c *compiler) not(v *value) *value {
	if v.made && len(v.names) == 1 && v.names[0] == "not" {
		return v.list[0]
	}
	n, ok := c.nots[v]
	if !ok {
		n = c.made(v, keyed{"not", v})
		c.nots[v] = n
	}
	return n
}

// negate lists the ways to violate a schema.
func (c *compiler) negate(v *value) ([]*value, error) {
	if list, ok := c.negated[v]; ok {
		return list, nil
	}
	if err := isSchema(v); err != nil {
		return nil, err
	}
	if v.kind == boolean {
		if v.text == "false" {
			return []*value{c.made(v)}, nil
		}
		return nil, nil
	}
	if ref := v.alone(c.refs); ref != nil {
		return c.violate(v, "$ref", ref)
	}
	if _, err := newShape([]*value{v}); err != nil { // the form of the keywords
		return nil, err
	}
	var list []*value
	for i, name := range v.names {
		more, err := c.violate(v, name, v.list[i])
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	c.negated[v] = list
	return list, nil
}

// violate lists the ways to violate the keyword m of a schema v.
func (c *compiler) violate(v *value, name string, m *value) ([]*value, error) {
	if way, ok := opposites[name]; ok {
		return way(c, m), nil
	}
	switch name {
	case madeTypes:
		if !v.made {
			return nil, nil // an annotation of that name
		}
		s := shape{types: anyType}
		if err := s.readTypes(m); err != nil {
			return nil, err
		}
		return one(c.of(anyType&^s.types, m)), nil
	case "type":
		s := shape{types: anyType}
		if err := s.readType(m); err != nil {
			return nil, err
		}
		return one(c.of(anyType&^s.types, m)), nil
	case "$ref":
		to, err := c.refs.resolve(m)
		if err != nil {
			return nil, err
		}
		return one(c.not(to)), nil
	case "if":
		return c.violateConditional(v, m), nil
	case "items", "prefixItems":
		return c.violateItems(v, m), nil
	case "patternProperties", "additionalProperties":
		p := v.member("patternProperties")
		if m.text == "true" || m.kind == object && len(m.list) == 0 || name == "additionalProperties" && p != nil && len(p.list) > 0 {
			return nil, nil // nothing is excluded, or it is already
		}
		return one(c.of(typeObject, m, keyed{someMember, v})), nil
	case "$defs", "definitions", "then", "else", "additionalItems":
		return nil, nil
	}
	if keywords[name] != nil || v.made {
		return []*value{c.made(m, keyed{notHad, madeText(m, text, name)})}, nil
	}
	return nil, nil // an annotation
}

// opposites are the ways to violate keywords, given their values.
var opposites = map[string]func(c *compiler, m *value) []*value{
	"enum":             func(c *compiler, m *value) []*value { return c.violateValues(m, m.list) },
	"const":            func(c *compiler, m *value) []*value { return c.violateValues(m, []*value{m}) },
	"minimum":          func(c *compiler, m *value) []*value { return one(c.of(numeric, m, keyed{"exclusiveMaximum", m})) },
	"exclusiveMinimum": func(c *compiler, m *value) []*value { return one(c.of(numeric, m, keyed{"maximum", m})) },
	"maximum":          func(c *compiler, m *value) []*value { return one(c.of(numeric, m, keyed{"exclusiveMinimum", m})) },
	"exclusiveMaximum": func(c *compiler, m *value) []*value { return one(c.of(numeric, m, keyed{"minimum", m})) },
	"minLength":        func(c *compiler, m *value) []*value { return c.fewer(typeString, "maxLength", m) },
	"maxLength":        func(c *compiler, m *value) []*value { return c.more(typeString, "minLength", m) },
	"minItems":         func(c *compiler, m *value) []*value { return c.fewer(typeArray, "maxItems", m) },
	"maxItems":         func(c *compiler, m *value) []*value { return c.more(typeArray, "minItems", m) },
	"maxProperties":    func(c *compiler, m *value) []*value { return c.more(typeObject, "minProperties", m) },
	"minProperties":    (*compiler).violateMinProperties,
	"pattern":          func(c *compiler, m *value) []*value { return one(c.of(typeString, m, keyed{notPattern, m})) },
	"multipleOf":       func(c *compiler, m *value) []*value { return one(c.of(numeric, m, keyed{notMultiple, m})) },
	"format":           (*compiler).violateFormat,
	"required":         (*compiler).violateRequired,
	"properties":       (*compiler).violateProperties,
	"not":              func(_ *compiler, m *value) []*value { return one(m) },
	"allOf":            func(c *compiler, m *value) []*value { return c.eachNot(m) },
	"anyOf": func(c *compiler, m *value) []*value {
		return one(c.made(m, keyed{"allOf", madeList(m, c.eachNot(m)...)}))
	},
	"oneOf":       (*compiler).violateOneOf,
	"uniqueItems": (*compiler).violateUnique,

	"dependencies":      (*compiler).violateDependencies,
	"dependentRequired": (*compiler).violateDependencies,
	"dependentSchemas":  (*compiler).violateDependencies,
}

func one(v *value) []*value { return []*value{v} }

// eachNot is the negation of each schema of a list.
func (c *compiler) eachNot(m *value) []*value {
	list := make([]*value, len(m.list))
	for i, v := range m.list {
		list[i] = c.not(v)
	}
	return list
}

// fewer lists values of a type with fewer parts than m, by the keyword of the maximum.
func (c *compiler) fewer(t types, name string, m *value) []*value {
	if n, err := m.count(); err == nil && n > 0 {
		return one(c.of(t, m, counted(m, name, n-1)))
	}
	return nil
}

// more lists values of a type with more parts than m, by the keyword of the minimum.
func (c *compiler) more(t types, name string, m *value) []*value {
	n, err := m.count()
	if err != nil {
		return nil
	}
	return one(c.of(t, m, counted(m, name, n+1)))
}

// violateMinProperties has no other name for an empty object than that nothing is in it.
func (c *compiler) violateMinProperties(m *value) []*value {
	if n, err := m.count(); err == nil && n == 1 {
		return one(c.of(typeObject, m, keyed{"additionalProperties", c.never}))
	}
	return c.fewer(typeObject, "maxProperties", m)
}

// violateFormat negates the enforced formats. An annotation cannot be
// violated.
func (c *compiler) violateFormat(m *value) []*value {
	if _, ok := formats[m.text]; !ok {
		return nil
	}
	return one(c.of(typeString, m, keyed{notFormat, m}))
}

func (c *compiler) violateUnique(m *value) []*value {
	if m.text == "false" {
		return nil
	}
	return one(c.of(typeArray, m, keyed{notHad, madeText(m, text, "uniqueItems")}))
}

func (c *compiler) violateRequired(m *value) []*value {
	var list []*value
	for _, name := range m.list {
		list = append(list, c.of(typeObject, m, c.property(m, name.text, c.never)))
	}
	return list
}

// violateOthers lists the ways to have a member that patternProperties or additionalProperties of
// a schema v exclude, in objects of a shape whose names are all listed.
func (c *compiler) violateOthers(s *shape, v *value) ([]*value, error) {
	names, ok := s.listed()
	if !ok {
		return one(c.of(typeObject, v, keyed{notHad, madeText(v, text, "patternProperties, or additionalProperties,")})), nil
	}
	var list []*value
	for _, name := range names {
		schemas, err := c.member(&shape{schemas: one(v)}, name)
		if err != nil {
			return nil, err
		}
		own := v.member("properties")
		for _, m := range schemas {
			if own == nil || own.member(name) != m {
				list = append(list, c.of(typeObject, v, demand(v, name), c.property(v, name, c.not(m))))
			}
		}
	}
	return list, nil
}

// listed is the names that an object may have, if a schema of the shape lists them all.
func (s *shape) listed() ([]string, bool) {
	for _, v := range s.schemas {
		others := v.member("additionalProperties")
		if others == nil || !others.never() || v.member("patternProperties") != nil {
			continue
		}
		if p := v.member("properties"); p != nil {
			return p.names, true
		}
		return nil, true
	}
	return nil, false
}

func (c *compiler) violateProperties(m *value) []*value {
	var list []*value
	for i, name := range m.names {
		list = append(list, c.of(typeObject, m, demand(m, name), c.property(m, name, c.not(m.list[i]))))
	}
	return list
}

// violateItems is called for prefixItems and for items: the first one there lists the ways.
func (c *compiler) violateItems(v, m *value) []*value {
	if p := v.member("prefixItems"); m.name == "items" && p != nil {
		return nil
	}
	first, more := v.places()
	var list []*value
	for i, s := range first {
		places := slices.Repeat([]*value{c.always}, i)
		places = append(places, c.not(s))
		list = append(list, c.of(typeArray, m, counted(m, "minItems", int32(i+1)), keyed{"prefixItems", madeList(m, places...)}))
	}
	switch {
	case more == nil || more.text == "true":
	case more.kind == boolean:
		list = append(list, c.of(typeArray, m, counted(m, "minItems", int32(len(first)+1))))
	case len(first) == 0:
		list = append(list, c.of(typeArray, m, keyed{someItem, c.not(more)}))
	default:
		list = append(list, c.of(typeArray, m, keyed{notHad, madeText(m, text, "items")}))
	}
	return list
}

// maxPairs bounds the alternatives of a oneOf that is negated: it is also violated if two of
// them hold.
const maxPairs = 16

func (c *compiler) violateOneOf(m *value) []*value {
	if len(m.list) > maxPairs {
		return one(c.made(m, keyed{notHad, madeText(m, text, "oneOf")}))
	}
	list := one(c.made(m, keyed{"allOf", madeList(m, c.eachNot(m)...)}))
	for i, a := range m.list {
		for _, b := range m.list[:i] {
			list = append(list, c.made(m, keyed{"allOf", madeList(m, b, a)}))
		}
	}
	return list
}

// violateValues lists the values that are not in a list, by type.
func (c *compiler) violateValues(m *value, values []*value) []*value {
	free := anyType // types without a value in the list
	var scalars, arrays, objects []*value
	words := map[string]bool{"true": true, "false": true}
	for _, v := range values {
		switch v.kind {
		case null:
			free &^= typeNull
		case boolean:
			free &^= typeBoolean
			delete(words, v.text)
		case number:
			free &^= numeric
			scalars = append(scalars, v)
		case text:
			free &^= typeString
			scalars = append(scalars, v)
		case array:
			free &^= typeArray
			arrays = append(arrays, c.not(c.spelledOut(v)))
		case object:
			free &^= typeObject
			objects = append(objects, c.not(c.spelledOut(v)))
		}
	}
	list := one(c.of(free, m))
	if used := (numeric | typeString) &^ free; used != 0 {
		list = append(list, c.of(used, m, keyed{notValues, madeList(m, scalars...)}))
	}
	if free&typeBoolean == 0 {
		for word := range words {
			list = append(list, c.made(m, keyed{"const", madeText(m, boolean, word)}))
		}
	}
	if arrays != nil {
		list = append(list, c.of(typeArray, m, keyed{"allOf", madeList(m, arrays...)}))
	}
	if objects != nil {
		list = append(list, c.of(typeObject, m, keyed{"allOf", madeList(m, objects...)}))
	}
	return list
}

// spelledOut is the schema of one array or object by its members.
func (c *compiler) spelledOut(v *value) *value {
	var members []keyed
	for i, m := range v.list {
		name := ""
		if v.kind == object {
			name = v.names[i]
		}
		members = append(members, keyed{name, c.made(m, keyed{"const", m})})
	}
	if v.kind == object {
		return c.of(typeObject, v, demand(v, v.names...), keyed{"properties", c.made(v, members...)}, keyed{"additionalProperties", c.never})
	}
	size := int32(len(members))
	keywords := []keyed{counted(v, "minItems", size), counted(v, "maxItems", size)}
	if size > 0 {
		places := make([]*value, size)
		for i, m := range members {
			places[i] = m.value
		}
		keywords = append(keywords, keyed{"prefixItems", madeList(v, places...)})
	}
	return c.of(typeArray, v, keywords...)
}
