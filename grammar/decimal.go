package grammar

import (
	"fmt"
	"strconv"
	"strings"
)

// maxDigits is the maximum number of digits of a bound.
const maxDigits = 64

// bound is one end of a range of numbers, as its decimal digits.
type bound struct {
	negative  bool
	whole     string // at least one digit, no zeros before others
	fraction  string // no zeros at the end
	exclusive bool
}

// parseBound reads a JSON number exactly.
func parseBound(text string, exclusive bool) (*bound, error) {
	b := &bound{exclusive: exclusive}
	mantissa, power, hasPower := strings.Cut(strings.ToLower(text), "e")
	exponent := 0
	if hasPower {
		var err error
		if exponent, err = strconv.Atoi(power); err != nil || exponent < -maxDigits || exponent > maxDigits {
			return nil, fmt.Errorf("the exponent of %s is out of range, want -%d to %d", text, maxDigits, maxDigits)
		}
	}
	mantissa, b.negative = strings.CutPrefix(mantissa, "-")
	before, after, _ := strings.Cut(mantissa, ".")
	digits := before + after
	point := len(before) + exponent
	if point < 0 {
		digits, point = strings.Repeat("0", -point)+digits, 0
	}
	if point > len(digits) {
		digits += strings.Repeat("0", point-len(digits))
	}
	b.whole = strings.TrimLeft(digits[:point], "0")
	b.fraction = strings.TrimRight(digits[point:], "0")
	if len(b.whole)+len(b.fraction) > maxDigits {
		return nil, fmt.Errorf("%.20s... has more than %d digits", text, maxDigits)
	}
	if b.whole == "" {
		b.whole = "0"
		b.negative = b.negative && b.fraction != ""
	}
	return b, nil
}

// compare orders the numbers of two bounds.
func (b *bound) compare(c *bound) int {
	if b.negative != c.negative {
		if b.negative {
			return -1
		}
		return 1
	}
	x := len(b.whole) - len(c.whole)
	if x == 0 {
		x = strings.Compare(b.whole, c.whole)
	}
	if x == 0 {
		x = strings.Compare(b.fraction, c.fraction)
	}
	if b.negative {
		return -x
	}
	return x
}

// tighter is the one of two bounds, each of which may be missing, that leaves less: the
// greater of lower ones (sign 1), the lesser of upper ones (sign -1).
func tighter(b, c *bound, sign int) *bound {
	if b == nil {
		return c
	}
	if c == nil {
		return b
	}
	x := sign * b.compare(c)
	if x < 0 || x == 0 && c.exclusive {
		return c
	}
	return b
}

// within reports whether a number lies between two bounds, each of which may be nil.
func (b *bound) within(lo, hi *bound) bool {
	if lo != nil {
		if x := b.compare(lo); x < 0 || x == 0 && lo.exclusive {
			return false
		}
	}
	if hi != nil {
		if x := b.compare(hi); x > 0 || x == 0 && hi.exclusive {
			return false
		}
	}
	return true
}

// between reports whether there may be a number from lo to hi, each of which may be missing.
func between(lo, hi *bound) bool {
	if lo == nil || hi == nil {
		return true
	}
	x := lo.compare(hi)
	return x < 0 || x == 0 && !lo.exclusive && !hi.exclusive
}

// numbers is the automaton of the JSON numbers from lo to hi, either of which may be
// nil. Integers have neither fraction nor exponent; other numbers have an exponent only
// without bounds, because it could not be compared digit by digit.
func (w *work) numbers(lo, hi *bound, integer bool) (*dfa, error) {
	var n nfa
	end := n.match()
	if lo == nil && hi == nil && !integer {
		digits := n.split(end)
		digit := n.edge('0', '9', digits)
		n.patch(digits, digit)
		sign := n.split(digit, n.edge('+', '+', digit), n.edge('-', '-', digit))
		end = n.split(end, n.edge('e', 'e', sign), n.edge('E', 'E', sign))
	}
	start := n.split()
	zero := &bound{whole: "0"}
	if hi == nil || !hi.negative {
		d := decimals{nfa: &n, lo: zero, hi: hi, integer: integer, end: end}
		if lo != nil && !lo.negative {
			d.lo = lo
		}
		n.patch(start, d.start())
	}
	if lo == nil || lo.negative {
		d := decimals{nfa: &n, lo: zero, hi: lo, integer: integer, end: end}
		if hi != nil && (hi.negative || hi.exclusive && hi.compare(zero) == 0) {
			d.lo = hi
		}
		n.patch(start, n.edge('-', '-', d.start()))
	}
	return n.dfa(w, start)
}

// decimals builds the numbers from lo to hi, signs left aside. hi may be missing.
type decimals struct {
	*nfa
	lo, hi  *bound
	integer bool
	end     int32
	made    map[decimalState]int32
}

// decimalState is a position in a number: the length of its whole part, the number of digits so far
// or, behind the point, of the fraction, and whether they all equal
// those of a bound so far.
type decimalState struct {
	length, at int
	point      bool
	low, high  bool
}

func (d *decimals) start() int32 {
	d.made = map[decimalState]int32{}
	n := d.split()
	for length := len(d.lo.whole); d.hi == nil || length <= len(d.hi.whole); length++ {
		if d.hi == nil && length > len(d.lo.whole) {
			// Any number this long is above lo; it may be longer still.
			more := d.split(d.fractionStart(decimalState{length: length}))
			d.patch(more, d.edge('0', '9', more))
			for range length - 1 {
				more = d.edge('0', '9', more)
			}
			d.patch(n, d.edge('1', '9', more))
			break
		}
		d.patch(n, d.digits(decimalState{
			length: length, low: length == len(d.lo.whole), high: d.hi != nil && length == len(d.hi.whole),
		}))
	}
	return n
}

// digits is the rest of a number from a state in its whole part.
func (d *decimals) digits(s decimalState) int32 {
	if s.at == s.length {
		return d.fractionStart(decimalState{length: s.length, low: s.low, high: s.high})
	}
	if n, ok := d.made[s]; ok {
		return n
	}
	n := d.split()
	d.made[s] = n
	first, last := byte('0'), byte('9')
	if s.at == 0 && s.length > 1 {
		first = '1'
	}
	if s.low {
		first = d.lo.whole[s.at]
	}
	if s.high {
		last = d.hi.whole[s.at]
	}
	d.branch(n, s, first, last, d.digits)
	return n
}

// fractionStart is the rest of a number behind its whole part.
func (d *decimals) fractionStart(s decimalState) int32 {
	n := d.split()
	if d.mayEnd(s) {
		d.patch(n, d.end)
	}
	if !d.integer {
		s.point = true
		first := d.split()
		d.fractionDigit(first, s)
		d.patch(n, d.edge('.', '.', first))
	}
	return n
}

// fraction is the rest of a number behind at least one digit of its fraction.
func (d *decimals) fraction(s decimalState) int32 {
	// Behind the digits of both bounds nothing changes any more.
	most := len(d.lo.fraction)
	if d.hi != nil {
		most = max(most, len(d.hi.fraction))
	}
	s.at = min(s.at, most)
	if n, ok := d.made[s]; ok {
		return n
	}
	n := d.split()
	d.made[s] = n
	if d.mayEnd(s) {
		d.patch(n, d.end)
	}
	d.fractionDigit(n, s)
	return n
}

// fractionDigit lets one more digit of the fraction follow node n.
func (d *decimals) fractionDigit(n int32, s decimalState) {
	first, last := byte('0'), byte('9')
	if s.low && s.at < len(d.lo.fraction) {
		first = d.lo.fraction[s.at]
	}
	if s.high {
		last = '0'
		if s.at < len(d.hi.fraction) {
			last = d.hi.fraction[s.at]
		}
	}
	d.branch(n, s, first, last, d.fraction)
}

// branch lets the digits from first to last follow node n; the outer digits stay equal
// to the bounds.
func (d *decimals) branch(n int32, s decimalState, first, last byte, rest func(decimalState) int32) {
	next := s
	next.at++
	for digit := first; digit <= last; digit++ {
		next.low, next.high = s.low && digit == first, s.high && digit == last
		d.patch(n, d.edge(digit, digit, rest(next)))
	}
}

// mayEnd reports whether the digits so far are a number inside the bounds.
func (d *decimals) mayEnd(s decimalState) bool {
	at := 0
	if s.point {
		at = s.at
	}
	if s.low && (at < len(d.lo.fraction) || d.lo.exclusive) {
		return false
	}
	return !s.high || !d.hi.exclusive || at < len(d.hi.fraction)
}
