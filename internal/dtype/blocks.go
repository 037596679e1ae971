package dtype

import (
	"encoding/binary"
	"fmt"
)

// A block format has Data as GGUF files do: every row is a sequence of blocks, and a block
// has the codes of some columns and their scales. Numbers are
//
//	x = s*q + b        with integers, the bias b written out or a multiple of s
//	x = s*level[q]     with levels
//
// where s and b, of one group each, are products of a small float and a small integer, and so
// exact in float32. NVFP4Blocks are also multiplied by Global.
type blockFormat struct {
	name           string
	bits, group    int  // of a code; columns that share a scale
	columns, bytes int  // of a block
	loaded         int  // bytes of a block in device memory, about; 0: as many as in the file
	scale          Type // holds every scale and bias exactly
	// unpack writes the codes of a block, one to a byte.
	unpack func(q []uint8, block []byte)
	// scales writes the scale and the bias of each group of a block.
	scales func(s, b []float32, block []byte)
	levels *[16]int8 // values of codes, nil if a code is its own value; biases are zero
	halves []int     // where the halves are in a block, or inPieces
}

// width is how many bits a code of the block format f has that is unpacked.
func (f Format) width() int {
	if f.Grid() {
		return 8
	}
	return f.block().bits
}

// maxBlock is the maximum number of columns of a block, maxGroups of its groups.
const (
	maxBlock  = 256
	maxGroups = 16
)

var blockFormats = [...]blockFormat{
	{"Q4_0", 4, 32, 32, 18, 0, F16, nibbles(2), symmetric(-8, 0), nil, []int{0}},
	{"Q4_1", 4, 32, 32, 20, 0, F16, nibbles(4), asymmetric, nil, []int{0, 2}},
	{"Q5_0", 5, 32, 32, 22, 0, F16, fives(2), symmetric(-16, 0), nil, []int{0}},
	{"Q5_1", 5, 32, 32, 24, 0, F16, fives(4), asymmetric, nil, []int{0, 2}},
	{"Q8_0", 8, 32, 32, 34, 0, F16, bytes8, symmetric(-128, 0), nil, []int{0}},
	{"Q4_K", 4, 32, 256, 144, 0, F32, nibblesK, scalesK, nil, []int{0, 2}},
	{"Q5_K", 5, 32, 256, 176, 0, F32, fivesK, scalesK, nil, []int{0, 2}},
	{"Q6_K", 6, 16, 256, 210, 212, F32, sixesK, scales6K, nil, []int{208}},
	{"IQ4_NL", 4, 32, 32, 18, 0, F16, nibbles(2), symmetric(0, 0), &Levels, []int{0}},
	{"IQ4_XS", 4, 32, 256, 136, 0, F32, nibblesXS, scalesXS, &Levels, []int{0}},
	{"Q2_K", 2, 16, 256, 84, 0, F32, twosK(16), scales2K, nil, []int{80, 82}},
	{"Q3_K", 3, 16, 256, 110, 116, F32, threesK, scales3K, nil, []int{108}},
	{"TQ1_0", 2, 256, 256, 54, 66, F16, ternary, symmetric(-1, 52), nil, []int{52}},
	{"TQ2_0", 2, 256, 256, 66, 0, F16, twosK(0), symmetric(-1, 64), nil, []int{64}},
	{"Q1_0", 2, 128, 128, 18, 34, F16, signs, symmetric(-1, 0), nil, []int{0}},
	{"Q2_0", 2, 64, 64, 18, 0, F16, twos, symmetric(-1, 0), nil, []int{0}},
	{"MXFP4", 4, 32, 32, 17, 18, F8E8M0, nibbles(1), scalesMX, &e2m1Halves, nil},
	{"NVFP4", 4, 16, 64, 36, 40, F8E4M3, nibblesNV, scalesNV, &e2m1Halves, nil},
	gridFormat(IQ1S, "IQ1_S", 1, 32, 50),
	gridFormat(IQ1M, "IQ1_M", 1, 16, 56),
	gridFormat(IQ2XXS, "IQ2_XXS", 2, 32, 66),
	gridFormat(IQ2XS, "IQ2_XS", 2, 16, 74),
	gridFormat(IQ2S, "IQ2_S", 2, 16, 82),
	gridFormat(IQ3XXS, "IQ3_XXS", 3, 32, 98),
	gridFormat(IQ3S, "IQ3_S", 3, 32, 110),
}

// Levels are the values of the codes of IQ4_NL and IQ4_XS.
var Levels = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// e2m1Halves are the numbers of the codes E2M1, in halves.
var e2m1Halves = [16]int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// block is the description of a block format, nil if f is not one.
func (f Format) block() *blockFormat {
	if f < Q4_0 || int(f-Q4_0) >= len(blockFormats) {
		return nil
	}
	return &blockFormats[f-Q4_0]
}

// Blocks reports whether f is one of the block formats.
func (f Format) Blocks() bool { return f.block() != nil }

// Leveled reports whether codes of the block format f are places in Levels.
func (f Format) Leveled() bool { return f.Blocks() && f.block().levels == &Levels }

// E2M1 reports whether f has nibbles of type E2M1: MXFP4, NVFP4, or GGUF's blocks of these.
func (f Format) E2M1() bool { return f == MXFP4 || f == NVFP4 || f == MXFP4Blocks || f == NVFP4Blocks }

// BlockSize is how many columns a block of the block format f has, and in how many bytes.
func (f Format) BlockSize() (columns, bytes int) {
	b := f.block()
	return b.columns, b.bytes
}

// BlockCodes writes the codes of a block of the block format f, one to a byte.
func (f Format) BlockCodes(q []uint8, block []byte) { f.block().unpack(q, block) }

// NewBlocks is a matrix of the block format f without Data.
func NewBlocks(f Format, rows, cols int) Matrix {
	b := f.block()
	m := Matrix{Rows: rows, Cols: cols, Format: f, Group: b.group, ScaleType: b.scale}
	if f == NVFP4Blocks {
		m.Global = 1
	}
	return m
}

// validate is ValidateFormat for a block format.
func (b *blockFormat) validate(m *Matrix) error {
	switch {
	case m.Group != b.group || m.ScaleType != b.scale:
		return fmt.Errorf("dtype: %s matrix with scales of %v in groups of %d, want %v in groups of %d",
			b.name, m.ScaleType, m.Group, b.scale, b.group)
	case m.Cols%b.columns != 0:
		return fmt.Errorf("dtype: %s matrix of %d columns is not a whole number of blocks of %d", b.name, m.Cols, b.columns)
	}
	return nil
}

// row decodes a row of blocks: of affine formats as affineRow does, with levels exactly.
func (b *blockFormat) row(dst []float32, data []byte) {
	var q [maxBlock]uint8
	var scales, biases [maxGroups]float32
	for ; len(data) > 0; data, dst = data[b.bytes:], dst[b.columns:] {
		b.unpack(q[:b.columns], data[:b.bytes])
		b.scales(scales[:], biases[:], data[:b.bytes])
		for i, v := range q[:b.columns] {
			if g := i / b.group; b.levels != nil {
				dst[i] = scales[g] * float32(b.levels[v])
			} else {
				dst[i] = float32(scales[g]*float32(v)) + biases[g]
			}
		}
	}
}

// Sound reports the first number among the scales and biases of rows [r0, r1) that is not finite, as
// only damage makes one.
func (m *Matrix) Sound(r0, r1 int) error {
	b := m.Format.block()
	if b == nil {
		return m.soundScales(r0, r1)
	}
	n := m.RowBytes()
	for at := r0 * n; at < r1*n; at += b.bytes {
		for _, h := range b.halves {
			const exponent = 0x7c00 // all of its bits: infinite, or no number
			if x := getHalf(m.Data[at:], h); x&exponent == exponent {
				return fmt.Errorf("row %d: a block has scale or bias %g: the file is damaged", at/n, FromF16(x))
			}
		}
		if m.Format == MXFP4Blocks && m.Data[at] == 255 {
			return fmt.Errorf("row %d: a block has the exponent 255, which is not a number: the file is damaged", at/n)
		}
	}
	return nil
}

// AffineForm is the Affine encoding, without Data, that has the numbers of a matrix in a
// block format; ok is false if there is none.
func (m *Matrix) AffineForm() (a Matrix, ok bool) {
	b := m.Format.block()
	if b == nil || b.levels != nil {
		return Matrix{}, false
	}
	return Matrix{Rows: m.Rows, Cols: m.Cols, Format: Affine, Bits: m.Format.width(), Group: b.group, ScaleType: b.scale}, true
}

// Widen is the matrix as Affine with scales and biases of F32, in new memory and with the
// same numbers. Its format is one that has an AffineForm, else it panics.
func (m *Matrix) Widen() Matrix {
	form, ok := m.AffineForm()
	if !ok {
		panic(fmt.Sprintf("dtype: Widen of %v", m.Format))
	}
	a, err := NewAffine(m.Rows, m.Cols, form.Bits, form.Group, F32)
	if err != nil {
		panic(err)
	}
	widenRows(&a, m, 0, m.Rows)
	return a
}

// widenRows is Widen for rows [r0, r1). Calls on disjoint ranges may run at the same time.
func widenRows(dst, src *Matrix, r0, r1 int) {
	var q [maxBlock]uint8
	var scales, biases [maxGroups]float32
	b := src.Format.block()
	groups, width := b.columns/b.group, src.Format.width()
	codes := b.columns * width / 8
	for at := r0 * src.RowBytes() / b.bytes; at < r1*src.RowBytes()/b.bytes; at++ {
		block := src.Data[at*b.bytes:][:b.bytes]
		b.unpack(q[:b.columns], block)
		b.scales(scales[:], biases[:], block)
		Pack(dst.Data[at*codes:][:codes], width, q[:b.columns])
		FromF32(dst.Scales[4*at*groups:][:4*groups], F32, scales[:groups])
		FromF32(dst.Biases[4*at*groups:][:4*groups], F32, biases[:groups])
	}
}

func halfAt(b []byte) float32 { return FromF16(binary.LittleEndian.Uint16(b)) }

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

// symmetric blocks have one scale, at byte at, a multiple of which is the bias.
func symmetric(zero float32, at int) func(scales, biases []float32, block []byte) {
	return func(scales, biases []float32, block []byte) {
		scales[0] = halfAt(block[at:])
		biases[0] = zero * scales[0]
	}
}

// asymmetric blocks begin with scale and bias.
func asymmetric(scales, biases []float32, block []byte) {
	scales[0], biases[0] = halfAt(block), halfAt(block[2:])
}

// scalesK: two halves, for scales and biases, and then eight pairs of 6-bit factors. The
// first four pairs are the low bits of bytes 0 to 3 and 4 to 7, whose high bits are the
// high bits of the other four, which have their low bits in bytes 8 to 11.
func scalesK(scales, biases []float32, block []byte) {
	d, least, f := halfAt(block), halfAt(block[2:]), block[4:16]
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

// sixesK: for each half of the block, 64 bytes with the low four bits of 128 codes, and 32
// bytes with two high bits each of four codes, 32 columns apart.
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
	d := halfAt(block[208:])
	for g, x := range block[192:208] {
		scales[g] = d * float32(int8(x))
		biases[g] = -32 * scales[g]
	}
}

// nibblesXS: 128 bytes; each 16 of them are a group, as in the blocks of 32 columns.
func nibblesXS(q []uint8, block []byte) {
	for g := range 8 {
		halves(q[32*g:], block[8+16*g:], 16)
	}
}

// scalesXS: a half and eight factors of 6 bits that count from -32, their two high bits in 16
// bits together, their low bits in four bytes.
func scalesXS(scales, biases []float32, block []byte) {
	d, high := halfAt(block), binary.LittleEndian.Uint16(block[2:])
	for g := range 8 {
		f := int(block[4+g/2]>>(4*(g%2))&15) | int(high>>(2*g)&3)<<4
		scales[g], biases[g] = d*float32(f-32), 0
	}
}

// twosK: 64 bytes from byte at on; each 32 of them have two bits each of four codes, 32
// columns apart.
func twosK(at int) func(q []uint8, block []byte) {
	return func(q []uint8, block []byte) {
		for i := 0; i < 64; i += 8 {
			x, out := get8(block, at+i), q[i/32*128+i%32:]
			for j := range 4 {
				put8(out, 32*j, x>>(2*j)&eachPair)
			}
		}
	}
}

// scales2K: 16 bytes with a factor of the scale in their low half and one of the bias in their high
// half; at the end of the block the halves that these are multiplied with.
func scales2K(scales, biases []float32, block []byte) {
	d, least := halfAt(block[80:]), halfAt(block[82:])
	for g, f := range block[:16] {
		scales[g] = d * float32(f&15)
		biases[g] = -(least * float32(f>>4))
	}
}

// threesK: 32 bytes whose bit g is the third bit of a code of the 32 columns g, and then as twosK.
func threesK(q []uint8, block []byte) {
	twosK(32)(q, block)
	for i := 0; i < 32; i += 8 {
		x := get8(block, i)
		for g := range 8 {
			put8(q, 32*g+i, get8(q, 32*g+i)|x>>g&eachBit<<2)
		}
	}
}

// Factors3K writes the 16 factors of a block of Q3_K, minus 32. Eight bytes have the low four bits: low halves
// for the first eight factors, high halves for the last eight. Four more bytes have two high bits each of
// factors four apart.
func Factors3K(f *[16]int8, block []byte) {
	low, high := get8(block, 96), uint64(binary.LittleEndian.Uint32(block[104:]))
	for i := range 2 {
		x := low>>(4*i)&eachHalf | (high>>(4*i)&(eachPair>>32)|high>>(4*i+2)&(eachPair>>32)<<32)<<4
		for g := range 8 {
			f[8*i+g] = int8(x>>(8*g)) - 32
		}
	}
}

// scales3K: as Factors3K, times one half; the codes count from -4.
func scales3K(scales, biases []float32, block []byte) {
	var factors [16]int8
	Factors3K(&factors, block)
	d := halfAt(block[108:])
	for g, f := range factors {
		scales[g] = d * float32(f)
		biases[g] = -4 * scales[g]
	}
}

// ternary: bytes with five digits of base 3 each, as fractions of 256, the first digit highest: 32
// bytes for 160 columns and 16 for 80, and then four bytes with four digits each. The columns of
// a byte are as many apart as there are such bytes.
func ternary(q []uint8, block []byte) {
	for _, part := range []struct{ from, bytes, digits int }{{0, 32, 5}, {32, 16, 5}, {48, 4, 4}} {
		for i, b := range block[part.from:][:part.bytes] {
			for n := range part.digits {
				q[n*part.bytes+i] = uint8(uint16(b) * 3 >> 8)
				b *= 3
			}
		}
		q = q[part.bytes*part.digits:]
	}
}

// signs: a bit for each column, of the codes 0 and 2.
func signs(q []uint8, block []byte) {
	for i := range q {
		q[i] = block[2+i/8] >> (i % 8) & 1 << 1
	}
}

// twos: four codes in a byte, the first in its lowest bits.
func twos(q []uint8, block []byte) { Unpack(q, 2, block[2:]) }

// scalesMX: an exponent, for numbers that are twice their levels.
func scalesMX(scales, biases []float32, block []byte) {
	scales[0], biases[0] = 0.5*FromE8M0(block[0]), 0
}

// nibblesNV: four groups of 16 columns, each of them in eight bytes: low halves, then high halves.
func nibblesNV(q []uint8, block []byte) {
	for g := range 4 {
		halves(q[16*g:], block[4+8*g:], 8)
	}
}

// scalesNV: of each group a scale, for numbers that are twice their levels.
func scalesNV(scales, biases []float32, block []byte) {
	for g, x := range block[:4] {
		scales[g], biases[g] = 0.5*e4m3[UnsignedE4M3(x)], 0
	}
}

// UnsignedE4M3 is the scale of a group of NVFP4 blocks as E4M3: it has no sign, and the code that is not a number stands for
// zero.
func UnsignedE4M3(x uint8) uint8 {
	if x &= 127; x == 127 {
		return 0
	}
	return x
}
