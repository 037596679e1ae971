package ptx

import (
	"math"
	"math/bits"
)

type unsigned interface{ ~uint32 | ~uint64 }

// each2 and each3 apply a function of numbers to vectors, for rare operations.
func each2[T unsigned](f func(a, b T) T) func(d, a, b, c *[lanes]T) {
	return func(d, a, b, _ *[lanes]T) {
		for i := range d {
			d[i] = f(a[i], b[i])
		}
	}
}

func each3[T unsigned](f func(a, b, c T) T) func(d, a, b, c *[lanes]T) {
	return func(d, a, b, c *[lanes]T) {
		for i := range d {
			d[i] = f(a[i], b[i], c[i])
		}
	}
}

func copyInt[T unsigned](d, a, _, _ *[lanes]T) { *d = *a }

func addInt[T unsigned](d, a, b, _ *[lanes]T) {
	for i := range d {
		d[i] = a[i] + b[i]
	}
}

func subInt[T unsigned](d, a, b, _ *[lanes]T) {
	for i := range d {
		d[i] = a[i] - b[i]
	}
}

func mulInt[T unsigned](d, a, b, _ *[lanes]T) {
	for i := range d {
		d[i] = a[i] * b[i]
	}
}

func madInt[T unsigned](d, a, b, c *[lanes]T) {
	for i := range d {
		d[i] = a[i]*b[i] + c[i]
	}
}

func andInt[T unsigned](d, a, b, _ *[lanes]T) {
	for i := range d {
		d[i] = a[i] & b[i]
	}
}

func orInt[T unsigned](d, a, b, _ *[lanes]T) {
	for i := range d {
		d[i] = a[i] | b[i]
	}
}

func xorInt[T unsigned](d, a, b, _ *[lanes]T) {
	for i := range d {
		d[i] = a[i] ^ b[i]
	}
}

func notInt[T unsigned](d, a, _, _ *[lanes]T) {
	for i := range d {
		d[i] = ^a[i]
	}
}

// A shift by the width or more leaves nothing, or the sign, as with Go's operators.
func shlInt[T unsigned](d, a, b, _ *[lanes]T) {
	for i := range d {
		d[i] = a[i] << b[i]
	}
}

func shrInt[T unsigned](d, a, b, _ *[lanes]T) {
	for i := range d {
		d[i] = a[i] >> b[i]
	}
}

func shrS32(d, a, b, _ *v32) {
	for i := range d {
		d[i] = uint32(int32(a[i]) >> b[i])
	}
}

func shrS64(d, a, b, _ *v64) {
	for i := range d {
		d[i] = uint64(int64(a[i]) >> b[i])
	}
}

func wideProduct(signed bool) func(d *v64, a, b *v32, _ *v64) {
	return func(d *v64, a, b *v32, _ *v64) {
		for i := range d {
			if d[i] = uint64(a[i]) * uint64(b[i]); signed {
				d[i] = uint64(int64(int32(a[i])) * int64(int32(b[i])))
			}
		}
	}
}

func high32(signed bool) func(a, b uint32) uint32 {
	if signed {
		return func(a, b uint32) uint32 { return uint32(int64(int32(a)) * int64(int32(b)) >> 32) }
	}
	return func(a, b uint32) uint32 { return uint32(uint64(a) * uint64(b) >> 32) }
}

func high64(signed bool) func(a, b uint64) uint64 {
	return func(a, b uint64) uint64 {
		h, _ := bits.Mul64(a, b)
		if signed { // corrects the unsigned product of negative factors
			h -= uint64(int64(a)>>63)&b + uint64(int64(b)>>63)&a
		}
		return h
	}
}

// extend reads the low bits of x as a number of type t.
func extend(t typ, x uint64) uint64 {
	by := 64 - t.bits()
	if t.signed() {
		return uint64(int64(x<<by) >> by)
	}
	return x << by >> by
}

// quotient is a/b, or its rest. By zero the manual promises nothing; hardware has all ones.
func quotient(t typ, rest bool) func(a, b uint64) uint64 {
	return func(a, b uint64) uint64 {
		a, b = extend(t, a), extend(t, b)
		switch {
		case b == 0:
			return math.MaxUint64
		case t.signed() && rest:
			return uint64(int64(a) % int64(b))
		case t.signed():
			return uint64(int64(a) / int64(b))
		case rest:
			return a % b
		}
		return a / b
	}
}

func extremeOf(t typ, most bool) func(a, b uint64) uint64 {
	if t.float() {
		return extremeFloat(t, most)
	}
	signed := t.signed()
	return func(a, b uint64) uint64 {
		a, b = extend(t, a), extend(t, b)
		less := a < b
		if signed {
			less = int64(a) < int64(b)
		}
		if less == most {
			return b
		}
		return a
	}
}

func unaryOf(t typ, abs bool) func(a uint64) uint64 {
	sign := uint64(1) << (t.bits() - 1)
	switch {
	case t.float():
		return func(a uint64) uint64 {
			if notNumber(t, a) { // it keeps its sign
				return canonical(t, a)
			}
			if abs {
				return a &^ sign
			}
			return a ^ sign
		}
	case abs:
		return func(a uint64) uint64 {
			if a&sign != 0 {
				return -a
			}
			return a
		}
	}
	return func(a uint64) uint64 { return -a }
}

// permute picks four of eight bytes; a selector with the eighth bit copies the byte's sign.
func permute(a, b, selector uint32) uint32 {
	all := uint64(b)<<32 | uint64(a)
	if selector&0x8888 == 0 {
		return uint32(all>>(selector&7*8))&255 | uint32(all>>(selector>>4&7*8))&255<<8 |
			uint32(all>>(selector>>8&7*8))&255<<16 | uint32(all>>(selector>>12&7*8))<<24
	}
	var out uint32
	for i := range 4 {
		s := selector >> (4 * i) & 15
		v := uint32(all>>(8*(s&7))) & 255
		if s&8 != 0 {
			v = uint32(int32(int8(v))>>7) & 255
		}
		out |= v << (8 * i)
	}
	return out
}
