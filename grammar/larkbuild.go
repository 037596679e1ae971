package grammar

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Lark is the texts of a grammar in Lark's notation, from its rule start: rules, terminals,
// Lark's library common, and %ignore. A terminal is one regular expression in RE2's
// syntax, and a text may be parsed in any way: priorities and longest matches
// matter to parsers only. It is an error if a feature is not supported, such as rules
// that begin with each other, look-ahead and templates.
func Lark(text string) (Source, error) {
	g, err := parseLark(text)
	if err == nil {
		err = g.check()
	}
	if err != nil {
		return Source{}, err
	}
	return newSource("lark", "lark", []string{text}, func(b *builder) (int32, error) {
		l := &larkBuilder{builder: b, g: g, rules: map[string]int32{}, terminals: map[string]int32{}}
		return l.build()
	}), nil
}

// isTerminal reports whether a name is that of a terminal, in upper case, and not of a rule.
func isTerminal(name string) bool {
	return strings.IndexFunc(name, unicode.IsUpper) >= 0 && strings.IndexFunc(name, unicode.IsLower) < 0
}

// check refuses undefined names and unsupported features, and rewrites left-recursive
// rules.
func (g *larkGrammar) check() error {
	var look func(n *larkNode, terminal string) error
	look = func(n *larkNode, terminal string) error {
		if n.kind == larkName {
			if g.rules[n.text] == nil {
				return fmt.Errorf("%w: %.60s is not defined", errLark, n.text)
			}
			if terminal != "" && !isTerminal(n.text) {
				return fmt.Errorf("%w: the terminal %.60s contains the rule %.60s", errLark, terminal, n.text)
			}
		}
		if n.kind == larkExpr {
			whole, err := regexp.Compile(`\A(?:` + n.text + `)\z`)
			if err != nil {
				return fmt.Errorf("%w: %w", errLark, err)
			}
			n.blank = whole.MatchString("")
		}
		for _, part := range n.list {
			if err := look(part, terminal); err != nil {
				return err
			}
		}
		return nil
	}
	for _, name := range g.order {
		terminal := ""
		if isTerminal(name) {
			terminal = name
		}
		if err := look(g.rules[name], terminal); err != nil {
			return err
		}
	}
	for _, n := range g.ignore {
		if err := look(n, "%ignore"); err != nil {
			return err
		}
	}
	for _, name := range g.order {
		if isTerminal(name) {
			if _, err := g.terminal(name, nil); err != nil {
				return err
			}
			continue
		}
		g.rules[name] = unroll(name, g.rules[name])
	}
	return g.descends()
}

// unroll makes a repetition of a rule that begins with itself: a: a x | y is y followed by any
// number of x.
func unroll(name string, n *larkNode) *larkNode {
	if n.kind != larkAlt {
		return n
	}
	first, more := &larkNode{kind: larkAlt}, &larkNode{kind: larkAlt}
	for _, part := range n.list {
		if part.kind == larkSeq && len(part.list) > 1 && part.list[0].kind == larkName && part.list[0].text == name {
			more.list = append(more.list, &larkNode{kind: larkSeq, list: part.list[1:]})
		} else {
			first.list = append(first.list, part)
		}
	}
	if len(more.list) == 0 || len(first.list) == 0 {
		return n
	}
	return &larkNode{kind: larkSeq, list: []*larkNode{first, {kind: larkRep, list: []*larkNode{more}}}}
}

// descends refuses rules that reach themselves before anything was read, or others in
// too many ways: the machine would not terminate.
func (g *larkGrammar) descends() error {
	empty := map[string]bool{} // rules that may be nothing
	for changed := true; changed; {
		changed = false
		for _, name := range g.order {
			if !empty[name] && g.nothing(g.rules[name], empty) {
				empty[name], changed = true, true
			}
		}
	}
	for _, name := range g.order {
		if err := g.countable(g.rules[name], empty); err != nil && !isTerminal(name) {
			return err
		}
	}
	ways := map[string]int{} // to begin a rule, of those that were visited
	var visit func(name string, above []string) error
	visit = func(name string, above []string) error {
		if slices.Contains(above, name) {
			return fmt.Errorf("%w: the rule %.60s begins with itself", errLark, name)
		}
		if ways[name] > 0 {
			return nil
		}
		n := 1
		for _, next := range g.firsts(nil, g.rules[name], empty) {
			if err := visit(next, append(above, name)); err != nil {
				return err
			}
			n += ways[next]
		}
		if n > maxLarkWays {
			return fmt.Errorf("%w: the rule %.60s begins in more than %d ways: factor out the common start of its alternatives", errLark, name, maxLarkWays)
		}
		ways[name] = n
		return nil
	}
	for _, name := range g.order {
		if err := visit(name, nil); err != nil {
			return err
		}
	}
	return nil
}

// countable refuses a bounded repetition of a possibly empty part: each count would be tried
// before anything is read.
func (g *larkGrammar) countable(n *larkNode, empty map[string]bool) error {
	if n.kind == larkRep && max(n.min, n.max) > 1 && g.nothing(n.list[0], empty) {
		return fmt.Errorf("%w: a repetition of %d to %d times of a part that may be empty", errLark, n.min, n.max)
	}
	for _, part := range n.list {
		if err := g.countable(part, empty); err != nil {
			return err
		}
	}
	return nil
}

// nothing reports whether a part may be the empty text.
func (g *larkGrammar) nothing(n *larkNode, empty map[string]bool) bool {
	may := func(n *larkNode) bool { return g.nothing(n, empty) }
	switch n.kind {
	case larkText:
		return n.text == ""
	case larkName:
		return empty[n.text]
	case larkSeq:
		return !slices.ContainsFunc(n.list, func(n *larkNode) bool { return !may(n) })
	case larkAlt:
		return slices.ContainsFunc(n.list, may)
	case larkRep:
		return n.min == 0 || may(n.list[0])
	default:
		return n.blank
	}
}

// firsts appends the names that a part may begin with.
func (g *larkGrammar) firsts(list []string, n *larkNode, empty map[string]bool) []string {
	switch n.kind {
	case larkName:
		return append(list, n.text)
	case larkSeq:
		for _, part := range n.list {
			if list = g.firsts(list, part, empty); !g.nothing(part, empty) {
				break
			}
		}
	case larkAlt, larkRep:
		for _, part := range n.list {
			list = g.firsts(list, part, empty)
		}
	}
	return list
}

// terminal is the regular expression of a terminal, which is in the terminals above it.
func (g *larkGrammar) terminal(name string, above []string) (string, error) {
	if text, ok := g.exprs[name]; ok {
		return text, nil
	}
	if slices.Contains(above, name) {
		return "", fmt.Errorf("%w: the terminal %.60s contains itself", errLark, name)
	}
	text, err := g.expr(g.rules[name], append(above, name))
	if g.size += len(text); err == nil && g.size > maxLarkSize {
		err = errLarge
	}
	if err != nil {
		return "", err
	}
	g.exprs[name] = text
	return text, nil
}

// expr is the regular expression of a part of a terminal.
func (g *larkGrammar) expr(n *larkNode, above []string) (string, error) {
	var b strings.Builder
	switch n.kind {
	case larkText:
		b.WriteString(regexp.QuoteMeta(n.text))
	case larkExpr:
		b.WriteString(n.text)
	case larkName:
		return g.terminal(n.text, above)
	}
	for i, part := range n.list {
		inner, err := g.expr(part, above)
		if err != nil {
			return "", err
		}
		if n.kind == larkAlt && i > 0 {
			b.WriteByte('|')
		}
		if b.WriteString(inner); b.Len() > maxExpr {
			return "", errLarge
		}
	}
	text := b.String()
	if n.fold {
		text = "(?i:" + text + ")"
	} else {
		text = "(?:" + text + ")"
	}
	switch {
	case n.kind != larkRep:
	case n.max == 0 && n.min <= 1:
		text += map[int]string{0: "*", 1: "+"}[n.min]
	case n.max == 0:
		text += fmt.Sprintf("{%d,}", n.min)
	default:
		text += fmt.Sprintf("{%d,%d}", n.min, n.max)
	}
	return text, nil
}

// larkBuilder makes nodes of a grammar.
type larkBuilder struct {
	*builder
	g         *larkGrammar
	rules     map[string]int32
	terminals map[string]int32 // by expression
	skip      int32            // may be before a terminal; -1: nothing
}

func (l *larkBuilder) build() (int32, error) {
	l.skip = -1
	var either []string
	for _, n := range l.g.ignore {
		expr, err := l.g.expr(n, nil)
		if err != nil {
			return 0, err
		}
		either = append(either, expr)
	}
	if len(either) > 0 {
		n, err := l.terminal("(?:" + strings.Join(either, "|") + ")*")
		if err != nil {
			return 0, err
		}
		l.skip = n
	}
	for _, name := range l.g.order {
		if !isTerminal(name) {
			l.rules[name] = l.alt() // rules refer to each other
		}
	}
	for _, name := range l.g.order {
		if isTerminal(name) {
			continue
		}
		n, err := l.node(l.g.rules[name])
		if err != nil {
			return 0, err
		}
		l.nodes[l.rules[name]].list = []int32{n}
	}
	if root := l.rules["start"]; l.skip < 0 {
		return root, nil
	}
	return l.seq(l.rules["start"], l.skip), nil
}

// node is the node of a part of a rule.
func (l *larkBuilder) node(n *larkNode) (int32, error) {
	switch {
	case n.kind == larkName && !isTerminal(n.text):
		return l.rules[n.text], nil
	case n.kind == larkText && n.text == "":
		return l.seq(), nil
	case n.kind == larkText || n.kind == larkExpr || n.kind == larkName:
		expr, err := l.g.expr(n, nil)
		if err != nil {
			return 0, err
		}
		t, err := l.terminal(expr)
		if err != nil || l.skip < 0 {
			return t, err
		}
		return l.seq(l.skip, t), nil
	}
	list := make([]int32, len(n.list))
	for i, part := range n.list {
		var err error
		if list[i], err = l.node(part); err != nil {
			return 0, err
		}
	}
	switch {
	case n.kind == larkSeq:
		return l.seq(list...), nil
	case n.kind == larkAlt:
		return l.alt(list...), nil
	case n.max == 0:
		return l.rep(list[0], int32(n.min), unlimited), nil
	default:
		return l.rep(list[0], int32(n.min), int32(n.max)), nil
	}
}

// terminal is the node of an expression.
func (l *larkBuilder) terminal(expr string) (int32, error) {
	if n, ok := l.terminals[expr]; ok {
		return n, nil
	}
	d, err := l.lexeme(expr)
	if err != nil {
		return 0, fmt.Errorf("lark: %.60q: %w", expr, err)
	}
	n, err := l.automaton(d)
	l.terminals[expr] = n
	return n, err
}
