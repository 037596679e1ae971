package jinja

import (
	"fmt"
	"slices"
)

// filterInput is the name under which a filter block's body reaches its first
// filter. No template can spell it.
const filterInput = "\x00body"

func (s *textStmt) exec(r *run) (flow, error) {
	return flowNext, r.write(&r.out, Trusted(s.text))
}

func (s *printStmt) exec(r *run) (flow, error) {
	v, err := r.eval(s.value)
	if err != nil {
		return flowNext, err
	}
	return flowNext, r.write(&r.out, v)
}

// exec of a condition runs in the surrounding scope: variables that it sets stay set.
func (s *ifStmt) exec(r *run) (flow, error) {
	for i, test := range s.tests {
		v, err := r.eval(test)
		if err != nil {
			return flowNext, err
		}
		if truthy(v) {
			return r.execBody(s.bodies[i])
		}
	}
	return r.execBody(s.orElse)
}

func (s *setStmt) exec(r *run) (flow, error) {
	v, err := r.eval(s.value)
	if err != nil {
		return flowNext, err
	}
	return flowNext, r.assign(s.target, v)
}

func (s *setBlockStmt) exec(r *run) (flow, error) {
	f, v, err := r.rendered(s.body, s.filter)
	if err != nil || f != flowNext {
		return f, err
	}
	return flowNext, r.assign(s.target, v)
}

func (s *filterStmt) exec(r *run) (flow, error) {
	f, v, err := r.rendered(s.body, s.filter)
	if err != nil || f != flowNext {
		return f, err
	}
	return flowNext, r.write(&r.out, v)
}

// rendered renders a body in a new scope and applies a
// chain of filters to the text, if there is one.
func (r *run) rendered(body []stmt, filter expr) (f flow, v Value, err error) {
	v, err = r.capture(func() (err error) {
		f, err = r.inScope(r.scope, body)
		return err
	})
	if err != nil || f != flowNext {
		return f, Value{}, err
	}
	if filter == nil {
		return flowNext, v, nil
	}
	saved := r.scope
	r.scope = &scope{parent: saved}
	r.scope.set(filterInput, v)
	v, err = r.eval(filter)
	r.scope = saved
	return flowNext, v, err
}

func (s *scopeStmt) exec(r *run) (flow, error) {
	saved := r.scope
	r.scope = &scope{parent: saved}
	defer func() { r.scope = saved }()
	return r.execBody(s.body)
}

func (s *loopControlStmt) exec(*run) (flow, error) { return s.flow, nil }

// assign sets a target in the current scope.
func (r *run) assign(t target, v Value) error {
	if t.unpack {
		return r.unpack(t.parts, v)
	}
	if err := r.allocList(1); err != nil {
		return err
	}
	if t.attr == "" {
		r.scope.set(t.name, v)
		return nil
	}
	object, err := r.lookup(t.name)
	if err != nil {
		return err
	}
	ns, ok := object.ref.(*namespace)
	if !ok {
		return fmt.Errorf("cannot assign attribute '%s' on '%s': only a namespace can be changed", t.attr, t.name)
	}
	return r.put(ns.attrs, String(t.attr), v)
}

func (r *run) unpack(parts []target, v Value) error {
	items, err := r.elements(v)
	if err != nil {
		return err
	}
	if len(items) != len(parts) {
		return fmt.Errorf("cannot unpack %d values into %d names", len(items), len(parts))
	}
	for i, part := range parts {
		if err := r.assign(part, items[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *macroStmt) exec(r *run) (flow, error) {
	return flowNext, r.assign(target{name: s.macro.name}, r.closure(s.macro))
}

// closure makes a macro callable: it sees the scope it was defined in, not the
// one it is called from.
func (r *run) closure(m *macro) Value {
	defined := r.scope
	return callable(m.name, func(r *run, a args) (Value, error) {
		saved := r.scope
		r.scope = &scope{parent: defined}
		defer func() { r.scope = saved }()
		return r.capture(func() error {
			if err := m.bind(r, a); err != nil {
				return err
			}
			_, err := r.execBody(m.body)
			return err
		})
	})
}

// bind sets the parameters of m, and the special names its body mentions, in the
// current scope.
func (m *macro) bind(r *run, a args) error {
	if err := r.allocList(len(m.params) + a.count()); err != nil {
		return err
	}
	if err := r.step(len(m.params) * len(a.names)); err != nil { // each is looked for among the names
		return err
	}
	used := make([]bool, len(a.names))
	for i, param := range m.params {
		v, given := undefined("parameter '"+param+"' was not provided"), i < len(a.positional)
		if given {
			v = a.positional[i]
		} else if j := slices.Index(a.names, param); j >= 0 {
			v, given, used[j] = a.named[j], true, true
		}
		if d := i - len(m.params) + len(m.defaults); !given && d >= 0 {
			var err error
			if v, err = r.eval(m.defaults[d]); err != nil {
				return err
			}
		}
		r.scope.set(param, v)
	}
	return m.checkRest(a, used)
}

// checkRest refuses arguments that no parameter took.
func (m *macro) checkRest(a args, used []bool) error {
	for i, name := range a.names {
		if !used[i] {
			return fmt.Errorf("macro '%s' takes no keyword argument '%s'", m.name, name)
		}
	}
	if len(a.positional) > len(m.params) {
		return fmt.Errorf("macro '%s' takes not more than %d argument(s)", m.name, len(m.params))
	}
	return nil
}
