package jinja

import (
	"fmt"
	"math"
)

// sum evaluates a + b + c… from the left. Strings are concatenated once, at the end: most
// templates add a prefix and a suffix to a message.
func (r *run) sum(e *binaryExpr) (Value, error) {
	var short [8]*binaryExpr
	chain := append(short[:0], e) // the last addition first
	for left, ok := e.left.(*binaryExpr); ok && left.op == "+"; left, ok = left.left.(*binaryExpr) {
		if err := r.enter(); err != nil {
			return Value{}, err
		}
		chain = append(chain, left)
	}
	first, err := r.eval(chain[len(chain)-1].left)
	if err != nil {
		return Value{}, err
	}
	var few [8]Value
	parts := append(few[:0], first)
	for i := len(chain) - 1; i >= 0; i-- {
		v, err := r.eval(chain[i].right)
		if err != nil {
			return Value{}, err
		}
		if parts, err = r.append(parts, v); err != nil {
			return Value{}, err
		}
		if i > 0 {
			r.leave()
		}
	}
	if len(parts) == 1 {
		return parts[0], nil
	}
	return r.concat(parts...)
}

// append adds v to the sum of parts: as one more part if both are strings and
// none is marked escaped.
func (r *run) append(parts []Value, v Value) ([]Value, error) {
	for _, operand := range [2]Value{parts[0], v} {
		if operand.kind == KindUndefined {
			return nil, operand.undefinedError()
		}
	}
	if parts[0].kind == KindString && !parts[0].safe && v.kind == KindString && !v.safe {
		return append(parts, v), nil
	}
	total, err := parts[0], error(nil)
	if len(parts) > 1 {
		if total, err = r.concat(parts...); err != nil {
			return nil, err
		}
	}
	if isNumber(total) {
		total, err = arithmetic("+", total, v)
	} else {
		total, err = r.add(total, v)
	}
	return append(parts[:0], total), err
}

// add joins two strings, lists or tuples.
func (r *run) add(a, b Value) (Value, error) {
	if !isSequence(a) {
		return arithmetic("+", a, b)
	}
	if a.kind != b.kind {
		return Value{}, fmt.Errorf("can only concatenate %s (not \"%s\") to %s", a.typeName(), b.typeName(), a.typeName())
	}
	if a.kind != KindString {
		x, y := a.Items(), b.Items()
		if err := r.allocList(len(x) + len(y)); err != nil {
			return Value{}, err
		}
		return Value{kind: a.kind, ref: append(append(make([]Value, 0, len(x)+len(y)), x...), y...)}, nil
	}
	if a.safe || b.safe {
		var err error
		if a, err = r.escapeHTML(a); err != nil {
			return Value{}, err
		}
		if b, err = r.escapeHTML(b); err != nil {
			return Value{}, err
		}
	}
	return r.concat(a, b)
}

// repeat is Python's sequence * count.
func (r *run) repeat(v, count Value) (Value, error) {
	n, ok := count.integer()
	if !ok {
		return Value{}, fmt.Errorf("can't multiply sequence by non-int of type '%s'", count.typeName())
	}
	size := len(v.str)
	if v.kind != KindString {
		size = len(v.Items())
	}
	if n <= 0 || size == 0 {
		n, size = 0, 0
	}
	if size > 0 && n > int64(math.MaxInt32/size) {
		return Value{}, r.alloc(math.MaxInt)
	}
	total := int(n) * size
	if v.kind == KindString {
		if err := r.alloc(total); err != nil {
			return Value{}, err
		}
		b := make([]byte, 0, total)
		for range n {
			b = append(b, v.str...)
		}
		return v.like(string(b)), r.alloc(total)
	}
	if err := r.allocList(total); err != nil {
		return Value{}, err
	}
	items := make([]Value, 0, total)
	for range n {
		items = append(items, v.Items()...)
	}
	return Value{kind: v.kind, ref: items}, nil
}
