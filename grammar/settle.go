package grammar

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// madeKeywords are those of internal schemas.
var madeKeywords = map[string]func(s *shape, v *value) error{
	madeTypes: (*shape).readTypes,
	notPattern: func(s *shape, v *value) error {
		s.without = append(s.without, patternKey{expr: v.text, extent: anywhere})
		return nil
	},
	notFormat:   (*shape).readNotFormat,
	notValues:   (*shape).readNotValues,
	notMultiple: (*shape).readNotMultiple,
	someItem:    (*shape).readSome,
	notHad: func(s *shape, v *value) error {
		s.refused = v
		return nil
	},
}

func (s *shape) readTypes(v *value) error {
	n, err := strconv.Atoi(v.text)
	s.types &= types(n)
	return err
}

// looseFormats exclude no string of a format under any reading of its definition.
var looseFormats = map[string]string{
	"date":      `[0-9Ww-]+`,
	"time":      `[0-9TtZz:.,+ -]+`,
	"date-time": `[0-9TtZz.,+ -]*:[0-9TtZz:.,+ -]*`,
	"duration":  `(?s)P.*`,
	"email":     `(?s).*@.*`,
	"hostname":  `[^ @:/]*`,
	"ipv4":      `[0-9.]+`,
	"ipv6":      `(?s).*:.*`,
	"uuid":      `(?:urn:uuid:|\{)?[0-9A-Fa-f-]+\}?`,
	"uri":       `(?s).*:.*`,
}

func (s *shape) readNotFormat(v *value) error {
	expr, ok := looseFormats[v.text]
	if !ok {
		s.refused = v
		return nil
	}
	s.without = append(s.without, patternKey{expr: expr, extent: whole})
	return nil
}

func (s *shape) readNotValues(v *value) error {
	var words []string
	for _, m := range v.list {
		if m.kind == text {
			words = append(words, regexp.QuoteMeta(m.text))
		} else {
			s.numbers = append(s.numbers, m)
		}
	}
	if words != nil {
		s.without = append(s.without, patternKey{expr: strings.Join(words, "|"), extent: whole})
	}
	return nil
}

// settle drops the types of which nothing is left.
func (s *shape) settle() {
	if !between(s.lo, s.hi) {
		s.types &^= numeric
	}
	if s.length.least > s.length.most {
		s.types &^= typeString
	}
	if s.items.least > s.items.most {
		s.types &^= typeArray
	}
	if slices.ContainsFunc(s.required, s.forbids) {
		s.types &^= typeObject
	}
	if s.enum != nil {
		s.enum = slices.DeleteFunc(slices.Clone(s.enum), func(v *value) bool { return s.types&v.types() == 0 })
	}
	s.never = s.never || s.types == 0 || s.enum != nil && len(s.enum) == 0
}

// forbids reports whether a member is forbidden in plain words.
func (s *shape) forbids(name string) bool {
	for _, v := range s.schemas {
		own := v.member("properties")
		if own != nil {
			if own = own.member(name); own != nil && own.kind == boolean && own.text == "false" {
				return true
			}
		}
		others := v.member("additionalProperties")
		if own == nil && others != nil && others.kind == boolean && others.text == "false" && v.member("patternProperties") == nil {
			return true
		}
	}
	return false
}

// types is the type of a value, as a set. A number whose type is not clear has both.
func (v *value) types() types {
	switch v.kind {
	case null:
		return typeNull
	case boolean:
		return typeBoolean
	case text:
		return typeString
	case array:
		return typeArray
	case object:
		return typeObject
	}
	x, err := parseBound(v.text, false)
	switch {
	case err != nil:
		return numeric
	case x.fraction == "":
		return typeInteger
	}
	return typeFraction
}
