package jinja

import (
	"fmt"
	"strings"
)

// method is a method of a built-in type; v is its receiver.
type method func(r *run, v Value, a args) (Value, error)

// Names that exist in Python but not here, each between blanks. Looking one up
// must not find an element of a map of the same name.
const (
	unsupportedStringMethods = " casefold center encode expandtabs format format_map isalnum isalpha isascii isdecimal isdigit isidentifier islower " +
		"isnumeric isprintable isspace istitle isupper ljust maketrans partition rjust rpartition swapcase translate zfill "
	mapMutators  = " clear fromkeys pop popitem setdefault update "
	listMutators = " append clear extend insert pop remove reverse sort "
)

var mapMethods = map[string]method{
	"copy":   func(_ *run, v Value, a args) (Value, error) { return v, a.none("copy") },
	"get":    mapGet,
	"items":  mapView("dict_items", (*run).pairs),
	"keys":   mapView("dict_keys", (*run).keys),
	"values": mapView("dict_values", (*run).values),
}

var listMethods = map[string]method{
	"copy":  func(_ *run, v Value, a args) (Value, error) { return v, a.none("copy") },
	"count": sequenceCount,
	"index": sequenceIndex,
}

var tupleMethods = map[string]method{"count": sequenceCount, "index": sequenceIndex}

func (a args) none(function string) error {
	_, err := a.bind(function, 0)
	return err
}

func mapView(name string, items func(*run, *Map) ([]Value, error)) method {
	return func(r *run, v Value, a args) (Value, error) {
		if err := a.none(name); err != nil {
			return Value{}, err
		}
		list, err := items(r, v.Map())
		return view(name, list), err
	}
}

func mapGet(r *run, v Value, a args) (Value, error) {
	bound, err := a.bind("get", 1, "key", "default")
	if err != nil {
		return Value{}, err
	}
	k, ok := keyOf(bound[0])
	if !ok {
		return Value{}, fmt.Errorf("unhashable type: '%s'", bound[0].typeName())
	}
	if found, ok, err := r.get(v.Map(), k); ok || err != nil {
		return found, err
	}
	return bound[1].or(None()), nil
}

func sequenceCount(r *run, v Value, a args) (Value, error) {
	bound, err := a.bind("count", 1, "value")
	if err != nil {
		return Value{}, err
	}
	n := int64(0)
	for _, item := range v.Items() {
		same, err := r.equal(item, bound[0])
		if err != nil {
			return Value{}, err
		}
		if same {
			n++
		}
	}
	return intValue(n), nil
}

func sequenceIndex(r *run, v Value, a args) (Value, error) {
	bound, err := a.bind("index", 1, "value")
	if err != nil {
		return Value{}, err
	}
	for i, item := range v.Items() {
		same, err := r.equal(item, bound[0])
		if same || err != nil {
			return intValue(int64(i)), err
		}
	}
	return Value{}, fmt.Errorf("value is not in the %s", v.typeName())
}

var stringMethods = map[string]method{
	"capitalize":   stringMap("capitalize", capitalize),
	"lower":        stringMap("lower", strings.ToLower),
	"upper":        stringMap("upper", strings.ToUpper),
	"title":        stringMap("title", titleCase),
	"strip":        stringStrip("strip", true, true),
	"lstrip":       stringStrip("lstrip", true, false),
	"rstrip":       stringStrip("rstrip", false, true),
	"split":        stringSplit("split", false),
	"rsplit":       stringSplit("rsplit", true),
	"splitlines":   stringSplitLines,
	"join":         stringJoin,
	"replace":      stringReplace,
	"removeprefix": stringCut("removeprefix", true),
	"removesuffix": stringCut("removesuffix", false),
	"startswith":   stringAffix("startswith", strings.HasPrefix),
	"endswith":     stringAffix("endswith", strings.HasSuffix),
	"find":         stringFind("find", strings.Index, false),
	"rfind":        stringFind("rfind", strings.LastIndex, false),
	"index":        stringFind("index", strings.Index, true),
	"rindex":       stringFind("rindex", strings.LastIndex, true),
	"count":        stringCount,
}

// textArg returns an argument that must be a string.
func textArg(function string, v Value) (string, error) {
	if v.kind == KindUndefined {
		return "", v.undefinedError()
	}
	if v.kind != KindString {
		return "", fmt.Errorf("%s takes a str, not '%s'", function, v.typeName())
	}
	return v.str, nil
}

// intArg returns an argument that must be an integer, or other if it was not
// given.
func intArg(function string, v Value, other int64) (int64, error) {
	if v.kind == kindMissing {
		return other, nil
	}
	n, ok := v.integer()
	if !ok {
		return 0, fmt.Errorf("%s takes an int, not '%s'", function, v.typeName())
	}
	return n, nil
}
