//go:build !noasm

package kernel

import (
	"encoding/binary"
	"math"
)

// integerTilesNEON is integerTiles with the multiplications every arm64 processor has.
func integerTilesNEON(out []float32, w *Weight, n, from, to int, a *Activations, s *Scratch) {
	stripsOf(&integerNEON, &superNEON, out, w, n, from, to, a, s)
}

// integerTilesDot is integerTiles with SDOT.
func integerTilesDot(out []float32, w *Weight, n, from, to int, a *Activations, s *Scratch) {
	stripsOf(&integerDot, &superDot, out, w, n, from, to, a, s)
}

// integerTilesI8MM is integerTiles with SDOT, USDOT, SMMLA and USMMLA.
func integerTilesI8MM(out []float32, w *Weight, n, from, to int, a *Activations, s *Scratch) {
	stripsOf(&integerI8MM, &superI8MM, out, w, n, from, to, a, s)
}

// stripsOf is integerStrips, or gridStrips, with the kernels of a set.
func stripsOf(plain, super *[integerFormats][4]func(*integerArgs), out []float32, w *Weight, n, from, to int, a *Activations, s *Scratch) {
	switch format := w.integerFormat(); {
	case w.grid():
		gridStrips(super[format][:], expandersNEON, out, w, n, from, to, a, s)
	case w.per > 1:
		integerStrips(super[format][:], out, w, n, from, to, a, s)
	default:
		integerStrips(plain[format][:], out, w, n, from, to, a, s)
	}
}

// expandersNEON are those of all sets.
var expandersNEON = gridExpanders(expandNEON)

// stripsNEON is Set.strips.
func stripsNEON(int, rounding) strips { return strips{height: len(integerNEON[0])} }

// quantizeNEON is Set.quantize; the twin is quantizeRow.
func quantizeNEON(dst []byte, x []float32, group int, p place) {
	at := p.first
	for ; len(x) > 0; x = x[group:] {
		const inf = 0x7f800000
		top := magnitudeNEON(&x[0], group)
		amax := math.Float32frombits(top)
		inverse := 127 / amax
		if top == 0 || top >= inf || inverse > math.MaxFloat32 {
			quantizeRow(dst[at:], x[:group], group, place{vector: p.vector, skip: p.skip, tail: p.tail, across: p.across, part: p.part})
			at += p.next
			continue
		}
		scale := amax / 127
		tail := dst[at+p.tail:]
		binary.LittleEndian.PutUint32(tail, math.Float32bits(scale))
		if p.part > 0 {
			for i := range group / p.part { // each has a sum of its own
				codes := dst[at+p.code(i*p.part):][:(p.part/4-1)*p.vector+4]
				sum := roundNEON(&codes[0], &x[i*p.part:][:p.part][0], p.part, p.vector, inverse)
				binary.LittleEndian.PutUint16(tail[(1+i/2)*p.across+i%2*2:], uint16(sum))
			}
			at += p.next
			continue
		}
		total := roundNEON(&dst[at : at+(group/4-1)*p.vector+4][0], &x[:group][0], group, p.vector, inverse)
		binary.LittleEndian.PutUint32(tail[p.across:], math.Float32bits(float32(total)*scale))
		binary.LittleEndian.PutUint32(tail[2*p.across:], uint32(-p.raise)*uint32(total))
		at += p.next
	}
}
