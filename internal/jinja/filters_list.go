package jinja

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

func filterList(r *run, v Value, a args) (Value, error) {
	if err := a.none("list"); err != nil {
		return Value{}, err
	}
	items, err := r.elements(v)
	return List(items), err
}

func filterItems(r *run, v Value, a args) (Value, error) {
	if err := a.none("items"); err != nil {
		return Value{}, err
	}
	switch v.kind {
	case KindUndefined:
		return generator(nil), nil
	case KindMap:
		pairs, err := r.pairs(v.Map())
		return generator(pairs), err
	}
	return Value{}, fmt.Errorf("can only get item pairs from a mapping, not '%s'", v.typeName())
}

func filterFirst(r *run, v Value, a args) (Value, error) {
	if err := a.none("first"); err != nil {
		return Value{}, err
	}
	if v.kind == KindString && v.str != "" {
		first, err := r.element(v, 0)
		first.safe = false
		return first, err
	}
	items, err := r.elements(v)
	if err != nil {
		return Value{}, err
	}
	if len(items) == 0 {
		return undefined("no first item, sequence was empty"), nil
	}
	return items[0], nil
}

func filterLast(r *run, v Value, a args) (Value, error) {
	if err := a.none("last"); err != nil {
		return Value{}, err
	}
	if it, ok := v.ref.(*iterator); ok && !it.view {
		return Value{}, fmt.Errorf("'%s' object is not reversible", v.typeName())
	}
	if v.kind == KindString && v.str != "" {
		last, err := r.element(v, -1)
		last.safe = false
		return last, err
	}
	items, err := r.elements(v)
	if err != nil {
		return Value{}, err
	}
	if len(items) == 0 {
		return undefined("no last item, sequence was empty"), nil
	}
	return items[len(items)-1], nil
}

func filterReverse(r *run, v Value, a args) (Value, error) {
	if err := a.none("reverse"); err != nil {
		return Value{}, err
	}
	if v.kind == KindString {
		n, err := r.length(v)
		if err != nil || n == 0 {
			return v, err
		}
		return r.substring(v, n, n-1, n, -1)
	}
	items, err := r.elements(v)
	if err != nil {
		return Value{}, err
	}
	if err := r.allocList(len(items)); err != nil {
		return Value{}, err
	}
	items = slices.Clone(items)
	slices.Reverse(items)
	return generator(items), nil
}

// getter returns a function that gets an attribute of an item: a path
// of names and indices with dots between them, or an index. Without attribute it
// is the item itself. An undefined value on the way becomes fallback, if there is
// one.
func (r *run) getter(attribute, fallback Value) (func(Value) (Value, error), error) {
	var path []Value
	switch attribute.kind {
	case kindMissing, KindNone:
	case KindInt:
		path = []Value{attribute}
	case KindString:
		if err := r.alloc(len(attribute.str) * valueSize); err != nil {
			return nil, err
		}
		for _, part := range strings.Split(attribute.str, ".") {
			key := String(part)
			if n, err := strconv.ParseUint(part, 10, 31); err == nil {
				key = intValue(int64(n))
			}
			path = append(path, key)
		}
	default:
		return nil, fmt.Errorf("an attribute is a str or an int, not '%s'", attribute.typeName())
	}
	return func(v Value) (Value, error) {
		err := r.step(1)
		for _, key := range path {
			if err != nil {
				break
			}
			if v, err = r.item(v, key); v.kind == KindUndefined && fallback.kind != KindNone {
				v = fallback
			}
		}
		return v, err
	}, nil
}

// projected returns the elements of v, or the attribute of each.
func (r *run) projected(v, attribute Value) ([]Value, error) {
	get, err := r.getter(attribute, None())
	if err != nil {
		return nil, err
	}
	return r.transform(v, get)
}

// orEmpty returns v, or an empty list for anything false, as filters over items treat None and
// the like.
func orEmpty(v Value) Value {
	if !truthy(v) {
		return List(nil)
	}
	return v
}

func (r *run) transform(v Value, f func(Value) (Value, error)) ([]Value, error) {
	items, err := r.elements(v)
	if err != nil {
		return nil, err
	}
	if err := r.allocList(len(items)); err != nil {
		return nil, err
	}
	out := make([]Value, len(items))
	for i, item := range items {
		if out[i], err = f(item); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// filterMap applies a filter given by name, or takes an attribute.
func filterMap(r *run, v Value, a args) (Value, error) {
	if len(a.positional) == 0 && slices.Contains(a.names, "attribute") {
		bound, err := a.bind("map", 0, "attribute", "default")
		if err != nil {
			return Value{}, err
		}
		get, err := r.getter(bound[0], bound[1].or(None()))
		if err != nil {
			return Value{}, err
		}
		items, err := r.transform(orEmpty(v), get)
		return generator(items), err
	}
	if len(a.positional) == 0 {
		return Value{}, errors.New("map needs the name of a filter or an attribute")
	}
	name, err := textArg("map", a.positional[0])
	if err != nil {
		return Value{}, err
	}
	a.positional = a.positional[1:]
	items, err := r.transform(orEmpty(v), func(item Value) (Value, error) { return r.filter(name, item, a) })
	return generator(items), err
}

// filterSelect keeps the items that pass a test given by name, or are true.
func filterSelect(keep bool) filter {
	return func(r *run, v Value, a args) (Value, error) {
		return r.choose(v, a, keep, func(item Value) (Value, error) { return item, nil })
	}
}

// filterSelectAttr is filterSelect by an attribute of each item.
func filterSelectAttr(keep bool) filter {
	return func(r *run, v Value, a args) (Value, error) {
		if len(a.positional) == 0 {
			return Value{}, errors.New("selectattr and rejectattr need an attribute")
		}
		get, err := r.getter(a.positional[0], None())
		if err != nil {
			return Value{}, err
		}
		a.positional = a.positional[1:]
		return r.choose(v, a, keep, get)
	}
}

func (r *run) choose(v Value, a args, keep bool, get func(Value) (Value, error)) (Value, error) {
	passes := func(item Value) (bool, error) { return truthy(item), nil }
	if len(a.positional) > 0 {
		name, err := textArg("select", a.positional[0])
		if err != nil {
			return Value{}, err
		}
		a.positional = a.positional[1:]
		passes = func(item Value) (bool, error) { return r.test(name, item, a) }
	}
	items, err := r.elements(orEmpty(v))
	if err != nil {
		return Value{}, err
	}
	var kept []Value
	for _, item := range items {
		got, err := get(item)
		if err != nil {
			return Value{}, err
		}
		ok, err := passes(got)
		if err != nil {
			return Value{}, err
		}
		if ok == keep {
			kept = append(kept, item)
		}
		if err := r.allocList(1); err != nil {
			return Value{}, err
		}
	}
	return generator(kept), nil
}
