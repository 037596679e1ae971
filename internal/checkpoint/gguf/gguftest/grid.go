package gguftest

import (
	"math"
	"math/bits"

	"github.com/foretoken/foretoken/internal/dtype"
)

// grid is a type whose numbers are entries of a table: x = d*unit*(2f+1)*entry, with signs or a delta.
type grid struct {
	format dtype.Format // whose table it is
	size   int          // of an entry
	group  int          // columns that have a factor
	top    int          // the largest f
	level  float64      // the largest number of the table
	unit   float64
	seven  bool // the last of eight signs makes the number of minus signs even
}

var grids = map[string]grid{
	"IQ1_S":   {dtype.IQ1S, 8, 32, 7, 9, 1. / 8, false},
	"IQ1_M":   {dtype.IQ1M, 8, 16, 7, 9, 1. / 8, false},
	"IQ2_XXS": {dtype.IQ2XXS, 8, 32, 15, 43, 1. / 8, true},
	"IQ2_XS":  {dtype.IQ2XS, 8, 16, 15, 43, 1. / 8, true},
	"IQ2_S":   {dtype.IQ2S, 8, 16, 15, 43, 1. / 8, false},
	"IQ3_XXS": {dtype.IQ3XXS, 4, 32, 15, 62, 1. / 4, true},
	"IQ3_S":   {dtype.IQ3S, 4, 32, 15, 15, 1, false},
}

// ones reports whether numbers have deltas instead of signs.
func (g grid) ones() bool { return g.level == 9 }

// gridBlock encodes 256 numbers.
func (g grid) block(typ string, v []float32) ([]byte, []float64) {
	h, d := half(largestOf(v) / (g.level * float64(2*g.top+1) * g.unit))
	f := make([]int, 256/g.group)
	var index []int     // of all entries
	var signs [32]uint8 // of eight columns, or their delta
	decoded := make([]float64, 256)
	for e := range signs {
		i := 8 * e / g.group
		if d > 0 {
			f[i] = code(largestOf(v[i*g.group:][:g.group])/(g.level*d*g.unit)/2-0.5, 1, 0, g.top)
		}
		step := d * g.unit * float64(2*f[i]+1)
		signs[e] = g.signs(v[8*e:][:8], e)
		for at := 8 * e; at < 8*e+8; at += g.size {
			n, x := g.nearest(v[at:][:g.size], step, signs[e]>>(at%8), at/8%7)
			index = append(index, n)
			for k := range x {
				decoded[at+k] = step * x[k]
			}
		}
	}
	return g.write(typ, h, f, index, signs[:]), decoded
}

// signs are those of eight columns, or a delta.
func (g grid) signs(v []float32, e int) uint8 {
	if g.ones() {
		if g.group == 32 {
			e /= 4
		}
		return uint8(e % 3 % 2) // it is free
	}
	s, least := uint8(0), 0
	for k, x := range v {
		if x < 0 {
			s |= 1 << k
		}
		if math.Abs(float64(x)) < math.Abs(float64(v[least])) {
			least = k
		}
	}
	if g.seven && bits.OnesCount8(s)%2 == 1 {
		s ^= 1 << least
	}
	return s
}

// nearest is the entry next to some numbers, of a seventh of all, and its numbers.
func (g grid) nearest(v []float32, step float64, signs uint8, first int) (entry int, x []float64) {
	table, best := g.format.GridTable(), math.Inf(1)
	now := make([]float64, g.size)
	for n := first; n < len(table)/g.size; n += 7 {
		miss := 0.0
		for k, c := range table[n*g.size:][:g.size] {
			now[k] = float64(c) - dtype.GridMiddle
			switch {
			case g.ones():
				now[k] -= 2 * float64(signs&1)
			case signs>>k&1 == 1:
				now[k] = -now[k]
			}
			miss += (float64(v[k]) - step*now[k]) * (float64(v[k]) - step*now[k])
		}
		if miss < best {
			best, entry, x = miss, n, append(x[:0], now...)
		}
	}
	return entry, x
}

// write lays a block out as its type does.
func (g grid) write(typ string, h uint16, f, index []int, signs []uint8) []byte {
	b := little.AppendUint16(nil, h)
	low := func() {
		for _, i := range index {
			b = append(b, byte(i))
		}
	}
	seven := func(e int) { // four times seven signs, and a factor
		x := uint32(f[e/4]) << 28
		for n := range 4 {
			x |= uint32(signs[e+n]&127) << (7 * n)
		}
		b = little.AppendUint32(b, x)
	}
	fields := func(list []int, width, shift int) { // bytes of fields
		for i := 0; i < len(list); i += 8 / width {
			x := 0
			for n := range 8 / width {
				x |= list[i+n] >> shift << (width * n)
			}
			b = append(b, byte(x))
		}
	}
	switch typ {
	case "IQ1_S":
		low()
		for e := 0; e < 32; e += 4 {
			x := f[e/4]<<12 | int(signs[e])<<15
			for n := range 4 {
				x |= index[e+n] >> 8 << (3 * n)
			}
			b = little.AppendUint16(b, uint16(x))
		}
	case "IQ1_M":
		b = nil
		low()
		for e := 0; e < 32; e += 2 {
			b = append(b, byte(index[e]>>8|int(signs[e])<<3|index[e+1]>>8<<4|int(signs[e+1])<<7))
		}
		for i := range 4 {
			b = little.AppendUint16(b, h>>(4*i)<<12|uint16(f[4*i]|f[4*i+1]<<3|f[4*i+2]<<6|f[4*i+3]<<9))
		}
	case "IQ2_XXS":
		for e := 0; e < 32; e += 4 {
			b = append(b, byte(index[e]), byte(index[e+1]), byte(index[e+2]), byte(index[e+3]))
			seven(e)
		}
	case "IQ2_XS":
		for e, i := range index {
			b = little.AppendUint16(b, uint16(i|int(signs[e]&127)<<9))
		}
		fields(f, 4, 0)
	case "IQ2_S":
		low()
		b = append(b, signs...)
		fields(index, 2, 8)
		fields(f, 4, 0)
	case "IQ3_XXS":
		low()
		for e := 0; e < 32; e += 4 {
			seven(e)
		}
	case "IQ3_S":
		low()
		fields(index, 1, 8)
		b = append(b, signs...)
		fields(f, 4, 0)
	}
	return b
}
