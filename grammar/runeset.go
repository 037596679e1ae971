package grammar

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Sets of characters are sorted pairs of first and last.

// lineEnds are the characters that end a line in ECMA 262, which its dot does not match.
var lineEnds = []rune{'\n', '\n', '\r', '\r', 0x2028, 0x2029}

// sets are the escapes of ECMA 262. Upper-case escapes are their complements.
var sets = map[rune][]rune{
	'd': {'0', '9'},
	'w': {'0', '9', 'A', 'Z', '_', '_', 'a', 'z'},
	's': {'\t', '\r', ' ', ' ', 0xA0, 0xA0, 0x1680, 0x1680, 0x2000, 0x200A, 0x2028, 0x2029, 0x202F, 0x202F, 0x205F, 0x205F, 0x3000, 0x3000, 0xFEFF, 0xFEFF},
}

// clean sorts pairs and joins adjacent ones.
func clean(pairs []rune) []rune {
	list := make([][2]rune, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, [2]rune{pairs[i], pairs[i+1]})
	}
	slices.SortFunc(list, func(a, b [2]rune) int { return cmp.Compare(a[0], b[0]) })
	var out []rune
	for _, p := range list {
		if n := len(out); n > 0 && p[0] <= out[n-1]+1 {
			out[n-1] = max(out[n-1], p[1])
		} else {
			out = append(out, p[0], p[1])
		}
	}
	return out
}

// negate is all other characters.
func negate(set []rune) []rune {
	out := make([]rune, 0, len(set)+2)
	next := rune(0)
	for i := 0; i < len(set); i += 2 {
		if set[i] > next {
			out = append(out, next, set[i]-1)
		}
		next = set[i+1] + 1
	}
	if next <= unicode.MaxRune {
		out = append(out, next, unicode.MaxRune)
	}
	return out
}

// tables is the characters of some tables of package unicode.
func tables(list ...*unicode.RangeTable) []rune {
	var out []rune
	add := func(lo, hi, stride rune) {
		if stride == 1 {
			out = append(out, lo, hi)
			return
		}
		for ; lo <= hi; lo += stride {
			out = append(out, lo, lo)
		}
	}
	for _, t := range list {
		for _, r := range t.R16 {
			add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
		}
		for _, r := range t.R32 {
			add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
		}
	}
	return clean(out)
}

// property reads a property after \p: the name of a general category, of a script or of a binary
// property in braces.
func (p *ecma) property() ([]rune, error) {
	text, _, ok := strings.Cut(p.expr[p.at:], "}")
	if !ok || !strings.HasPrefix(text, "{") {
		return nil, fmt.Errorf(`want a property in braces after \p, such as \p{L}`)
	}
	p.at += len(text) + 1
	text = text[1:]
	key, name, both := strings.Cut(text, "=")
	switch {
	case !both:
		if set, ok := binaryProperty(text); ok {
			return set, nil
		}
		if set, ok := category(text); ok {
			return set, nil
		}
		if t, ok := unicode.Scripts[text]; ok { // not in ECMA 262, but common
			return tables(t), nil
		}
	case key == "General_Category" || key == "gc":
		if set, ok := category(name); ok {
			return set, nil
		}
	case key == "Script" || key == "sc":
		if t, ok := unicode.Scripts[name]; ok {
			return tables(t), nil
		}
	}
	return nil, fmt.Errorf(`the property %.40q is not supported; want a general category, Script=... with the script's long name, or a property such as Alphabetic`, text)
}

// category is the characters of a general category.
func category(name string) ([]rune, bool) {
	if short, ok := unicode.CategoryAliases[name]; ok {
		name = short
	}
	if name == "LC" {
		return tables(unicode.Lu, unicode.Ll, unicode.Lt), true
	}
	if name == "Cn" {
		return negate(assigned()), true
	}
	t, ok := unicode.Categories[name]
	if !ok {
		return nil, false
	}
	if name == "C" { // the table leaves out unassigned characters
		return clean(append(tables(t), negate(assigned())...)), true
	}
	return tables(t), true
}

func assigned() []rune {
	return tables(unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Z, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs)
}

// binaryProperty is the characters that have a property.
func binaryProperty(name string) ([]rune, bool) {
	switch name {
	case "Any":
		return []rune{0, unicode.MaxRune}, true
	case "ASCII":
		return []rune{0, 0x7F}, true
	case "Assigned":
		return assigned(), true
	case "Alphabetic", "Alpha":
		return tables(unicode.L, unicode.Nl, unicode.Other_Alphabetic), true
	case "Lowercase", "Lower":
		return tables(unicode.Ll, unicode.Other_Lowercase), true
	case "Uppercase", "Upper":
		return tables(unicode.Lu, unicode.Other_Uppercase), true
	}
	if strings.HasPrefix(name, "Other_") {
		return nil, false // parts of other properties
	}
	t, ok := unicode.Properties[name]
	if !ok {
		return nil, false
	}
	return tables(t), true
}
