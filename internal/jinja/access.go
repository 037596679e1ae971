package jinja

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// attribute is object.name: a method or attribute first, then an element.
func (r *run) attribute(object Value, name string) (Value, error) {
	if v, ok, err := r.member(object, name); ok || err != nil {
		return v, err
	}
	if object.kind == KindMap {
		if v, ok := object.Map().Get(name); ok {
			return v, nil
		}
	}
	return missingMember(object, name), nil
}

// item is object[key]: an element first, then a method or attribute.
func (r *run) item(object, key Value) (Value, error) {
	switch object.kind {
	case KindUndefined:
		return Value{}, object.undefinedError()
	case KindMap:
		if k, ok := keyOf(key); ok {
			if v, ok, err := r.get(object.Map(), k); ok || err != nil {
				return v, err
			}
		}
	case KindList, KindTuple, KindString:
		if i, ok := key.integer(); ok {
			return r.element(object, i)
		}
	}
	name, ok := key.Text()
	if !ok {
		text, err := r.appendRepr(nil, key)
		return undefined(fmt.Sprintf("%s has no element %s", describe(object), text)), err
	}
	if err := r.scan(len(name)); err != nil {
		return Value{}, err
	}
	if v, ok, err := r.member(object, name); ok || err != nil {
		return v, err
	}
	return missingMember(object, name), nil
}

// element is the i-th element of a sequence, counted from its end if i < 0.
func (r *run) element(object Value, i int64) (Value, error) {
	n, err := r.length(object)
	if err != nil {
		return Value{}, err
	}
	at := i
	if at < 0 {
		at += int64(n)
	}
	if at < 0 || at >= int64(n) {
		return undefined(fmt.Sprintf("%s has no element %d", describe(object), i)), nil
	}
	if object.kind != KindString {
		return object.Items()[at], nil
	}
	if n == len(object.str) {
		return object.cut(int(at), int(at)+1), nil
	}
	for pos := range object.str {
		if at == 0 {
			_, size := utf8.DecodeRuneInString(object.str[pos:])
			return object.cut(pos, pos+size), nil
		}
		at--
	}
	return Value{}, nil
}

// member finds a method of a built-in type, or an attribute of a namespace or
// loop. A method the immutable sandbox forbids is found but undefined.
func (r *run) member(object Value, name string) (Value, bool, error) {
	var methods map[string]method
	var forbidden string
	switch object.kind {
	case KindUndefined:
		return Value{}, false, object.undefinedError()
	case KindNamespace:
		v, ok := object.ref.(*namespace).attrs.Get(name)
		return v, ok, nil
	case KindLoop:
		v, err := object.ref.(*loop).attribute(r, name)
		return v, true, err
	case KindString:
		methods, forbidden = stringMethods, unsupportedStringMethods
	case KindMap:
		methods, forbidden = mapMethods, mapMutators
	case KindList:
		methods, forbidden = listMethods, listMutators
	case KindTuple:
		methods = tupleMethods
	}
	if m, ok := methods[name]; ok {
		return callable(name, func(r *run, a args) (Value, error) { return m(r, object, a) }), true, r.allocList(2)
	}
	if name != "" && strings.Contains(forbidden, " "+name+" ") {
		return undefined(fmt.Sprintf("method '%s' of '%s' is not available: it changes a value, formats text, or is not supported",
			name, describe(object))), true, nil
	}
	return Value{}, false, nil
}

func describe(v Value) string {
	if v.kind == KindNone {
		return "None"
	}
	return v.typeName() + " object"
}

// missingMember is the undefined value of a missing attribute. It quotes only the beginning of a long
// name: the message lives as long as the value and does not count as memory of the template.
func missingMember(object Value, name string) Value {
	const enough = 100
	if len(name) > enough {
		name = strings.ToValidUTF8(name[:enough], "") + "…"
	}
	return undefined(fmt.Sprintf("'%s' has no attribute '%s'", describe(object), name))
}
