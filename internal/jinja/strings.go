package jinja

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

func stringMap(name string, f func(string) string) method {
	return func(r *run, v Value, a args) (Value, error) {
		if err := a.none(name); err != nil {
			return Value{}, err
		}
		if err := r.alloc(3 * len(v.str)); err != nil { // no case is more than three times as long
			return Value{}, err
		}
		return v.like(f(v.str)), nil
	}
}

func stringStrip(name string, left, right bool) method {
	return func(r *run, v Value, a args) (Value, error) {
		bound, err := a.bind(name, 0, "chars")
		if err != nil {
			return Value{}, err
		}
		if bound[0].kind == kindMissing || bound[0].kind == KindNone {
			return r.strip(v, isSpace, left, right)
		}
		chars, err := textArg(name, bound[0])
		if err != nil {
			return Value{}, err
		}
		// Each character stripped is looked up among chars.
		if err := r.step((1 + len(v.str)/8) * (1 + len(chars)/64)); err != nil {
			return Value{}, err
		}
		return r.strip(v, func(c rune) bool { return strings.ContainsRune(chars, c) }, left, right)
	}
}

func (r *run) strip(v Value, drop func(rune) bool, left, right bool) (Value, error) {
	from, to := 0, len(v.str)
	if left {
		from = to - len(strings.TrimLeftFunc(v.str, drop))
	}
	if right {
		to = from + len(strings.TrimRightFunc(v.str[from:], drop))
	}
	return v.cut(from, to), r.scan(len(v.str))
}

func stringSplit(name string, fromRight bool) method {
	return func(r *run, v Value, a args) (Value, error) {
		bound, err := a.bind(name, 0, "sep", "maxsplit")
		if err != nil {
			return Value{}, err
		}
		limit, err := intArg(name, bound[1], -1)
		if err != nil {
			return Value{}, err
		}
		if err := r.scan(len(v.str)); err != nil {
			return Value{}, err
		}
		if bound[0].kind == kindMissing || bound[0].kind == KindNone {
			v, err := r.strip(v, isSpace, !fromRight, fromRight)
			if err != nil || v.str == "" {
				return List(nil), err
			}
			return r.split(v, cutSpaces, limit, fromRight)
		}
		sep, err := textArg(name, bound[0])
		if err != nil {
			return Value{}, err
		}
		if sep == "" {
			return Value{}, errors.New("empty separator")
		}
		return r.split(v, cutSeparator(sep), limit, fromRight)
	}
}

// cutter cuts the first part off s, or the last from the right. With last, all
// of s is one part. more reports whether anything is left to cut.
type cutter func(s string, fromRight, last bool) (part, rest string, more bool)

func cutSeparator(sep string) cutter {
	return func(s string, fromRight, last bool) (string, string, bool) {
		i := -1
		switch {
		case last:
		case fromRight:
			i = strings.LastIndex(s, sep)
		default:
			i = strings.Index(s, sep)
		}
		switch {
		case i < 0:
			return s, "", false
		case fromRight:
			return s[i+len(sep):], s[:i], true
		}
		return s[:i], s[i+len(sep):], true
	}
}

// cutSpaces cuts at runs of whitespace. s does not begin (from the right: end)
// with one.
func cutSpaces(s string, fromRight, last bool) (part, rest string, more bool) {
	if fromRight {
		i := strings.LastIndexFunc(s, isSpace)
		if last || i < 0 {
			return s, "", false
		}
		_, size := utf8.DecodeRuneInString(s[i:])
		rest = strings.TrimRightFunc(s[:i], isSpace)
		return s[i+size:], rest, rest != ""
	}
	i := strings.IndexFunc(s, isSpace)
	if last || i < 0 {
		return s, "", false
	}
	rest = strings.TrimLeftFunc(s[i:], isSpace)
	return s[:i], rest, rest != ""
}

func (r *run) split(v Value, cut cutter, limit int64, fromRight bool) (Value, error) {
	var parts []Value
	rest, more := v.str, true
	for more {
		if err := r.allocList(1); err != nil {
			return Value{}, err
		}
		// The rest is the end of v, or its beginning from the right.
		at := len(v.str) - len(rest)
		if fromRight {
			at = len(rest)
		}
		var part string
		part, rest, more = cut(rest, fromRight, limit == 0)
		if fromRight {
			at -= len(part)
		}
		parts = append(parts, v.cut(at, at+len(part)))
		limit--
	}
	if fromRight {
		slices.Reverse(parts)
	}
	return List(parts), nil
}

func stringSplitLines(r *run, v Value, a args) (Value, error) {
	bound, err := a.bind("splitlines", 0, "keepends")
	if err != nil {
		return Value{}, err
	}
	lines, err := r.splitLines(v, truthy(bound[0]))
	return List(lines), err
}

// splitLines cuts v at Python's line boundaries; one at the end begins no line.
func (r *run) splitLines(v Value, keep bool) ([]Value, error) {
	var lines []Value
	for at := 0; at < len(v.str); {
		if err := r.allocList(1); err != nil {
			return nil, err
		}
		end, size := len(v.str), 0
		if i := strings.IndexAny(v.str[at:], lineEnds); i >= 0 {
			end = at + i
			_, size = utf8.DecodeRuneInString(v.str[end:])
			if strings.HasPrefix(v.str[end:], "\r\n") {
				size = 2
			}
		}
		if keep {
			lines = append(lines, v.cut(at, end+size))
		} else {
			lines = append(lines, v.cut(at, end))
		}
		at = end + size
	}
	return lines, r.scan(len(v.str))
}

const lineEnds = "\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029"

func endsLine(s string) bool {
	c, _ := utf8.DecodeLastRuneInString(s)
	return strings.ContainsRune(lineEnds, c)
}

// onlyText returns the one argument of a method, a string.
func onlyText(name string, a args) (string, error) {
	bound, err := a.bind(name, 1, "value")
	if err != nil {
		return "", err
	}
	return textArg(name, bound[0])
}

func stringJoin(r *run, v Value, a args) (Value, error) {
	bound, err := a.bind("join", 1, "iterable")
	if err != nil {
		return Value{}, err
	}
	items, err := r.elements(bound[0])
	if err == nil {
		err = r.step(len(items))
	}
	if err != nil {
		return Value{}, err
	}
	var b buffer
	for i, item := range items {
		if item.kind != KindString {
			return Value{}, fmt.Errorf("sequence item %d: expected str instance, %s found", i, item.typeName())
		}
		if v.safe {
			if item, err = r.escapeHTML(item); err != nil {
				return Value{}, err
			}
		}
		if i > 0 {
			if err := r.write(&b, v); err != nil {
				return Value{}, err
			}
		}
		if err := r.write(&b, item); err != nil {
			return Value{}, err
		}
	}
	out, err := r.finish(&b)
	out.safe = v.safe
	return out, err
}

func stringReplace(r *run, v Value, a args) (Value, error) {
	bound, err := a.bind("replace", 2, "old", "new", "count")
	if err != nil {
		return Value{}, err
	}
	old, err := textArg("replace", bound[0])
	if err != nil {
		return Value{}, err
	}
	if _, err := textArg("replace", bound[1]); err != nil {
		return Value{}, err
	}
	if v.safe {
		if bound[1], err = r.escapeHTML(bound[1]); err != nil {
			return Value{}, err
		}
	}
	count, err := intArg("replace", bound[2], -1)
	if err != nil {
		return Value{}, err
	}
	return r.replace(v, old, bound[1], count)
}

// replace is strings.Replace within the budget. The result is marked escaped if v is.
func (r *run) replace(v Value, old string, by Value, count int64) (Value, error) {
	if err := r.scan(len(v.str)); err != nil {
		return Value{}, err
	}
	n := int64(strings.Count(v.str, old))
	if count >= 0 {
		n = min(n, count)
	}
	if n == 0 {
		return v, nil
	}
	if len(by.str) > 0 && n > int64(r.bytes/len(by.str)) {
		return Value{}, r.alloc(r.bytes + 1)
	}
	if v.own == by.own && v.own != mixed {
		if err := r.alloc(len(v.str) + int(n)*len(by.str)); err != nil {
			return Value{}, err
		}
		return v.like(strings.Replace(v.str, old, by.str, int(n))), nil
	}
	var b buffer
	start := 0
	for i := range n {
		at := start
		if old != "" {
			at += strings.Index(v.str[start:], old)
		} else if i > 0 { // before each character, and at the end
			_, size := utf8.DecodeRuneInString(v.str[start:])
			at += size
		}
		for _, part := range [2]Value{v.cut(start, at), by} {
			if err := r.write(&b, part); err != nil {
				return Value{}, err
			}
		}
		start = at + len(old)
	}
	if err := r.write(&b, v.cut(start, len(v.str))); err != nil {
		return Value{}, err
	}
	out, err := r.finish(&b)
	out.safe = v.safe
	return out, err
}

// stringCut makes removeprefix and removesuffix.
func stringCut(name string, prefix bool) method {
	return func(r *run, v Value, a args) (Value, error) {
		affix, err := onlyText(name, a)
		if err != nil {
			return Value{}, err
		}
		from, to := 0, len(v.str)
		if prefix {
			from = to - len(strings.TrimPrefix(v.str, affix))
		} else {
			to = len(strings.TrimSuffix(v.str, affix))
		}
		return v.cut(from, to), r.scan(len(affix))
	}
}

// span returns the part of v between the start and end arguments of a search
// method, and the number of characters before it.
func (r *run) span(v, start, end Value) (string, int, error) {
	if start.kind == kindMissing && end.kind == kindMissing {
		return v.str, 0, r.scan(len(v.str))
	}
	n, err := r.length(v)
	if err != nil {
		return "", 0, err
	}
	from, count, _, err := sliceBounds([3]Value{start.or(None()), end.or(None()), None()}, n)
	if err != nil {
		return "", 0, err
	}
	part, err := r.substring(v, n, from, count, 1)
	return part.str, from, err
}

func stringAffix(name string, has func(s, affix string) bool) method {
	return func(r *run, v Value, a args) (Value, error) {
		bound, err := a.bind(name, 1, "value", "start", "end")
		if err != nil {
			return Value{}, err
		}
		s, _, err := r.span(v, bound[1], bound[2])
		if err != nil {
			return Value{}, err
		}
		choices := []Value{bound[0]}
		if bound[0].kind == KindTuple {
			choices = bound[0].Items()
		}
		for _, c := range choices {
			affix, err := textArg(name, c)
			if err != nil {
				return Value{}, err
			}
			if err := r.scan(len(affix)); err != nil {
				return Value{}, err
			}
			if has(s, affix) {
				return Bool(true), nil
			}
		}
		return Bool(false), nil
	}
}

func stringFind(name string, find func(s, sub string) int, must bool) method {
	return func(r *run, v Value, a args) (Value, error) {
		bound, err := a.bind(name, 1, "value", "start", "end")
		if err != nil {
			return Value{}, err
		}
		sub, err := textArg(name, bound[0])
		if err != nil {
			return Value{}, err
		}
		s, before, err := r.span(v, bound[1], bound[2])
		if err != nil {
			return Value{}, err
		}
		i := find(s, sub)
		switch {
		case i >= 0:
			return intValue(int64(before + utf8.RuneCountInString(s[:i]))), nil
		case must:
			return Value{}, errors.New("substring not found")
		}
		return intValue(-1), nil
	}
}

func stringCount(r *run, v Value, a args) (Value, error) {
	bound, err := a.bind("count", 1, "value", "start", "end")
	if err != nil {
		return Value{}, err
	}
	sub, err := textArg("count", bound[0])
	if err != nil {
		return Value{}, err
	}
	s, _, err := r.span(v, bound[1], bound[2])
	return intValue(int64(strings.Count(s, sub))), err
}
