package jinja

import (
	"cmp"
	"errors"
	"fmt"
)

// test is a function behind 'is'.
type test func(r *run, v Value, a args) (bool, error)

var tests = map[string]test{
	"boolean":     testKind(KindBool),
	"callable":    testKind(KindFunction, KindUndefined),
	"defined":     func(_ *run, v Value, a args) (bool, error) { return v.kind != KindUndefined, a.none("defined") },
	"divisibleby": testDivisible,
	"escaped":     func(_ *run, v Value, a args) (bool, error) { return v.safe, a.none("escaped") },
	"even":        testParity(0),
	"odd":         testParity(1),
	"false":       func(_ *run, v Value, a args) (bool, error) { return v.kind == KindBool && !v.truth(), a.none("false") },
	"true":        func(_ *run, v Value, a args) (bool, error) { return v.kind == KindBool && v.truth(), a.none("true") },
	"filter": func(r *run, v Value, a args) (bool, error) {
		return r.filters[v.str] != nil, cmp.Or(a.none("filter"), r.scan(len(v.str)))
	},
	"test": func(r *run, v Value, a args) (bool, error) {
		return r.tests[v.str] != nil, cmp.Or(a.none("test"), r.scan(len(v.str)))
	},
	"float":     testKind(KindFloat),
	"in":        testCompare("in"),
	"integer":   testKind(KindInt),
	"iterable":  testKind(KindUndefined, KindString, KindList, KindTuple, KindMap, KindIterator, KindLoop),
	"lower":     testText(isLowerText),
	"upper":     testText(isUpperText),
	"mapping":   testKind(KindMap),
	"none":      testKind(KindNone),
	"number":    testKind(KindBool, KindInt, KindFloat),
	"sameas":    testSame,
	"sequence":  testKind(KindUndefined, KindString, KindList, KindTuple, KindMap),
	"string":    testKind(KindString),
	"undefined": testKind(KindUndefined),

	"==": testCompare("=="), "eq": testCompare("=="), "equalto": testCompare("=="),
	"!=": testCompare("!="), "ne": testCompare("!="),
	"<": testCompare("<"), "lt": testCompare("<"), "lessthan": testCompare("<"),
	"<=": testCompare("<="), "le": testCompare("<="),
	">": testCompare(">"), "gt": testCompare(">"), "greaterthan": testCompare(">"),
	">=": testCompare(">="), "ge": testCompare(">="),
}

func testKind(kinds ...Kind) test {
	return func(_ *run, v Value, a args) (bool, error) {
		for _, k := range kinds {
			if v.kind == k {
				return true, a.none("test")
			}
		}
		return false, a.none("test")
	}
}

func testCompare(op string) test {
	return func(r *run, v Value, a args) (bool, error) {
		bound, err := a.bind("test "+op, 1, "other")
		if err != nil {
			return false, err
		}
		return r.compare(op, v, bound[0])
	}
}

func testText(has func(string) bool) test {
	return func(r *run, v Value, a args) (bool, error) {
		if err := a.none("test"); err != nil {
			return false, err
		}
		s, err := r.text(v)
		if err != nil {
			return false, err
		}
		return has(s), r.step(1 + len(s)/8)
	}
}

func testParity(rest int64) test {
	return func(_ *run, v Value, a args) (bool, error) {
		if err := a.none("test"); err != nil {
			return false, err
		}
		return remainderIs(v, Int(2), rest)
	}
}

func testDivisible(_ *run, v Value, a args) (bool, error) {
	bound, err := a.bind("divisibleby", 1, "num")
	if err != nil {
		return false, err
	}
	return remainderIs(v, bound[0], 0)
}

func remainderIs(v, by Value, want int64) (bool, error) {
	if v.kind == KindUndefined {
		return false, v.undefinedError()
	}
	if !isNumber(v) || !isNumber(by) {
		return false, fmt.Errorf("remainder of '%s' by '%s' is not a number", v.typeName(), by.typeName())
	}
	rest, err := arithmetic("%", v, by)
	if err != nil {
		return false, err
	}
	f, _ := rest.number()
	return f == float64(want), nil
}

// testSame is Python's 'is': the same object. Equal numbers and strings count as
// the same, which Python leaves to chance.
func testSame(r *run, v Value, a args) (bool, error) {
	bound, err := a.bind("sameas", 1, "other")
	if err != nil {
		return false, err
	}
	other := bound[0]
	if v.kind != other.kind {
		return false, nil
	}
	switch v.kind {
	case KindUndefined, KindNone, KindBool, KindInt, KindFloat, KindString:
		return r.equal(v, other)
	case KindList, KindTuple:
		x, y := v.Items(), other.Items()
		return len(x) == len(y) && len(x) > 0 && &x[0] == &y[0], nil
	case KindFunction, KindLoop, KindMap, KindNamespace, KindIterator:
		return v.ref == other.ref, nil
	}
	return false, errors.New("values cannot be compared")
}
