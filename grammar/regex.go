package grammar

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"
)

// spelling is the encoding of the characters of a text.
type spelling uint8

const (
	// plain is UTF-8.
	plain spelling = iota
	// escaped is the inside of a JSON string in its shortest form: an escape only where
	// JSON demands one, and then the two-character one if there is one. Each text has
	// exactly one such form.
	escaped
)

// extent is the part of a text that an expression has to match.
type extent uint8

const (
	whole    extent = iota // all of it
	anywhere               // a part of it, as the keyword pattern means
)

// maxExpr bounds a regular expression, in bytes.
const maxExpr = 1 << 16

// regex is the automaton of a regular expression in RE2's syntax.
func (w *work) regex(expr string, e extent, s spelling) (*dfa, error) {
	if len(expr) > maxExpr {
		return nil, fmt.Errorf("the expression has %d bytes, want at most %d", len(expr), maxExpr)
	}
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return nil, err
	}
	return w.compile(re, e, s)
}

// parsePattern reads a regular expression in the syntax of ECMA 262.
func (w *work) parsePattern(expr string) (*syntax.Regexp, error) {
	if len(expr) > maxExpr {
		return nil, fmt.Errorf("the expression has %d bytes, want at most %d", len(expr), maxExpr)
	}
	p := ecma{expr: expr, spend: w.spend}
	return p.parse()
}

// pattern is the automaton of the texts of which a part matches an expression in the syntax
// of ECMA 262.
func (w *work) pattern(expr string, s spelling) (*dfa, error) {
	re, err := w.parsePattern(expr)
	if err != nil {
		return nil, err
	}
	return w.compile(re, anywhere, s)
}

// compile is the automaton of an expression.
func (w *work) compile(re *syntax.Regexp, e extent, s spelling) (*dfa, error) {
	if size(re) > maxNodes/4 {
		return nil, errLarge
	}
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return nil, err
	}
	t := translation{spelling: s, nodesOf: map[string]int32{}, classes: map[string]class{}}
	// Instructions jump both ways, so each has its node before any is filled in.
	t.nodes = make([]nfaNode, len(prog.Inst))
	start, end := int32(prog.Start), t.match()
	if e == anywhere {
		tail := t.split(end)
		t.patch(tail, t.runes([]rune{0, unicode.MaxRune}, tail))
		head := t.split(start)
		t.patch(head, t.runes([]rune{0, unicode.MaxRune}, head))
		start, end = head, tail
	}
	for i := range prog.Inst {
		if err := t.inst(i, &prog.Inst[i], end); err != nil {
			return nil, err
		}
	}
	return t.dfa(w, start)
}

// size is about how many instructions an expression becomes once repetitions are unrolled.
func size(re *syntax.Regexp) int {
	n := 1 + len(re.Rune)/2
	for _, sub := range re.Sub {
		n = min(n+size(sub), maxNodes)
	}
	if re.Op == syntax.OpRepeat {
		n = min(n*max(re.Min+1, re.Max, 1), maxNodes)
	}
	return n
}

// mustRegex is regex for expressions of our own.
func mustRegex(expr string, s spelling) *dfa {
	d, err := new(work).regex(expr, whole, s)
	if err != nil {
		panic(fmt.Sprintf("grammar: expression %q: %v", expr, err))
	}
	return d
}

// translation turns a program of package syntax into an nfa; node i is instruction i.
type translation struct {
	nfa
	spelling spelling
	nodesOf  map[string]int32 // parts of characters that lead on alike, by their edges
	classes  map[string]class // by their characters
}

// inst fills in the node of one instruction. end is where a match leads to.
func (t *translation) inst(i int, inst *syntax.Inst, end int32) error {
	out := int32(inst.Out)
	node := nfaNode{kind: nfaSplit}
	switch inst.Op {
	case syntax.InstAlt, syntax.InstAltMatch:
		node.to = []int32{out, int32(inst.Arg)}
	case syntax.InstCapture, syntax.InstNop:
		node.to = []int32{out}
	case syntax.InstMatch:
		node.to = []int32{end}
	case syntax.InstFail:
	case syntax.InstEmptyWidth:
		node.to = []int32{out}
		switch syntax.EmptyOp(inst.Arg) {
		case syntax.EmptyBeginText:
			node.kind = nfaBegin
		case syntax.EmptyEndText:
			node.kind = nfaEnd
		default:
			return errors.New("word boundaries and line anchors are not supported")
		}
	case syntax.InstRuneAnyNotNL:
		// Line ends of ECMA 262, of which the dot of RE2 excludes only the first.
		node.to = []int32{t.runes(negate(lineEnds), out)}
	case syntax.InstRuneAny:
		node.to = []int32{t.runes([]rune{0, unicode.MaxRune}, out)}
	case syntax.InstRune, syntax.InstRune1:
		node.to = []int32{t.runes(clean(ranges(inst)), out)}
	}
	t.nodes[i] = node
	return nil
}

// ranges lists the runes of an instruction as pairs of first and last.
func ranges(inst *syntax.Inst) []rune {
	if len(inst.Rune) != 1 { // empty if a class excludes everything
		return inst.Rune
	}
	r := inst.Rune[0]
	list := []rune{r, r}
	if syntax.Flags(inst.Arg)&syntax.FoldCase != 0 {
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			list = append(list, f, f)
		}
	}
	return list
}

// mustEscape reports whether JSON demands an escape for r in a string.
func mustEscape(r rune) bool { return r < ' ' || r == '"' || r == '\\' }

// escape is the shortest escape of a character that needs one.
func escape(r rune) string {
	const short, names = "\b\f\n\r\t\"\\", `bfnrt"\`
	if i := slices.Index([]rune(short), r); i >= 0 {
		return `\` + names[i:i+1]
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// inString is the inside of the JSON string of a text, in its shortest form.
func inString(text string) string {
	out := make([]byte, 0, len(text))
	for _, r := range text {
		if mustEscape(r) {
			out = append(out, escape(r)...)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return string(out)
}

// quote puts quotation marks around a language of insides of JSON strings.
func (d *dfa) quote() *dfa {
	if len(d.accept) == 0 {
		return d
	}
	var starts [256]bool
	for b := 1; b < 256; b++ {
		starts[b] = d.class[b] != d.class[b-1] || b == '"' || b == '"'+1
	}
	q := &dfa{}
	q.classes(&starts)
	// State 0 awaits the first mark, state s+1 is s, the last is behind the last mark.
	n := len(d.accept)
	final, mark := int32(n)+1, int32(q.class['"'])
	q.next = make([]int32, (n+2)*int(q.width))
	q.accept, q.leaf, q.loops = make([]bool, n+2), make([]bool, n+2), make([]kinds, n+2)
	fill(q.row(0), -1)
	q.row(0)[mark] = 1
	for s := range int32(n) {
		from, row := d.row(s), q.row(s+1)
		for k := range row {
			if row[k] = from[d.class[q.starts[k]]]; row[k] >= 0 {
				row[k]++
			}
		}
		if d.accept[s] {
			row[mark] = final
		}
		q.loops[s+1] = d.loops[s] // a quotation mark is of no kind
	}
	fill(q.row(final), -1)
	q.accept[final], q.leaf[final] = true, true
	return q
}

func fill(row []int32, state int32) {
	for k := range row {
		row[k] = state
	}
}
