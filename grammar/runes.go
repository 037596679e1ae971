package grammar

import (
	"encoding/binary"
	"math/bits"
)

// class is a set of characters in an nfa: the nodes from one to another, which lead to a node
// outside of them.
type class struct{ first, last, root, to int32 }

// runes is a node from which each character of a set leads to the node to. A repetition has the
// same set many times: its nodes are copied.
func (t *translation) runes(set []rune, to int32) int32 {
	key := make([]byte, 0, 4*len(set))
	for _, r := range set {
		key = binary.LittleEndian.AppendUint32(key, uint32(r))
	}
	if c, ok := t.classes[string(key)]; ok {
		return t.copied(c, to)
	}
	c := class{first: int32(len(t.nodes)), to: to}
	c.root = t.made(set, to)
	if c.last = int32(len(t.nodes)); t.alone(c) {
		t.classes[string(key)] = c
	}
	return c.root
}

// alone reports whether the nodes of a class lead to each other and to its end only.
func (t *translation) alone(c class) bool {
	for i := c.first; i < c.last; i++ {
		for _, next := range t.nodes[i].to {
			if next != c.to && (next < c.first || next >= c.last) {
				return false
			}
		}
	}
	return c.root >= c.first && c.root < c.last && !t.full
}

// copied is a class again, which leads to another node.
func (t *translation) copied(c class, to int32) int32 {
	move := int32(len(t.nodes)) - c.first
	for i := c.first; i < c.last; i++ {
		node := t.nodes[i]
		from := len(t.ends)
		for _, next := range node.to {
			if next += move; next == c.to+move {
				next = to
			}
			t.ends = append(t.ends, next)
		}
		node.to = t.ends[from:len(t.ends):len(t.ends)]
		t.add(node)
	}
	return c.root + move
}

// made makes the nodes of a set. They are deterministic, and equivalent ones are merged: a
// class of hundreds of ranges has few.
func (t *translation) made(set []rune, to int32) int32 {
	var escapes [2]uint64 // of the characters below 128
	var list []nfaEdgeTo
	if t.spelling == escaped {
		set = t.withoutEscapes(set, &escapes)
	}
	for i := 0; i < len(set) && set[i] < 0x80; i += 2 {
		list = append(list, nfaEdgeTo{byte(set[i]), byte(min(set[i+1], 0x7F)), to})
	}
	if escapes != [2]uint64{} {
		list = append(list, nfaEdgeTo{'\\', '\\', t.escapes(escapes, to)})
	}
	// Characters of two, three and four bytes, by the bits after the first byte.
	for _, size := range []struct {
		lo, hi rune
		bits   int
		first  byte
	}{{0x80, 0x7FF, 6, 0xC0}, {0x800, 0xD7FF, 12, 0xE0}, {0xE000, 0xFFFF, 12, 0xE0}, {0x10000, 0x10FFFF, 18, 0xF0}} {
		for b := size.lo >> size.bits; b <= size.hi>>size.bits; b++ {
			part := within(set, max(size.lo, b<<size.bits), min(size.hi, (b+1)<<size.bits-1), b<<size.bits)
			if len(part) > 0 {
				list = extend(list, size.first|byte(b), t.rest(part, size.bits, to))
			}
		}
	}
	return t.edges(list)
}

// nfaEdgeTo is an edge on its way into a node.
type nfaEdgeTo struct {
	lo, hi byte
	to     int32
}

// extend adds an edge for one byte, or widens the last one.
func extend(list []nfaEdgeTo, b byte, to int32) []nfaEdgeTo {
	if n := len(list); n > 0 && list[n-1].to == to && list[n-1].hi+1 == b {
		list[n-1].hi = b
		return list
	}
	return append(list, nfaEdgeTo{b, b, to})
}

// within is the part of a set from lo to hi, less base.
func within(set []rune, lo, hi, base rune) []rune {
	var part []rune
	for i := 0; i < len(set); i += 2 {
		if set[i] <= hi && lo <= set[i+1] {
			part = append(part, max(lo, set[i])-base, min(hi, set[i+1])-base)
		}
	}
	return part
}

// rest is the node of the last bits of characters, six to a byte.
func (t *translation) rest(set []rune, bits int, to int32) int32 {
	if bits == 0 {
		return to
	}
	key := binary.LittleEndian.AppendUint64([]byte{'r'}, uint64(bits)<<32|uint64(uint32(to)))
	for _, r := range set {
		key = binary.LittleEndian.AppendUint32(key, uint32(r))
	}
	if n, ok := t.nodesOf[string(key)]; ok {
		return n
	}
	var list []nfaEdgeTo
	for b := rune(0); b < 64; b++ {
		base := b << (bits - 6)
		if part := within(set, base, base+1<<(bits-6)-1, base); len(part) > 0 {
			list = extend(list, 0x80|byte(b), t.rest(part, bits-6, to))
		}
	}
	n := t.edges(list)
	t.nodesOf[string(key)] = n
	return n
}

// edges is a node with edges, the same for the same ones.
func (t *translation) edges(list []nfaEdgeTo) int32 {
	key := []byte{'e'}
	for _, e := range list {
		key = binary.LittleEndian.AppendUint32(append(key, e.lo, e.hi), uint32(e.to))
	}
	if n, ok := t.nodesOf[string(key)]; ok {
		return n
	}
	targets := make([]int32, len(list))
	for i, e := range list {
		targets[i] = t.edge(e.lo, e.hi, e.to)
	}
	n := t.split(targets...)
	if len(list) == 1 {
		n = targets[0]
	}
	if len(list) > 0 && list[0].lo >= 0x80 {
		t.nodesOf[string(key)] = n
	}
	return n
}

// withoutEscapes removes the characters that JSON escapes from a set, and records them.
func (t *translation) withoutEscapes(set []rune, escapes *[2]uint64) []rune {
	var out []rune
	for i := 0; i < len(set); i += 2 {
		lo, hi := set[i], set[i+1]
		for r := lo; r <= min(hi, '\\'); r++ {
			if mustEscape(r) {
				escapes[r/64] |= 1 << (r % 64)
				if lo < r {
					out = append(out, lo, r-1)
				}
				lo = r + 1
			}
		}
		if lo <= hi {
			out = append(out, lo, hi)
		}
	}
	return out
}

// escapes is the node behind the backslash of some characters.
func (t *translation) escapes(set [2]uint64, to int32) int32 {
	n := t.split()
	var digits [2]int32 // nodes of the last digit, by the one before
	for w, word := range set {
		for ; word != 0; word &= word - 1 {
			text := escape(rune(64*w + bits.TrailingZeros64(word)))
			if len(text) == 2 {
				t.patch(n, t.edge(text[1], text[1], to))
				continue
			}
			i := text[4] - '0'
			if digits[i] == 0 {
				digits[i] = t.split()
			}
			t.patch(digits[i], t.edge(text[5], text[5], to))
		}
	}
	last := t.split()
	for i, d := range digits {
		if d != 0 {
			t.patch(last, t.edge('0'+byte(i), '0'+byte(i), d))
		}
	}
	if digits != [2]int32{} {
		t.patch(n, t.text("u00", last))
	}
	return n
}
