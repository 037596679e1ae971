package jinja

// asString returns v, if it is a string, or str(v).
func (r *run) asString(v Value) (Value, error) {
	if v.kind == KindString {
		return v, nil
	}
	s, err := r.text(v)
	return String(s), err
}

// filterMethod makes a filter of a string method without arguments.
func filterMethod(name string) filter {
	return func(r *run, v Value, a args) (Value, error) {
		s, err := r.asString(v)
		if err != nil {
			return Value{}, err
		}
		return stringMethods[name](r, s, a)
	}
}

func filterString(r *run, v Value, a args) (Value, error) {
	if err := a.none("string"); err != nil {
		return Value{}, err
	}
	return r.asString(v)
}

func filterSafe(r *run, v Value, a args) (Value, error) {
	s, err := filterString(r, v, a)
	s.safe = true
	return s, err
}

func filterTrim(r *run, v Value, a args) (Value, error) {
	bound, err := a.bind("trim", 0, "chars")
	if err != nil {
		return Value{}, err
	}
	s, err := r.asString(v)
	if err != nil {
		return Value{}, err
	}
	return stringMethods["strip"](r, s, args{positional: []Value{bound[0].or(None())}})
}

func filterReplace(r *run, v Value, a args) (Value, error) {
	bound, err := a.bind("replace", 2, "old", "new", "count")
	if err != nil {
		return Value{}, err
	}
	var texts [3]Value
	for i, x := range []Value{v, bound[0], bound[1]} {
		if texts[i], err = r.asString(x); err != nil {
			return Value{}, err
		}
	}
	count := int64(-1)
	if bound[2].kind != KindNone {
		if count, err = intArg("replace", bound[2], -1); err != nil {
			return Value{}, err
		}
	}
	s, err := r.replace(texts[0], texts[1].str, texts[2], count)
	s.safe = false
	return s, err
}

func filterJoin(r *run, v Value, a args) (Value, error) {
	bound, err := a.bind("join", 0, "d", "attribute")
	if err != nil {
		return Value{}, err
	}
	items, err := r.projected(v, bound[1])
	if err != nil {
		return Value{}, err
	}
	between, err := r.asString(bound[0].or(String("")))
	if err != nil {
		return Value{}, err
	}
	var b buffer
	for i, item := range items {
		if i > 0 {
			if err := r.write(&b, between); err != nil {
				return Value{}, err
			}
		}
		if err := r.write(&b, item); err != nil {
			return Value{}, err
		}
	}
	return r.finish(&b)
}

func filterIndent(r *run, v Value, a args) (Value, error) {
	bound, err := a.bind("indent", 0, "width", "first", "blank")
	if err != nil {
		return Value{}, err
	}
	if _, err := textArg("indent", v); err != nil {
		return Value{}, err
	}
	by := bound[0].or(intValue(4))
	if by.kind != KindString {
		if by, err = r.repeat(String(" "), by); err != nil {
			return Value{}, err
		}
	}
	lines, err := r.splitLines(v, false)
	if err != nil {
		return Value{}, err
	}
	if v.str == "" || v.str[len(v.str)-1] != '\r' && endsLine(v.str) {
		lines = append(lines, v.cut(0, 0)) // as with one more line end, which a last \r takes up
	}
	var b buffer
	for i, l := range lines {
		parts := [3]Value{2: l}
		if i > 0 {
			parts[0] = v.like("\n")
		}
		if i == 0 && truthy(bound[1]) || i > 0 && (l.str != "" || truthy(bound[2])) {
			parts[1] = by
		}
		for _, part := range parts {
			if err := r.write(&b, part); err != nil {
				return Value{}, err
			}
		}
	}
	out, err := r.finish(&b)
	out.safe = v.safe
	return out, err
}
