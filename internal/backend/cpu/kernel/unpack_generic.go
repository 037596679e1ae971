package kernel

import (
	"encoding/binary"
	"math"

	"github.com/foretoken/foretoken/internal/dtype"
)

// e2m1Halves are the values of E2M1 codes, in halves.
var e2m1Halves = [16]int16{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// integers writes block's codes as the integers they stand for, [row, column].
func (w *Weight) integers(dst []int16, block []byte) {
	g := w.group
	unpackPlanes(dst, block, g, w.bits)
	switch {
	case w.fp4():
		for i, q := range dst[:Tile*g] {
			dst[i] = e2m1Halves[q]
		}
	case w.format.Leveled():
		for i, q := range dst[:Tile*g] {
			dst[i] = int16(dtype.Levels[q])
		}
	}
}

// unpackPlanes writes codes, [row, column], from their planes.
func unpackPlanes(dst []int16, block []byte, group, bits int) {
	vectors := group / 4
	dst = dst[:Tile*group]
	at, shift := 0, 0
	for _, p := range planes(bits) {
		mask := byte(1<<p - 1)
		n := vectors * p / 8 // vectors of the plane
		fields := 8 / p
		for v := range vectors {
			for r := range Tile {
				out := dst[r*group+4*v:][:4]
				for i := range out {
					var q int16
					if p == 1 {
						q = int16(block[at+8*v+r/2] >> (4*(r&1) + i) & 1)
					} else {
						q = int16(block[at+64*(v/fields)+4*r+i] >> (v % fields * p) & mask)
					}
					if shift == 0 {
						out[i] = q
					} else {
						out[i] |= q << shift
					}
				}
			}
		}
		if p == 1 {
			at += 8 * vectors
		} else {
			at += 64 * n
		}
		shift += p
	}
}

// scales decodes the 16 scales and, if there are biases, the 16 biases of block g of tile
// t of matrix n. If codes have zero points, these are the biases, negative: the addend of a code.
func (w *Weight) scales(s, b *[Tile]float32, n, t, g int) {
	block := w.at(n, t, g)
	if w.per > 1 {
		tail := w.super(n, t, g/w.per)[w.per*w.block:]
		for r := range Tile {
			s[r], b[r] = w.superScale(tail, r, g%w.per)
		}
		return
	}
	for r := range Tile {
		s[r], b[r] = w.scaleAt(block, r)
	}
}

// scaleAt is the scale and the bias of row r of a block that has its own, see scales.
func (w *Weight) scaleAt(block []byte, r int) (s, b float32) {
	size := w.scale.Size()
	at := block[w.codes+r*size:]
	s = getFloat(at, w.scale)
	switch {
	case w.zeros > 0:
		b = -float32(block[w.zeros+r])
	case w.pointed():
		b = w.zero
	case w.zero != 0:
		b = w.zero * s
	case w.biased():
		b = getFloat(at[Tile*size:], w.scale)
	}
	return s, b
}

// superScale is the scale and the bias of row r and group g of a superblock with this tail. All
// products are exact.
func (w *Weight) superScale(tail []byte, r, g int) (s, b float32) {
	scale, bias := w.smallFactors(tail, r, g)
	d, m := w.superScales(tail, r)
	s = d * float32(scale)
	if w.zero != 0 {
		return s, w.zero * s
	}
	return s, -(m * float32(bias))
}

// smallFactors are the factors of the scale and of the bias of row r and group g of a superblock,
// relative to the superblock's; the bias is subtracted.
func (w *Weight) smallFactors(tail []byte, r, g int) (scale, bias int32) {
	switch w.factors {
	case FactorsGrid:
		return int32(tail[4*Tile+Tile*g+r]), 0
	case Factors6K:
		return int32(int8(tail[atBytes6K+Tile*g+r])), 0
	case Factors2K:
		f := tail[atBytes2K+Tile*g+r]
		return int32(f & 15), int32(f >> 4)
	case FactorsXS:
		low := binary.LittleEndian.Uint32(tail[atNibblesXS+4*r:]) >> (4 * g) & 15
		high := binary.LittleEndian.Uint16(tail[atPairsXS+2*r:]) >> (2 * g) & 3
		return int32(low) + int32(high)*16 - 32, 0
	}
	pairs := binary.LittleEndian.Uint32(tail[atPairsK+4*r:]) >> (2 * g)
	low := binary.LittleEndian.Uint32(tail[atNibblesK+4*r:]) >> (4 * g) & 15
	least := binary.LittleEndian.Uint32(tail[atBiasesK+4*r:]) >> (4 * g) & 15
	return int32(low + pairs&3*16), int32(least + pairs>>16&3*16)
}

// superScales is the scale of row r of a superblock, and where it has biases that of these.
func (w *Weight) superScales(tail []byte, r int) (scale, bias float32) {
	if w.expanded {
		return getFloat(tail[4*r:], dtype.F32), 0
	}
	scale = getFloat(tail[2*r:], dtype.F16)
	if w.least() {
		bias = getFloat(tail[2*Tile+2*r:], dtype.F16)
	}
	return scale, bias
}

// floats writes block g of tile t of matrix n, those columns that exist, as float32 values,
// [column, row]. ints is workspace for the codes of a block.
func (w *Weight) floats(dst []float32, ints []int16, n, t, g int) {
	dst = dst[:w.width(g)*Tile]
	block := w.at(n, t, g)
	if w.format == dtype.Plain {
		for i := range dst {
			k, r := i/Tile, i%Tile
			j := i
			if w.elem == dtype.BF16 {
				j = 2*Tile*(k/2) + 2*r + k%2
			}
			dst[i] = getFloat(block[j*w.elem.Size():], w.elem)
		}
		return
	}
	var s, b [Tile]float32
	w.scales(&s, &b, n, t, g)
	switch {
	case !w.coded():
		for i := range dst {
			dst[i] = dtype.FromE4M3(block[i]) * s[i%Tile]
		}
	case w.biased():
		w.integers(ints, block)
		for i := range dst {
			k, r := i/Tile, i%Tile
			dst[i] = float32(s[r]*float32(ints[r*w.group+k])) + b[r]
		}
	case w.pointed():
		w.integers(ints, block)
		for i := range dst {
			k, r := i/Tile, i%Tile
			dst[i] = s[r] * (float32(ints[r*w.group+k]) + b[r])
		}
	default:
		w.integers(ints, block)
		for i := range dst {
			k, r := i/Tile, i%Tile
			dst[i] = s[r] * float32(ints[r*w.group+k])
		}
	}
}

// getFloat reads one number of type F32, F16 or BF16.
func getFloat(b []byte, t dtype.Type) float32 {
	switch t {
	case dtype.F32:
		return math.Float32frombits(binary.LittleEndian.Uint32(b))
	case dtype.F16:
		return dtype.FromF16(binary.LittleEndian.Uint16(b))
	default:
		return math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16)
	}
}

// putFloat writes a number that type t, F32 or BF16, represents exactly.
func putFloat(b []byte, t dtype.Type, x float32) {
	if t == dtype.F32 {
		binary.LittleEndian.PutUint32(b, math.Float32bits(x))
		return
	}
	binary.LittleEndian.PutUint16(b, uint16(math.Float32bits(x)>>16))
}
