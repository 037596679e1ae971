package grammar

import (
	"regexp/syntax"
	"unicode/utf8"
)

// relaxed is the automaton of an expression without the limits of its longest repetition, and
// the equivalent limits of the length of the whole text.
type relaxed struct {
	*dfa
	length span
}

// matches reports whether the inside of a JSON string of a text is one of the automaton, and
// the text as long as it must be.
func (r relaxed) matches(text string) bool {
	n := int32(utf8.RuneCountInString(text))
	return r.length.least <= n && n <= r.length.most && r.dfa.matches(inString(text))
}

// minCopies is how often a repetition must unroll to be counted instead.
const minCopies = 16

// relax turns ^a{m,n}b$, in which all parts but one repetition of a single character have a
// fixed length, into ^a*b$ and the range of its lengths. Other expressions are not changed.
func relax(re *syntax.Regexp) (*syntax.Regexp, span) {
	free := span{0, unlimited}
	parts := flatten(nil, re)
	if n := len(parts); n < 3 || parts[0].Op != syntax.OpBeginText || parts[n-1].Op != syntax.OpEndText {
		return re, free
	}
	sum, long := 0, -1
	for i, part := range parts[1 : len(parts)-1] {
		n := width(part)
		switch {
		case n >= 0:
			sum = min(sum+n, maxNodes)
		case long >= 0 || part.Op != syntax.OpRepeat || width(part.Sub[0]) != 1:
			return re, free
		default:
			long = i + 1
		}
	}
	if long < 0 {
		return re, free
	}
	rep := parts[long]
	if max(rep.Min, rep.Max) < minCopies {
		return re, free
	}
	length := span{int32(sum + rep.Min), unlimited}
	if rep.Max >= 0 {
		length.most = int32(sum + rep.Max)
	}
	parts[long] = &syntax.Regexp{Op: syntax.OpStar, Sub: rep.Sub}
	return &syntax.Regexp{Op: syntax.OpConcat, Sub: parts}, length
}

// flatten lists the parts of an expression.
func flatten(list []*syntax.Regexp, re *syntax.Regexp) []*syntax.Regexp {
	switch {
	case re.Op == syntax.OpConcat:
		for _, sub := range re.Sub {
			list = flatten(list, sub)
		}
		return list
	case re.Op == syntax.OpRepeat && re.Min == 1 && re.Max == 1:
		return flatten(list, re.Sub[0])
	}
	return append(list, re)
}

// width is the number of characters of all texts of an expression that ecma read, -1 if they
// differ or it is not certain.
func width(re *syntax.Regexp) int {
	switch re.Op {
	case syntax.OpEmptyMatch:
		return 0
	case syntax.OpCharClass:
		return 1
	case syntax.OpConcat:
		n := 0
		for _, sub := range re.Sub {
			w := width(sub)
			if w < 0 {
				return -1
			}
			n = min(n+w, maxNodes)
		}
		return n
	case syntax.OpAlternate:
		n := width(re.Sub[0])
		for _, sub := range re.Sub {
			if width(sub) != n {
				return -1
			}
		}
		return n
	case syntax.OpRepeat:
		if w := width(re.Sub[0]); w >= 0 && re.Min == re.Max {
			return min(w*re.Min, maxNodes)
		}
	}
	return -1
}

// relaxed is an expression with its range of lengths.
func (w *work) relaxed(key patternKey, s spelling) (relaxed, error) {
	r := relaxed{length: span{0, unlimited}}
	if most, ok := formatLengths[key.format]; ok {
		r.length.most = most
	}
	if key.extent == whole {
		d, err := w.expression(key, s)
		r.dfa = d
		return r, err
	}
	re, err := w.parsePattern(key.expr)
	if err != nil {
		return r, err
	}
	re, r.length = relax(re)
	r.dfa, err = w.compile(re, anywhere, s)
	return r, err
}

// and is the range of the numbers in both.
func (s span) and(t span) span { return span{max(s.least, t.least), min(s.most, t.most)} }
