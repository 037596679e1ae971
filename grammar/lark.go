package grammar

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of a grammar in Lark's notation.
const (
	maxLark     = 1 << 16 // bytes
	maxLarkDeep = 64      // nested brackets
	maxLarkWays = 1 << 14 // to begin a rule, through the rules that it begins with
	maxLarkSize = 1 << 22 // bytes of the expressions of all terminals
)

// errLark is wrapped by errors about notation that is not supported.
var errLark = errors.New("lark")

// larkKind is the kind of a part of a rule.
type larkKind uint8

const (
	larkText larkKind = iota // the text itself
	larkExpr                 // a regular expression
	larkName                 // another rule or terminal
	larkSeq                  // all of list, in order
	larkAlt                  // one of list
	larkRep                  // list[0], min to max times; a max of 0 is no limit
)

// larkNode is a part of a rule.
type larkNode struct {
	kind     larkKind
	text     string // of a text, an expression or a name
	fold     bool   // letters of either case
	blank    bool   // an expression that may be nothing
	list     []*larkNode
	min, max int
}

// larkGrammar is the definitions of a text in Lark's notation.
type larkGrammar struct {
	rules  map[string]*larkNode // rules in lower case, terminals in upper case
	order  []string
	ignore []*larkNode // may be before any terminal

	exprs map[string]string // of the terminals, when all is checked
	size  int               // bytes of these
}

// larkCommon are the terminals of Lark's library, in our words.
var larkCommon = map[string]string{
	"LF": `\n`, "CR": `\r`, "NEWLINE": `(?:\r?\n)+`, "WS": `[ \t\f\r\n]+`, "WS_INLINE": `[ \t]+`,
	"DIGIT": `[0-9]`, "HEXDIGIT": `[0-9A-Fa-f]`, "INT": `[0-9]+`, "SIGNED_INT": `[+-]?[0-9]+`,
	"DECIMAL":       `(?:[0-9]+\.[0-9]*|\.[0-9]+)`,
	"FLOAT":         `(?:[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)`,
	"NUMBER":        `(?:[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+))(?:[eE][+-]?[0-9]+)?`,
	"SIGNED_NUMBER": `[+-]?(?:[0-9]+|(?:[0-9]+\.[0-9]*|\.[0-9]+))(?:[eE][+-]?[0-9]+)?`,
	"LETTER":        `[A-Za-z]`, "UCASE_LETTER": `[A-Z]`, "LCASE_LETTER": `[a-z]`, "WORD": `[A-Za-z]+`, "CNAME": `[A-Za-z_][A-Za-z_0-9]*`,
	"ESCAPED_STRING": `"(?:[^"\\\n]|\\[^\n])*"`,
}

// larkToken is a word of the notation.
type larkToken struct {
	kind  byte // n: a name, s: a text, r: an expression, d: a number; else the character, with > for -> and - for ..
	text  string
	fold  bool
	first bool // of its line
	line  int
}

// scanLark splits a grammar into tokens.
func scanLark(text string) ([]larkToken, error) {
	var list []larkToken
	line, first := 1, true
	for i := 0; i < len(text); {
		t := larkToken{kind: text[i], first: first, line: line}
		rest, n := text[i:], 1
		switch c := text[i]; {
		case c == '\n':
			line, first = line+1, true
			i++
			continue
		case c == ' ' || c == '\t' || c == '\r':
			i++
			continue
		case strings.HasPrefix(rest, "//") || c == '#':
			if n = strings.IndexByte(rest, '\n'); n < 0 {
				n = len(rest)
			}
			i += n
			continue
		case c == '"' || c == '/':
			var err error
			if t, n, err = scanLarkText(rest, t); err != nil {
				return nil, err
			}
		case strings.HasPrefix(rest, "->"):
			t.kind, n = '>', 2
		case strings.HasPrefix(rest, ".."):
			t.kind, n = '-', 2
		case larkLetter(c):
			n = larkNameLength(rest)
			t.kind, t.text = 'n', rest[:n]
		case c >= '0' && c <= '9':
			for n < len(rest) && rest[n] >= '0' && rest[n] <= '9' {
				n++
			}
			t.kind, t.text = 'd', rest[:n]
		case strings.IndexByte(":|()[]{}?*+~.%,!", c) < 0:
			return nil, fmt.Errorf("%w: line %d: %q is not supported", errLark, line, c)
		}
		line += strings.Count(rest[:n], "\n")
		i, first = i+n, false
		list = append(list, t)
	}
	return list, nil
}

func larkLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' }

// larkNameLength is the length of the name that a text begins with. Hyphens may stand inside of
// names.
func larkNameLength(text string) int {
	more := func(i int) bool {
		return i < len(text) && (larkLetter(text[i]) || text[i] >= '0' && text[i] <= '9')
	}
	n := 1
	for more(n) || n < len(text) && text[n] == '-' && more(n+1) {
		n++
	}
	return n
}

// scanLarkText reads a text or an expression, with its flags.
func scanLarkText(rest string, t larkToken) (larkToken, int, error) {
	n := 1
	for n < len(rest) && rest[n] != rest[0] {
		if rest[n] == '\\' {
			n++
		}
		n++
	}
	if n >= len(rest) {
		return t, 0, fmt.Errorf("%w: line %d: %c without its end", errLark, t.line, rest[0])
	}
	t.kind, t.text = 'r', rest[1:n]
	flags := n + 1
	for n++; n < len(rest) && strings.IndexByte("imslux", rest[n]) >= 0; n++ {
	}
	set := ""
	for _, f := range rest[flags:n] {
		switch {
		case f == 'i':
			t.fold = true
		case f == 's' && rest[0] == '/':
			set = "(?s)"
		case f == 'u':
		default:
			return t, 0, fmt.Errorf("%w: line %d: the flag %c is not supported", errLark, t.line, f)
		}
	}
	if t.text = set + t.text; rest[0] == '/' {
		return t, n, nil
	}
	t.kind = 's'
	// Its escapes are those of Go, except for a quotation mark of the other kind.
	plain, err := strconv.Unquote(`"` + strings.NewReplacer(`\\`, `\\`, `\'`, `'`).Replace(t.text) + `"`)
	if err != nil {
		return t, 0, fmt.Errorf("%w: line %d: the text %.40q: %w", errLark, t.line, t.text, err)
	}
	t.text = plain
	return t, n, nil
}

// larkParser reads definitions.
type larkParser struct {
	tokens []larkToken
	at     int
	deep   int
	g      *larkGrammar
}

// parseLark reads a grammar.
func parseLark(text string) (*larkGrammar, error) {
	if len(text) > maxLark {
		return nil, fmt.Errorf("%w: %d bytes, want at most %d", errLark, len(text), maxLark)
	}
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("%w: it is not UTF-8", errLark)
	}
	tokens, err := scanLark(text)
	if err != nil {
		return nil, err
	}
	p := &larkParser{tokens: tokens, g: &larkGrammar{rules: map[string]*larkNode{}, exprs: map[string]string{}}}
	for p.at < len(p.tokens) {
		if err := p.statement(); err != nil {
			return nil, err
		}
	}
	if p.g.rules["start"] == nil {
		return nil, fmt.Errorf("%w: there is no rule start", errLark)
	}
	return p.g, nil
}

// peek is the kind of a token ahead, 0 behind the last one.
func (p *larkParser) peek(n int) byte {
	if p.at+n < len(p.tokens) {
		return p.tokens[p.at+n].kind
	}
	return 0
}

// begins reports whether a statement begins here.
func (p *larkParser) begins() bool {
	switch p.peek(0) {
	case 0, '%':
		return true
	case '?', '!':
		return p.tokens[p.at].first && p.peek(1) == 'n' && (p.peek(2) == ':' || p.peek(2) == '.')
	case 'n':
		return p.peek(1) == ':' || p.peek(1) == '.' && p.peek(2) == 'd' && p.peek(3) == ':'
	}
	return false
}

func (p *larkParser) errorf(format string, args ...any) error {
	line := 0
	if p.at < len(p.tokens) {
		line = p.tokens[p.at].line
	}
	return fmt.Errorf("%w: line %d: %s", errLark, line, fmt.Sprintf(format, args...))
}

// take consumes a token of a kind.
func (p *larkParser) take(kind byte) (larkToken, error) {
	if p.peek(0) != kind {
		return larkToken{}, p.errorf("want %q", kind)
	}
	p.at++
	return p.tokens[p.at-1], nil
}

// statement reads a definition or a directive.
func (p *larkParser) statement() error {
	if p.peek(0) == '%' {
		p.at++
		return p.directive()
	}
	for p.peek(0) == '?' || p.peek(0) == '!' { // marks for the shape of a parse tree, which is not built
		p.at++
	}
	name, err := p.take('n')
	if err != nil {
		return err
	}
	if p.peek(0) == '.' { // a priority among parses, which does not change what matches
		p.at += 2
	}
	if _, err := p.take(':'); err != nil {
		return err
	}
	n, err := p.alternatives()
	if err != nil {
		return err
	}
	return p.define(name.text, n)
}

func (p *larkParser) define(name string, n *larkNode) error {
	if p.g.rules[name] != nil {
		return p.errorf("%.60s is defined twice", name)
	}
	p.g.rules[name] = n
	p.g.order = append(p.g.order, name)
	return nil
}

// directive reads a directive after its %.
func (p *larkParser) directive() error {
	what, err := p.take('n')
	if err != nil {
		return err
	}
	switch what.text {
	case "ignore":
		n, err := p.alternatives()
		p.g.ignore = append(p.g.ignore, n)
		return err
	case "import":
		if from, err := p.take('n'); err != nil || from.text != "common" {
			return p.errorf("only the library common is supported")
		}
		if _, err := p.take('.'); err == nil {
			return p.imports()
		}
		for kind := byte('('); p.peek(0) == kind; kind = ',' {
			p.at++
			if err := p.imports(); err != nil {
				return err
			}
		}
		_, err := p.take(')')
		return err
	}
	return p.errorf("%%%.40s is not supported", what.text)
}

// imports defines a terminal of the library.
func (p *larkParser) imports() error {
	name, err := p.take('n')
	if err != nil {
		return err
	}
	expr, ok := larkCommon[name.text]
	if !ok {
		return p.errorf("common.%.40s is not supported", name.text)
	}
	if p.peek(0) == '>' {
		p.at++
		if name, err = p.take('n'); err != nil {
			return err
		}
	}
	return p.define(name.text, &larkNode{kind: larkExpr, text: expr})
}

// alternatives reads alternatives separated by |.
func (p *larkParser) alternatives() (*larkNode, error) {
	if p.deep++; p.deep > maxLarkDeep {
		return nil, p.errorf("more than %d nested brackets", maxLarkDeep)
	}
	defer func() { p.deep-- }()
	n := &larkNode{kind: larkAlt}
	for {
		part, err := p.sequence()
		if err != nil {
			return nil, err
		}
		n.list = append(n.list, part)
		if p.peek(0) != '|' {
			break
		}
		p.at++
	}
	if len(n.list) == 1 {
		return n.list[0], nil
	}
	return n, nil
}

// sequence reads parts that follow each other.
func (p *larkParser) sequence() (*larkNode, error) {
	n := &larkNode{kind: larkSeq}
	for !p.begins() && strings.IndexByte("|)]", p.peek(0)) < 0 {
		if p.peek(0) == '>' { // a name for the alternative
			p.at++
			if _, err := p.take('n'); err != nil {
				return nil, err
			}
			break
		}
		part, err := p.part()
		if err != nil {
			return nil, err
		}
		n.list = append(n.list, part)
	}
	return n, nil
}

// part reads one part with how often it comes.
func (p *larkParser) part() (*larkNode, error) {
	n, err := p.atom()
	if err != nil {
		return nil, err
	}
	for !p.begins() {
		switch p.peek(0) {
		case '?':
			n = &larkNode{kind: larkRep, list: []*larkNode{n}, max: 1}
		case '*':
			n = &larkNode{kind: larkRep, list: []*larkNode{n}}
		case '+':
			n = &larkNode{kind: larkRep, list: []*larkNode{n}, min: 1}
		case '~', '{':
			if n, err = p.times(n); err != nil {
				return nil, err
			}
			continue
		default:
			return n, nil
		}
		p.at++
	}
	return n, nil
}

// times reads ~n, ~n..m, {n}, {n,m}, {n,} or {,m}.
func (p *larkParser) times(of *larkNode) (*larkNode, error) {
	open, between := p.tokens[p.at], byte('-')
	p.at++
	if open.kind == '{' {
		if between = ','; p.peek(0) != 'd' && p.peek(0) != ',' {
			return nil, p.errorf("want a number of times after {; templates are not supported")
		}
	}
	number := func() (int, error) {
		if p.peek(0) != 'd' && open.kind == '{' {
			return 0, nil
		}
		t, err := p.take('d')
		if err != nil {
			return 0, err
		}
		n, err := strconv.Atoi(t.text)
		if err != nil || n > maxLark {
			return 0, p.errorf("%.40s times are too many", t.text)
		}
		return n, nil
	}
	least, err := number()
	most, limited := least, true
	if err == nil && p.peek(0) == between {
		p.at++
		limited = open.kind == '~' || p.peek(0) == 'd'
		most, err = number()
	}
	if err == nil && open.kind == '{' {
		_, err = p.take('}')
	}
	if err == nil && limited && (most < least || most == 0) {
		err = p.errorf("%d to %d times", least, most)
	}
	return &larkNode{kind: larkRep, list: []*larkNode{of}, min: least, max: most}, err
}

// atom reads a text, an expression, a name or a bracket.
func (p *larkParser) atom() (*larkNode, error) {
	kind := p.peek(0)
	p.at++
	switch kind {
	case 's':
		t := p.tokens[p.at-1]
		if p.peek(0) != '-' {
			return &larkNode{kind: larkText, text: t.text, fold: t.fold}, nil
		}
		p.at++
		to, err := p.take('s')
		if err != nil || utf8.RuneCountInString(t.text) != 1 || utf8.RuneCountInString(to.text) != 1 || t.text > to.text {
			return nil, p.errorf("want a range of characters")
		}
		return &larkNode{kind: larkExpr, text: fmt.Sprintf(`[\x{%x}-\x{%x}]`, []rune(t.text)[0], []rune(to.text)[0])}, nil
	case 'r':
		return &larkNode{kind: larkExpr, text: p.tokens[p.at-1].text, fold: p.tokens[p.at-1].fold}, nil
	case 'n':
		return &larkNode{kind: larkName, text: p.tokens[p.at-1].text}, nil
	case '(', '[':
		n, err := p.alternatives()
		if err != nil {
			return nil, err
		}
		closing := byte(')')
		if kind == '[' {
			closing, n = ']', &larkNode{kind: larkRep, list: []*larkNode{n}, max: 1}
		}
		_, err = p.take(closing)
		return n, err
	}
	p.at--
	return nil, p.errorf("want a text, an expression or a name")
}
