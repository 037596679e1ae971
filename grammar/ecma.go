package grammar

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxNesting is the maximum nesting of groups in an expression.
const maxNesting = 250

// errLookAround reports a construct that an automaton cannot decide.
var errLookAround = errors.New("look-around is not supported")

// ecma reads a regular expression in the syntax of ECMA 262 with the flag u, as JSON Schema
// requires. It also accepts escapes of punctuation and literal
// braces, which are legal without the flag, and flags in front of an expression: (?i).
type ecma struct {
	expr  string
	at    int
	depth int
	flags syntax.Flags // FoldCase and DotNL
	sets  int          // the numbers that properties have taken
	spend func(steps int) error
}

// parse reads the whole expression.
func (p *ecma) parse() (*syntax.Regexp, error) {
	re, err := p.alternatives()
	if err == nil && p.at < len(p.expr) {
		err = errors.New("a ) without its (")
	}
	if err != nil {
		return nil, fmt.Errorf("%.60q at byte %d: %w", p.expr, p.at, err)
	}
	return re, nil
}

// take skips a text if it comes next.
func (p *ecma) take(text string) bool {
	ok := strings.HasPrefix(p.expr[p.at:], text)
	if ok {
		p.at += len(text)
	}
	return ok
}

// next reads one character.
func (p *ecma) next() (rune, error) {
	if p.at >= len(p.expr) {
		return 0, errors.New("the expression ends too early")
	}
	r, n := utf8.DecodeRuneInString(p.expr[p.at:])
	p.at += n
	return r, nil
}

// alternatives reads up to the end of the expression or of the group.
func (p *ecma) alternatives() (*syntax.Regexp, error) {
	if p.depth++; p.depth > maxNesting {
		return nil, fmt.Errorf("more than %d nested groups", maxNesting)
	}
	defer func(flags syntax.Flags) { p.depth, p.flags = p.depth-1, flags }(p.flags)
	either := &syntax.Regexp{Op: syntax.OpAlternate}
	for {
		all := &syntax.Regexp{Op: syntax.OpConcat}
		for p.at < len(p.expr) && p.expr[p.at] != '|' && p.expr[p.at] != ')' {
			part, err := p.term()
			if err != nil {
				return nil, err
			}
			all.Sub = append(all.Sub, part)
		}
		either.Sub = append(either.Sub, single(all))
		if !p.take("|") {
			return single(either), nil
		}
	}
}

// single is the only part of a list, or the list.
func single(re *syntax.Regexp) *syntax.Regexp {
	switch len(re.Sub) {
	case 0:
		return &syntax.Regexp{Op: syntax.OpEmptyMatch}
	case 1:
		return re.Sub[0]
	}
	return re
}

// term reads an assertion, or an atom with its repetitions.
func (p *ecma) term() (*syntax.Regexp, error) {
	switch {
	case p.take("^"):
		return &syntax.Regexp{Op: syntax.OpBeginText}, nil
	case p.take("$"):
		return &syntax.Regexp{Op: syntax.OpEndText}, nil
	case p.take(`\b`):
		return &syntax.Regexp{Op: syntax.OpWordBoundary}, nil
	case p.take(`\B`):
		return &syntax.Regexp{Op: syntax.OpNoWordBoundary}, nil
	}
	if _, _, ok := p.times(); ok {
		return nil, errors.New("a repetition without an operand")
	}
	atom, err := p.atom()
	if err != nil {
		return nil, err
	}
	if least, most, ok := p.times(); ok {
		if most >= 0 && most < least {
			return nil, fmt.Errorf("a repetition of %d to %d times", least, most)
		}
		p.take("?") // as few as possible: the texts are the same
		atom = &syntax.Regexp{Op: syntax.OpRepeat, Min: least, Max: most, Sub: []*syntax.Regexp{atom}}
		if _, _, again := p.times(); again {
			return nil, errors.New("a repetition of a repetition; put the inner repetition in a group")
		}
	}
	return atom, nil
}

// times reads the repetition of an atom; a most of -1 is no limit. A brace that does not begin
// a repetition is literal.
func (p *ecma) times() (least, most int, ok bool) {
	switch {
	case p.take("*"):
		return 0, -1, true
	case p.take("+"):
		return 1, -1, true
	case p.take("?"):
		return 0, 1, true
	}
	before := p.at
	if !p.take("{") {
		return 0, 0, false
	}
	least, ok = p.number()
	most = least
	if ok && p.take(",") {
		if most, ok = p.number(); !ok {
			most, ok = -1, true
		}
	}
	if !ok || !p.take("}") {
		p.at = before
		return 0, 0, false
	}
	return least, most, true
}

// number reads digits. Numbers that are too large stay so.
func (p *ecma) number() (n int, ok bool) {
	for ; p.at < len(p.expr) && '0' <= p.expr[p.at] && p.expr[p.at] <= '9'; p.at++ {
		n, ok = min(10*n+int(p.expr[p.at]-'0'), maxNodes), true
	}
	return n, ok
}

// atom reads a group, a class or a character.
func (p *ecma) atom() (*syntax.Regexp, error) {
	r, err := p.next()
	if err != nil {
		return nil, err
	}
	switch r {
	case '(':
		return p.group()
	case '[':
		set, err := p.class()
		return p.set(set, err)
	case '.':
		if p.flags&syntax.DotNL != 0 {
			return p.set([]rune{0, unicode.MaxRune}, nil)
		}
		return p.set(negate(lineEnds), nil)
	case '\\':
		set, _, err := p.escape(false)
		return p.set(set, err)
	}
	return p.set([]rune{r, r}, nil)
}

// set is a node for one of the characters, given in pairs of first and last.
func (p *ecma) set(pairs []rune, err error) (*syntax.Regexp, error) {
	if err == nil && p.flags&syntax.FoldCase != 0 {
		pairs, err = p.fold(pairs)
	}
	if err != nil {
		return nil, err
	}
	return &syntax.Regexp{Op: syntax.OpCharClass, Rune: clean(pairs)}, nil
}

// fold adds the other cases of characters.
func (p *ecma) fold(pairs []rune) ([]rune, error) {
	const last = 0x1E943 // that has another case
	all := pairs
	for i := 0; i < len(pairs); i += 2 {
		if err := p.spend(int(pairs[i+1]-pairs[i])/16 + 1); err != nil {
			return nil, err
		}
		for r := pairs[i]; r <= min(pairs[i+1], last); r++ {
			for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
				all = append(all, f, f)
			}
		}
	}
	return all, nil
}

// group reads a group after its opening parenthesis, up to the closing one.
func (p *ecma) group() (*syntax.Regexp, error) {
	before := p.flags
	if p.take("?") {
		switch {
		case p.take("="), p.take("!"), p.take("<="), p.take("<!"):
			return nil, errLookAround
		case p.take("<"):
			name, _, ok := strings.Cut(p.expr[p.at:], ">")
			if !ok || name == "" || strings.ContainsAny(name, "()|[]") {
				return nil, errors.New("a group (?<name>...) without a name")
			}
			p.at += len(name) + 1
		default:
			if done, err := p.modifiers(); done || err != nil {
				return &syntax.Regexp{Op: syntax.OpEmptyMatch}, err
			}
		}
	}
	inner, err := p.alternatives()
	if err == nil && !p.take(")") {
		err = errors.New("a ( without its )")
	}
	p.flags = before
	return inner, err
}

// modifiers reads the flags of a group up to its colon. Flags that end with a parenthesis,
// which is reported by done, hold up to the end of the group around them.
func (p *ecma) modifiers() (done bool, err error) {
	on := true
	for {
		r, err := p.next()
		if err != nil {
			return false, err
		}
		flag := syntax.Flags(0)
		switch r {
		case ':', ')':
			return r == ')', nil
		case '-':
			on = false
			continue
		case 'i':
			flag = syntax.FoldCase
		case 's':
			flag = syntax.DotNL
		default:
			return false, errors.New("a group begins with (, (?: or (?<name>")
		}
		if p.flags |= flag; !on {
			p.flags &^= flag
		}
	}
}

// class reads a class after its opening bracket, up to the closing one.
func (p *ecma) class() ([]rune, error) {
	not := p.take("^")
	var set []rune
	for !p.take("]") {
		first, isSet, err := p.member()
		if err != nil {
			return nil, err
		}
		before := p.at
		if p.take("-") && !strings.HasPrefix(p.expr[p.at:], "]") {
			last, alsoSet, err := p.member()
			switch {
			case err != nil:
				return nil, err
			case isSet || alsoSet || len(first)*len(last) == 0:
				p.at = before // the dash stands for itself
			case first[0] > last[0]:
				return nil, fmt.Errorf("the range %q to %q is empty", first[0], last[0])
			default:
				first = []rune{first[0], last[0]}
			}
		} else {
			p.at = before
		}
		set = append(set, first...)
	}
	set = clean(set)
	if not && p.flags&syntax.FoldCase != 0 { // the excluded characters, in every case
		var err error
		if set, err = p.fold(set); err != nil {
			return nil, err
		}
	}
	if not {
		set = negate(clean(set))
	}
	return set, nil
}

// member reads one character of a class, or the set of an escape.
func (p *ecma) member() (set []rune, isSet bool, err error) {
	r, err := p.next()
	if err != nil {
		return nil, false, errors.New("a [ without its ]")
	}
	if r == '\\' {
		return p.escape(true)
	}
	return []rune{r, r}, false, nil
}

// escape reads an escape after its backslash: one character, or a set of them.
func (p *ecma) escape(inClass bool) (set []rune, isSet bool, err error) {
	r, err := p.next()
	if err != nil {
		return nil, false, err
	}
	if s, ok := sets[unicode.ToLower(r)]; ok {
		if unicode.IsUpper(r) {
			s = negate(s)
		}
		return s, true, nil
	}
	one := func(r rune, err error) ([]rune, bool, error) { return []rune{r, r}, false, err }
	switch r {
	case 'p', 'P':
		set, err = p.property()
		if p.sets += len(set); p.sets > maxNodes/2 { // compile would refuse as many ranges, but they would be made first
			return nil, true, errLarge
		}
		if r == 'P' {
			set = negate(set)
		}
		return set, true, err
	case 'b':
		if inClass {
			return one('\b', nil)
		}
	case 't', 'n', 'v', 'f', 'r':
		return one(map[rune]rune{'t': '\t', 'n': '\n', 'v': '\v', 'f': '\f', 'r': '\r'}[r], nil)
	case '0':
		if _, digit := p.number(); !digit {
			return one(0, nil)
		}
	case 'c':
		if r, err = p.next(); err == nil && unicode.IsLetter(r) && r < 0x80 {
			return one(r%32, nil)
		}
		return nil, false, errors.New(`want a letter after \c`)
	case 'x':
		return one(p.hex(2))
	case 'u':
		return p.unicode()
	}
	if r == 'k' || '1' <= r && r <= '9' {
		return nil, false, errors.New("back references are not supported")
	}
	if unicode.IsLetter(r) || unicode.IsDigit(r) {
		return nil, false, fmt.Errorf(`ECMA 262 has no escape \%c`, r)
	}
	return one(r, nil)
}

// hex reads that many hexadecimal digits.
func (p *ecma) hex(digits int) (rune, error) {
	text := p.expr[p.at:min(p.at+digits, len(p.expr))]
	n, err := strconv.ParseUint(text, 16, 32)
	if err != nil || len(text) < digits {
		return 0, fmt.Errorf("want %d hexadecimal digits after the escape", digits)
	}
	p.at += digits
	return rune(n), nil
}

// unicode reads an escape after \u. Half of a pair of surrogates matches nothing.
func (p *ecma) unicode() (set []rune, isSet bool, err error) {
	var r rune
	if p.take("{") {
		text, _, ok := strings.Cut(p.expr[p.at:], "}")
		n, err := strconv.ParseUint(text, 16, 32)
		if err != nil || !ok || n > unicode.MaxRune {
			return nil, false, errors.New(`want hexadecimal digits up to 10FFFF in \u{...}`)
		}
		r = rune(n)
		p.at += len(text) + 1
	} else {
		if r, err = p.hex(4); err != nil {
			return nil, false, err
		}
		if before := p.at; 0xD800 <= r && r <= 0xDBFF && p.take(`\u`) {
			low, err := p.hex(4)
			if err == nil && 0xDC00 <= low && low <= 0xDFFF {
				r = 0x10000 + (r-0xD800)<<10 + low - 0xDC00
			} else {
				p.at = before
			}
		}
	}
	if 0xD800 <= r && r <= 0xDFFF {
		return nil, false, nil
	}
	return []rune{r, r}, false, nil
}
