package dtype

import "math"

// FromF16 widens an IEEE half. It is exact; a NaN keeps its sign and payload.
func FromF16(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	u := uint32(h&0x7fff) << 13
	switch {
	case u >= 0x0f800000: // infinity and NaN: all exponent bits set
		u += 0x70000000
	case u < 0x00800000: // subnormal: let one exact subtraction normalize it
		u = math.Float32bits(math.Float32frombits(u+0x38800000) - 0x1p-14)
	default:
		u += 0x38000000
	}
	return math.Float32frombits(sign | u)
}

// ToF16 rounds to the nearest half, ties to even; overflow becomes
// infinity. A NaN stays a (quiet) NaN.
func ToF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b>>16) & 0x8000
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00 | uint16(b>>13)&0x1ff
	case b >= 0x477ff000: // 65520 and above round past the largest half
		return sign | 0x7c00
	case b < 0x38800000: // below 2^-14: 0.5 has the unit of a subnormal half, 2^-24
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-0x3f000000)
	}
	b += 0xfff + b>>13&1
	return sign | uint16((b-0x38000000)>>13)
}

// FromBF16 widens a bfloat16. It is exact, NaN payloads included.
func FromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// ToBF16 rounds to the nearest bfloat16, ties to even; overflow
// becomes infinity. A NaN stays a (quiet) NaN.
func ToBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// FromE4M3 widens an 8-bit float with 4 exponent bits (bias 7) and 3 of mantissa.
// It is exact. There are no infinities; 0x7f and 0xff are NaN.
func FromE4M3(b uint8) float32 { return e4m3[b] }

// ToE4M3 rounds to the nearest E4M3, ties to even. The format has no infinity:
// values beyond ±448 become ±448. NaN becomes NaN.
func ToE4M3(f float32) uint8 {
	b := math.Float32bits(f)
	sign := uint8(b >> 24 & 0x80)
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7f
	case b < 0x3c800000: // below 2^-6: 2^14 has the unit of a subnormal, 2^-9
		return sign | uint8(math.Float32bits(math.Float32frombits(b)+0x1p14)-0x46800000)
	}
	b += 0x7ffff + b>>20&1
	return sign | uint8(min((b-0x3c000000)>>20, 0x7e))
}

// fromE5M2 widens an 8-bit float with 5 exponent bits (bias 15): the upper half
// of an IEEE half. It is exact.
func fromE5M2(b uint8) float32 { return FromF16(uint16(b) << 8) }

// FromE8M0 returns the power of two 2^(b-127) that a block scale byte stands for;
// 255 is NaN.
func FromE8M0(b uint8) float32 {
	switch b {
	case 0: // 2^-127 is subnormal in float32
		return math.Float32frombits(0x00400000)
	case 255:
		return math.Float32frombits(0x7fc00000)
	}
	return math.Float32frombits(uint32(b) << 23)
}

// e2m1 is the whole 4-bit float format; the negative zero is kept.
var e2m1 = [16]float32{
	0, 0.5, 1, 1.5, 2, 3, 4, 6,
	math.Float32frombits(1 << 31), -0.5, -1, -1.5, -2, -3, -4, -6,
}

// e4m3 is the whole E4M3 format, a table because decoding a row is a lookup then.
var e4m3 = tableE4M3()

func tableE4M3() (t [256]float32) {
	for i := range t {
		sign, u := uint32(i&0x80)<<24, uint32(i&0x7f)<<20
		switch {
		case i&0x7f == 0x7f:
			u = 0x7fc00000
		case u < 0x00800000:
			u = math.Float32bits(math.Float32frombits(u+0x3c800000) - 0x1p-6)
		default:
			u += 0x3c000000
		}
		t[i] = math.Float32frombits(sign | u)
	}
	return t
}
