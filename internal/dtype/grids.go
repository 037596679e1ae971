package dtype

import (
	_ "embed"
	"encoding/binary"
	"math/bits"
)

// The grid formats of GGUF files, IQ1_S to IQ3_S: an index stands for eight columns, of IQ3_XXS
// and IQ3_S for four, which are an entry of a table. Signs are apart, and factors are odd. The value
// of a column is
//
//	d * 2^-shift * s * x        d a half, s odd, x an integer, |x| below GridMiddle
//
// Codes are x + GridMiddle.

// GridMiddle is the code of zero in the grid formats.
const GridMiddle = 64

// gridData has the tables of ggml, with the number of its level for each place in 2 or 3 bits. They are
// data of ggml (https://github.com/ggml-org/ggml, ggml-common.h), Copyright (c) 2023-2026 The ggml
// authors, MIT license.
//
//go:embed grids.bin
var gridData []byte

// Levels of the tables. Those of IQ1 are raised by one: a delta subtracts two or nothing.
var (
	levels1  = []int8{-8 + 1, 0 + 1, 8 + 1}
	levels2  = []int8{8, 25, 43}
	levels3X = []int8{4, 12, 20, 28, 36, 44, 52, 62}
	levels3S = []int8{1, 3, 5, 7, 9, 11, 13, 15}
)

// gridTables are the tables by the number of a format, as codes.
var gridTables = func() (tables [IQ3S - IQ1S + 1][]byte) {
	data := gridData
	for _, t := range []struct {
		f            Format
		bits, places int
		levels       []int8
	}{
		{IQ2XXS, 2, 256 * 8, levels2},
		{IQ2XS, 2, 512 * 8, levels2},
		{IQ2S, 2, 1024 * 8, levels2},
		{IQ3XXS, 3, 256 * 4, levels3X},
		{IQ3S, 3, 512 * 4, levels3S},
		{IQ1S, 2, 2048 * 8, levels1},
	} {
		table := make([]byte, t.places)
		Unpack(table, t.bits, data)
		for i, level := range table {
			table[i] = byte(GridMiddle + t.levels[level])
		}
		tables[t.f-IQ1S], data = table, data[packedBytes(t.places, t.bits):]
	}
	tables[IQ1M-IQ1S] = tables[0]
	return tables
}()

// Grid reports whether f is one of the grid formats.
func (f Format) Grid() bool { return f >= IQ1S && f <= IQ3S }

// GridTable is the table of the grid format f: entries of eight codes, for IQ3_XXS and IQ3_S of four. Those
// of IQ1_S and IQ1_M are codes of columns whose delta is 0; others are two less.
func (f Format) GridTable() []byte { return gridTables[f-IQ1S] }

// GridScale is the factor of the half of a block of the grid format f, a power of two.
func (f Format) GridScale() float32 {
	switch f {
	case IQ3S:
		return 1
	case IQ3XXS:
		return 0.25
	default:
		return 0.125
	}
}

// gridFormat is the description of a grid format.
func gridFormat(f Format, name string, bits, group, bytes int) blockFormat {
	g := &gridBlock{f: f, group: group, factor: f.GridScale()}
	b := blockFormat{name: name, bits: bits, group: group, columns: 256, bytes: bytes, scale: F32, scales: g.scales, halves: []int{0}}
	switch f {
	case IQ1S, IQ1M:
		b.unpack = g.ones
	case IQ3XXS, IQ3S:
		b.unpack = g.fours
	default:
		b.unpack = g.eights
	}
	if f == IQ1M {
		g.half = inPieces
		b.halves[0] = inPieces
	}
	return b
}

// gridBlock decodes blocks of a grid format.
type gridBlock struct {
	f      Format
	group  int
	half   int // where it is
	factor float32
}

// scales writes d times the factors, which are odd.
func (g *gridBlock) scales(scales, biases []float32, block []byte) {
	d := FromF16(getHalf(block, g.half)) * g.factor
	for i := range maxBlock / g.group {
		scales[i] = d * float32(2*g.f.GridFactor(block, i)+1)
		biases[i] = -GridMiddle * scales[i]
	}
}

// GridFactor is a number x in a block of the grid format f: the factor of group i is 2x+1.
func (f Format) GridFactor(block []byte, i int) uint8 {
	switch f {
	case IQ1S:
		return block[35+2*i] >> 4 & 7
	case IQ1M:
		return uint8(binary.LittleEndian.Uint16(block[48+2*(i/4):]) >> (3 * (i % 4)) & 7)
	case IQ2XXS:
		return block[9+8*i] >> 4
	case IQ3XXS:
		return block[69+4*i] >> 4
	case IQ3S:
		return block[106+i/2] >> (4 * (i % 2)) & 15
	default: // the last eight bytes
		return block[len(block)-8+i/2] >> (4 * (i % 2)) & 15
	}
}

// GridSigns are the stored signs of columns 32h to 32h+31 in a block of the grid format f, which is not IQ1, a byte for eight:
// bit i is set if column i is negative. Formats that store seven signs of eight have no highest bits.
func (f Format) GridSigns(block []byte, h int) uint32 {
	switch f {
	case IQ2XXS:
		return fourSevens(block[6+8*h:])
	case IQ2XS:
		x := get8(block, 2+8*h) >> 9 & 0x007f007f007f007f
		x |= x >> 8
		return uint32(x&0xffff | x>>16&0xffff0000)
	case IQ2S:
		return binary.LittleEndian.Uint32(block[34+4*h:])
	case IQ3XXS:
		return fourSevens(block[66+4*h:])
	default:
		return binary.LittleEndian.Uint32(block[74+4*h:])
	}
}

// fourSevens are four numbers of seven bits, a byte each.
func fourSevens(b []byte) uint32 {
	x := binary.LittleEndian.Uint32(b)
	return x&0x7f | x<<1&0x7f00 | x<<2&0x7f0000 | x<<3&0x7f000000
}

// signs are the signs of columns 8e to 8e+7. If seven are stored, the eighth makes the number of minus signs even.
func (g *gridBlock) signs(block []byte, e int) uint8 {
	s := uint8(g.f.GridSigns(block, e/4) >> (8 * (e % 4)))
	if g.f == IQ2S || g.f == IQ3S {
		return s
	}
	return s | uint8(bits.OnesCount8(s)&1)<<7
}

// ones unpacks IQ1_S and IQ1_M.
func (g *gridBlock) ones(q []uint8, block []byte) {
	table := gridTables[0]
	for e := range 32 {
		var index int
		var delta bool
		if g.f == IQ1S {
			high := binary.LittleEndian.Uint16(block[34+2*(e/4):])
			index, delta = int(block[2+e])|int(high>>(3*(e%4))&7)<<8, high>>15 != 0
		} else {
			high := block[32+e/2] >> (4 * (e % 2))
			index, delta = int(block[e])|int(high&7)<<8, high&8 != 0
		}
		x := get8(table, 8*index)
		if delta {
			x -= 2 * eachBit
		}
		put8(q, 8*e, x)
	}
}

// eights unpacks IQ2_XXS, IQ2_XS and IQ2_S.
func (g *gridBlock) eights(q []uint8, block []byte) {
	table := gridTables[g.f-IQ1S]
	for e := range 32 {
		var index int
		switch g.f {
		case IQ2XXS:
			index = int(block[2+e/4*8+e%4])
		case IQ2XS:
			index = int(binary.LittleEndian.Uint16(block[2+2*e:]) & 511)
		default:
			index = int(block[2+e]) | int(block[66+e/4]>>(2*(e%4))&3)<<8
		}
		put8(q, 8*e, signed(get8(table, 8*index), g.signs(block, e)))
	}
}

// fours unpacks IQ3_XXS and IQ3_S.
func (g *gridBlock) fours(q []uint8, block []byte) {
	table := gridTables[g.f-IQ1S]
	for e := range 32 {
		a, b := int(block[2+2*e]), int(block[3+2*e])
		if g.f == IQ3S {
			high := block[66+e/4] >> (2 * (e % 4))
			a, b = a|int(high&1)<<8, b|int(high&2)<<7
		}
		low, high := binary.LittleEndian.Uint32(table[4*a:]), binary.LittleEndian.Uint32(table[4*b:])
		put8(q, 8*e, signed(uint64(low)|uint64(high)<<32, g.signs(block, e)))
	}
}

// signed is eight codes with signs: bit i of signs is set if column i is negative.
func signed(x uint64, signs uint8) uint64 {
	m := (uint64(signs)*eachBit&0x8040201008040201 + 127*eachBit) >> 7 & eachBit * 255
	return x&^m | (2*GridMiddle*eachBit-x)&m
}

// inPieces is the place of the half of IQ1_M: the high halves of bytes 49, 51, 53 and 55.
const inPieces = -1

// getHalf reads the half of a block that is at a place.
func getHalf(block []byte, at int) uint16 {
	if at != inPieces {
		return binary.LittleEndian.Uint16(block[at:])
	}
	h := uint16(0)
	for i := range 4 {
		h |= uint16(block[49+2*i]) >> 4 << (4 * i)
	}
	return h
}

// PutHalves writes the halves of a block of the block format f, scales and biases, as next returns them.
func (f Format) PutHalves(block []byte, next func() uint16) {
	for _, at := range f.block().halves {
		h := next()
		if at != inPieces {
			binary.LittleEndian.PutUint16(block[at:], h)
			continue
		}
		for i := range 4 {
			block[49+2*i] = block[49+2*i]&15 | byte(h>>(4*i))<<4
		}
	}
}
