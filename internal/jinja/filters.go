package jinja

import (
	"errors"
	"fmt"
	"math"
	"strconv"
)

// filter is a function behind a bar; v is what it is applied to.
type filter func(r *run, v Value, a args) (Value, error)

var filters = map[string]filter{
	"abs":        filterAbs,
	"attr":       filterAttr,
	"batch":      filterBatch,
	"capitalize": filterMethod("capitalize"),
	"center":     filterCenter,
	"count":      filterLength,
	"d":          filterDefault,
	"default":    filterDefault,
	"dictsort":   filterDictSort,
	"e":          filterEscape,
	"escape":     filterEscape,
	"first":      filterFirst,
	"float":      filterFloat,
	"forceescape": func(r *run, v Value, _ args) (Value, error) {
		v.safe = false
		return r.escapeHTML(v)
	},
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
	"round":      filterRound,
	"safe":       filterSafe,
	"select":     filterSelect(true),
	"selectattr": filterSelectAttr(true),
	"sort":       filterSort,
	"string":     filterString,
	"sum":        filterSum,
	"title":      filterText(titleWords),
	"tojson":     filterToJSON,
	"trim":       filterTrim,
	"truncate":   filterTruncate,
	"unique":     filterUnique,
	"upper":      filterMethod("upper"),
	"wordcount":  filterWordCount,
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

func filterAttr(r *run, v Value, a args) (Value, error) {
	name, err := onlyText("attr", a)
	if err != nil {
		return Value{}, err
	}
	if err := r.scan(len(name)); err != nil {
		return Value{}, err
	}
	found, ok, err := r.member(v, name)
	if err != nil || ok {
		return found, err
	}
	return missingMember(v, name), nil
}

func filterLength(r *run, v Value, a args) (Value, error) {
	if err := a.none("length"); err != nil {
		return Value{}, err
	}
	n, err := r.length(v)
	return Int(int64(n)), err
}

func filterAbs(_ *run, v Value, a args) (Value, error) {
	if err := a.none("abs"); err != nil {
		return Value{}, err
	}
	if v.kind == KindFloat {
		return Float(math.Abs(v.float())), nil
	}
	n, ok := v.integer()
	switch {
	case v.kind == KindUndefined:
		return Value{}, v.undefinedError()
	case !ok:
		return Value{}, fmt.Errorf("bad operand type for abs(): '%s'", v.typeName())
	case n < 0:
		return negate(v)
	}
	return Int(n), nil
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
	fallback := bound[0].or(Int(0))
	switch v.kind {
	case KindUndefined:
		return Value{}, v.undefinedError()
	case KindInt:
		return v, nil
	case KindBool:
		return Int(int64(v.num)), nil
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
	return Int(int64(f))
}

func filterFloat(r *run, v Value, a args) (Value, error) {
	bound, err := a.bind("float", 0, "default")
	if err != nil {
		return Value{}, err
	}
	if v.kind == KindUndefined {
		return Value{}, v.undefinedError()
	}
	f, ok := v.number()
	if v.kind == KindString {
		if err := r.alloc(parseBytes * len(v.str)); err != nil {
			return Value{}, err
		}
		f, ok = parseFloat(v.str)
	}
	if !ok {
		return bound[0].or(Float(0)), nil
	}
	return Float(f), nil
}

func filterRound(_ *run, v Value, a args) (Value, error) {
	bound, err := a.bind("round", 0, "precision", "method")
	if err != nil {
		return Value{}, err
	}
	precision, err := intArg("round", bound[0], 0)
	if err != nil {
		return Value{}, err
	}
	f, ok := v.number()
	switch {
	case v.kind == KindUndefined:
		return Value{}, v.undefinedError()
	case !ok:
		return Value{}, fmt.Errorf("type %s has no rounding", v.typeName())
	case precision < -300 || precision > 300:
		return Value{}, errors.New("round takes a precision between -300 and 300")
	}
	scale, err := floatPower(10, float64(precision))
	if err != nil {
		return Value{}, err
	}
	switch method := bound[1].or(String("common")).str; method {
	case "common":
		return roundCommon(v, f, int(precision))
	case "ceil":
		return Float(math.Ceil(f*scale.float()) / scale.float()), nil
	case "floor":
		return Float(math.Floor(f*scale.float()) / scale.float()), nil
	}
	return Value{}, errors.New("round takes the method 'common', 'ceil' or 'floor'")
}

// roundCommon is Python's round(v, precision): halves go to the even digit, of
// the exact value of a float.
func roundCommon(v Value, f float64, precision int) (Value, error) {
	if n, ok := v.integer(); ok {
		if precision >= 0 {
			return Int(n), nil
		}
		if precision < -18 {
			return Int(0), nil
		}
		unit, _ := power(10, int64(-precision))
		rest := n % unit
		if rest < 0 {
			rest += unit
		}
		down := n - rest
		if 2*rest > unit || 2*rest == unit && down/unit%2 != 0 {
			return arithmetic("+", Int(down), Int(unit))
		}
		return Int(down), nil
	}
	if precision >= 0 {
		rounded, err := strconv.ParseFloat(strconv.FormatFloat(f, 'f', precision, 64), 64)
		return Float(rounded), err
	}
	scale, err := floatPower(10, float64(-precision))
	return Float(math.RoundToEven(f/scale.float()) * scale.float()), err
}

func filterSum(r *run, v Value, a args) (Value, error) {
	bound, err := a.bind("sum", 0, "attribute", "start")
	if err != nil {
		return Value{}, err
	}
	items, err := r.projected(v, bound[0])
	if err != nil {
		return Value{}, err
	}
	total := bound[1].or(Int(0))
	for _, item := range items {
		if item.kind == KindUndefined {
			return Value{}, item.undefinedError()
		}
		if isNumber(total) {
			total, err = arithmetic("+", total, item)
		} else {
			total, err = r.add(total, item)
		}
		if err != nil {
			return Value{}, err
		}
	}
	return total, nil
}
