package grammar

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// decode reads JSON for the validator.
func decode(text string) (v any, err error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err = d.Decode(&v); err != nil {
		return nil, err
	}
	if d.More() {
		return nil, fmt.Errorf("more follows")
	}
	return v, nil
}

// valid is a slow validator with nothing in common with the package: it reads a schema by
// the words of draft 2020-12.
func valid(root, schema, v any) bool {
	s, ok := schema.(map[string]any)
	if !ok {
		return schema.(bool)
	}
	if ref, ok := s["$ref"].(string); ok && !valid(root, lookUp(root, ref), v) {
		return false
	}
	for _, part := range list(s["allOf"]) {
		if !valid(root, part, v) {
			return false
		}
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		n := 0
		for _, part := range list(s[key]) {
			if valid(root, part, v) {
				n++
			}
		}
		if s[key] != nil && (n == 0 || key == "oneOf" && n > 1) {
			return false
		}
	}
	if !validLogic(root, s, v) {
		return false
	}
	if t, ok := s["type"]; ok && !slices.ContainsFunc(many(t), func(t any) bool { return isType(t.(string), v) }) {
		return false
	}
	if c, ok := s["const"]; ok && !equal(c, v) {
		return false
	}
	if e, ok := s["enum"]; ok && !slices.ContainsFunc(e.([]any), func(x any) bool { return equal(x, v) }) {
		return false
	}
	switch v := v.(type) {
	case json.Number:
		return validNumber(s, v)
	case string:
		return validString(s, v)
	case []any:
		return validArray(root, s, v)
	case map[string]any:
		return validObject(root, s, v)
	}
	return true
}

// validLogic checks the keywords not, if, then, else and those of dependencies.
func validLogic(root any, s map[string]any, v any) bool {
	if not, ok := s["not"]; ok && valid(root, not, v) {
		return false
	}
	if condition, ok := s["if"]; ok {
		key := "else"
		if valid(root, condition, v) {
			key = "then"
		}
		if branch, ok := s[key]; ok && !valid(root, branch, v) {
			return false
		}
	}
	o, _ := v.(map[string]any)
	for _, key := range []string{"dependencies", "dependentRequired", "dependentSchemas"} {
		table, _ := s[key].(map[string]any)
		for name, demand := range table {
			if _, there := o[name]; !there {
				continue
			}
			if names, ok := demand.([]any); ok {
				demand = map[string]any{"required": names}
			}
			if !valid(root, demand, v) {
				return false
			}
		}
	}
	return true
}

func list(v any) []any { l, _ := v.([]any); return l }

func many(v any) []any {
	if l, ok := v.([]any); ok {
		return l
	}
	return []any{v}
}

func lookUp(root any, ref string) any {
	at := root
	for part := range strings.SplitSeq(strings.TrimPrefix(strings.TrimPrefix(ref, "#"), "/"), "/") {
		if part != "" {
			at = at.(map[string]any)[part]
		}
	}
	return at
}

func isType(t string, v any) bool {
	switch v := v.(type) {
	case nil:
		return t == "null"
	case bool:
		return t == "boolean"
	case string:
		return t == "string"
	case []any:
		return t == "array"
	case map[string]any:
		return t == "object"
	case json.Number:
		return t == "number" || t == "integer" && rat(v).IsInt()
	}
	return false
}

func rat(n json.Number) *big.Rat {
	r, ok := new(big.Rat).SetString(n.String())
	if !ok {
		panic(n)
	}
	return r
}

func equal(a, b any) bool {
	if x, ok := a.(json.Number); ok {
		y, ok := b.(json.Number)
		return ok && rat(x).Cmp(rat(y)) == 0
	}
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

func validNumber(s map[string]any, v json.Number) bool {
	for key, holds := range map[string]func(int) bool{
		"minimum": func(c int) bool { return c >= 0 }, "exclusiveMinimum": func(c int) bool { return c > 0 },
		"maximum": func(c int) bool { return c <= 0 }, "exclusiveMaximum": func(c int) bool { return c < 0 },
	} {
		if limit, ok := s[key].(json.Number); ok && !holds(rat(v).Cmp(rat(limit))) {
			return false
		}
	}
	m, ok := s["multipleOf"].(json.Number)
	return !ok || new(big.Rat).Quo(rat(v), rat(m)).IsInt()
}

// inRange reports whether n is between the values of two keywords of a schema.
func inRange(s map[string]any, n int, least, most string) bool {
	size := big.NewRat(int64(n), 1)
	if x, ok := s[least].(json.Number); ok && size.Cmp(rat(x)) < 0 {
		return false
	}
	x, ok := s[most].(json.Number)
	return !ok || size.Cmp(rat(x)) <= 0
}

// inECMA rewrites the classes of an expression whose meaning differs in package regexp.
var inECMA = strings.NewReplacer(
	`\s`, `[\t-\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}]`,
	`\S`, `[^\t-\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}]`,
	`.`, `[^\n\r\x{2028}\x{2029}]`,
)

func validString(s map[string]any, v string) bool {
	if p, ok := s["pattern"].(string); ok && !regexp.MustCompile(inECMA.Replace(p)).MatchString(v) {
		return false
	}
	return inRange(s, utf8.RuneCountInString(v), "minLength", "maxLength")
}

func validArray(root any, s map[string]any, v []any) bool {
	prefix := list(s["prefixItems"])
	for i, item := range v {
		if i < len(prefix) {
			if !valid(root, prefix[i], item) {
				return false
			}
		} else if rest, ok := s["items"]; ok && !valid(root, rest, item) {
			return false
		}
	}
	for i := range v {
		if s["uniqueItems"] == true && slices.ContainsFunc(v[:i], func(other any) bool { return equal(other, v[i]) }) {
			return false
		}
	}
	return inRange(s, len(v), "minItems", "maxItems")
}

func validObject(root any, s map[string]any, v map[string]any) bool {
	for _, name := range list(s["required"]) {
		if _, ok := v[name.(string)]; !ok {
			return false
		}
	}
	properties, _ := s["properties"].(map[string]any)
	patterns, _ := s["patternProperties"].(map[string]any)
	for name, member := range v {
		own := false
		if p, ok := s["propertyNames"]; ok && !valid(root, p, name) {
			return false
		}
		if p, ok := properties[name]; ok {
			own = true
			if !valid(root, p, member) {
				return false
			}
		}
		for expr, p := range patterns {
			if regexp.MustCompile(expr).MatchString(name) {
				own = true
				if !valid(root, p, member) {
					return false
				}
			}
		}
		if rest, ok := s["additionalProperties"]; ok && !own && !valid(root, rest, member) {
			return false
		}
	}
	return inRange(s, len(v), "minProperties", "maxProperties")
}

// schemaMaker writes random schemas. Member names are in alphabetical order:
// first those of properties, then those inside allOf and the like, then undeclared ones.
type schemaMaker struct{ *rand.Rand }

func (m schemaMaker) pick(list ...string) string { return list[m.IntN(len(list))] }

// schema is a schema as text; names is the first letter of its properties.
func (m schemaMaker) schema(depth int, names byte) string {
	kind := m.IntN(14)
	if depth <= 0 {
		kind = m.IntN(6)
	}
	switch kind {
	case 0:
		return m.pick(`{"type": "null"}`, `{"type": "boolean"}`, `{"type": ["boolean", "null"]}`, `{"const": null}`)
	case 1:
		return m.pick(`{"enum": ["a", "ab", 1, null, true]}`, `{"const": {"k": [1, "x"]}}`, `{"type": "string", "enum": ["a", "b", 3]}`,
			`{"enum": [[], {}, [1, 2]]}`, `{"enum": [1, 2, 2.5, 30], "maximum": 20}`)
	case 2:
		return m.number("integer", m.IntN(60)-30)
	case 3:
		return m.number("number", m.IntN(60)-30)
	case 4, 5:
		return m.text()
	case 6, 7:
		return m.array(depth, names)
	case 8, 9:
		return m.object(depth, names)
	case 10:
		return fmt.Sprintf(`{"anyOf": [%s, %s]}`, m.schema(depth-1, names), m.schema(depth-1, names))
	case 11, 12:
		return m.logic(depth - 1)
	default:
		return m.pick(
			fmt.Sprintf(`{"oneOf": [%s, %s]}`, m.number("integer", 3), m.text()),
			fmt.Sprintf(`{"oneOf": [{"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}, {"type": "object", "properties": {"a": {"const": "x"}, "b": %s}, "required": ["a", "b"]}]}`, m.text()),
			fmt.Sprintf(`{"allOf": [%s, %s]}`, m.object(depth-1, 'a'), m.object(depth-1, 'd')),
			fmt.Sprintf(`{"type": "array", "maxItems": 3, "allOf": [%s]}`, m.array(depth-1, 'a')),
			`{"$ref": "#/$defs/node"}`,
		)
	}
}

// logic is a schema with a negation, with alternatives that overlap, or with conditions.
func (m schemaMaker) logic(depth int) string {
	const members = `{"type": "object", "properties": {"a": %s, "b": %s, "c": %s}, %s}`
	scalar := func() string { return m.schema(0, 'a') }
	switch m.IntN(4) {
	case 0:
		return fmt.Sprintf(`{"not": %s}`, m.pick(scalar(), scalar(), m.array(1, 'a'), `{"type": "object", "properties": {"a": `+scalar()+`}, "required": ["a"]}`))
	case 1:
		return fmt.Sprintf(`{"oneOf": [%s, %s, %s]}`, scalar(), scalar(), scalar())
	}
	return fmt.Sprintf(members, scalar(), m.schema(depth, 'a'), scalar(), m.pick(
		`"not": {"required": ["a", "b"]}`,
		fmt.Sprintf(`"not": {"properties": {"a": %s, "b": %s}}`, scalar(), scalar()),
		`"not": {"anyOf": [{"required": ["a"]}, {"not": {"required": ["c"]}}]}`,
		`"oneOf": [{"required": ["a"]}, {"required": ["b"]}, {"required": ["b", "c"]}]`,
		fmt.Sprintf(`"oneOf": [{"properties": {"a": %s}}, {"properties": {"b": %s}, "required": ["a"]}]`, scalar(), scalar()),
		fmt.Sprintf(`"if": {"properties": {"a": %s}}, "then": {"required": ["b"]}, "else": {"properties": {"c": %s}}`, scalar(), scalar()),
		fmt.Sprintf(`"if": {"required": ["b"]}, "then": {"not": {"properties": {"c": %s}}}`, scalar()),
		`"dependentRequired": {"a": ["b"], "c": ["a", "d"]}`,
		fmt.Sprintf(`"dependentSchemas": {"b": {"properties": {"a": %s}, "required": ["a"]}}, "dependencies": {"a": ["c"]}`, scalar()),
	))
}

func (m schemaMaker) number(kind string, at int) string {
	s := fmt.Sprintf(`{"type": %q`, kind)
	if m.IntN(3) > 0 {
		s += fmt.Sprintf(`, %q: %d%s`, m.pick("minimum", "exclusiveMinimum"), at, m.pick("", "", ".5", ".25"))
	}
	if m.IntN(3) > 0 {
		s += fmt.Sprintf(`, %q: %d%s`, m.pick("maximum", "exclusiveMaximum"), at+m.IntN(120), m.pick("", "", ".5", ".75"))
	}
	if m.IntN(4) == 0 {
		s += `, "multipleOf": ` + m.pick("1", "2", "7", "10", "0.5", "0.25", "2.5", "1e-1", "3.0")
	}
	return s + `}`
}

func (m schemaMaker) text() string {
	s := `{"type": "string"`
	if m.IntN(3) == 0 {
		s += fmt.Sprintf(`, "pattern": %q`, m.pick(`^[a-c]*$`, `b`, `^x?(ab|ba)+`, `[^a]$`, `^\\d{2,3}$`, `ä|\\n`, `^\\S*$`, `\\s`, `^.+$`, `^[a-c]{1,30}$`, `^x?[^a]{2,40}$`))
	}
	if m.IntN(3) == 0 {
		s += fmt.Sprintf(`, "minLength": %d`, m.IntN(4))
	}
	if m.IntN(3) == 0 {
		s += fmt.Sprintf(`, "maxLength": %d`, m.IntN(8))
	}
	return strings.ReplaceAll(s, `\\\\`, `\\`) + `}`
}

func (m schemaMaker) array(depth int, names byte) string {
	if m.IntN(6) == 0 {
		return fmt.Sprintf(`{"type": "array", "uniqueItems": true, "items": %s, "minItems": %d}`,
			m.pick(`{"enum": ["a", "b", 1, 2.0, null]}`, `{"type": ["boolean", "null"]}`), m.IntN(3))
	}
	s := `{"type": "array"`
	if m.IntN(4) > 0 {
		s += `, "items": ` + m.schema(depth-1, names)
	}
	if m.IntN(3) == 0 {
		s += fmt.Sprintf(`, "prefixItems": [%s, %s]`, m.schema(depth-1, names), m.schema(depth-1, names))
	}
	if m.IntN(3) == 0 {
		s += fmt.Sprintf(`, "minItems": %d`, m.IntN(3))
	}
	if m.IntN(3) == 0 {
		s += fmt.Sprintf(`, "maxItems": %d`, 1+m.IntN(4))
	}
	return s + `}`
}

func (m schemaMaker) object(depth int, names byte) string {
	s := `{"type": "object"`
	var properties, required []string
	for i := range byte(3) {
		name := string(names + i)
		if m.IntN(4) > 0 {
			properties = append(properties, fmt.Sprintf(`%q: %s`, name, m.schema(depth-1, 'a')))
			if m.IntN(2) == 0 {
				required = append(required, fmt.Sprintf(`%q`, name))
			}
		}
	}
	s += `, "properties": {` + strings.Join(properties, ", ") + `}`
	if len(required) > 0 {
		s += `, "required": [` + strings.Join(required, ", ") + `]`
	}
	switch m.IntN(4) {
	case 0:
		s += `, "additionalProperties": false`
	case 1:
		s += `, "additionalProperties": ` + m.schema(0, 'a')
	}
	if m.IntN(6) == 0 {
		s += `, "minProperties": 1`
	}
	if m.IntN(6) == 0 {
		s += fmt.Sprintf(`, "maxProperties": %d`, m.IntN(4))
	}
	if m.IntN(6) == 0 {
		s += `, "propertyNames": ` + m.pick(`{"pattern": "[abyz]"}`, `{"maxLength": 1}`, `{"enum": ["a", "c", "x", "y"]}`, `{"type": "string"}`, `{"anyOf": [{"const": "b"}, {"pattern": "^y"}]}`)
	}
	if m.IntN(4) == 0 {
		s += `, "patternProperties": {"^y": ` + m.schema(0, 'a') + `, "z": ` + m.schema(0, 'a') + `}`
	}
	return s + `}`
}

// root is a schema with a definition that refers to itself.
func (m schemaMaker) root() string {
	s := m.schema(3, 'a')
	defs := `"$defs": {"node": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "array", "items": {"$ref": "#/$defs/node"}}}, "required": ["a"], "additionalProperties": false}}`
	if s == "{}" {
		return "{" + defs + "}"
	}
	return s[:len(s)-1] + ", " + defs + "}"
}

// valueMaker writes random values that a schema allows, more or less.
type valueMaker struct {
	*rand.Rand
	root any
	wild int // one of wild parts violates the schema
}

func (m valueMaker) value(schema any, depth int) any {
	s, ok := schema.(map[string]any)
	if !ok || m.IntN(m.wild) == 0 || depth > 6 {
		return m.anything(2)
	}
	if ref, ok := s["$ref"].(string); ok {
		return m.value(lookUp(m.root, ref), depth+1)
	}
	for _, key := range []string{"anyOf", "oneOf", "allOf"} {
		if parts := list(s[key]); len(parts) > 0 && s["properties"] == nil {
			v := m.value(parts[m.IntN(len(parts))], depth+1)
			if o, ok := v.(map[string]any); ok && key == "allOf" {
				for _, part := range parts {
					if more, ok := m.value(part, depth+1).(map[string]any); ok {
						maps.Copy(o, more)
					}
				}
			}
			return v
		}
	}
	if c, ok := s["const"]; ok {
		return c
	}
	if not, ok := s["not"]; ok && s["type"] == nil {
		if m.IntN(2) == 0 {
			return m.anything(2)
		}
		return m.value(not, depth+1)
	}
	if e, ok := s["enum"].([]any); ok {
		return e[m.IntN(len(e))]
	}
	types := many(s["type"])
	switch types[m.IntN(len(types))] {
	case "boolean":
		return m.IntN(2) == 0
	case "integer", "number":
		return m.number(s)
	case "string":
		return m.text()
	case "array":
		return m.array(s, depth)
	case "object":
		return m.object(s, depth)
	}
	return nil
}

func (m valueMaker) number(s map[string]any) any {
	text := fmt.Sprint(m.IntN(200) - 60)
	for _, key := range []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"} {
		if n, ok := s[key].(json.Number); ok && m.IntN(3) == 0 {
			text = n.String()
		}
	}
	if s["type"] == "number" && !strings.Contains(text, ".") && m.IntN(2) == 0 {
		text += fmt.Sprintf(".%d", m.IntN(100))
	}
	return json.Number(text)
}

func (m valueMaker) text() any {
	parts := []string{"a", "b", "c", "ab", "ba", "x", "12", "7", "ä", "\n", `"`, `\`, "日", "😀", "\x01", "/", "\v", "\u00a0", "\u2003"}
	s := ""
	for range m.IntN(5) {
		s += parts[m.IntN(len(parts))]
	}
	return s
}

func (m valueMaker) array(s map[string]any, depth int) any {
	prefix := list(s["prefixItems"])
	out := []any{}
	for i := range m.IntN(5) {
		of := s["items"]
		if i < len(prefix) {
			of = prefix[i]
		}
		out = append(out, m.value(of, depth+1))
	}
	return out
}

func (m valueMaker) object(s map[string]any, depth int) any {
	out := map[string]any{}
	properties, _ := s["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if slices.Contains(list(s["required"]), any(name)) && m.IntN(m.wild) > 0 || m.IntN(2) == 0 {
			out[name] = m.value(properties[name], depth+1)
		}
	}
	patterns, _ := s["patternProperties"].(map[string]any)
	for _, name := range []string{"x", "y", "yz", "z"} {
		if m.IntN(5) > 0 {
			continue
		}
		of := s["additionalProperties"]
		for _, expr := range slices.Sorted(maps.Keys(patterns)) {
			if regexp.MustCompile(expr).MatchString(name) {
				of = patterns[expr]
			}
		}
		out[name] = m.value(of, depth+1)
	}
	return out
}

// anything is any JSON value.
func (m valueMaker) anything(depth int) any {
	switch n := m.IntN(8); {
	case n == 0:
		return nil
	case n == 1:
		return m.IntN(2) == 0
	case n < 4 || depth == 0:
		return json.Number(fmt.Sprint(m.IntN(100) - 20))
	case n < 6:
		return m.text()
	case n == 6:
		return []any{m.anything(depth - 1), m.anything(depth - 1)}
	default:
		return map[string]any{"a": m.anything(depth - 1), "x": m.anything(depth - 1)}
	}
}

// write spells a value with members in the order of the alphabet and random white space.
func (m valueMaker) write(v any) string {
	space := func() string {
		return []string{"", "", "", " ", "\n", "\n\t", "\r\n    "}[m.IntN(7)]
	}
	switch v := v.(type) {
	case []any:
		parts := make([]string, len(v))
		for i, item := range v {
			parts[i] = m.write(item)
		}
		return "[" + space() + m.join(parts, space) + "]"
	case map[string]any:
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, m.write(name)+":"+[]string{"", " "}[m.IntN(2)]+m.write(v[name]))
		}
		return "{" + space() + m.join(parts, space) + "}"
	default:
		var b strings.Builder
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			panic(err)
		}
		return strings.TrimSpace(b.String())
	}
}

func (m valueMaker) join(parts []string, space func() string) string {
	var b strings.Builder
	for i, part := range parts {
		if i > 0 {
			b.WriteString("," + space())
		}
		b.WriteString(part)
	}
	if len(parts) > 0 {
		b.WriteString(space())
	}
	return b.String()
}
