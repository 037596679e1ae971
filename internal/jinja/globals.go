package jinja

import (
	"errors"
	"fmt"
)

// globals are the functions of a template besides its variables. They
// are in a function because a variable would have a cyclic initialization.
func globals() map[string]Value {
	return map[string]Value{
		"range":           callable("range", makeRange),
		"dict":            callable("dict", makeDict),
		"namespace":       callable("namespace", makeNamespace),
		"raise_exception": callable("raise_exception", raiseException),
		"strftime_now":    callable("strftime_now", strftimeNow),
	}
}

// maxRange is the longest range of Jinja's sandbox.
const maxRange = 100_000

func makeRange(r *run, a args) (Value, error) {
	if len(a.names) > 0 || len(a.positional) < 1 || len(a.positional) > 3 {
		return Value{}, errors.New("range takes one to three arguments without names")
	}
	bounds := [3]int64{0, 0, 1}
	for i, v := range a.positional {
		n, ok := v.integer()
		if !ok {
			return Value{}, fmt.Errorf("range takes integers, not %s", v.typeName())
		}
		bounds[i] = n
	}
	if len(a.positional) == 1 {
		bounds[0], bounds[1] = 0, bounds[0]
	}
	from, to, step := bounds[0], bounds[1], bounds[2]
	if step == 0 {
		return Value{}, errors.New("range step must not be zero")
	}
	var items []Value
	for n := from; step > 0 && n < to || step < 0 && n > to; n += step {
		if len(items) == maxRange {
			return Value{}, &LimitError{What: "elements of a range", Max: maxRange}
		}
		if err := r.allocList(1); err != nil {
			return Value{}, err
		}
		items = append(items, intValue(n))
		if sum := n + step; (sum > n) != (step > 0) {
			break // the next element is beyond 64 bits
		}
	}
	return List(items), nil
}

func makeDict(r *run, a args) (Value, error) {
	m := &Map{}
	if len(a.positional) > 1 {
		return Value{}, fmt.Errorf("dict takes at most 1 argument without a name, got %d", len(a.positional))
	}
	for _, v := range a.positional {
		if err := r.fill(m, v); err != nil {
			return Value{}, err
		}
	}
	for i, name := range a.names {
		if err := r.put(m, String(name), a.named[i]); err != nil {
			return Value{}, err
		}
	}
	return Dict(m), nil
}

// fill sets in m the entries of v: a mapping, or pairs of key and value.
func (r *run) fill(m *Map, v Value) error {
	if v.kind == KindMap {
		for _, e := range v.Map().entries {
			if err := r.put(m, e.key, e.value); err != nil {
				return err
			}
		}
		return nil
	}
	items, err := r.elements(v)
	if err != nil {
		return err
	}
	for _, item := range items {
		pair, err := r.elements(item)
		if err != nil {
			return err
		}
		if len(pair) != 2 {
			return fmt.Errorf("a dict is made of pairs, got an element of length %d", len(pair))
		}
		if err := r.put(m, pair[0], pair[1]); err != nil {
			return err
		}
	}
	return nil
}

func makeNamespace(r *run, a args) (Value, error) {
	v, err := makeDict(r, a)
	return Value{kind: KindNamespace, ref: &namespace{attrs: v.Map()}}, err
}

func raiseException(r *run, a args) (Value, error) {
	bound, err := a.bind("raise_exception", 1, "message")
	if err != nil {
		return Value{}, err
	}
	message, err := r.text(bound[0])
	if err != nil {
		return Value{}, err
	}
	return Value{}, &RaiseError{Message: message}
}
