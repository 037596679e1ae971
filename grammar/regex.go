package grammar

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"
)

// spelling says how the characters of a text are written.
type spelling uint8

const (
	// plain is UTF-8.
	plain spelling = iota
	// escaped is the inside of a JSON string in its shortest form: an escape only where
	// JSON demands one, and then the two-character one if there is one. Each text has
	// exactly one such form.
	escaped
)

// extent says which part of a text an expression has to match.
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
	re = re.Simplify()
	if size(re, map[*syntax.Regexp]int{}) > maxNodes/4 {
		return nil, errLarge
	}
	prog, err := syntax.Compile(re)
	if err != nil {
		return nil, err
	}
	t := translation{spelling: s}
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

// size is about how many instructions an expression becomes. Repetitions share their parts.
func size(re *syntax.Regexp, known map[*syntax.Regexp]int) int {
	if n, ok := known[re]; ok {
		return n
	}
	n := 1 + len(re.Rune)/2
	for _, sub := range re.Sub {
		n = min(n+size(sub, known), maxNodes)
	}
	known[re] = n
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
		// What ends a line in ECMA 262, of which the dot of RE2 knows only the first.
		node.to = []int32{t.runes([]rune{0, 9, 11, 12, 14, 0x2027, 0x202A, unicode.MaxRune}, out)}
	case syntax.InstRuneAny:
		node.to = []int32{t.runes([]rune{0, unicode.MaxRune}, out)}
	case syntax.InstRune, syntax.InstRune1:
		node.to = []int32{t.runes(ranges(inst), out)}
	}
	t.nodes[i] = node
	return nil
}

// ranges lists the runes of an instruction as pairs of first and last.
func ranges(inst *syntax.Inst) []rune {
	if len(inst.Rune) != 1 { // none at all where a class leaves out everything
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

// runes is a node from which each of the runes, given in pairs of first and last, leads to
// the node to.
func (t *translation) runes(pairs []rune, to int32) int32 {
	n := t.split()
	for i := 0; i < len(pairs); i += 2 {
		lo, hi := pairs[i], pairs[i+1]
		if t.spelling == plain {
			t.patch(n, t.utf8(lo, hi, to)...)
			continue
		}
		for lo <= hi {
			next := lo
			for next <= hi && !mustEscape(next) {
				next++
				if next > '\\' {
					next = hi + 1
				}
			}
			if next > lo {
				t.patch(n, t.utf8(lo, next-1, to)...)
			}
			if next <= hi {
				t.patch(n, t.text(escape(next), to))
			}
			lo = next + 1
		}
	}
	return n
}

// utf8 lists nodes from which the characters from lo to hi lead to the node to. A range of
// characters is cut until each part is a product of ranges of bytes.
func (t *translation) utf8(lo, hi rune, to int32) []int32 {
	const firstSurrogate, lastSurrogate = 0xD800, 0xDFFF
	if lo > hi {
		return nil
	}
	for _, cut := range []rune{0x7F, 0x7FF, firstSurrogate - 1, lastSurrogate, 0xFFFF} {
		if lo <= cut && cut < hi {
			return append(t.utf8(lo, cut, to), t.utf8(cut+1, hi, to)...)
		}
	}
	if lo >= firstSurrogate && hi <= lastSurrogate {
		return nil
	}
	for bits := 6; bits < 6*utf8.RuneLen(lo); bits += 6 {
		low := rune(1)<<bits - 1
		if lo&^low == hi&^low {
			break
		}
		if lo&low != 0 {
			return append(t.utf8(lo, lo|low, to), t.utf8((lo|low)+1, hi, to)...)
		}
		if hi&low != low {
			return append(t.utf8(lo, hi&^low-1, to), t.utf8(hi&^low, hi, to)...)
		}
	}
	first, last := utf8.AppendRune(nil, lo), utf8.AppendRune(nil, hi)
	for i := len(first) - 1; i >= 0; i-- {
		to = t.edge(first[i], last[i], to)
	}
	return []int32{to}
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
	q := &dfa{mark: -1}
	q.classes(&starts)
	// State 0 awaits the first mark, state s+1 is s, the last is behind the last mark.
	final := int32(len(d.accept)) + 1
	for s := int32(-1); s < final; s++ {
		for _, first := range q.starts[:q.width] {
			b, to := byte(first), int32(-1)
			switch {
			case b == '"' && s < 0:
				to = 1
			case s < 0 || s == final-1:
			case b == '"' && d.accept[s]:
				to = final
			default:
				if to = d.step(s, b); to >= 0 {
					to++
				}
			}
			q.next = append(q.next, to)
		}
	}
	q.accept = make([]bool, final+1)
	q.accept[final] = true
	return q.trim()
}
