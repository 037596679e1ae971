package jinja

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// Error is an error with its line in a template. Its
// cause is a [RaiseError], a [LimitError], or an error of syntax or evaluation.
type Error struct {
	Line int // of the source, from 1
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("jinja: line %d: %v", e.Line, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// RaiseError is an error the template raised itself by calling raise_exception,
// as chat templates do for conversations they do not take.
type RaiseError struct{ Message string }

func (e *RaiseError) Error() string { return e.Message }

// Template is a parsed template. It does not change and may be used by several
// goroutines at once.
type Template struct {
	body []stmt
}

// Parse reads the source of a template. An error is an [Error].
func Parse(src string) (*Template, error) {
	if len(src) > maxSource {
		return nil, &Error{Line: 1, Err: &LimitError{What: "bytes of source", Max: maxSource}}
	}
	if !utf8.ValidString(src) {
		return nil, &Error{Line: 1, Err: errors.New("template is not valid UTF-8")}
	}
	tokens, err := lex(src)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	body, _, err := p.parseBody()
	if err != nil {
		return nil, &Error{Line: p.current().line, Err: err}
	}
	return &Template{body: body}, nil
}

// Options are the conditions of one rendering. The zero value is ready to use.
type Options struct {
	Limits Limits
	// Now is the clock of strftime_now, in the zone to be shown.
	// Default time.Now.
	Now func() time.Time
}

// Rendered is the result of a template.
type Rendered struct {
	Text string
	// Trusted are the ranges of Text, [from, to) in bytes, in order and disjoint, that the
	// template wrote or that were given as [Trusted]. The rest came from untrusted variables, or may
	// have.
	Trusted [][2]int
}

// Render renders the template with the given variables, which it does not
// change. An error is an [Error].
func (t *Template) Render(vars *Map, o Options) (Rendered, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	limits := o.Limits.orDefault()
	r := &run{
		filters: filters,
		tests:   tests,
		limits:  limits,
		steps:   limits.Steps,
		bytes:   limits.Bytes,
		now:     o.Now,
	}
	context := &scope{vars: map[string]Value{}}
	for name, v := range globals() {
		context.set(name, v)
	}
	for name, v := range vars.All() {
		context.set(name, v)
	}
	r.scope = &scope{parent: context}
	if _, err := r.execBody(t.body); err != nil {
		return Rendered{}, err
	}
	return Rendered{Text: string(r.out.text), Trusted: r.out.own}, nil
}

// run is one rendering under way.
type run struct {
	filters map[string]filter // fields, because filters look up filters by name
	tests   map[string]test
	limits  Limits
	steps   int // left of limits.Steps
	bytes   int // left of limits.Bytes
	depth   int // used of limits.Depth
	scope   *scope
	out     buffer // the output; a macro removes its part from the end
	now     func() time.Time
}

// scope holds the variables of a block; those of the blocks around it are visible
// in it but not set.
type scope struct {
	vars   map[string]Value // nil until a variable is set
	parent *scope
}

func (s *scope) set(name string, v Value) {
	if s.vars == nil {
		s.vars = make(map[string]Value, 4)
	}
	s.vars[name] = v
}

// lookup finds a variable. One hop to an outer scope costs one step.
func (r *run) lookup(name string) (Value, error) {
	for s := r.scope; s != nil; s = s.parent {
		if v, ok := s.vars[name]; ok {
			return v, nil
		}
		if err := r.step(1); err != nil {
			return Value{}, err
		}
	}
	return undefined("'" + name + "' is undefined"), nil
}

// eval computes an expression, counting a step and a level.
func (r *run) eval(e expr) (Value, error) {
	if err := r.enter(); err != nil {
		return Value{}, err
	}
	v, err := e.eval(r)
	r.leave()
	return v, err
}

// execBody runs statements in the current scope until one leaves a loop round.
// Errors get the line of the innermost statement.
func (r *run) execBody(body []stmt) (flow, error) {
	if err := r.enter(); err != nil {
		return flowNext, err
	}
	defer r.leave()
	for _, s := range body {
		err := r.step(1)
		f := flowNext
		if err == nil {
			f, err = s.exec(r)
		}
		if err != nil {
			var placed *Error
			if !errors.As(err, &placed) {
				err = &Error{Line: s.lineNumber(), Err: err}
			}
			return flowNext, err
		}
		if f != flowNext {
			return f, nil
		}
	}
	return flowNext, nil
}

// inScope runs a body in a new scope within outer.
func (r *run) inScope(outer *scope, body []stmt) (flow, error) {
	saved := r.scope
	r.scope = &scope{parent: outer}
	f, err := r.execBody(body)
	r.scope = saved
	return f, err
}

// capture returns the output of f instead of appending it.
func (r *run) capture(f func() error) (Value, error) {
	start, ranges := len(r.out.text), len(r.out.own)
	if err := f(); err != nil {
		return Value{}, err
	}
	if err := r.alloc(len(r.out.text) - start + marksSize + rangeSize*(len(r.out.own)-ranges+1)); err != nil {
		return Value{}, err
	}
	return r.out.since(start), nil
}
