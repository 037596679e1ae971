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
	if w.fp4() {
		for i, q := range dst[:Tile*g] {
			dst[i] = e2m1Halves[q]
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

// scales decodes the 16 scales and, for affine blocks, the 16 biases of a block.
func (w *Weight) scales(s, b *[Tile]float32, block []byte) {
	size := w.scale.Size()
	at := block[w.codes:]
	for r := range Tile {
		s[r] = getFloat(at[r*size:], w.scale)
	}
	if w.format == dtype.Affine {
		at = at[Tile*size:]
		for r := range Tile {
			b[r] = getFloat(at[r*size:], w.scale)
		}
	}
}

// floats writes the first width columns of a block as float32 values, [column, row]. ints
// is workspace for the codes of a block.
func (w *Weight) floats(dst []float32, ints []int16, block []byte, width int) {
	dst = dst[:width*Tile]
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
	w.scales(&s, &b, block)
	switch w.format {
	case dtype.MXFP8, dtype.FP8:
		for i := range dst {
			dst[i] = dtype.FromE4M3(block[i]) * s[i%Tile]
		}
	case dtype.Affine:
		w.integers(ints, block)
		for i := range dst {
			k, r := i/Tile, i%Tile
			dst[i] = float32(s[r]*float32(ints[r*w.group+k])) + b[r]
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
