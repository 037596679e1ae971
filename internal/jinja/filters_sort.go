package jinja

import (
	"errors"
	"slices"
	"strings"
)

// folded returns the key v is compared by: a string without its case, unless
// case counts.
func (r *run) folded(v Value, caseCounts bool) (Value, error) {
	if caseCounts || v.kind != KindString {
		return v, nil
	}
	return String(strings.ToLower(v.str)), r.alloc(3 * len(v.str))
}

// sorted returns items in the order of their keys; equal ones stay in their
// order, also in reverse.
func (r *run) sorted(items, keys []Value, reverse bool) ([]Value, error) {
	if err := r.allocList(2 * len(items)); err != nil {
		return nil, err
	}
	order := make([]int, len(items))
	for i := range order {
		order[i] = i
	}
	var failed error
	slices.SortStableFunc(order, func(i, j int) int {
		if failed != nil {
			return 0
		}
		if reverse {
			i, j = j, i
		}
		c, err := r.order(keys[i], keys[j], "<")
		failed = err
		return c
	})
	out := make([]Value, len(items))
	for i, at := range order {
		out[i] = items[at]
	}
	return out, failed
}

// filterSort sorts by the items, an attribute of them, or several with commas
// between.
func filterSort(r *run, v Value, a args) (Value, error) {
	bound, err := a.bind("sort", 0, "reverse", "case_sensitive", "attribute")
	if err != nil {
		return Value{}, err
	}
	attributes := []Value{bound[2]}
	if name, ok := bound[2].Text(); ok {
		if err := r.alloc(len(name) * valueSize); err != nil {
			return Value{}, err
		}
		attributes = likeAll(String(""), strings.Split(name, ","))
	}
	getters := make([]func(Value) (Value, error), len(attributes))
	for i, attribute := range attributes {
		if getters[i], err = r.getter(attribute, None()); err != nil {
			return Value{}, err
		}
	}
	items, err := r.elements(v)
	if err != nil {
		return Value{}, err
	}
	keys, err := r.transform(List(items), func(item Value) (Value, error) {
		parts := make([]Value, len(getters))
		for i, get := range getters {
			part, err := get(item)
			if err != nil {
				return Value{}, err
			}
			if parts[i], err = r.folded(part, truthy(bound[1])); err != nil {
				return Value{}, err
			}
		}
		return tuple(parts...), r.allocList(len(parts))
	})
	if err != nil {
		return Value{}, err
	}
	out, err := r.sorted(items, keys, truthy(bound[0]))
	return List(out), err
}

// likeAll returns parts as strings marked as v is.
func likeAll(v Value, parts []string) []Value {
	items := make([]Value, len(parts))
	for i, s := range parts {
		items[i] = v.like(s)
	}
	return items
}

// filterDictSort gives the pairs of a map in the order of their keys or values.
func filterDictSort(r *run, v Value, a args) (Value, error) {
	bound, err := a.bind("dictsort", 0, "case_sensitive", "by", "reverse")
	if err != nil {
		return Value{}, err
	}
	if v.kind != KindMap {
		return Value{}, errors.New("dictsort takes a mapping, not '" + v.typeName() + "'")
	}
	by := bound[1].or(String("key")).str
	if by != "key" && by != "value" {
		return Value{}, errors.New("dictsort sorts by 'key' or 'value'")
	}
	pairs, err := r.pairs(v.Map())
	if err != nil {
		return Value{}, err
	}
	part := 0
	if by == "value" {
		part = 1
	}
	keys, err := r.transform(List(pairs), func(pair Value) (Value, error) {
		return r.folded(pair.Items()[part], truthy(bound[0]))
	})
	if err != nil {
		return Value{}, err
	}
	out, err := r.sorted(pairs, keys, truthy(bound[2]))
	return List(out), err
}

// keyed returns the elements of v and the key each is compared by.
func (r *run) keyed(v, caseSensitive, attribute Value) (items, keys []Value, err error) {
	get, err := r.getter(attribute, None())
	if err != nil {
		return nil, nil, err
	}
	if items, err = r.elements(v); err != nil {
		return nil, nil, err
	}
	keys, err = r.transform(List(items), func(item Value) (Value, error) {
		key, err := get(item)
		if err != nil {
			return Value{}, err
		}
		return r.folded(key, truthy(caseSensitive))
	})
	return items, keys, err
}

// filterUnique keeps the first of the items that are equal by their keys.
func filterUnique(r *run, v Value, a args) (Value, error) {
	bound, err := a.bind("unique", 0, "case_sensitive", "attribute")
	if err != nil {
		return Value{}, err
	}
	items, keys, err := r.keyed(v, bound[0], bound[1])
	if err != nil {
		return Value{}, err
	}
	seen := &Map{}
	var kept []Value
	for i, item := range items {
		n := seen.Len()
		if err := r.put(seen, keys[i], None()); err != nil {
			return Value{}, err
		}
		if seen.Len() > n {
			kept = append(kept, item)
		}
	}
	return generator(kept), nil
}

// filterExtreme makes max (sign 1) and min (sign -1).
func filterExtreme(sign int) filter {
	return func(r *run, v Value, a args) (Value, error) {
		bound, err := a.bind("min and max", 0, "case_sensitive", "attribute")
		if err != nil {
			return Value{}, err
		}
		items, keys, err := r.keyed(v, bound[0], bound[1])
		if err != nil {
			return Value{}, err
		}
		if len(items) == 0 {
			return undefined("no aggregated item, sequence was empty"), nil
		}
		best := 0
		for i := range items {
			c, err := r.order(keys[i], keys[best], "<")
			if err != nil {
				return Value{}, err
			}
			if c*sign > 0 {
				best = i
			}
		}
		return items[best], nil
	}
}
