package jinja

import (
	"fmt"
)

// loop is a running for loop, and the loop variable. It evaluates its items
// on demand: a filter condition may depend on changes of a namespace
// in earlier rounds.
type loop struct {
	stmt    *forStmt
	outer   *scope
	rest    []Value // items not looked at yet
	plain   bool    // rest need not pass the filter any more
	index   int     // of the current round, from 0
	total   int     // number of rounds, -1 while unknown
	current Value
	before  Value
	ahead   Value // the next item, if peeked
	peeked  bool
	ended   bool // peeked, and there is no next item
}

func (s *forStmt) exec(r *run) (flow, error) {
	items, err := r.eval(s.items)
	if err != nil {
		return flowNext, err
	}
	return flowNext, s.run(r, items, r.scope)
}

func (s *forStmt) run(r *run, over Value, outer *scope) error {
	items, err := r.elements(over)
	if err != nil {
		return err
	}
	l := &loop{
		stmt: s, outer: outer, rest: items, plain: s.filter == nil,
		index: -1, total: -1,
		before: undefined("there is no previous item"),
	}
	if l.plain {
		l.total = len(items)
	}
	saved := r.scope
	defer func() { r.scope = saved }()
	inner := &scope{parent: outer}
	for {
		r.scope = outer
		if ok, err := l.next(r); err != nil || !ok {
			return l.finish(r, err)
		}
		clear(inner.vars)
		r.scope = inner
		inner.set("loop", Value{kind: KindLoop, ref: l})
		if err := r.assign(s.target, l.current); err != nil {
			return err
		}
		f, err := r.execBody(s.body)
		if err != nil || f == flowBreak {
			return err
		}
	}
}

// finish runs the else part of a loop that had no rounds.
func (l *loop) finish(r *run, err error) error {
	if err != nil || l.index >= 0 || l.stmt.orElse == nil {
		return err
	}
	_, err = r.inScope(l.outer, l.stmt.orElse)
	return err
}

// next moves to the next round and reports whether there is one.
func (l *loop) next(r *run) (bool, error) {
	if err := l.peek(r); err != nil || l.ended {
		return false, err
	}
	if l.index++; l.index > 0 {
		l.before = l.current
	}
	l.current, l.peeked = l.ahead, false
	return true, nil
}

// peek finds the next item that passes the filter.
func (l *loop) peek(r *run) error {
	for !l.peeked {
		if err := r.step(1); err != nil {
			return err
		}
		if len(l.rest) == 0 {
			l.peeked, l.ended = true, true
			return nil
		}
		item := l.rest[0]
		l.rest = l.rest[1:]
		ok, err := l.passes(r, item)
		if err != nil {
			return err
		}
		if ok {
			l.peeked, l.ahead = true, item
		}
	}
	return nil
}

func (l *loop) passes(r *run, item Value) (bool, error) {
	if l.plain {
		return true, nil
	}
	saved := r.scope
	r.scope = &scope{parent: l.outer}
	defer func() { r.scope = saved }()
	if err := r.assign(l.stmt.target, item); err != nil {
		return false, err
	}
	v, err := r.eval(l.stmt.filter)
	return truthy(v), err
}

// length evaluates all items, if they have a filter.
func (l *loop) length(r *run) (int, error) {
	if l.total >= 0 {
		return l.total, nil
	}
	var kept []Value
	for _, item := range l.rest {
		ok, err := l.passes(r, item)
		if err != nil {
			return 0, err
		}
		if ok {
			if err := r.allocList(1); err != nil {
				return 0, err
			}
			kept = append(kept, item)
		}
	}
	l.rest, l.plain = kept, true
	l.total = l.index + 1 + len(kept)
	if l.peeked && !l.ended {
		l.total++
	}
	return l.total, nil
}

// attribute returns an attribute of the loop variable.
func (l *loop) attribute(r *run, name string) (Value, error) {
	switch name {
	case "index":
		return intValue(int64(l.index) + 1), nil
	case "index0":
		return intValue(int64(l.index)), nil
	case "first":
		return Bool(l.index == 0), nil
	case "previtem":
		return l.before, nil
	case "last", "nextitem":
		if err := l.peek(r); err != nil {
			return Value{}, err
		}
		switch {
		case name == "last":
			return Bool(l.ended), nil
		case l.ended:
			return undefined("there is no next item"), nil
		}
		return l.ahead, nil
	case "length", "revindex", "revindex0":
		n, err := l.length(r)
		switch name {
		case "revindex":
			n -= l.index
		case "revindex0":
			n -= l.index + 1
		}
		return intValue(int64(n)), err
	}
	return undefined(fmt.Sprintf("'loop' has no attribute '%s'", name)), nil
}
