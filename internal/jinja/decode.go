package jinja

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/foretoken/foretoken/internal/jsontext"
)

// maxJSONDepth bounds how deep lists and objects of JSON may nest.
const maxJSONDepth = 200

// DecodeJSON reads one JSON value. Objects keep the order of their keys (of
// equal keys the last value counts, in the place of the first), and integers
// stay apart from floats, as in Python.
func DecodeJSON(data []byte) (v Value, err error) {
	err = jsontext.Read(data, jsontext.Limits{Depth: maxJSONDepth, Replace: true}, func(r *jsontext.Reader) error {
		v, err = decodeValue(r)
		return err
	})
	if errors.Is(err, jsontext.ErrDepth) {
		err = fmt.Errorf("%w: %w", err, &LimitError{What: "levels of nesting in JSON", Max: maxJSONDepth})
	}
	if err != nil {
		return Value{}, fmt.Errorf("jinja: JSON %w", err)
	}
	return v, nil
}

func decodeValue(r *jsontext.Reader) (Value, error) {
	kind := r.Kind()
	switch kind {
	case jsontext.Array:
		var items []Value
		err := r.Array(func(int) error {
			v, err := decodeValue(r)
			items = append(items, v)
			return err
		})
		return List(items), err
	case jsontext.Object:
		m := &Map{}
		err := r.Object(func(key []byte) error {
			name := string(key)
			v, err := decodeValue(r)
			m.Set(name, v)
			return err
		})
		return Dict(m), err
	}
	text, err := r.Scalar()
	if err != nil {
		return Value{}, err
	}
	switch kind {
	case jsontext.String:
		return String(string(text)), nil
	case jsontext.Number:
		return decodeNumber(r, string(text))
	case jsontext.Bool:
		return Bool(string(text) == "true"), nil
	}
	return None(), nil
}

func decodeNumber(r *jsontext.Reader, s string) (Value, error) {
	if strings.ContainsAny(s, ".eE") {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return Value{}, r.Errorf("number %.40s is out of range", s)
		}
		return floatValue(f), nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return Value{kind: KindInt, str: s}, nil
	}
	return intValue(n), nil
}
