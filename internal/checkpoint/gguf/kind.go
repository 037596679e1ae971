package gguf

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/dtype"
)

// Type is how the numbers of a tensor are written, as the format numbers the ways.
type Type uint32

// typeNames are the names of the types in circulation.
var typeNames = map[Type]string{
	0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K",
	12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
	20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
	29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4",
}

// String is the type's name.
func (t Type) String() string {
	if name, ok := typeNames[t]; ok {
		return name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// superBlock is the maximum number of columns of a block.
const superBlock = 256

// kind says what the blocks of a type hold and what they become.
type kind struct {
	columns, bytes int          // of a block
	matrix         dtype.Matrix // without rows, columns and bytes
	// unpack writes the codes of a block, one to a byte; nil for what is plain in the file.
	unpack func(q []uint8, block []byte)
	// scale writes the scale and the bias of each group of a block.
	scale func(scales, biases []float32, block []byte)
}

var kinds = map[Type]*kind{
	0:  {columns: 1, bytes: 4, matrix: dtype.Matrix{Type: dtype.F32}},
	1:  {columns: 1, bytes: 2, matrix: dtype.Matrix{Type: dtype.F16}},
	30: {columns: 1, bytes: 2, matrix: dtype.Matrix{Type: dtype.BF16}},
	// A half times a power of two is a half, so scale and bias are exact halves.
	2: {columns: 32, bytes: 18, matrix: affine(4, 32, dtype.F16), unpack: nibbles(2), scale: symmetric(-8)},
	3: {columns: 32, bytes: 20, matrix: affine(4, 32, dtype.F16), unpack: nibbles(4), scale: asymmetric},
	6: {columns: 32, bytes: 22, matrix: affine(5, 32, dtype.F16), unpack: fives(2), scale: symmetric(-16)},
	7: {columns: 32, bytes: 24, matrix: affine(5, 32, dtype.F16), unpack: fives(4), scale: asymmetric},
	8: {columns: 32, bytes: 34, matrix: affine(8, 32, dtype.F16), unpack: bytes8, scale: symmetric(-128)},
	// A half times an integer of six or eight bits is an exact float32, and so is its
	// product with a code.
	12: {columns: superBlock, bytes: 144, matrix: affine(4, 32, dtype.F32), unpack: nibblesK, scale: scalesK},
	13: {columns: superBlock, bytes: 176, matrix: affine(5, 32, dtype.F32), unpack: fivesK, scale: scalesK},
	14: {columns: superBlock, bytes: 210, matrix: affine(6, 16, dtype.F32), unpack: sixesK, scale: scales6K},
}

func affine(bits, group int, scale dtype.Type) dtype.Matrix {
	return dtype.Matrix{Format: dtype.Affine, Bits: bits, Group: group, ScaleType: scale}
}

// kind is what is known of the type, nil if it is not read.
func (t Type) kind() *kind { return kinds[t] }

// readable lists the types that are read.
func readable() string {
	names := make([]string, 0, len(kinds))
	for t := range kinds {
		names = append(names, t.String())
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func half(b []byte) float32 { return dtype.FromF16(binary.LittleEndian.Uint16(b)) }

// The functions that unpack take eight bytes at a time as a word.
const (
	eachBit  = 0x0101010101010101
	eachPair = 3 * eachBit
	eachHalf = 15 * eachBit
)

func get8(b []byte, i int) uint64     { return binary.LittleEndian.Uint64(b[i:]) }
func put8(q []uint8, i int, x uint64) { binary.LittleEndian.PutUint64(q[i:], x) }

// nibbles are 16 bytes from byte at on: their low halves, then their high halves.
func nibbles(at int) func(q []uint8, block []byte) {
	return func(q []uint8, block []byte) { halves(q, block[at:], 16) }
}

// halves writes the low halves of n bytes, and then their high halves.
func halves(q []uint8, b []byte, n int) {
	for i := 0; i < n; i += 8 {
		x := get8(b, i)
		put8(q, i, x&eachHalf)
		put8(q, n+i, x>>4&eachHalf)
	}
}

// fives are 32 fifth bits from byte at on, and then nibbles.
func fives(at int) func(q []uint8, block []byte) {
	low := nibbles(at + 4)
	return func(q []uint8, block []byte) {
		low(q, block)
		for i, b := range block[at : at+4] {
			// Every byte keeps one of the eight bits, and is one if it is not zero.
			x := (uint64(b)*eachBit&0x8040201008040201 + 127*eachBit) >> 7 & eachBit
			put8(q, 8*i, get8(q, 8*i)|x<<4)
		}
	}
}

// bytes8 are signed bytes, which become unsigned.
func bytes8(q []uint8, block []byte) {
	for i := 0; i < 32; i += 8 {
		put8(q, i, get8(block, 2+i)^128*eachBit)
	}
}

// symmetric blocks begin with a scale, a multiple of which is the bias.
func symmetric(zero float32) func(scales, biases []float32, block []byte) {
	return func(scales, biases []float32, block []byte) {
		scales[0] = half(block)
		biases[0] = zero * scales[0]
	}
}

// asymmetric blocks begin with scale and bias.
func asymmetric(scales, biases []float32, block []byte) {
	scales[0], biases[0] = half(block), half(block[2:])
}

// scalesK: two halves, for scales and biases, and then eight pairs of 6-bit factors. The
// first four pairs are the low bits of bytes 0 to 3 and 4 to 7, whose high bits are the
// high bits of the other four, which have their low bits in bytes 8 to 11.
func scalesK(scales, biases []float32, block []byte) {
	d, least, f := half(block), half(block[2:]), block[4:16]
	for g := range 4 {
		scales[g] = d * float32(f[g]&63)
		biases[g] = -(least * float32(f[g+4]&63))
		scales[g+4] = d * float32(f[g+8]&15|f[g]>>6<<4)
		biases[g+4] = -(least * float32(f[g+8]>>4|f[g+4]>>6<<4))
	}
}

// nibblesK: 128 bytes; each 32 of them are two groups, their low halves and their high ones.
func nibblesK(q []uint8, block []byte) {
	for i := range 4 {
		halves(q[64*i:], block[len(block)-128+32*i:], 32)
	}
}

// fivesK: 32 bytes whose bit g is the fifth bit of a code of group g, and then as nibblesK.
func fivesK(q []uint8, block []byte) {
	nibblesK(q, block)
	for i := 0; i < 32; i += 8 {
		x := get8(block, 16+i)
		for g := range 8 {
			put8(q, 32*g+i, get8(q, 32*g+i)|x>>g&eachBit<<4)
		}
	}
}

// sixesK: of each half of the block, 64 bytes with the low four bits of 128 codes, and 32
// bytes with two high bits each of four codes that lie 32 apart.
func sixesK(q []uint8, block []byte) {
	for h := range 2 {
		low, high, out := block[64*h:], block[128+32*h:], q[128*h:]
		for i := 0; i < 32; i += 8 {
			a, b, x := get8(low, i), get8(low, i+32), get8(high, i)
			put8(out, i, a&eachHalf|x&eachPair<<4)
			put8(out, i+32, b&eachHalf|x>>2&eachPair<<4)
			put8(out, i+64, a>>4&eachHalf|x>>4&eachPair<<4)
			put8(out, i+96, b>>4&eachHalf|x>>6&eachPair<<4)
		}
	}
}

// scales6K: 16 signed factors of one half; the codes count from -32.
func scales6K(scales, biases []float32, block []byte) {
	d := half(block[208:])
	for g, x := range block[192:208] {
		scales[g] = d * float32(int8(x))
		biases[g] = -32 * scales[g]
	}
}
