package gguftest

import (
	"math"
	"slices"
	"strings"
)

// twosK is 256 codes of 2 bits: of each 32 bytes the codes of columns 32 apart.
func twosK(q []int) []byte {
	b := make([]byte, 64)
	for i, x := range q {
		b[i/128*32+i%32] |= byte(x % 4 << (i % 128 / 32 * 2))
	}
	return b
}

// superBlock2: x = d*s*q - m*t, with s and t of 4 bits for each of sixteen groups.
func superBlock2(v []float32) ([]byte, []float64) {
	var scale, least [16]float64
	for g := range 16 {
		lo, hi := bounds(v[16*g : 16*g+16])
		lo = min(lo, 0)
		scale[g], least[g] = (hi-lo)/3, -lo
	}
	hd, d := half(largest(scale[:]) / 15)
	hm, m := half(largest(least[:]) / 15)
	factors := make([]byte, 16)
	var q []int
	decoded := make([]float64, 0, len(v))
	for g := range 16 {
		s, t := code(scale[g], d, 0, 15), code(least[g], m, 0, 15)
		factors[g] = byte(s + 16*t)
		step, bias := d*float64(s), -m*float64(t)
		part := codes(v[16*g:16*g+16], 2, step, bias)
		q, decoded = append(q, part...), append(decoded, decode(part, step, bias)...)
	}
	return little.AppendUint16(little.AppendUint16(append(factors, twosK(q)...), hd), hm), decoded
}

// superBlock3: x = d*s*(q-4), with s of 6 bits, from -32 on, for each of sixteen groups.
func superBlock3(v []float32) ([]byte, []float64) {
	var scale [16]float64
	for g := range 16 {
		if scale[g] = largestOf(v[16*g:16*g+16]) / 4; g%3 == 0 {
			scale[g] = -scale[g] // the sign is free
		}
	}
	hd, d := half(largest(scale[:]) / 31)
	high, factors := make([]byte, 32), make([]byte, 12)
	var q []int
	decoded := make([]float64, 0, len(v))
	for g := range 16 {
		s := code(scale[g], d, -32, 31)
		factors[g%8] |= byte((s + 32) % 16 << (g / 8 * 4))
		factors[8+g%4] |= byte((s + 32) / 16 << (g / 4 * 2))
		step := d * float64(s)
		part := codes(v[16*g:16*g+16], 3, step, -4*step)
		q, decoded = append(q, part...), append(decoded, decode(part, step, -4*step)...)
	}
	for i, x := range q {
		high[i%32] |= byte(x / 4 << (i / 32))
	}
	return little.AppendUint16(slices.Concat(high, twosK(q), factors), hd), decoded
}

// small2: x = d*(q-1), with q up to top.
func small2(v []float32, top int) (h uint16, q []int, decoded []float64) {
	lo, hi := bounds(v)
	h, d := half(max(-lo, hi/float64(top-1)))
	for _, x := range v {
		q = append(q, code(float64(x), d, -1, top-1)+1)
	}
	return h, q, decode(q, d, -d)
}

// ternary is 256 codes 0 to 2, five of them in a byte, as a fraction of 256.
func ternary(q []int) []byte {
	var b []byte
	for _, part := range []struct{ bytes, digits int }{{32, 5}, {16, 5}, {4, 4}} {
		for i := range part.bytes {
			x := 0
			for n := range 5 {
				if x *= 3; n < part.digits {
					x += q[n*part.bytes+i]
				}
			}
			b = append(b, byte((x*256+242)/243))
		}
		q = q[part.bytes*part.digits:]
	}
	return b
}

// ternaryBlock: x = d*(q-1), with q up to 2, packed by pack.
func ternaryBlock(v []float32, pack func(q []int) []byte) ([]byte, []float64) {
	h, q, decoded := small2(v, 2)
	return little.AppendUint16(pack(q), h), decoded
}

// block2: x = d*(q-1), with q up to 3, four to a byte.
func block2(v []float32) ([]byte, []float64) {
	h, q, decoded := small2(v, 3)
	b := little.AppendUint16(nil, h)
	for i := 0; i < len(q); i += 4 {
		b = append(b, byte(q[i]+q[i+1]*4+q[i+2]*16+q[i+3]*64))
	}
	return b, decoded
}

// block1: x = d or -d.
func block1(v []float32) ([]byte, []float64) {
	sum := 0.0
	for _, x := range v {
		sum += math.Abs(float64(x))
	}
	h, d := half(sum / float64(len(v)))
	b, decoded := append(little.AppendUint16(nil, h), make([]byte, len(v)/8)...), make([]float64, len(v))
	for i, x := range v {
		if decoded[i] = -d; x > 0 {
			decoded[i] = d
			b[2+i/8] |= 1 << (i % 8)
		}
	}
	return b, decoded
}

// e2m1 are the numbers of nibbles, in halves.
var e2m1 = [16]float64{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// nearestE2M1 packs the nearest nibbles, in steps of step: the first half low, the second half high.
func nearestE2M1(v []float32, step float64) (b []byte, decoded []float64) {
	b = make([]byte, len(v)/2)
	for i, x := range v {
		best := 0
		for j, l := range e2m1 {
			if math.Abs(l*step-float64(x)) < math.Abs(e2m1[best]*step-float64(x)) {
				best = j
			}
		}
		b[i%len(b)] |= byte(best << (i / len(b) * 4))
		decoded = append(decoded, e2m1[best]*step)
	}
	return b, decoded
}

// blockMX: x = 2^(e-128)*nibble.
func blockMX(v []float32) ([]byte, []float64) {
	e := 0
	if top := largestOf(v); top > 0 {
		e = min(max(math.Ilogb(top)-3+128, 0), 254)
	}
	b, decoded := nearestE2M1(v, math.Ldexp(1, e-128))
	return append([]byte{byte(e)}, b...), decoded
}

// blockNV: x = s/2*nibble, with s of type E4M3 for each of four groups.
func blockNV(v []float32) ([]byte, []float64) {
	scales := make([]byte, 4)
	var b []byte
	var decoded []float64
	for g := range 4 {
		part := v[16*g : 16*g+16]
		value := func(x int) float64 { // E4M3
			if x < 8 {
				return math.Ldexp(float64(x), -9)
			}
			return math.Ldexp(float64(8+x%8), x/8-10)
		}
		s := 0
		for s < 126 && value(s)*6 < largestOf(part) {
			s++
		}
		scales[g] = byte(s)
		bytes, numbers := nearestE2M1(part, value(s)/2)
		b, decoded = append(b, bytes...), append(decoded, numbers...)
	}
	return append(scales, b...), decoded
}

// AddFactors adds the factors of an NVFP4 tensor called NAME.weight, one for each matrix of a stack, and
// returns the decoded values with them.
func (f *File) AddFactors(name string, shape []int, stored []float32) []float32 {
	count := 1
	if len(shape) > 2 {
		count = shape[0]
	}
	factors, scaled := make([]float32, count), make([]float32, len(stored))
	for i := range factors {
		factors[i] = 1.25 + 0.25*float32(i) // of few digits: no product is rounded
	}
	for i, x := range stored {
		scaled[i] = x * factors[i/(len(stored)/count)]
	}
	name = strings.TrimSuffix(name, ".weight")
	f.Add(name+".scale", "F32", []int{count}, factors)
	f.Add(name+".input_scale", "F32", []int{count}, factors)
	return scaled
}
