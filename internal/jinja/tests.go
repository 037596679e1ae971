package jinja

// test is a function behind 'is'.
type test func(r *run, v Value, a args) (bool, error)

var tests = map[string]test{
	"boolean":   testKind(KindBool),
	"callable":  testKind(KindFunction, KindUndefined),
	"defined":   func(_ *run, v Value, a args) (bool, error) { return v.kind != KindUndefined, a.none("defined") },
	"false":     func(_ *run, v Value, a args) (bool, error) { return v.kind == KindBool && !v.truth(), a.none("false") },
	"true":      func(_ *run, v Value, a args) (bool, error) { return v.kind == KindBool && v.truth(), a.none("true") },
	"float":     testKind(KindFloat),
	"in":        testCompare("in"),
	"integer":   testKind(KindInt),
	"iterable":  testKind(KindUndefined, KindString, KindList, KindTuple, KindMap, KindIterator, KindLoop),
	"mapping":   testKind(KindMap),
	"none":      testKind(KindNone),
	"number":    testKind(KindBool, KindInt, KindFloat),
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
