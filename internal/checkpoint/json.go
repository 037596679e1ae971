package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
)

// DecodeJSON decodes the JSON text of the named file into v, as json.Unmarshal
// does, with errors that say where in the file the fault is. NaN and Infinity,
// which some tools write, are not JSON and are refused by name.
func DecodeJSON(name string, data []byte, v any) error {
	err := json.Unmarshal(data, v)
	if err == nil {
		return nil
	}
	var syntax *json.SyntaxError
	var typed *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		at := max(int(syntax.Offset)-1, 0) // the offset counts the byte at fault
		if word := nonNumber(data, at); word != "" {
			return fmt.Errorf("checkpoint: %s line %d: %s is not valid JSON: replace it by a number or null", name, line(data, at), word)
		}
		return fmt.Errorf("checkpoint: %s line %d: %w", name, line(data, at), err)
	case errors.As(err, &typed):
		field := typed.Field
		if field == "" {
			field = "text"
		}
		return fmt.Errorf("checkpoint: %s line %d: %s: found %s, want %s",
			name, line(data, int(typed.Offset)), field, typed.Value, kind(typed.Type))
	}
	return fmt.Errorf("checkpoint: %s: %w", name, err)
}

// kind is the JSON name of a Go type.
func kind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "object"
	case reflect.Slice, reflect.Array:
		return "array"
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "number"
	default:
		return "whole number"
	}
}

// nonNumber is the number-like word at a syntax error, or "". The decoder
// reports the word's first letter as the position, in -Infinity its
// second.
func nonNumber(data []byte, at int) string {
	rest := data[min(at, len(data)):]
	for _, word := range []string{"NaN", "Infinity"} {
		if bytes.HasPrefix(rest, []byte(word)) {
			return word
		}
	}
	return ""
}

// line is the line number, from 1, of a byte.
func line(data []byte, at int) int {
	return 1 + bytes.Count(data[:min(at, len(data))], []byte("\n"))
}

// DecodeObject decodes a JSON object with its numbers as they are written.
func DecodeObject(data []byte) (m map[string]any, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	err = d.Decode(&m)
	return m, err
}
