package grammar

import (
	"math/big"
	"strconv"
	"strings"
)

// maxMultiple bounds the states of the numbers that are multiples of one.
const maxMultiple = 1 << 11

// multiple is a divisor of numbers: digits, places of them
// behind the point.
type multiple struct {
	digits, places int
	not            bool // or must not be
}

func (s *shape) readMultiple(v *value) error {
	if v.kind != number {
		return v.errorf("is %s, want a number", kindNames[v.kind])
	}
	b, err := parseBound(v.text, false)
	if err != nil {
		return v.errorf("%w", err)
	}
	if b.negative || b.whole+b.fraction == "0" {
		return v.errorf("is %.40s, want a number above 0", v.text)
	}
	digits, err := strconv.Atoi(b.whole + b.fraction)
	if err != nil || digits*(len(b.fraction)+1) > maxMultiple {
		return v.errorf("multipleOf %.40s needs too many digits; use a number of at most %d, or with fewer decimals", v.text, maxMultiple)
	}
	s.multiples = append(s.multiples, multiple{digits: digits, places: len(b.fraction)})
	return nil
}

func (s *shape) readNotMultiple(v *value) error {
	err := s.readMultiple(v)
	if err == nil {
		s.multiples[len(s.multiples)-1].not = true
	}
	return err
}

// divides reports whether a number is a multiple.
func (m multiple) divides(x *bound) bool {
	scaled := func(text string, zeros int) *big.Int {
		n, _ := new(big.Int).SetString(text+strings.Repeat("0", zeros), 10)
		return n
	}
	n := scaled(x.whole+x.fraction, m.places)
	return n.Mod(n, scaled(strconv.Itoa(m.digits), len(x.fraction))).Sign() == 0
}

// multiples is the automaton of the digits whose number is a multiple of m. It accepts any
// notation without exponents.
func (w *work) multiples(m multiple) (*dfa, error) {
	var n nfa
	end := n.match()
	// fraction[i][r] follows i digits behind the point, whole[r] digits before it; all digits
	// together leave the remainder r. Behind the places of m there are only zeros.
	fraction := make([][]int32, m.places+1)
	for i := range fraction {
		fraction[i] = n.splits(m.digits)
	}
	whole := n.splits(m.digits)
	unit := 1 // of the last digit
	for i := m.places; i >= 0; i-- {
		for r, node := range fraction[i] {
			if r*unit%m.digits == 0 {
				n.patch(node, end)
			}
			if i < m.places {
				n.digits(node, r, fraction[i+1])
			} else {
				n.patch(node, n.edge('0', '0', node))
			}
		}
		if i > 0 {
			unit = unit * 10 % m.digits
		}
	}
	for r, node := range whole {
		if r*unit%m.digits == 0 {
			n.patch(node, end)
		}
		n.patch(node, n.edge('.', '.', fraction[0][r]))
		n.digits(node, r, whole)
	}
	return n.dfa(w, n.split(whole[0], n.edge('-', '-', whole[0])))
}

// splits makes some nodes.
func (n *nfa) splits(count int) []int32 {
	list := make([]int32, count)
	for i := range list {
		list[i] = n.split()
	}
	return list
}

// digits lets a digit follow a node where the remainder is r; to has the nodes by remainder.
func (n *nfa) digits(node int32, r int, to []int32) {
	for d := range 10 {
		n.patch(node, n.edge('0'+byte(d), '0'+byte(d), to[(10*r+d)%len(to)]))
	}
}
