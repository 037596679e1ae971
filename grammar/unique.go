package grammar

import (
	"fmt"
	"math/bits"
)

// maxSets bounds the sets of items that an array without equal ones may have so far.
const maxSets = 1 << 12

func (s *shape) readUnique(v *value) error {
	if v.kind != boolean {
		return v.errorf("is %s, want a boolean", kindNames[v.kind])
	}
	if v.text == "true" {
		s.unique, s.constrained = v, true
	}
	return nil
}

// uniqueArray is the node of arrays without equal items, if the items have few
// values: each set of items so far has its own nodes.
func (c *compiler) uniqueArray(s *shape, m marks) (int32, error) {
	u := uniqueItems{compiler: c, s: s, m: m, bits: map[string]int{}, rests: map[uint64]int32{}}
	some, err := u.some(0)
	if err != nil {
		return 0, err
	}
	body := []int32{some}
	if s.items.least == 0 {
		body = append(body, m.empty)
	}
	return c.seq(m.open, c.alt(body...)), nil
}

// uniqueItems builds the arrays of a shape without equal items. Items are numbered in the order of
// occurrence, and a set of them is its bits; without duplicates, their number is the length.
type uniqueItems struct {
	*compiler
	s      *shape
	m      marks
	bits   map[string]int   // by equality of values
	places []map[int]int32  // nodes of the values of a place
	rests  map[uint64]int32 // nodes after a set
}

// some is one more item and all that follows, behind a set of items.
func (u *uniqueItems) some(set uint64) (int32, error) {
	place := bits.OnesCount64(set)
	for len(u.places) <= place {
		values, err := u.place(int32(len(u.places)))
		if err != nil {
			return 0, err
		}
		u.places = append(u.places, values)
	}
	n := u.alt()
	for bit := range len(u.bits) {
		item, ok := u.places[place][bit]
		if !ok || set>>bit&1 != 0 {
			continue
		}
		rest, err := u.rest(set | 1<<bit)
		if err != nil {
			return 0, err
		}
		u.nodes[n].list = append(u.nodes[n].list, u.seq(item, rest))
	}
	return n, nil
}

// rest is the node after a set of items.
func (u *uniqueItems) rest(set uint64) (int32, error) {
	if n, ok := u.rests[set]; ok {
		return n, nil
	}
	if len(u.rests) == maxSets {
		return 0, u.s.unique.errorf("uniqueItems is not supported for more than %d sets of items; leave it out, set maxItems, or use an object of booleans", maxSets)
	}
	n := u.alt()
	u.rests[set] = n
	count := int32(bits.OnesCount64(set))
	if count >= u.s.items.least {
		u.nodes[n].list = append(u.nodes[n].list, u.m.close)
	}
	if count < u.s.items.most {
		some, err := u.some(set)
		if err != nil {
			return 0, err
		}
		u.nodes[n].list = append(u.nodes[n].list, u.seq(u.m.comma, some))
	}
	return n, nil
}

// place is the nodes of the values that may be item i, by their bits.
func (u *uniqueItems) place(i int32) (map[int]int32, error) {
	shapes, err := u.shapes(u.s.item(i))
	if err != nil {
		return nil, err
	}
	texts := map[int][]string{}
	for _, s := range shapes {
		values, ok := s.values()
		if !ok {
			return nil, u.s.unique.errorf("uniqueItems is supported only for items of few values, such as enum, const and booleans; leave it out, or set maxItems to 1")
		}
		for _, v := range values {
			fits, err := u.fits(s, v, false)
			if err != nil {
				return nil, err
			}
			if !fits {
				continue
			}
			key, err := v.identity()
			if err != nil {
				return nil, err
			}
			bit, ok := u.bits[key]
			if !ok {
				bit = len(u.bits)
				u.bits[key] = bit
			}
			texts[bit] = append(texts[bit], u.written(v))
		}
	}
	if len(u.bits) > 64 {
		return nil, u.s.unique.errorf("uniqueItems is not supported for items of more than 64 values; leave it out")
	}
	nodes := map[int]int32{}
	for bit, list := range texts {
		if nodes[bit], err = u.choice(list...); err != nil {
			return nil, u.s.errorf("%w", err)
		}
	}
	return nodes, nil
}

// values lists the values of a shape if they are few and neither arrays nor objects.
func (s *shape) values() ([]*value, bool) {
	if s.enum != nil {
		for _, v := range s.enum {
			if v.kind == array || v.kind == object {
				return nil, false
			}
		}
		return s.enum, true
	}
	var list []*value
	if s.types&typeNull != 0 {
		list = append(list, &value{kind: null, text: "null"})
	}
	if s.types&typeBoolean != 0 {
		list = append(list, &value{kind: boolean, text: "true"}, &value{kind: boolean, text: "false"})
	}
	return list, s.types&^(typeNull|typeBoolean) == 0
}

// identity is the same for equal values that are neither arrays nor objects, and only for these.
func (v *value) identity() (string, error) {
	if v.kind != number {
		return v.canonical(), nil
	}
	b, err := parseBound(v.text, false)
	if err != nil {
		return "", v.errorf("%w", err)
	}
	return fmt.Sprintf("%t %s.%s", b.negative, b.whole, b.fraction), nil
}
