package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// maxJSONDepth bounds how deep lists and objects of JSON may nest.
const maxJSONDepth = 200

// DecodeJSON reads one JSON value. Objects keep the order of their keys (of
// equal keys the last value counts, in the place of the first), and integers
// stay apart from floats, as in Python.
func DecodeJSON(data []byte) (Value, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := decodeValue(d, 0)
	if err != nil {
		return Value{}, fmt.Errorf("jinja: JSON at byte %d: %w", d.InputOffset(), err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Value{}, fmt.Errorf("jinja: JSON at byte %d: more than one value", d.InputOffset())
	}
	return v, nil
}

func decodeValue(d *json.Decoder, depth int) (Value, error) {
	t, err := d.Token()
	if errors.Is(err, io.EOF) {
		return Value{}, io.ErrUnexpectedEOF
	}
	if err != nil {
		return Value{}, err
	}
	switch t := t.(type) {
	case bool:
		return Bool(t), nil
	case string:
		return String(t), nil
	case json.Number:
		return decodeNumber(t.String())
	case json.Delim:
		if depth >= maxJSONDepth {
			return Value{}, &LimitError{What: "levels of nesting in JSON", Max: maxJSONDepth}
		}
		if t == '[' {
			return decodeList(d, depth)
		}
		return decodeObject(d, depth)
	}
	return None(), nil
}

func decodeNumber(s string) (Value, error) {
	if strings.ContainsAny(s, ".eE") {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return Value{}, fmt.Errorf("number %.40s is out of range", s)
		}
		return Float(f), nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return Value{kind: KindInt, str: s}, nil
	}
	return Int(n), nil
}

func decodeList(d *json.Decoder, depth int) (Value, error) {
	var items []Value
	for d.More() {
		v, err := decodeValue(d, depth+1)
		if err != nil {
			return Value{}, err
		}
		items = append(items, v)
	}
	_, err := d.Token()
	return List(items), noEOF(err)
}

func decodeObject(d *json.Decoder, depth int) (Value, error) {
	m := &Map{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return Value{}, noEOF(err)
		}
		key, ok := t.(string)
		if !ok {
			return Value{}, fmt.Errorf("key of an object is not a string: %v", t)
		}
		v, err := decodeValue(d, depth+1)
		if err != nil {
			return Value{}, err
		}
		m.Set(key, v)
	}
	_, err := d.Token()
	return Dict(m), noEOF(err)
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
