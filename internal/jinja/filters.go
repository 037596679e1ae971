package jinja

import (
	"math"
)

// filter is a function behind a bar; v is its operand.
type filter func(r *run, v Value, a args) (Value, error)

var filters = map[string]filter{
	"capitalize": filterMethod("capitalize"),
	"count":      filterLength,
	"d":          filterDefault,
	"default":    filterDefault,
	"dictsort":   filterDictSort,
	"first":      filterFirst,
	"indent":     filterIndent,
	"int":        filterInt,
	"items":      filterItems,
	"join":       filterJoin,
	"last":       filterLast,
	"length":     filterLength,
	"list":       filterList,
	"lower":      filterMethod("lower"),
	"map":        filterMap,
	"max":        filterExtreme(1),
	"min":        filterExtreme(-1),
	"reject":     filterSelect(false),
	"rejectattr": filterSelectAttr(false),
	"replace":    filterReplace,
	"reverse":    filterReverse,
	"safe":       filterSafe,
	"select":     filterSelect(true),
	"selectattr": filterSelectAttr(true),
	"sort":       filterSort,
	"string":     filterString,
	"tojson":     filterToJSON,
	"trim":       filterTrim,
	"unique":     filterUnique,
	"upper":      filterMethod("upper"),
}

func filterDefault(_ *run, v Value, a args) (Value, error) {
	bound, err := a.bind("default", 0, "default_value", "boolean")
	if err != nil {
		return Value{}, err
	}
	if v.kind == KindUndefined || truthy(bound[1]) && !truthy(v) {
		return bound[0].or(String("")), nil
	}
	return v, nil
}

func filterLength(r *run, v Value, a args) (Value, error) {
	if err := a.none("length"); err != nil {
		return Value{}, err
	}
	n, err := r.length(v)
	return intValue(int64(n)), err
}

func filterInt(r *run, v Value, a args) (Value, error) {
	bound, err := a.bind("int", 0, "default", "base")
	if err != nil {
		return Value{}, err
	}
	base, err := intArg("int", bound[1], 10)
	if err != nil {
		return Value{}, err
	}
	fallback := bound[0].or(intValue(0))
	switch v.kind {
	case KindUndefined:
		return Value{}, v.undefinedError()
	case KindInt:
		return v, nil
	case KindBool:
		return intValue(int64(v.num)), nil
	case KindFloat:
		return truncated(v.float(), fallback), nil
	case KindString:
		if err := r.alloc(parseBytes * len(v.str)); err != nil {
			return Value{}, err
		}
		if n, ok := parseInt(v.str, int(base)); ok {
			return n, nil
		}
		if f, ok := parseFloat(v.str); ok {
			return truncated(f, fallback), nil
		}
	}
	return fallback, nil
}

// truncated is int(f), or fallback if f has no integer within 64 bits.
func truncated(f float64, fallback Value) Value {
	if math.IsNaN(f) || math.Abs(f) >= 1<<63 {
		return fallback
	}
	return intValue(int64(f))
}
