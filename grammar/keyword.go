package grammar

import (
	"slices"
	"strconv"
)

// types is a set of JSON's types. Numbers are two: integers, and those with a fraction.
type types uint8

const (
	typeNull types = 1 << iota
	typeBoolean
	typeInteger
	typeFraction
	typeString
	typeArray
	typeObject
	anyType types = 1<<iota - 1
)

var typeNames = map[string]types{
	"null": typeNull, "boolean": typeBoolean, "integer": typeInteger, "number": typeInteger | typeFraction,
	"string": typeString, "array": typeArray, "object": typeObject,
}

// shape is the conjunction of several schemas, apart from alternatives. Conditions on
// members and items are read from the schemas on demand.
type shape struct {
	schemas []*value

	never       bool
	types       types
	enum        []*value // nil: anything
	lo, hi      *bound
	multiples   []multiple
	length      span            // characters of a string
	patterns    []*value        // and formats
	widths      [][2]*bound     // formats of integers
	without     []patternKey    // patterns that a string must not match
	numbers     []*value        // excluded numbers
	items       span            // length of an array
	some        *value          // the schema of contains
	unique      *value          // the keyword uniqueItems
	required    []string        // in order
	demands     map[string]bool // the same
	members     int32           // an object has at least
	fewMembers  *value          // the keyword minProperties
	mostMembers int32           // maximum number of members
	constrained bool            // something is said about members or items
	refused     *value          // a keyword that is not supported
}

// span is a number from one to another.
type span struct{ least, most int32 }

// keywords are those that a shape is made of. For keywords that relate schemas to each
// other only the form is checked here.
var keywords = func() map[string]func(s *shape, v *value) error {
	nested := func(check func(*value) error) func(*shape, *value) error {
		return func(s *shape, v *value) error {
			s.constrained = true
			return check(v)
		}
	}
	related := func(check func(*value) error) func(*shape, *value) error {
		return func(_ *shape, v *value) error { return check(v) }
	}
	return map[string]func(s *shape, v *value) error{
		"type":                 (*shape).readType,
		"enum":                 (*shape).readEnum,
		"const":                func(s *shape, v *value) error { return s.choose([]*value{v}) },
		"minimum":              func(s *shape, v *value) error { return readBound(v, &s.lo, 1, false) },
		"exclusiveMinimum":     func(s *shape, v *value) error { return readBound(v, &s.lo, 1, true) },
		"maximum":              func(s *shape, v *value) error { return readBound(v, &s.hi, -1, false) },
		"exclusiveMaximum":     func(s *shape, v *value) error { return readBound(v, &s.hi, -1, true) },
		"multipleOf":           (*shape).readMultiple,
		"minLength":            func(s *shape, v *value) error { return readLeast(v, &s.length.least) },
		"maxLength":            func(s *shape, v *value) error { return readMost(v, &s.length.most) },
		"pattern":              (*shape).readPattern,
		"format":               (*shape).readFormat,
		"minItems":             func(s *shape, v *value) error { s.constrained = true; return readLeast(v, &s.items.least) },
		"maxItems":             func(s *shape, v *value) error { s.constrained = true; return readMost(v, &s.items.most) },
		"items":                (*shape).readItems,
		"prefixItems":          nested(isList),
		"properties":           nested(isTable),
		"patternProperties":    nested(isTable),
		"additionalProperties": nested(isSchema),
		"required":             (*shape).readRequired,
		"minProperties":        (*shape).readMinProperties,
		"maxProperties":        func(s *shape, v *value) error { s.constrained = true; return readMost(v, &s.mostMembers) },
		"propertyNames":        nested(isSchema),
		"uniqueItems":          (*shape).readUnique,
		"allOf":                related(isList),
		"anyOf":                related(isList),
		"oneOf":                related(isList),
		"not":                  related(isSchema),
		"if":                   related(isSchema),
		"then":                 related(isSchema),
		"else":                 related(isSchema),
		"dependencies":         related(isDependencies),
		"dependentRequired":    related(isDependencies),
		"dependentSchemas":     related(isDependencies),
		"$defs":                related(isTable),
		"definitions":          related(isTable),
	}
}()

// refused are keywords that restrict values and that cannot be enforced, with
// alternatives.
var refused = map[string]string{
	"contains":              "use items or prefixItems",
	"minContains":           "use items or prefixItems",
	"maxContains":           "use items or prefixItems",
	"unevaluatedProperties": "use additionalProperties",
	"unevaluatedItems":      "use items",
	"$dynamicRef":           "use $ref",
	"$recursiveRef":         "use $ref",
	"nullable":              `use type with "null" in a list`,
}

// newShape is the conjunction of some schemas.
func newShape(schemas []*value) (*shape, error) {
	s := &shape{
		schemas: schemas, types: anyType, demands: map[string]bool{},
		length: span{0, unlimited}, items: span{0, unlimited}, mostMembers: unlimited,
	}
	for _, schema := range schemas {
		if schema.kind == boolean {
			s.never = s.never || schema.text == "false"
			continue
		}
		for i, name := range schema.names {
			if remedy, ok := refused[name]; ok {
				return nil, schema.list[i].errorf("the keyword %s is not supported; %s", name, remedy)
			}
			read := keywords[name]
			if schema.made && read == nil {
				read = madeKeywords[name]
			}
			if read != nil {
				if err := read(s, schema.list[i]); err != nil {
					return nil, err
				}
			}
		}
	}
	s.settle()
	return s, nil
}

func isSchema(v *value) error {
	if v.kind != boolean && v.kind != object {
		return v.errorf("is %s, want a schema: an object or a boolean", kindNames[v.kind])
	}
	return nil
}

func isList(v *value) error {
	if v.kind != array || len(v.list) == 0 {
		return v.errorf("is %s, want a list of at least one schema", kindNames[v.kind])
	}
	return eachSchema(v)
}

func isTable(v *value) error {
	if v.kind != object {
		return v.errorf("is %s, want an object with schemas", kindNames[v.kind])
	}
	return eachSchema(v)
}

func eachSchema(v *value) error {
	for _, m := range v.list {
		if err := isSchema(m); err != nil {
			return err
		}
	}
	return nil
}

// strings are the members of a list of strings.
func (v *value) strings() ([]string, error) {
	if v.kind != array {
		return nil, v.errorf("is %s, want a list of strings", kindNames[v.kind])
	}
	list := make([]string, len(v.list))
	for i, m := range v.list {
		if m.kind != text {
			return nil, m.errorf("is %s, want a string", kindNames[m.kind])
		}
		list[i] = m.text
	}
	return list, nil
}

func (s *shape) readType(v *value) error {
	names := []string{v.text}
	if v.kind != text {
		var err error
		if names, err = v.strings(); err != nil {
			return err
		}
	}
	var set types
	for _, name := range names {
		t, ok := typeNames[name]
		if !ok {
			return v.errorf("%q is not a type of JSON", name)
		}
		set |= t
	}
	s.types &= set
	return nil
}

func (s *shape) readEnum(v *value) error {
	if v.kind != array {
		return v.errorf("is %s, want a list of values", kindNames[v.kind])
	}
	return s.choose(v.list)
}

// choose restricts the shape to some values, and to those chosen before.
func (s *shape) choose(list []*value) error {
	chosen := make([]*value, 0, len(list))
	before := map[string]bool{}
	for _, v := range s.enum {
		before[v.canonical()] = true
	}
	for _, v := range list {
		if s.enum == nil || before[v.canonical()] {
			chosen = append(chosen, v)
		}
	}
	s.enum = chosen
	return nil
}

func readBound(v *value, to **bound, sign int, exclusive bool) error {
	if v.kind != number {
		return v.errorf("is %s, want a number", kindNames[v.kind])
	}
	b, err := parseBound(v.text, exclusive)
	if err != nil {
		return v.errorf("%w", err)
	}
	*to = tighter(*to, b, sign)
	return nil
}

// count reads a number of things.
func (v *value) count() (int32, error) {
	if v.kind != number {
		return 0, v.errorf("is %s, want a number", kindNames[v.kind])
	}
	n, err := strconv.ParseFloat(v.text, 64)
	if err != nil || n < 0 || n >= unlimited || n != float64(int32(n)) {
		return 0, v.errorf("is %.40s, want an integer from 0 to %d", v.text, unlimited-1)
	}
	return int32(n), nil
}

func readLeast(v *value, to *int32) error {
	n, err := v.count()
	*to = max(*to, n)
	return err
}

func readMost(v *value, to *int32) error {
	n, err := v.count()
	*to = min(*to, n)
	return err
}

func (s *shape) readPattern(v *value) error {
	if v.kind != text {
		return v.errorf("is %s, want a string", kindNames[v.kind])
	}
	s.patterns = append(s.patterns, v)
	return nil
}

// readFormat reads a format. One that is neither of the draft nor of integers is an annotation.
func (s *shape) readFormat(v *value) error {
	if formats[v.text] != "" || slices.Contains(otherFormats, v.text) || v.kind != text {
		return s.readPattern(v)
	}
	if ends, ok := integerFormats[v.text]; ok {
		s.widths = append(s.widths, ends)
	}
	return nil
}

func (s *shape) readRequired(v *value) error {
	list, err := v.strings()
	if err != nil {
		return err
	}
	s.constrained = true
	for _, name := range list {
		if !s.demands[name] {
			s.demands[name] = true
			s.required = append(s.required, name)
		}
	}
	return nil
}

func (s *shape) readMinProperties(v *value) error {
	n, err := v.count()
	if n > s.members {
		s.members, s.fewMembers, s.constrained = n, v, true
	}
	return err
}

// relaxedPattern is a pattern or format of the insides of strings, with lengths
// separate.
func (b *builder) relaxedPattern(v *value) (relaxed, error) {
	key, err := v.pattern()
	if err != nil {
		return relaxed{}, err
	}
	return b.relaxedExpression(v, key)
}

// relaxedExpression is the expression of a pattern, of a format, or of the names of members,
// which v is about.
func (b *builder) relaxedExpression(v *value, key patternKey) (relaxed, error) {
	if r, ok := b.relaxed[key]; ok {
		return r, nil
	}
	r, err := b.work.relaxed(key, escaped)
	if err != nil {
		return r, v.errorf("%w", err)
	}
	b.relaxed[key] = r
	return r, nil
}

// pattern is the expression of a pattern or format.
func (v *value) pattern() (patternKey, error) {
	if v.name != "format" {
		return patternKey{expr: v.text, extent: anywhere}, nil
	}
	expr, ok := formats[v.text]
	if !ok {
		return patternKey{}, v.errorf("the format %.40q is not supported; use a pattern, or one of %s", v.text, formatNames())
	}
	return patternKey{expr: expr, extent: whole, format: v.text}, nil
}

// patternKey is an expression: a pattern in the syntax of ECMA 262 if a part of the text has to
// match, and one of our own in RE2's if all of it has. format is the name of the format that it
// is the expression of, if any.
type patternKey struct {
	expr   string
	extent extent
	format string
}

// expression is the automaton of an expression.
func (w *work) expression(key patternKey, s spelling) (*dfa, error) {
	switch {
	case key.extent == anywhere:
		return w.pattern(key.expr, s)
	case key.format != "":
		return formatDFA(key.format, s), nil
	default:
		return w.regex(key.expr, whole, s)
	}
}
