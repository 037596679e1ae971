package jinja

import (
	"sort"
	"strings"
	"unsafe"
)

// origin says who wrote a string: the template, or the source of the variables. Every
// operation on strings carries it along. Where that is not possible byte by byte,
// the result is untrusted unless all of its inputs are the template's.
//
// Only text counts. An untrusted value may decide which of its own texts a template writes, and
// comparisons and keys ignore origins.
type origin uint8

const (
	// The zero value is untrusted: code that does not set an origin trusts nothing.
	_ origin = iota
	// template is a string that the template wrote, or the text of a number, bool or None.
	template
	// mixed is a string of both. Its ref is the *marks of a text that it is part of, and num
	// where in that text it begins: so taking a part of it costs nothing.
	mixed
)

// marks are the ranges of a text, [from, to) in bytes, that the template wrote: in order and
// apart.
type marks struct {
	ranges [][2]int
	near   [3][2]int // room for those of most strings
}

const (
	rangeSize = int(unsafe.Sizeof([2]int{}))
	marksSize = int(unsafe.Sizeof(marks{}))
)

// Trusted returns a string that counts as the template's own, for text that the caller
// vouches for. The strings of [String] and [DecodeJSON] are untrusted.
func Trusted(s string) Value { return Value{kind: KindString, own: template, str: s} }

// like returns s, made of the string v, marked escaped if v is. It is the template's if all
// of v is.
func (v Value) like(s string) Value {
	out := Value{kind: KindString, safe: v.safe, str: s}
	if v.whole() {
		out.own = template
	}
	return out
}

// cut is the part of the string v from byte i to byte j.
func (v Value) cut(i, j int) Value {
	v.str = v.str[i:j]
	if v.own == mixed {
		v.num += uint64(i)
	}
	return v
}

// whole reports whether the template wrote all of v.
func (v Value) whole() bool {
	if v.own != mixed {
		return v.own == template
	}
	rest := v.marked()
	return len(rest) > 0 && rest[0][0] <= int(v.num) && rest[0][1] >= int(v.num)+len(v.str)
}

// marked are the ranges of a mixed string's text from the first on that ends within the
// string or after it.
func (v Value) marked() [][2]int {
	all := v.ref.(*marks).ranges
	return all[sort.Search(len(all), func(i int) bool { return all[i][1] > int(v.num) }):]
}

// buffer is text in the making, with the ranges of it that the template wrote.
type buffer struct {
	text []byte
	own  [][2]int
}

// mark notes that the template wrote text[from:to].
func (b *buffer) mark(from, to int) {
	if from >= to {
		return
	}
	if n := len(b.own); n > 0 && b.own[n-1][1] == from {
		b.own[n-1][1] = to
		return
	}
	b.own = append(b.own, [2]int{from, to})
}

// markLike notes the origin of the string v, which begins at from.
func (b *buffer) markLike(v Value, from int) {
	switch v.own {
	case template:
		b.mark(from, from+len(v.str))
	case mixed:
		base, size := int(v.num), len(v.str)
		for _, r := range v.marked() {
			if r[0] >= base+size {
				break
			}
			b.mark(from+max(r[0]-base, 0), from+min(r[1]-base, size))
		}
	}
}

// write appends str(v): a string itself, nothing for undefined, and the
// representation of anything else. Records of origins count as memory too.
func (r *run) write(b *buffer, v Value) error {
	start, ranges := len(b.text), len(b.own)
	switch v.kind {
	case KindUndefined, kindMissing:
		return nil
	case KindString:
		if err := r.alloc(len(v.str)); err != nil {
			return err
		}
		b.text = append(b.text, v.str...)
		b.markLike(v, start)
	default:
		var err error
		if b.text, err = r.appendRepr(b.text, v); err != nil {
			return err
		}
		if v.own == template {
			b.mark(start, len(b.text))
		}
	}
	return r.alloc(rangeSize * (len(b.own) - ranges))
}

// since returns the output in b from start on as a string, and removes it.
func (b *buffer) since(start int) Value {
	v := Value{kind: KindString, str: string(b.text[start:])}
	b.text = b.text[:start]
	first := len(b.own)
	for first > 0 && b.own[first-1][1] > start {
		first--
	}
	if first == len(b.own) {
		return v
	}
	m := &marks{}
	m.ranges = m.near[:0]
	if n := len(b.own) - first; n > len(m.near) {
		m.ranges = make([][2]int, 0, n)
	}
	for _, r := range b.own[first:] {
		m.ranges = append(m.ranges, [2]int{max(r[0]-start, 0), r[1] - start})
	}
	if b.own[first][0] < start { // it continues the remaining output
		b.own[first][1] = start
		first++
	}
	b.own = b.own[:first]
	if m.ranges[0] == [2]int{0, len(v.str)} {
		v.own = template
		return v
	}
	v.own, v.ref = mixed, m
	return v
}

// finish returns the whole of b as a string. The budget pays for it.
func (r *run) finish(b *buffer) (Value, error) {
	err := r.alloc(len(b.text) + marksSize + rangeSize*len(b.own))
	return b.since(0), err
}

// concat puts strings together. The result is marked escaped if the first is.
func (r *run) concat(parts ...Value) (Value, error) {
	size, own := 0, parts[0].own
	for _, p := range parts {
		if size += len(p.str); p.own != own {
			own = mixed
		}
	}
	if err := r.alloc(size); err != nil {
		return Value{}, err
	}
	var text strings.Builder
	text.Grow(size)
	for _, p := range parts {
		text.WriteString(p.str)
	}
	out := Value{kind: KindString, safe: parts[0].safe, str: text.String()}
	if own != mixed {
		out.own = own
		return out, nil
	}
	m := &marks{}
	all := buffer{own: m.near[:0]}
	at := 0
	for _, p := range parts {
		all.markLike(p, at)
		at += len(p.str)
	}
	if m.ranges = all.own; len(m.ranges) > 0 {
		out.own, out.ref = mixed, m
	}
	return out, r.alloc(marksSize + rangeSize*len(m.ranges))
}
