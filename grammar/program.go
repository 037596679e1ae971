package grammar

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// unlimited is the maximum of a repetition without a limit.
const unlimited = math.MaxInt32

// program is a grammar that can be run: nodes that refer to each other, with
// recursion through nodeAlt.
type program struct {
	nodes []node
	root  int32
}

type nodeKind uint8

const (
	nodeSeq  nodeKind = iota // all of list, in order
	nodeAlt                  // one of list
	nodeRep                  // list[0], min to max times
	nodeLex                  // a text of the automaton
	nodeText                 // a text of the automaton, or any JSON string, of min to max characters
)

type node struct {
	kind     nodeKind
	list     []int32
	min, max int32
	lex      *lex
	reach    *reach // of a text
}

// lex is an automaton with its cached facts for the grammar's vocabulary.
type lex struct {
	*dfa
	facts []atomic.Pointer[facts] // by state
}

// bytes is the memory of the program without facts, about.
func (p *program) bytes() int64 {
	n := 0
	seen := map[*lex]bool{} // nodes of several lengths share one
	for i := range p.nodes {
		n += 64 + 4*len(p.nodes[i].list)
		if l := p.nodes[i].lex; l != nil && !seen[l] {
			seen[l] = true
			n += l.bytes() + 8*len(l.facts)
		}
		if r := p.nodes[i].reach; r != nil {
			n += r.bytes()
		}
	}
	return int64(n)
}

// dfa is the automaton of a node that is a lex or a text.
func (p *program) dfa(n int32) *dfa {
	if l := p.nodes[n].lex; l != nil {
		return l.dfa
	}
	return textDFA()
}

// textDFA reads a JSON string with any escapes RFC 8259 has; of surrogates only pairs. It counts
// characters in the state between two of them.
var textDFA = sync.OnceValue(func() *dfa {
	const hex, mark = `[0-9A-Fa-f]`, `\x5C`
	escapes := []string{
		`["/bfnrt\x5C]`,
		`u[0-9A-CEFa-cef]` + hex + `{3}`,
		`u[Dd][0-7]` + hex + `{2}`,
		`u[Dd][89ABab]` + hex + `{2}` + mark + `u[Dd][C-Fc-f]` + hex + `{2}`,
	}
	d := mustRegex(`"(?:[^\x00-\x1F"\x5C]|`+mark+`(?:`+strings.Join(escapes, "|")+`))*"`, plain)
	d.meter = &meter{whole: make([]bool, len(d.accept)), quoted: true}
	d.meter.whole[d.step(0, '"')] = true
	d.findLows()
	return d
})

// textReach is the reach of textDFA, whose only tight state is the end.
var textReach = sync.OnceValue(func() *reach {
	r, err := new(work).reach(textDFA(), unlimited-1)
	if err != nil {
		panic(fmt.Sprintf("grammar: lengths of strings: %v", err))
	}
	return r
})

// builder collects the nodes of a program.
type builder struct {
	program
	work     work
	states   int
	full     bool                 // there were more nodes than allowed
	choices  map[string]*dfa      // automata made before, of lists of texts
	patterns map[patternKey]*dfa  // of the insides of strings
	strings  map[*dfa]*dfa        // the same with quotation marks
	shared   map[*dfa]int32       // their nodes
	texts    map[[2]int32]int32   // nodes of strings, by min and max
	measured map[*dfa]*lex        // automata that count
	lengths  map[countedKey]int32 // nodes of theirs
	relaxed  map[patternKey]relaxed
	marked   map[markedKey]*dfa // automata of texts without a marker

	spelling spelling // how expressions are written
	avoid    string   // a marker that must not be in their texts; "": none
}

func newBuilder() *builder {
	return &builder{
		choices: map[string]*dfa{}, patterns: map[patternKey]*dfa{},
		strings: map[*dfa]*dfa{}, shared: map[*dfa]int32{}, texts: map[[2]int32]int32{}, measured: map[*dfa]*lex{}, lengths: map[countedKey]int32{}, relaxed: map[patternKey]relaxed{}, marked: map[markedKey]*dfa{},
	}
}

func (b *builder) add(n node) int32 {
	if len(b.nodes) >= maxNodes {
		b.full = true
		return 0
	}
	b.nodes = append(b.nodes, n)
	return int32(len(b.nodes) - 1)
}

func (b *builder) seq(list ...int32) int32 { return b.add(node{kind: nodeSeq, list: list}) }

// alt without alternatives matches nothing.
func (b *builder) alt(list ...int32) int32 { return b.add(node{kind: nodeAlt, list: list}) }

func (b *builder) rep(n, least, most int32) int32 {
	return b.add(node{kind: nodeRep, list: []int32{n}, min: least, max: most})
}

func (b *builder) text(least, most int32) int32 {
	if n, ok := b.texts[[2]int32{least, most}]; ok {
		return n
	}
	n := b.add(node{kind: nodeText, min: least, max: most, reach: textReach()})
	b.texts[[2]int32{least, most}] = n
	return n
}

// automaton is a new node for d, or one that matches nothing if d accepts nothing.
func (b *builder) automaton(d *dfa) (int32, error) {
	if n, ok := b.shared[d]; ok {
		return n, nil
	}
	if len(d.accept) == 0 {
		return b.alt(), nil
	}
	l, err := b.newLex(d)
	if err != nil {
		return 0, err
	}
	n := b.add(node{kind: nodeLex, lex: l})
	b.shared[d] = n
	return n, nil
}

// newLex counts the states of an automaton.
func (b *builder) newLex(d *dfa) (*lex, error) {
	if b.states += len(d.accept); b.states > maxStates {
		return nil, errLarge
	}
	return &lex{d, make([]atomic.Pointer[facts], len(d.accept))}, nil
}

// fixed is a node for one of our own expressions.
func (b *builder) fixed(expr string) (int32, error) { return b.automaton(ours()[expr]) }

// choice is a node for one of some texts.
func (b *builder) choice(texts ...string) (int32, error) {
	key := fmt.Sprintf("%q", texts)
	d, ok := b.choices[key]
	if !ok {
		var err error
		if d, err = b.work.choice(texts); err != nil {
			return 0, err
		}
		b.choices[key] = d
	}
	return b.automaton(d)
}

// finish checks the program and removes unsatisfiable nodes, so that every accepted
// prefix can be completed.
func (b *builder) finish(root int32) (*program, error) {
	if b.full {
		return nil, fmt.Errorf("needs more than %d nodes", maxNodes)
	}
	p := &b.program
	p.root = root
	productive := p.productive()
	if !productive[root] {
		return nil, fmt.Errorf("no value satisfies it")
	}
	for i := range p.nodes {
		n := &p.nodes[i]
		switch n.kind {
		case nodeAlt:
			n.list = slices.DeleteFunc(n.list, func(m int32) bool { return !productive[m] })
		case nodeRep:
			if !productive[n.list[0]] {
				n.max = 0
			}
		}
	}
	return p, nil
}

// productive reports the nodes that some finite text satisfies.
func (p *program) productive() []bool {
	ok := make([]bool, len(p.nodes))
	users := make([][]int32, len(p.nodes))
	var todo []int32
	for i := range p.nodes {
		for _, m := range p.nodes[i].list {
			users[m] = append(users[m], int32(i))
		}
		todo = append(todo, int32(i))
	}
	for len(todo) > 0 {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !ok[i] && p.nodes[i].satisfied(ok) {
			ok[i] = true
			todo = append(todo, users[i]...)
		}
	}
	return ok
}

// satisfied reports whether a text satisfies n, given the nodes for which that is known.
func (n *node) satisfied(ok []bool) bool {
	known := func(m int32) bool { return ok[m] }
	switch n.kind {
	case nodeSeq:
		return !slices.ContainsFunc(n.list, func(m int32) bool { return !ok[m] })
	case nodeAlt:
		return slices.ContainsFunc(n.list, known)
	case nodeRep:
		return n.min <= n.max && (n.min == 0 || ok[n.list[0]])
	case nodeText:
		return n.min <= n.max
	default:
		return true
	}
}
