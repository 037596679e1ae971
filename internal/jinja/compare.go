package jinja

import (
	"cmp"
	"fmt"
	"math"
	"strings"
)

// equal is Python's a == b.
func (r *run) equal(a, b Value) (bool, error) {
	if err := r.enter(); err != nil {
		return false, err
	}
	defer r.leave()
	if a.big() || b.big() {
		return a.kind == b.kind && a.str == b.str, nil
	}
	if x, ok := a.number(); ok {
		y, ok := b.number()
		return ok && compareNumbers(a, b, x, y) == 0 && !math.IsNaN(x) && !math.IsNaN(y), nil
	}
	if a.kind != b.kind {
		return false, nil
	}
	switch a.kind {
	case KindUndefined, KindNone:
		return true, nil
	case KindString:
		if len(a.str) != len(b.str) {
			return false, nil
		}
		return a.str == b.str, r.scan(len(a.str))
	case KindList, KindTuple:
		return r.equalItems(a.Items(), b.Items())
	case KindMap:
		return r.equalMaps(a.Map(), b.Map())
	}
	return a.ref == b.ref, nil
}

func (r *run) equalItems(a, b []Value) (bool, error) {
	if len(a) != len(b) {
		return false, nil
	}
	for i := range a {
		if same, err := r.equal(a[i], b[i]); !same || err != nil {
			return false, err
		}
	}
	return true, nil
}

func (r *run) equalMaps(a, b *Map) (bool, error) {
	if a.Len() != b.Len() {
		return false, nil
	}
	for i := range a.Len() {
		k, _ := keyOf(a.entries[i].key)
		other, ok, err := r.get(b, k)
		if !ok || err != nil {
			return false, err
		}
		if same, err := r.equal(a.entries[i].value, other); !same || err != nil {
			return false, err
		}
	}
	return true, nil
}

// compareNumbers orders two numbers, whose float values are x and y; integers
// are compared as integers.
func compareNumbers(a, b Value, x, y float64) int {
	if m, ok := a.integer(); ok {
		if n, ok := b.integer(); ok {
			return cmp.Compare(m, n)
		}
	}
	return cmp.Compare(x, y)
}

// order compares a and b as Python's < and > do, which is an error for values
// that have no order between them. Not-a-number sorts before all numbers.
func (r *run) order(a, b Value, op string) (int, error) {
	if err := r.enter(); err != nil {
		return 0, err
	}
	defer r.leave()
	for _, v := range []Value{a, b} {
		if v.kind == KindUndefined {
			return 0, v.undefinedError()
		}
	}
	if x, ok := a.number(); ok {
		if y, ok := b.number(); ok {
			return compareNumbers(a, b, x, y), nil
		}
	}
	switch {
	case a.kind == KindString && b.kind == KindString:
		return strings.Compare(a.str, b.str), r.scan(min(len(a.str), len(b.str)))
	case a.kind == b.kind && (a.kind == KindList || a.kind == KindTuple):
		return r.orderItems(a.Items(), b.Items(), op)
	}
	return 0, fmt.Errorf("'%s' not supported between instances of '%s' and '%s'", op, a.typeName(), b.typeName())
}

func (r *run) orderItems(a, b []Value, op string) (int, error) {
	for i := range min(len(a), len(b)) {
		same, err := r.equal(a[i], b[i])
		if err != nil {
			return 0, err
		}
		if !same {
			return r.order(a[i], b[i], op)
		}
	}
	return cmp.Compare(len(a), len(b)), nil
}

// compare applies one comparison operator.
func (r *run) compare(op string, a, b Value) (bool, error) {
	switch op {
	case "==", "!=":
		same, err := r.equal(a, b)
		return same == (op == "=="), err
	case "in", "not in":
		found, err := r.contains(b, a)
		return found == (op == "in"), err
	}
	c, err := r.order(a, b, op)
	if err != nil {
		return false, err
	}
	if x, _ := a.number(); math.IsNaN(x) {
		return false, nil
	}
	if y, _ := b.number(); math.IsNaN(y) {
		return false, nil
	}
	switch op {
	case "<":
		return c < 0, nil
	case "<=":
		return c <= 0, nil
	case ">":
		return c > 0, nil
	}
	return c >= 0, nil
}

// contains is Python's item in v.
func (r *run) contains(v, item Value) (bool, error) {
	switch v.kind {
	case KindString:
		if item.kind != KindString {
			return false, fmt.Errorf("'in <string>' requires string as left operand, not %s", item.typeName())
		}
		return strings.Contains(v.str, item.str), r.scan(len(v.str))
	case KindMap:
		k, ok := keyOf(item)
		if !ok {
			return false, fmt.Errorf("unhashable type: '%s'", item.typeName())
		}
		_, ok, err := r.get(v.Map(), k)
		return ok, err
	case KindNone, KindBool, KindInt, KindFloat, KindNamespace, KindFunction:
		return false, fmt.Errorf("argument of type '%s' is not iterable", v.typeName())
	}
	items, err := r.elements(v)
	if err != nil {
		return false, err
	}
	for _, e := range items {
		if same, err := r.equal(e, item); same || err != nil {
			return same, err
		}
	}
	return false, nil
}
