package jinja

import (
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"
)

func capitalize(s string) string {
	_, size := utf8.DecodeRuneInString(s)
	return strings.ToTitle(s[:size]) + strings.ToLower(s[size:])
}

func swapCase(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsUpper(c) {
			return unicode.ToLower(c)
		}
		return unicode.ToUpper(c)
	}, s)
}

// titleCase is Python's str.title: a letter after a letter is small.
func titleCase(s string) string {
	inWord := false
	return strings.Map(func(c rune) rune {
		was := inWord
		inWord = isCased(c)
		if was {
			return unicode.ToLower(c)
		}
		return unicode.ToTitle(c)
	}, s)
}

func isCased(c rune) bool { return unicode.IsUpper(c) || unicode.IsLower(c) || unicode.IsTitle(c) }

func isAlpha(c rune) bool   { return unicode.IsLetter(c) }
func isDecimal(c rune) bool { return unicode.IsDigit(c) }
func isNumeric(c rune) bool { return unicode.IsNumber(c) }
func isAlnum(c rune) bool   { return unicode.IsLetter(c) || unicode.IsNumber(c) }

func isLowerText(s string) bool {
	return strings.IndexFunc(s, isCased) >= 0 && strings.IndexFunc(s, func(c rune) bool {
		return unicode.IsUpper(c) || unicode.IsTitle(c)
	}) < 0
}

func isUpperText(s string) bool {
	return strings.IndexFunc(s, isCased) >= 0 && strings.IndexFunc(s, func(c rune) bool {
		return unicode.IsLower(c) || unicode.IsTitle(c)
	}) < 0
}

// stringIs makes a method that asks whether all characters, of which there must
// be one, have a property.
func stringIs(name string, has func(rune) bool) method {
	return stringIsCase(name, func(s string) bool {
		return s != "" && strings.IndexFunc(s, func(c rune) bool { return !has(c) }) < 0
	})
}

func stringIsCase(name string, has func(string) bool) method {
	return func(r *run, v Value, a args) (Value, error) {
		if err := a.none(name); err != nil {
			return Value{}, err
		}
		return Bool(has(v.str)), r.step(1 + len(v.str)/8)
	}
}

// stringPad makes center, ljust and rjust.
func stringPad(name string) method {
	return func(r *run, v Value, a args) (Value, error) {
		bound, err := a.bind(name, 1, "width", "fillchar")
		if err != nil {
			return Value{}, err
		}
		width, err := intArg(name, bound[0], 0)
		if err != nil {
			return Value{}, err
		}
		fill := bound[1].or(v.like(" "))
		if _, err := textArg(name, fill); err != nil {
			return Value{}, err
		}
		if utf8.RuneCountInString(fill.str) != 1 {
			return Value{}, fmt.Errorf("%s takes one character to fill with", name)
		}
		n, err := r.length(v)
		if err != nil {
			return Value{}, err
		}
		missing := max(0, width-int64(n))
		left := int64(0)
		switch name {
		case "rjust":
			left = missing
		case "center": // Python puts an odd one on the left if the width is odd
			left = missing/2 + missing&width&1
		}
		return r.pad(v, fill, left, missing-left)
	}
}

// pad puts a character before and after v.
func (r *run) pad(v, fill Value, left, right int64) (Value, error) {
	if left > math.MaxInt32 || right > math.MaxInt32 {
		return Value{}, r.alloc(math.MaxInt)
	}
	if err := r.alloc(int(left+right) * len(fill.str)); err != nil {
		return Value{}, err
	}
	out, err := r.concat(fill.like(strings.Repeat(fill.str, int(left))), v)
	if err != nil {
		return Value{}, err
	}
	out.safe = v.safe
	return r.concat(out, fill.like(strings.Repeat(fill.str, int(right))))
}

func stringZfill(r *run, v Value, a args) (Value, error) {
	bound, err := a.bind("zfill", 1, "width")
	if err != nil {
		return Value{}, err
	}
	width, err := intArg("zfill", bound[0], 0)
	if err != nil {
		return Value{}, err
	}
	n, err := r.length(v)
	if err != nil {
		return Value{}, err
	}
	sign := v.str[:len(v.str)-len(strings.TrimLeft(v.str, "+-"))]
	if len(sign) > 1 {
		sign = sign[:1]
	}
	padded, err := r.pad(v.cut(len(sign), len(v.str)), v.like("0"), max(0, width-int64(n)), 0)
	if err != nil {
		return Value{}, err
	}
	return r.concat(v.cut(0, len(sign)), padded)
}
