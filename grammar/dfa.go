package grammar

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
)

// Limits on the size of one grammar. They keep the memory of a hostile one to some
// tens of megabytes and its compilation to about a second.
const (
	maxStates = 1 << 15 // states of all automata together
	maxWork   = 1 << 23 // steps to make them
	maxNodes  = 1 << 17 // nodes of the program, or of one nondeterministic automaton
)

var errLarge = errors.New("needs more than 32768 automaton states, or too much time to compile; shorten lists and repetitions")

// work counts the steps made for the automata of one grammar.
type work struct {
	steps int
	vain  int             // steps of failed parts of Prefer
	ctx   context.Context // of the caller; nil: never canceled
}

// spend adds steps. It fails if they exceed maxWork or if the caller's context has ended.
func (w *work) spend(steps int) error {
	if w.ctx != nil && w.ctx.Err() != nil {
		return w.ctx.Err()
	}
	if w.steps += steps; w.steps > maxWork {
		return errLarge
	}
	return nil
}

// dfa recognizes a regular language of bytes, and does not change. State 0 is the start, and from every state a
// text that is accepted can be reached. An empty language has no states.
type dfa struct {
	class  [256]uint8
	starts []int32 // the first byte of each class, and 256; a class is bytes in a row
	width  int32   // how many classes
	next   []int32 // [state, class]; -1: none
	accept []bool
	leaf   []bool // no byte can follow
	// meter is nil if nothing is counted.
	meter *meter
	// loops gives for each state the kinds of characters that lead back to it. Large parts
	// of a vocabulary then need no walk.
	loops []kinds
}

// kinds is a set of kinds of characters, as expressions distinguish them.
type kinds uint16

const (
	kindLower kinds = 1 << iota
	kindUpper
	kindDigit
	kindBlank
	kindDot
	kindDash
	kindLow // the underscore
	kindAt
	kindColon
	kindSlash
	kindComma
	kindOther // other marks of ASCII, and DEL
	kindWide  // outside of ASCII
	kindNone  // no character that may be in a JSON string unescaped, or a part of one
)

// kindOf is the kind of each byte of a whole character.
var kindOf = func() (table [256]kinds) {
	single := map[byte]kinds{' ': kindBlank, '.': kindDot, '-': kindDash, '_': kindLow, '@': kindAt, ':': kindColon, '/': kindSlash, ',': kindComma}
	for i := range table {
		switch b := byte(i); {
		case b >= 0x80:
			table[b] = kindWide
		case mustEscape(rune(b)):
			table[b] = kindNone
		case 'a' <= b && b <= 'z':
			table[b] = kindLower
		case 'A' <= b && b <= 'Z':
			table[b] = kindUpper
		case '0' <= b && b <= '9':
			table[b] = kindDigit
		case single[b] != 0:
			table[b] = single[b]
		default:
			table[b] = kindOther
		}
	}
	return table
}()

// step is the state after one byte, -1 if there is none.
func (d *dfa) step(s int32, b byte) int32 {
	return d.next[s*d.width+int32(d.class[b])]
}

// matches reports whether the whole text is in the language.
func (d *dfa) matches(text string) bool {
	if len(d.accept) == 0 {
		return false
	}
	s := int32(0)
	for i := range len(text) {
		if s = d.step(s, text[i]); s < 0 {
			return false
		}
	}
	return d.accept[s]
}

// classes numbers the bytes so that bytes with the same number behave alike.
func (d *dfa) classes(starts *[256]bool) {
	for b := range 256 {
		if b == 0 || starts[b] {
			d.starts = append(d.starts, int32(b))
		}
		d.class[b] = uint8(len(d.starts) - 1)
	}
	d.width = int32(len(d.starts))
	d.starts = append(d.starts, 256)
}

// trim removes the states from which nothing is accepted. It keeps the order of the rest.
func (d *dfa) trim() *dfa {
	alive, dead := d.alive(), 0
	number := make([]int32, len(alive))
	for s, ok := range alive {
		if number[s] = int32(s - dead); !ok {
			number[s] = -1
			dead++
		}
	}
	if dead > 0 {
		t := &dfa{class: d.class, starts: d.starts, width: d.width}
		if alive[0] {
			t.next, t.accept = make([]int32, 0, (len(alive)-dead)*int(d.width)), make([]bool, 0, len(alive)-dead)
			for s := range alive {
				if !alive[s] {
					continue
				}
				for _, to := range d.row(int32(s)) {
					if to >= 0 {
						to = number[to]
					}
					t.next = append(t.next, to)
				}
				t.accept = append(t.accept, d.accept[s])
			}
		}
		d = t
	}
	d.leaf = make([]bool, len(d.accept))
	for s := range d.leaf {
		d.leaf[s] = !slices.ContainsFunc(d.row(int32(s)), func(to int32) bool { return to >= 0 })
	}
	d.findLoops()
	return d
}

// before lists the predecessors of each state: those of s are list[first[s]:first[s+1]].
// A state may be there several times.
func (d *dfa) before() (first, list []int32) {
	n := len(d.accept)
	each := func(visit func(from, to int32)) {
		for s := range int32(n) {
			last := int32(-1) // classes in a row often lead to the same state
			for _, to := range d.row(s) {
				if to >= 0 && to != last {
					visit(s, to)
				}
				last = to
			}
		}
	}
	first = make([]int32, n+2)
	each(func(_, to int32) { first[to+2]++ })
	for s := range n {
		first[s+2] += first[s+1]
	}
	list = make([]int32, first[n+1])
	each(func(from, to int32) {
		list[first[to+1]] = from
		first[to+1]++
	})
	return first, list
}

// accepting lists the states in which a text may end.
func (d *dfa) accepting() []int32 {
	var list []int32
	for s, ok := range d.accept {
		if ok {
			list = append(list, int32(s))
		}
	}
	return list
}

// alive reports the states from which some text is accepted.
func (d *dfa) alive() []bool {
	first, before := d.before()
	alive, todo := slices.Clone(d.accept), d.accepting()
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, p := range before[first[s]:first[s+1]] {
			if !alive[p] {
				alive[p] = true
				todo = append(todo, p)
			}
		}
	}
	return alive
}

// bytes is the memory of the automaton, about.
func (d *dfa) bytes() int { return 4*len(d.next) + 4*len(d.accept) + 1<<9 }

// row is the transitions of one state.
func (d *dfa) row(s int32) []int32 { return d.next[s*d.width : (s+1)*d.width] }

// combine is the automaton of the texts for which accept returns true, given which of the
// automata accept them. accept must be false if none accepts.
func (w *work) combine(list []*dfa, accept func(each []bool) bool) (*dfa, error) {
	d := &dfa{}
	var starts [256]bool
	for b := 1; b < 256; b++ {
		for _, part := range list {
			starts[b] = starts[b] || part.class[b] != part.class[b-1]
		}
	}
	d.classes(&starts)
	var (
		states []int32 // one state of each automaton, for each state
		index  = map[string]int32{}
		key    []byte
		each   = make([]bool, len(list))
		hope   = hopes(len(list), accept)
	)
	number := func(state []int32) int32 {
		key = key[:0]
		alive := 0
		for i, s := range state {
			key = binary.LittleEndian.AppendUint32(key, uint32(s))
			each[i] = s >= 0 && list[i].accept[s]
			if s >= 0 {
				alive |= 1 << min(i, 62)
			}
		}
		if !hope(alive) {
			return -1
		}
		if id, ok := index[string(key)]; ok {
			return id
		}
		id := int32(len(d.accept))
		index[string(key)] = id
		states = append(states, state...)
		d.accept = append(d.accept, accept(each))
		return id
	}
	to := make([]int32, len(list))
	for i, part := range list {
		if len(part.accept) == 0 {
			to[i] = -1
		}
	}
	number(to)
	for i := 0; i < len(d.accept); i++ { // the list grows
		if len(d.accept) > maxStates {
			return nil, errLarge
		}
		if err := w.spend(int(d.width) * len(list)); err != nil {
			return nil, err
		}
		for c := range d.width {
			for j, s := range states[i*len(list) : (i+1)*len(list)] {
				to[j] = -1
				if s >= 0 {
					to[j] = list[j].step(s, byte(d.starts[c]))
				}
			}
			d.next = append(d.next, number(to))
		}
	}
	return d.trim(), nil
}

// hopes reports for a set of automata, as bits, whether accept may be true if no other one accepts.
func hopes(n int, accept func(each []bool) bool) func(alive int) bool {
	if n > 8 {
		return func(alive int) bool { return alive != 0 }
	}
	known := make([]int8, 1<<n) // 1 for yes, -1 for no
	each := make([]bool, n)
	return func(alive int) bool {
		if known[alive] == 0 {
			known[alive] = -1
			for set := range alive + 1 {
				if set&^alive != 0 {
					continue
				}
				for i := range each {
					each[i] = set>>i&1 != 0
				}
				if accept(each) {
					known[alive] = 1
					break
				}
			}
		}
		return known[alive] > 0
	}
}

// all is the condition of an intersection.
func all(each []bool) bool {
	for _, ok := range each {
		if !ok {
			return false
		}
	}
	return true
}

// findLoops fills in which kinds lead back to each state.
func (d *dfa) findLoops() {
	d.loops = make([]kinds, len(d.accept))
	of := make([]kinds, d.width) // the kinds of each class
	for b := range 0x80 {
		of[d.class[b]] |= kindOf[b]
	}
	for s := range int32(len(d.accept)) {
		back := kindNone - 1
		for k, to := range d.row(s) {
			if to != s {
				back &^= of[k]
			}
		}
		if !d.returns(s, s, 0xC2, 0xDF, 1) || !d.returns(s, s, 0xE0, 0xEF, 2) || !d.returns(s, s, 0xF0, 0xF4, 3) {
			back &^= kindWide
		}
		d.loops[s] = back
	}
}

// returns reports whether each character whose next byte is from lo to hi, with more bytes
// after it, leads from state at to s.
func (d *dfa) returns(s, at int32, lo, hi byte, more int) bool {
	for b := int(lo); b <= int(hi); b++ {
		// Bytes of a class behave alike, except that the bytes after E0, ED, F0 and F4 have other
		// limits.
		if b > int(lo) && d.class[b] == d.class[b-1] && b != 0xE1 && b != 0xED && b != 0xEE && b != 0xF1 && b != 0xF4 {
			continue
		}
		next := d.step(at, byte(b))
		if next < 0 || more == 0 && next != s {
			return false
		}
		first, last := byte(0x80), byte(0xBF)
		switch b {
		case 0xE0:
			first = 0xA0
		case 0xED:
			last = 0x9F
		case 0xF0:
			first = 0x90
		case 0xF4:
			last = 0x8F
		}
		if more > 0 && !d.returns(s, next, first, last, more-1) {
			return false
		}
	}
	return true
}
