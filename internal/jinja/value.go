package jinja

import (
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
	"unsafe"
)

// Kind is the kind of a [Value].
type Kind uint8

// The kinds of values. A list that came from a range is a list.
const (
	KindUndefined Kind = iota // a name or element that is not there
	KindNone
	KindBool
	KindInt
	KindFloat
	KindString
	KindList
	KindTuple
	KindMap
	KindIterator  // results of lazy filters and views of a map
	KindNamespace // results of namespace(), the only mutable values
	KindFunction  // macros, methods and global functions
	KindLoop      // the loop variable
	kindMissing   // an argument that was not given
)

// Value is one value of a template. Values do not change once made, so they may
// be shared between renderings. The zero Value is undefined.
type Value struct {
	kind Kind
	safe bool   // a string marked as escaped HTML; adding to it escapes the rest
	own  origin // of a string, and of text that the template spells
	num  uint64 // a bool, an int64 or the bits of a float64; the start of a mixed string in its text
	str  string // a string; the digits of an integer beyond 64 bits; why a value is undefined
	ref  any    // []Value, *Map, *iterator, *namespace, *function, *loop or *marks
}

const valueSize = int(unsafe.Sizeof(Value{}))

// None returns Python's None, JSON's null.
func None() Value { return Value{kind: KindNone} }

// Bool returns a truth value.
func Bool(b bool) Value {
	if b {
		return Value{kind: KindBool, num: 1}
	}
	return Value{kind: KindBool}
}

// intValue returns an integer.
func intValue(n int64) Value { return Value{kind: KindInt, num: uint64(n)} }

// floatValue returns a floating-point number.
func floatValue(f float64) Value { return Value{kind: KindFloat, num: math.Float64bits(f)} }

// String returns a string, which should be valid UTF-8. It counts as untrusted; see
// [Trusted].
func String(s string) Value { return Value{kind: KindString, str: s} }

// List returns a list of the given elements. The caller must not change items
// afterwards.
func List(items []Value) Value { return Value{kind: KindList, ref: items} }

// Dict returns m as a value; nil is an empty map. The caller must not change m
// afterwards.
func Dict(m *Map) Value {
	if m == nil {
		m = &Map{}
	}
	return Value{kind: KindMap, ref: m}
}

func tuple(items ...Value) Value { return Value{kind: KindTuple, ref: items} }

func undefined(reason string) Value { return Value{kind: KindUndefined, str: reason} }

// Kind returns the kind of v.
func (v Value) Kind() Kind { return v.kind }

// Text returns the string v is, and whether it is one.
func (v Value) Text() (string, bool) { return v.str, v.kind == KindString }

// Map returns the map v is, or nil. The caller must not change it.
func (v Value) Map() *Map {
	m, _ := v.ref.(*Map)
	return m
}

// Items returns the elements of v if it is a list or a tuple, else nil. The
// caller must not change them.
func (v Value) Items() []Value {
	items, _ := v.ref.([]Value)
	return items
}

func (v Value) truth() bool { return v.num != 0 }

func (v Value) float() float64 { return math.Float64frombits(v.num) }

// big reports whether v is an integer beyond 64 bits, which can be printed and
// compared for equality but not computed with.
func (v Value) big() bool { return v.kind == KindInt && v.str != "" }

// integer returns v as an int64 if it is an integer within 64 bits or a bool,
// which Python counts as one.
func (v Value) integer() (int64, bool) {
	if v.kind == KindInt && v.str == "" || v.kind == KindBool {
		return int64(v.num), true
	}
	return 0, false
}

// number returns v as a float64 if it is a number in Python's sense.
func (v Value) number() (float64, bool) {
	switch {
	case v.kind == KindFloat:
		return v.float(), true
	case v.big():
		f, err := strconv.ParseFloat(v.str, 64)
		return f, err == nil
	}
	n, ok := v.integer()
	return float64(n), ok
}

// typeName is Python's name for the type of v, used in errors.
func (v Value) typeName() string {
	switch v.kind {
	case KindUndefined, kindMissing:
		return "Undefined"
	case KindNone:
		return "NoneType"
	case KindBool:
		return "bool"
	case KindInt:
		return "int"
	case KindFloat:
		return "float"
	case KindString:
		return "str"
	case KindList:
		return "list"
	case KindTuple:
		return "tuple"
	case KindMap:
		return "dict"
	case KindIterator:
		return v.ref.(*iterator).name
	case KindNamespace:
		return "Namespace"
	case KindLoop:
		return "LoopContext"
	}
	return "function"
}

// truthy is Python's bool(v).
func truthy(v Value) bool {
	switch v.kind {
	case KindUndefined, KindNone, kindMissing:
		return false
	case KindBool, KindInt:
		return v.num != 0 || v.str != ""
	case KindFloat:
		return v.float() != 0
	case KindString:
		return v.str != ""
	case KindList, KindTuple:
		return len(v.Items()) > 0
	case KindMap:
		return v.Map().Len() > 0
	case KindIterator:
		it := v.ref.(*iterator)
		return !it.view || len(it.items) > 0
	}
	return true
}

// iterator is the result of a lazy filter (consumed by one pass, without a length),
// or a view of a map (neither). Its elements are computed when it is made.
type iterator struct {
	name  string // Python's name of the type
	items []Value
	view  bool
	used  bool
}

func generator(items []Value) Value {
	return Value{kind: KindIterator, ref: &iterator{name: "generator", items: items}}
}

func view(name string, items []Value) Value {
	return Value{kind: KindIterator, ref: &iterator{name: name, items: items, view: true}}
}

// namespace is the value of namespace(): the attributes {% set ns.x %} changes.
type namespace struct{ attrs *Map }

// function is something a template can call.
type function struct {
	name string
	call func(r *run, a args) (Value, error)
}

func callable(name string, call func(r *run, a args) (Value, error)) Value {
	return Value{kind: KindFunction, ref: &function{name: name, call: call}}
}

// elements returns the elements of iterating over v.
func (r *run) elements(v Value) ([]Value, error) {
	switch v.kind {
	case KindUndefined:
		return nil, nil
	case KindList, KindTuple:
		return v.Items(), nil
	case KindString:
		return r.characters(v)
	case KindMap:
		return r.keys(v.Map())
	case KindIterator:
		it := v.ref.(*iterator)
		if it.used {
			return nil, nil
		}
		it.used = !it.view
		return it.items, nil
	}
	return nil, fmt.Errorf("'%s' object is not iterable", v.typeName())
}

func (r *run) characters(v Value) ([]Value, error) {
	s := v.str
	v.safe = false
	if err := r.allocList(utf8.RuneCountInString(s)); err != nil {
		return nil, err
	}
	items := make([]Value, 0, utf8.RuneCountInString(s))
	for i, c := range s {
		n := utf8.RuneLen(c)
		if c == utf8.RuneError {
			_, n = utf8.DecodeRuneInString(s[i:])
		}
		items = append(items, v.cut(i, i+n))
	}
	return items, nil
}

// length is Python's len(v).
func (r *run) length(v Value) (int, error) {
	switch v.kind {
	case KindUndefined:
		return 0, nil
	case KindString:
		return utf8.RuneCountInString(v.str), r.scan(len(v.str))
	case KindList, KindTuple:
		return len(v.Items()), nil
	case KindMap:
		return v.Map().Len(), nil
	case KindIterator:
		if it := v.ref.(*iterator); it.view {
			return len(it.items), nil
		}
	case KindLoop:
		return v.ref.(*loop).length(r)
	}
	return 0, fmt.Errorf("object of type '%s' has no len()", v.typeName())
}
