package gguftest

import (
	"fmt"
	"math"
	"slices"
)

// Types are the numbers of the types that Encode supports.
var Types = map[string]uint32{
	"F32": 0, "F16": 1, "BF16": 30, "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14,
	"IQ4_NL": 20, "IQ4_XS": 23,
	"Q2_K": 10, "Q3_K": 11, "TQ1_0": 34, "TQ2_0": 35, "MXFP4": 39, "NVFP4": 40, "Q1_0": 41, "Q2_0": 42,
	"IQ1_S": 19, "IQ1_M": 29, "IQ2_XXS": 16, "IQ2_XS": 17, "IQ2_S": 22, "IQ3_XXS": 18, "IQ3_S": 21,
}

// Columns is how many numbers a block of a type has.
func Columns(typ string) int {
	switch typ {
	case "F32", "F16", "BF16":
		return 1
	case "Q4_K", "Q5_K", "Q6_K", "IQ4_XS", "Q2_K", "Q3_K", "TQ1_0", "TQ2_0":
		return 256
	case "Q1_0":
		return 128
	case "Q2_0", "NVFP4":
		return 64
	}
	if _, ok := grids[typ]; ok {
		return 256
	}
	return 32
}

// Encode writes numbers, whole blocks of them, as a type, and returns the decoded
// values. It rounds to the nearest and does not minimize the error.
func Encode(typ string, values []float32) (data []byte, stored []float32) {
	switch typ {
	case "F32":
		for _, x := range values {
			data = little.AppendUint32(data, math.Float32bits(x))
		}
		return data, values
	case "F16":
		return sixteen(values, 10, 15)
	case "BF16":
		return sixteen(values, 7, 127)
	}
	n := Columns(typ)
	stored = make([]float32, 0, len(values))
	for ; len(values) > 0; values = values[n:] {
		block, decoded := encodeBlock(typ, values[:n])
		if data == nil {
			data = make([]byte, 0, len(values)/n*len(block))
		}
		data = append(data, block...)
		for _, x := range decoded {
			stored = append(stored, float32(x))
		}
	}
	return data, stored
}

// sixteen writes numbers as one of the formats of 16 bits.
func sixteen(v []float32, mantissa, bias int) (data []byte, stored []float32) {
	data, stored = make([]byte, 0, 2*len(v)), make([]float32, len(v))
	for i, x := range v {
		h, near := short(float64(x), mantissa, bias)
		data, stored[i] = little.AppendUint16(data, h), float32(near)
	}
	return data, stored
}

func encodeBlock(typ string, v []float32) ([]byte, []float64) {
	switch typ {
	case "Q4_0":
		return symmetric(v, 4)
	case "Q5_0":
		return symmetric(v, 5)
	case "Q8_0":
		return symmetric(v, 8)
	case "Q4_1":
		return asymmetric(v, 4)
	case "Q5_1":
		return asymmetric(v, 5)
	case "Q4_K":
		return superBlock(v, 4)
	case "Q5_K":
		return superBlock(v, 5)
	case "Q6_K":
		return superBlock6(v)
	case "IQ4_NL":
		h, d := half(largestOf(v) / 113)
		q, decoded := nearestLevels(v, d)
		return append(little.AppendUint16(nil, h), small(q, 4)...), decoded
	case "IQ4_XS":
		return superBlockXS(v)
	}
	return encodeLow(typ, v)
}

// encodeLow is encodeBlock for types of fewer bits and of small floats.
func encodeLow(typ string, v []float32) ([]byte, []float64) {
	switch typ {
	case "Q2_K":
		return superBlock2(v)
	case "Q3_K":
		return superBlock3(v)
	case "TQ1_0":
		return ternaryBlock(v, ternary)
	case "TQ2_0":
		return ternaryBlock(v, twosK)
	case "Q1_0":
		return block1(v)
	case "Q2_0":
		return block2(v)
	case "MXFP4":
		return blockMX(v)
	case "NVFP4":
		return blockNV(v)
	}
	if g, ok := grids[typ]; ok {
		return g.block(typ, v)
	}
	panic(fmt.Sprintf("gguftest: no type %q", typ))
}

// symmetric: x = d*(q - 2^(bits-1)).
func symmetric(v []float32, bits int) ([]byte, []float64) {
	zero := math.Ldexp(1, bits-1)
	far := 0.0
	for _, x := range v {
		if math.Abs(float64(x)) > math.Abs(far) {
			far = float64(x)
		}
	}
	h, d := half(-far / zero)
	q := codes(v, bits, d, -zero*d)
	block := little.AppendUint16(nil, h)
	if bits == 8 {
		for _, x := range q {
			block = append(block, byte(int8(x-128)))
		}
	} else {
		block = append(block, small(q, bits)...)
	}
	return block, decode(q, d, -zero*d)
}

// asymmetric: x = d*q + m.
func asymmetric(v []float32, bits int) ([]byte, []float64) {
	lo, hi := bounds(v)
	h, d := half((hi - lo) / (math.Ldexp(1, bits) - 1))
	hm, m := half(lo)
	q := codes(v, bits, d, m)
	block := little.AppendUint16(little.AppendUint16(nil, h), hm)
	return append(block, small(q, bits)...), decode(q, d, m)
}

// small is 32 codes: fifth bits if there are any, element i in bit i; then elements i and
// i+16 in byte i.
func small(q []int, bits int) []byte {
	var b []byte
	if bits == 5 {
		high := uint32(0)
		for i, x := range q {
			high |= uint32(x) >> 4 << i
		}
		b = little.AppendUint32(b, high)
	}
	for i := range 16 {
		b = append(b, byte(q[i]%16+q[i+16]%16*16))
	}
	return b
}

// superBlock: x = d*s*q - m*t, with s and t of 6 bits for each of eight groups.
func superBlock(v []float32, bits int) ([]byte, []float64) {
	var scale, least [8]float64
	for g := range 8 {
		lo, hi := bounds(v[32*g : 32*g+32])
		lo = min(lo, 0)
		scale[g], least[g] = (hi-lo)/(math.Ldexp(1, bits)-1), -lo
	}
	hd, d := half(largest(scale[:]) / 63)
	hm, m := half(largest(least[:]) / 63)
	var s, t [8]int
	var q []int
	decoded := make([]float64, 0, len(v))
	for g := range 8 {
		s[g], t[g] = code(scale[g], d, 0, 63), code(least[g], m, 0, 63)
		part := codes(v[32*g:32*g+32], bits, d*float64(s[g]), -m*float64(t[g]))
		q = append(q, part...)
		decoded = append(decoded, decode(part, d*float64(s[g]), -m*float64(t[g]))...)
	}
	factors := make([]byte, 12)
	for g := range 8 {
		if g < 4 {
			factors[g] |= byte(s[g])
			factors[g+4] |= byte(t[g])
			continue
		}
		factors[g+4] = byte(s[g]%16 + t[g]%16*16)
		factors[g-4] |= byte(s[g] / 16 * 64)
		factors[g] |= byte(t[g] / 16 * 64)
	}
	high, low := make([]byte, 32), make([]byte, 128)
	for i, x := range q {
		high[i%32] |= byte(x / 16 << (i / 32))
		low[i/64*32+i%32] |= byte(x % 16 << (i / 32 % 2 * 4))
	}
	block := append(little.AppendUint16(little.AppendUint16(nil, hd), hm), factors...)
	if bits == 5 {
		block = append(block, high...)
	}
	return append(block, low...), decoded
}

// superBlock6: x = d*s*(q-32), with a signed byte s for each of sixteen groups.
func superBlock6(v []float32) ([]byte, []float64) {
	var scale [16]float64
	for g := range 16 {
		lo, hi := bounds(v[16*g : 16*g+16])
		scale[g] = max(-lo, hi) / 31
		if g%3 == 0 {
			scale[g] = -scale[g] // the sign is free
		}
	}
	hd, d := half(largest(scale[:]) / 127)
	low, high, factors := make([]byte, 128), make([]byte, 64), make([]byte, 16)
	decoded := make([]float64, 0, len(v))
	for g := range 16 {
		s := code(scale[g], d, -127, 127)
		factors[g] = byte(int8(s))
		step := d * float64(s)
		part := codes(v[16*g:16*g+16], 6, step, -32*step)
		decoded = append(decoded, decode(part, step, -32*step)...)
		for j, x := range part {
			i := 16*g + j
			h, k, l := i/128, i%128/32, i%32
			low[64*h+k%2*32+l] |= byte(x % 16 << (k / 2 * 4))
			high[32*h+l] |= byte(x / 16 << (2 * k))
		}
	}
	return little.AppendUint16(slices.Concat(low, high, factors), hd), decoded
}

// levels are the values of the codes of the IQ4 types, in steps.
var levels = [16]float64{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// nearestLevels are the codes whose levels, in steps of step, are next to the numbers.
func nearestLevels(v []float32, step float64) (q []int, decoded []float64) {
	for _, x := range v {
		best := 8
		for i, l := range levels {
			if math.Abs(l*step-float64(x)) < math.Abs(levels[best]*step-float64(x)) {
				best = i
			}
		}
		q, decoded = append(q, best), append(decoded, levels[best]*step)
	}
	return q, decoded
}

// superBlockXS: x = d*(s-32)*level, with s of 6 bits for each of eight groups.
func superBlockXS(v []float32) ([]byte, []float64) {
	var scale [8]float64
	for g := range 8 {
		if scale[g] = largestOf(v[32*g:32*g+32]) / 113; g%3 == 1 {
			scale[g] = -scale[g] // the sign is free
		}
	}
	hd, d := half(largest(scale[:]) / 31)
	high, low := uint16(0), make([]byte, 4)
	var codes []byte
	decoded := make([]float64, 0, len(v))
	for g := range 8 {
		s := code(scale[g], d, -32, 31)
		high |= uint16((s+32)/16) << (2 * g)
		low[g/2] |= byte((s + 32) % 16 << (g % 2 * 4))
		q, part := nearestLevels(v[32*g:32*g+32], d*float64(s))
		codes, decoded = append(codes, small(q, 4)...), append(decoded, part...)
	}
	block := little.AppendUint16(little.AppendUint16(nil, hd), high)
	return slices.Concat(block, low, codes), decoded
}

func largestOf(v []float32) float64 {
	lo, hi := bounds(v)
	return max(-lo, hi)
}

func bounds(v []float32) (lo, hi float64) {
	lo, hi = math.Inf(1), math.Inf(-1)
	for _, x := range v {
		lo, hi = min(lo, float64(x)), max(hi, float64(x))
	}
	return lo, hi
}

func largest(v []float64) float64 {
	top := 0.0
	for _, x := range v {
		top = max(top, math.Abs(x))
	}
	return top
}

// code is the nearest whole number of steps.
func code(x, step float64, lo, hi int) int {
	if step == 0 {
		return max(lo, 0)
	}
	return min(max(int(math.Round(x/step)), lo), hi)
}

func codes(v []float32, bits int, step, bias float64) []int {
	q := make([]int, len(v))
	for i, x := range v {
		q[i] = code(float64(x)-bias, step, 0, 1<<bits-1)
	}
	return q
}

func decode(q []int, step, bias float64) []float64 {
	v := make([]float64, len(q))
	for i, x := range q {
		v[i] = step*float64(x) + bias
	}
	return v
}

// half is the half that is nearest to x: its bits, and its value.
func half(x float64) (uint16, float64) { return short(x, 10, 15) }

// short rounds half to even to a format of 16 bits with a mantissa of mantissa bits and
// an exponent with the given bias. It supports no infinity.
func short(x float64, mantissa, bias int) (uint16, float64) {
	e := max(math.Ilogb(x), 1-bias)
	step := math.Ldexp(1, e-mantissa)
	q := math.RoundToEven(math.Abs(x) / step)
	bits := (e+bias-1)<<mantissa + int(q) // the leading one of q adds one to the exponent
	if math.Signbit(x) {
		return uint16(bits | 1<<15), -q * step
	}
	return uint16(bits), q * step
}
