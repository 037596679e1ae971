//go:build !noasm

package kernel

import (
	"encoding/binary"
	"math"
)

// integerTilesNEON is integerTiles with the multiplications every arm64 processor has.
func integerTilesNEON(out []float32, w *Weight, n, from, to int, a *Activations, s *Scratch) {
	integerStrips(integerNEON[w.integerFormat()][:], out, w, n, from, to, a, s)
}

// integerTilesDot is integerTiles with SDOT.
func integerTilesDot(out []float32, w *Weight, n, from, to int, a *Activations, s *Scratch) {
	integerStrips(integerDots[w.integerFormat()][:], out, w, n, from, to, a, s)
}

// integerTilesI8MM is integerTiles with SDOT, USDOT, SMMLA and USMMLA.
func integerTilesI8MM(out []float32, w *Weight, n, from, to int, a *Activations, s *Scratch) {
	integerStrips(integerI8MM[w.integerFormat()][:], out, w, n, from, to, a, s)
}

// stripsNEON is Set.strips.
func stripsNEON(int, int) strips { return strips{height: len(integerNEON[0])} }

// quantizeNEON is Set.quantize; the twin is quantizeRow.
func quantizeNEON(dst []byte, x []float32, group int, p place) {
	at := p.first
	for ; len(x) > 0; x = x[group:] {
		const inf = 0x7f800000
		top := magnitudeNEON(&x[0], group)
		amax := math.Float32frombits(top)
		inverse := 127 / amax
		if top == 0 || top >= inf || inverse > math.MaxFloat32 {
			quantizeRow(dst[at:], x[:group], group, place{vector: p.vector, tail: p.tail, across: p.across})
			at += p.next
			continue
		}
		scale := amax / 127
		total := roundNEON(&dst[at : at+(group/4-1)*p.vector+4][0], &x[:group][0], group, p.vector, inverse)
		tail := dst[at+p.tail:]
		binary.LittleEndian.PutUint32(tail, math.Float32bits(scale))
		binary.LittleEndian.PutUint32(tail[p.across:], math.Float32bits(float32(total)*scale))
		binary.LittleEndian.PutUint32(tail[2*p.across:], uint32(-codeOffset*total))
		at += p.next
	}
}

// magnitudeNEON is the first loop of quantizeGroup.
//
//go:noescape
func magnitudeNEON(x *float32, n int) (top uint32)

// roundNEON is the last loop of quantizeGroup; it writes codes four by four.
//
//go:noescape
func roundNEON(dst *byte, x *float32, n, vector int, inverse float32) (total int32)

// Kernels by format and number of rows less one.
var (
	integerNEON = [integerFormats][4]func(a *integerArgs){
		integer2:   {integerNEON2Rows1, integerNEON2Rows2, integerNEON2Rows3, integerNEON2Rows4},
		integer3:   {integerNEON3Rows1, integerNEON3Rows2, integerNEON3Rows3, integerNEON3Rows4},
		integer4:   {integerNEON4Rows1, integerNEON4Rows2, integerNEON4Rows3, integerNEON4Rows4},
		integer5:   {integerNEON5Rows1, integerNEON5Rows2, integerNEON5Rows3, integerNEON5Rows4},
		integer6:   {integerNEON6Rows1, integerNEON6Rows2, integerNEON6Rows3, integerNEON6Rows4},
		integer8:   {integerNEON8Rows1, integerNEON8Rows2, integerNEON8Rows3, integerNEON8Rows4},
		integerFP4: {integerNEONFP4Rows1, integerNEONFP4Rows2, integerNEONFP4Rows3, integerNEONFP4Rows4},
	}
	integerDots = [integerFormats][4]func(a *integerArgs){
		integer2:   {integerDot2Rows1, integerDot2Rows2, integerDot2Rows3, integerDot2Rows4},
		integer3:   {integerDot3Rows1, integerDot3Rows2, integerDot3Rows3, integerDot3Rows4},
		integer4:   {integerDot4Rows1, integerDot4Rows2, integerDot4Rows3, integerDot4Rows4},
		integer5:   {integerDot5Rows1, integerDot5Rows2, integerDot5Rows3, integerDot5Rows4},
		integer6:   {integerDot6Rows1, integerDot6Rows2, integerDot6Rows3, integerDot6Rows4},
		integer8:   {integerDot8Rows1, integerDot8Rows2, integerDot8Rows3, integerDot8Rows4},
		integerFP4: {integerDotFP4Rows1, integerDotFP4Rows2, integerDotFP4Rows3, integerDotFP4Rows4},
	}
	integerI8MM = [integerFormats][4]func(a *integerArgs){
		integer2:   {integerDot2Rows1, integerDot2Rows2, integerDot2Rows3, integerI8MM2Rows4},
		integer3:   {integerDot3Rows1, integerDot3Rows2, integerDot3Rows3, integerI8MM3Rows4},
		integer4:   {integerDot4Rows1, integerDot4Rows2, integerDot4Rows3, integerI8MM4Rows4},
		integer5:   {integerDot5Rows1, integerDot5Rows2, integerDot5Rows3, integerI8MM5Rows4},
		integer6:   {integerDot6Rows1, integerDot6Rows2, integerDot6Rows3, integerI8MM6Rows4},
		integer8:   {integerI8MM8Rows1, integerI8MM8Rows2, integerI8MM8Rows3, integerI8MM8Rows4},
		integerFP4: {integerDotFP4Rows1, integerDotFP4Rows2, integerDotFP4Rows3, integerI8MMFP4Rows4},
	}
)

// The twin of all kernels is integerTile.

//go:noescape
func integerNEON2Rows1(a *integerArgs)

//go:noescape
func integerNEON2Rows2(a *integerArgs)

//go:noescape
func integerNEON2Rows3(a *integerArgs)

//go:noescape
func integerNEON2Rows4(a *integerArgs)

//go:noescape
func integerNEON3Rows1(a *integerArgs)

//go:noescape
func integerNEON3Rows2(a *integerArgs)

//go:noescape
func integerNEON3Rows3(a *integerArgs)

//go:noescape
func integerNEON3Rows4(a *integerArgs)

//go:noescape
func integerNEON4Rows1(a *integerArgs)

//go:noescape
func integerNEON4Rows2(a *integerArgs)

//go:noescape
func integerNEON4Rows3(a *integerArgs)

//go:noescape
func integerNEON4Rows4(a *integerArgs)

//go:noescape
func integerNEON5Rows1(a *integerArgs)

//go:noescape
func integerNEON5Rows2(a *integerArgs)

//go:noescape
func integerNEON5Rows3(a *integerArgs)

//go:noescape
func integerNEON5Rows4(a *integerArgs)

//go:noescape
func integerNEON6Rows1(a *integerArgs)

//go:noescape
func integerNEON6Rows2(a *integerArgs)

//go:noescape
func integerNEON6Rows3(a *integerArgs)

//go:noescape
func integerNEON6Rows4(a *integerArgs)

//go:noescape
func integerNEON8Rows1(a *integerArgs)

//go:noescape
func integerNEON8Rows2(a *integerArgs)

//go:noescape
func integerNEON8Rows3(a *integerArgs)

//go:noescape
func integerNEON8Rows4(a *integerArgs)

//go:noescape
func integerNEONFP4Rows1(a *integerArgs)

//go:noescape
func integerNEONFP4Rows2(a *integerArgs)

//go:noescape
func integerNEONFP4Rows3(a *integerArgs)

//go:noescape
func integerNEONFP4Rows4(a *integerArgs)

//go:noescape
func integerDot2Rows1(a *integerArgs)

//go:noescape
func integerDot2Rows2(a *integerArgs)

//go:noescape
func integerDot2Rows3(a *integerArgs)

//go:noescape
func integerDot2Rows4(a *integerArgs)

//go:noescape
func integerDot3Rows1(a *integerArgs)

//go:noescape
func integerDot3Rows2(a *integerArgs)

//go:noescape
func integerDot3Rows3(a *integerArgs)

//go:noescape
func integerDot3Rows4(a *integerArgs)

//go:noescape
func integerDot4Rows1(a *integerArgs)

//go:noescape
func integerDot4Rows2(a *integerArgs)

//go:noescape
func integerDot4Rows3(a *integerArgs)

//go:noescape
func integerDot4Rows4(a *integerArgs)

//go:noescape
func integerDot5Rows1(a *integerArgs)

//go:noescape
func integerDot5Rows2(a *integerArgs)

//go:noescape
func integerDot5Rows3(a *integerArgs)

//go:noescape
func integerDot5Rows4(a *integerArgs)

//go:noescape
func integerDot6Rows1(a *integerArgs)

//go:noescape
func integerDot6Rows2(a *integerArgs)

//go:noescape
func integerDot6Rows3(a *integerArgs)

//go:noescape
func integerDot6Rows4(a *integerArgs)

//go:noescape
func integerDot8Rows1(a *integerArgs)

//go:noescape
func integerDot8Rows2(a *integerArgs)

//go:noescape
func integerDot8Rows3(a *integerArgs)

//go:noescape
func integerDot8Rows4(a *integerArgs)

//go:noescape
func integerDotFP4Rows1(a *integerArgs)

//go:noescape
func integerDotFP4Rows2(a *integerArgs)

//go:noescape
func integerDotFP4Rows3(a *integerArgs)

//go:noescape
func integerDotFP4Rows4(a *integerArgs)

//go:noescape
func integerI8MM8Rows1(a *integerArgs)

//go:noescape
func integerI8MM8Rows2(a *integerArgs)

//go:noescape
func integerI8MM8Rows3(a *integerArgs)

//go:noescape
func integerI8MM8Rows4(a *integerArgs)

//go:noescape
func integerI8MM2Rows4(a *integerArgs)

//go:noescape
func integerI8MM3Rows4(a *integerArgs)

//go:noescape
func integerI8MM4Rows4(a *integerArgs)

//go:noescape
func integerI8MM5Rows4(a *integerArgs)

//go:noescape
func integerI8MM6Rows4(a *integerArgs)

//go:noescape
func integerI8MMFP4Rows4(a *integerArgs)
