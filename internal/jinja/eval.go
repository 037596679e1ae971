package jinja

import (
	"fmt"
	"unicode/utf8"
)

// undefinedError is the error of using v for more than printing or testing it.
func (v Value) undefinedError() error { return fmt.Errorf("%s", v.str) }

func (e *constExpr) eval(*run) (Value, error) { return e.value, nil }

func (e *nameExpr) eval(r *run) (Value, error) { return r.lookup(e.name) }

func (e *listExpr) eval(r *run) (Value, error) {
	items, err := r.evalAll(e.items)
	if e.tuple {
		return tuple(items...), err
	}
	return List(items), err
}

func (e *dictExpr) eval(r *run) (Value, error) {
	m := &Map{}
	for i := range e.keys {
		key, err := r.eval(e.keys[i])
		if err != nil {
			return Value{}, err
		}
		value, err := r.eval(e.values[i])
		if err != nil {
			return Value{}, err
		}
		if err := r.put(m, key, value); err != nil {
			return Value{}, err
		}
	}
	return Dict(m), nil
}

func (e *attrExpr) eval(r *run) (Value, error) {
	object, err := r.eval(e.object)
	if err != nil {
		return Value{}, err
	}
	return r.attribute(object, e.name)
}

func (e *itemExpr) eval(r *run) (Value, error) {
	object, err := r.eval(e.object)
	if err != nil {
		return Value{}, err
	}
	key, err := r.eval(e.key)
	if err != nil {
		return Value{}, err
	}
	return r.item(object, key)
}

func (e *callExpr) eval(r *run) (Value, error) {
	callee, err := r.eval(e.callee)
	if err != nil {
		return Value{}, err
	}
	a, err := e.args.eval(r)
	if err != nil {
		return Value{}, err
	}
	return r.call(callee, a)
}

func (r *run) call(callee Value, a args) (Value, error) {
	switch callee.kind {
	case KindFunction:
		return callee.ref.(*function).call(r, a)
	case KindUndefined:
		return Value{}, callee.undefinedError()
	}
	return Value{}, fmt.Errorf("'%s' object is not callable", callee.typeName())
}

func (e *filterExpr) eval(r *run) (Value, error) {
	var v Value
	var err error
	if e.object == nil {
		v, err = r.lookup(filterInput)
	} else {
		v, err = r.eval(e.object)
	}
	if err != nil {
		return Value{}, err
	}
	a, err := e.args.eval(r)
	if err != nil {
		return Value{}, err
	}
	return r.filter(e.name, v, a)
}

func (r *run) filter(name string, v Value, a args) (Value, error) {
	f, ok := r.filters[name]
	if !ok {
		return Value{}, fmt.Errorf("filter '%s' is unknown or not supported", name)
	}
	if err := r.step(1); err != nil {
		return Value{}, err
	}
	return f(r, v, a)
}

func (e *testExpr) eval(r *run) (Value, error) {
	v, err := r.eval(e.object)
	if err != nil {
		return Value{}, err
	}
	a, err := e.args.eval(r)
	if err != nil {
		return Value{}, err
	}
	ok, err := r.test(e.name, v, a)
	return Bool(ok != e.negate), err
}

func (r *run) test(name string, v Value, a args) (bool, error) {
	t, ok := r.tests[name]
	if !ok {
		return false, fmt.Errorf("test '%s' is unknown or not supported", name)
	}
	if err := r.step(1); err != nil {
		return false, err
	}
	return t(r, v, a)
}

func (e *notExpr) eval(r *run) (Value, error) {
	v, err := r.eval(e.operand)
	return Bool(!truthy(v)), err
}

func (e *logicExpr) eval(r *run) (Value, error) {
	v, err := r.eval(e.left)
	if err != nil || truthy(v) != e.and {
		return v, err
	}
	return r.eval(e.right)
}

func (e *condExpr) eval(r *run) (Value, error) {
	test, err := r.eval(e.test)
	switch {
	case err != nil:
		return Value{}, err
	case truthy(test):
		return r.eval(e.then)
	case e.otherwise == nil:
		return undefined("the inline if-expression evaluated to false and no else section was defined"), nil
	}
	return r.eval(e.otherwise)
}

func (e *compareExpr) eval(r *run) (Value, error) {
	left, err := r.eval(e.first)
	for i, op := range e.ops {
		if err != nil {
			return Value{}, err
		}
		var right Value
		if right, err = r.eval(e.operands[i]); err != nil {
			return Value{}, err
		}
		ok, err := r.compare(op, left, right)
		if !ok || err != nil {
			return Bool(false), err
		}
		left = right
	}
	return Bool(true), err
}

func (e *concatExpr) eval(r *run) (Value, error) {
	var b buffer
	for _, part := range e.parts {
		v, err := r.eval(part)
		if err != nil {
			return Value{}, err
		}
		if err = r.write(&b, v); err != nil {
			return Value{}, err
		}
	}
	return r.finish(&b)
}

func (e *unaryExpr) eval(r *run) (Value, error) {
	v, err := r.eval(e.operand)
	switch {
	case err != nil:
		return Value{}, err
	case v.kind == KindUndefined:
		return Value{}, v.undefinedError()
	case e.op == "-":
		return negate(v)
	}
	if v.kind == KindBool {
		return intValue(int64(v.num)), nil
	}
	if v.kind != KindInt && v.kind != KindFloat {
		return Value{}, fmt.Errorf("bad operand type for unary +: '%s'", v.typeName())
	}
	return v, nil
}

func (e *binaryExpr) eval(r *run) (Value, error) {
	if e.op == "+" {
		return r.sum(e)
	}
	a, err := r.eval(e.left)
	if err != nil {
		return Value{}, err
	}
	b, err := r.eval(e.right)
	if err != nil {
		return Value{}, err
	}
	for _, v := range []Value{a, b} {
		if v.kind == KindUndefined {
			return Value{}, v.undefinedError()
		}
	}
	switch {
	case e.op == "*" && isSequence(a):
		return r.repeat(a, b)
	case e.op == "*" && isSequence(b):
		return r.repeat(b, a)
	case e.op == "%" && a.kind == KindString:
		return Value{}, fmt.Errorf("formatting a string with %% is not supported: join the parts with ~")
	}
	return arithmetic(e.op, a, b)
}

func isNumber(v Value) bool {
	return v.kind == KindInt || v.kind == KindFloat || v.kind == KindBool
}

func isSequence(v Value) bool {
	return v.kind == KindString || v.kind == KindList || v.kind == KindTuple
}

func (e *sliceExpr) eval(r *run) (Value, error) {
	object, err := r.eval(e.object)
	if err != nil {
		return Value{}, err
	}
	if object.kind == KindUndefined {
		return Value{}, object.undefinedError()
	}
	var bounds [3]Value
	for i, b := range []expr{e.from, e.to, e.step} {
		bounds[i] = None()
		if b != nil {
			if bounds[i], err = r.eval(b); err != nil {
				return Value{}, err
			}
		}
	}
	if !isSequence(object) {
		return Value{}, fmt.Errorf("'%s' object cannot be sliced", object.typeName())
	}
	n, err := r.length(object)
	if err != nil {
		return Value{}, err
	}
	from, count, step, err := sliceBounds(bounds, n)
	if err != nil {
		return Value{}, err
	}
	if object.kind == KindString {
		return r.substring(object, n, from, count, step)
	}
	if step == 1 {
		return Value{kind: object.kind, ref: object.Items()[from : from+count : from+count]}, nil
	}
	if err := r.allocList(count); err != nil {
		return Value{}, err
	}
	items := make([]Value, count)
	for i := range items {
		items[i] = object.Items()[from+i*step]
	}
	return Value{kind: object.kind, ref: items}, nil
}

// sliceBounds resolves from:to:step over n elements to a first index, a count
// and a step, by Python's rules. Missing bounds are None.
func sliceBounds(bounds [3]Value, n int) (from, count, step int, err error) {
	resolved := [3]int{0, n, 1}
	for i := 2; i >= 0; i-- {
		v := bounds[i]
		if v.kind == KindNone {
			if resolved[2] < 0 && i < 2 {
				resolved[i] = [2]int{n - 1, -1}[i]
			}
			continue
		}
		k, ok := v.integer()
		if !ok {
			return 0, 0, 0, fmt.Errorf("slice indices must be integers or None, not %s", v.typeName())
		}
		if i == 2 {
			if k == 0 {
				return 0, 0, 0, fmt.Errorf("slice step cannot be zero")
			}
			// Any step longer than n reaches one element.
			resolved[2] = int(max(min(k, int64(n)+1), -int64(n)-1))
			continue
		}
		if k < 0 {
			k = max(k+int64(n), -1)
		}
		low, high := 0, n
		if resolved[2] < 0 {
			low, high = -1, n-1
		}
		resolved[i] = int(min(max(k, int64(low)), int64(high)))
	}
	from, to, step := resolved[0], resolved[1], resolved[2]
	switch {
	case step > 0 && to > from:
		count = (to - from + step - 1) / step
	case step < 0 && from > to:
		count = (from - to - step - 1) / -step
	default:
		from = 0
	}
	return from, count, step, nil
}

// substring takes count characters of v, which has n, from the given one on.
func (r *run) substring(v Value, n, from, count, step int) (Value, error) {
	if n == len(v.str) && step == 1 {
		return v.cut(from, from+count), nil
	}
	if step == 1 {
		start := charOffset(v.str, from)
		return v.cut(start, start+charOffset(v.str[start:], count)), r.step(1 + len(v.str)/8)
	}
	if err := r.alloc(5*n + count); err != nil {
		return Value{}, err
	}
	runes := []rune(v.str)
	b := make([]byte, 0, count)
	for i := range count {
		b = utf8.AppendRune(b, runes[from+i*step])
	}
	return v.like(string(b)), r.alloc(len(b))
}

// charOffset is the length in bytes of the first n characters of s.
func charOffset(s string, n int) int {
	for i := range s {
		if n == 0 {
			return i
		}
		n--
	}
	return len(s)
}
