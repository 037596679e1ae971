package server

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// validate checks a value against a schema of the document, with the keywords that it uses,
// and returns the error, or "".
func validate(doc object, schema, v any, path string) string {
	s := schema.(object)
	for keyword, x := range s {
		if fault := keywordFault(doc, s, keyword, x, v, path); fault != "" {
			return fault
		}
	}
	return ""
}

func keywordFault(doc, s object, keyword string, x, v any, path string) string {
	o, isObject := v.(object)
	list, isList := v.([]any)
	number, isNumber := v.(float64)
	switch keyword {
	case "description":
	case "$ref":
		return validate(doc, at(doc, "components", "schemas", strings.TrimPrefix(x.(string), "#/components/schemas/")), v, path)
	case "anyOf":
		var faults []string
		for _, each := range x.([]any) {
			fault := validate(doc, each, v, path)
			if fault == "" {
				return ""
			}
			faults = append(faults, fault)
		}
		return strings.Join(faults, ", or ")
	case "type":
		if !hasType(x, v) {
			return fmt.Sprintf("%s: %.60v is not of type %v", path, v, x)
		}
	case "enum":
		if !slices.Contains(x.([]any), v) {
			return fmt.Sprintf("%s: %.60v is not one of %v", path, v, x)
		}
	case "required":
		for _, name := range x.([]any) {
			if _, ok := o[name.(string)]; isObject && !ok {
				return fmt.Sprintf("%s: there is no %s", path, name)
			}
		}
	case "properties":
		for name, property := range x.(object) {
			if inner, ok := o[name]; ok {
				if fault := validate(doc, property, inner, path+"."+name); fault != "" {
					return fault
				}
			}
		}
	case "additionalProperties":
		for name := range o {
			if at(s, "properties", name) == nil {
				return fmt.Sprintf("%s: %s is not in the document", path, name)
			}
		}
	case "items":
		for i, inner := range list {
			if fault := validate(doc, x, inner, fmt.Sprintf("%s[%d]", path, i)); fault != "" {
				return fault
			}
		}
	case "minItems", "maxItems":
		if n := float64(len(list)); isList && (keyword == "minItems" && n < x.(float64) || keyword == "maxItems" && n > x.(float64)) {
			return fmt.Sprintf("%s: %v elements", path, n)
		}
	case "minimum", "maximum":
		if isNumber && (keyword == "minimum" && number < x.(float64) || keyword == "maximum" && number > x.(float64)) {
			return fmt.Sprintf("%s: %v", path, number)
		}
	default:
		return "the keyword " + keyword + " is not known to this test"
	}
	return ""
}

// hasType reports whether a value is of a type, or of one of several.
func hasType(kinds, v any) bool {
	if list, ok := kinds.([]any); ok {
		return slices.ContainsFunc(list, func(kind any) bool { return hasType(kind, v) })
	}
	ok := false
	switch kinds {
	case "null":
		ok = v == nil
	case "object":
		_, ok = v.(object)
	case "array":
		_, ok = v.([]any)
	case "string":
		_, ok = v.(string)
	case "boolean":
		_, ok = v.(bool)
	case "number":
		_, ok = v.(float64)
	case "integer":
		x, isNumber := v.(float64)
		ok = isNumber && x == math.Trunc(x)
	}
	return ok
}

func TestSamplesFitTheDocument(t *testing.T) {
	doc := openapiDocument(t)
	for pattern, sample := range samples {
		schema := at(operations(doc)[pattern], "requestBody", "content", "application/json", "schema")
		if fault := validate(doc, schema, decoded(t, sample), ""); fault != "" {
			t.Errorf("%s: %s", pattern, fault)
		}
	}
	wrong := decoded(t, `{"messages": [{"role": "bot", "content": "Hi"}]}`)
	if fault := validate(doc, object{"$ref": "#/components/schemas/ChatRequest"}, wrong, ""); !strings.Contains(fault, "bot is not one of") {
		t.Errorf("a wrong role: %q", fault)
	}
}
