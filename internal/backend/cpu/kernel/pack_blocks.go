package kernel

import (
	"encoding/binary"

	"github.com/foretoken/foretoken/internal/dtype"
)

// Every function of this file writes one block of a GGUF file, of row r of 16, into its
// destination: a block, or a superblock of per blocks. Planes and tails are those of Weight.

// blockPacker is how blocks of a format are packed.
type blockPacker func(dst []byte, r, per int, block []byte)

// blockPackers are those of the formats, from dtype.Q4_0 on.
var blockPackers = [...]blockPacker{
	pack40, pack41, pack50, pack51, pack80, packQ4K, packQ5K, packQ6K, pack40, packIQ4XS,
	packQ2K, packQ3K, packTwos(dtype.TQ1, 52), packTQ2, packTwos(dtype.Q1_0, 0), packQ20,
	nil, nil, // packE2M1
}

// packTile writes a tile from the blocks of its rows. A few blocks of all rows, or one
// superblock, stay in the L1 cache meanwhile.
// scales is the output of scaleTable.
func (w *Weight) packTile(m *dtype.Matrix, n, t int, scales *[256]float32) {
	var pack blockPacker
	if w.format.Grid() {
		pack = w.packGrid
	} else if pack = blockPackers[w.format-dtype.Q4_0]; pack == nil {
		pack = func(dst []byte, r, per int, block []byte) { w.packE2M1(dst, r, per, block, scales) }
	}
	columns, size := m.Format.BlockSize()
	per := columns / w.group
	row, super := m.RowBytes(), per*w.block+w.tail
	step := max(1, packPanel/per)
	for tile := w.tile(n, t); len(tile) > 0; {
		panel := min(step*super, len(tile))
		done := w.tileBytes() - len(tile)
		for r := range min(Tile, w.rows-t*Tile) {
			src := m.Data[(t*Tile+r)*row+done/super*size:]
			for dst := tile[:panel]; len(dst) > 0; dst, src = dst[super:], src[size:] {
				pack(dst[:super], r, per, src[:size])
			}
		}
		tile = tile[panel:]
	}
}

// The codes of 32 columns of 16 rows by planes.
const (
	codes4 = 32 * Tile * 4 / 8
	codes5 = 32 * Tile * 5 / 8
	codes8 = 32 * Tile
)

const eachNibble = 0x0f0f0f0f0f0f0f0f

// twoFours writes eight codes of 4 bits in the bytes of x, four into the low halves.
func twoFours(x uint64) uint32 { return uint32(x) | uint32(x>>32)<<4 }

// putBlock writes 32 codes: 16 bytes have those of columns 0 to 15 in their low halves and
// the rest in their high ones.
func putBlock(dst []byte, r int, src []byte) {
	in, out := (*[16]byte)(src), (*[3*64 + 4]byte)(dst[4*r:])
	x, y := binary.LittleEndian.Uint64(in[:]), binary.LittleEndian.Uint64(in[8:])
	binary.LittleEndian.PutUint32(out[0:], twoFours(x&eachNibble))
	binary.LittleEndian.PutUint32(out[64:], twoFours(y&eachNibble))
	binary.LittleEndian.PutUint32(out[128:], twoFours(x>>4&eachNibble))
	binary.LittleEndian.PutUint32(out[192:], twoFours(y>>4&eachNibble))
}

// putHalf copies half i of a block to place r of a list.
func putHalf(list []byte, r int, block []byte, i int) {
	binary.LittleEndian.PutUint16(list[2*r:], binary.LittleEndian.Uint16(block[2*i:]))
}

func pack40(dst []byte, r, _ int, block []byte) {
	putBlock(dst, r, block[2:])
	putHalf(dst[codes4:], r, block, 0)
}

func pack41(dst []byte, r, _ int, block []byte) {
	putBlock(dst, r, block[4:])
	putHalf(dst[codes4:], r, block, 0)
	putHalf(dst[codes4+2*Tile:], r, block, 1)
}

func pack50(dst []byte, r, _ int, block []byte) {
	putBlock(dst, r, block[6:])
	putFifths(dst[codes4:], r, binary.LittleEndian.Uint32(block[2:]))
	putHalf(dst[codes5:], r, block, 0)
}

func pack51(dst []byte, r, _ int, block []byte) {
	putBlock(dst, r, block[8:])
	putFifths(dst[codes4:], r, binary.LittleEndian.Uint32(block[4:]))
	putHalf(dst[codes5:], r, block, 0)
	putHalf(dst[codes5+2*Tile:], r, block, 1)
}

// putFifths writes single bits of 32 columns.
func putFifths(plane []byte, r int, x uint32) {
	out, shift := (*[7*8 + 1]byte)(plane[r/2:]), r&1*4
	for v := range 8 {
		out[8*v] |= byte(x&15) << shift
		x >>= 4
	}
}

func pack80(dst []byte, r, _ int, block []byte) {
	in, out := (*[34]byte)(block), (*[7*64 + 4]byte)(dst[4*r:])
	for v := range 8 {
		binary.LittleEndian.PutUint32(out[64*v:], binary.LittleEndian.Uint32(in[2+4*v:])^0x80808080)
	}
	putHalf(dst[codes8:], r, block, 0)
}

// putPairOfGroups writes 64 codes: 32 bytes have those of one group in their low halves and
// those of the next in their high ones.
func putPairOfGroups(dst, next []byte, r int, src []byte) {
	in := (*[32]byte)(src)
	a, b := (*[3*64 + 4]byte)(dst[4*r:]), (*[3*64 + 4]byte)(next[4*r:])
	for k := range 4 {
		x := binary.LittleEndian.Uint64(in[8*k:])
		binary.LittleEndian.PutUint32(a[64*k:], twoFours(x&eachNibble))
		binary.LittleEndian.PutUint32(b[64*k:], twoFours(x>>4&eachNibble))
	}
}

func packQ4K(dst []byte, r, per int, block []byte) {
	for g := 0; g < per; g += 2 {
		putPairOfGroups(dst[g*codes4:], dst[(g+1)*codes4:], r, block[16+16*g:])
	}
	putFactorsK(dst[per*codes4:], r, block)
}

func packQ5K(dst []byte, r, per int, block []byte) {
	for g := 0; g < per; g += 2 {
		putPairOfGroups(dst[g*codes5:], dst[(g+1)*codes5:], r, block[48+16*g:])
	}
	shift := r & 1 * 4
	for j := range 4 { // of the bits of eight columns, eight groups
		x := transpose8(binary.LittleEndian.Uint64(block[16+8*j:]))
		plane := dst[codes4+16*j+r/2:]
		for g := range per {
			out := plane[g*codes5:][:9]
			out[0] |= byte(x) & 15 << shift
			out[8] |= byte(x) >> 4 << shift
			x >>= 8
		}
	}
	putFactorsK(dst[per*codes5:], r, block)
}

// transpose8 makes bit i of byte j bit j of byte i.
func transpose8(x uint64) uint64 {
	t := (x ^ x>>7) & 0x00aa00aa00aa00aa
	x ^= t ^ t<<7
	t = (x ^ x>>14) & 0x0000cccc0000cccc
	x ^= t ^ t<<14
	t = (x ^ x>>28) & 0x00000000f0f0f0f0
	return x ^ t ^ t<<28
}

// putFactorsK writes the factors of a row of a superblock of Q4_K or Q5_K.
func putFactorsK(tail []byte, r int, block []byte) {
	tail = tail[:tailK]
	putHalf(tail, r, block, 0)
	putHalf(tail[2*Tile:], r, block, 1)
	s := binary.LittleEndian.Uint32(block[4:])    // of four groups, and high bits of the others
	m := binary.LittleEndian.Uint32(block[8:])    // of their biases
	low := binary.LittleEndian.Uint32(block[12:]) // low bits of the other scales and biases
	binary.LittleEndian.PutUint32(tail[atNibblesK+4*r:], fourNibbles(s)|fourNibbles(low)<<16)
	binary.LittleEndian.PutUint32(tail[atBiasesK+4*r:], fourNibbles(m)|fourNibbles(low>>4)<<16)
	pairs := fourPairs(s>>4) | fourPairs(s>>6)<<8 | fourPairs(m>>4)<<16 | fourPairs(m>>6)<<24
	binary.LittleEndian.PutUint32(tail[atPairsK+4*r:], pairs)
}

// fourNibbles moves the low halves of four bytes together.
func fourNibbles(x uint32) uint32 {
	x &= 0x0f0f0f0f
	x = (x | x>>4) & 0x00ff00ff
	return (x | x>>8) & 0xffff
}

// fourPairs moves the two lowest bits of four bytes together.
func fourPairs(x uint32) uint32 {
	x &= 0x03030303
	x = (x | x>>6) & 0x000f000f
	return (x | x>>12) & 0xff
}

// packQ6K: of each half of a block, bytes with low bits have those of columns 64 apart, and
// bytes with high bits of four columns 32 apart.
func packQ6K(dst []byte, r, per int, block []byte) {
	in := (*[210]byte)(block)
	for half := range per / 8 {
		out := dst[half*8*codes6+4*r:]
		for j := range 2 { // 16 columns of each 32
			low, high := in[64*half+16*j:][:48], in[128+32*half+16*j:][:16]
			a, b := binary.LittleEndian.Uint64(low), binary.LittleEndian.Uint64(low[8:])
			c, d := binary.LittleEndian.Uint64(low[32:]), binary.LittleEndian.Uint64(low[40:])
			x, y := binary.LittleEndian.Uint64(high), binary.LittleEndian.Uint64(high[8:])
			putSixes(out[j*codes6:], a, b, x, y)
			putSixes(out[(2+j)*codes6:], c, d, x>>2, y>>2)
			putSixes(out[(4+j)*codes6:], a>>4, b>>4, x>>4, y>>4)
			putSixes(out[(6+j)*codes6:], c>>4, d>>4, x>>6, y>>6)
		}
	}
	tail := dst[per*codes6:]
	putHalf(tail, r, block[208:], 0)
	factors := tail[2*Tile+r:]
	for g, f := range in[192:][:per] {
		factors[Tile*g] = f
	}
}

// codes6 is the size of the codes of a group of 16 columns.
const codes6 = 16 * Tile * 6 / 8

// putSixes writes a group of 16 codes: the low bits of bytes of a and b, and of x and y.
func putSixes(dst []byte, a, b, x, y uint64) {
	out := (*[132]byte)(dst)
	z := x&eachPair | y&eachPair<<4
	binary.LittleEndian.PutUint32(out[0:], twoFours(a&eachNibble))
	binary.LittleEndian.PutUint32(out[64:], twoFours(b&eachNibble))
	binary.LittleEndian.PutUint32(out[128:], uint32(z)|uint32(z>>32)<<2)
}

func packIQ4XS(dst []byte, r, per int, block []byte) {
	for g := range per {
		putBlock(dst[g*codes4:], r, block[8+16*g:])
	}
	tail := dst[per*codes4:][:tailXS]
	putHalf(tail, r, block, 0)
	copy(tail[atNibblesXS+4*r:][:4], block[4:])
	putHalf(tail[atPairsXS:], r, block, 1)
}

// codes2 and codes3 are the sizes of the codes of a group of 16 columns.
const (
	codes2 = 16 * Tile * 2 / 8
	codes3 = 16 * Tile * 3 / 8
)

const eachPair = 0x0303030303030303

// fourTwos writes 16 codes of 2 bits in the bytes of x and y, four to a byte.
func fourTwos(x, y uint64) uint32 {
	x |= y << 4
	return uint32(x) | uint32(x>>32)<<2
}

// putTwos writes the codes of 256 columns in groups of 16, which are size bytes apart: of each 32 bytes of
// src two bits belong to columns 32 apart.
func putTwos(dst []byte, r, size int, src []byte) {
	in := (*[64]byte)(src)
	for i := range 4 {
		x, y := binary.LittleEndian.Uint64(in[16*i:]), binary.LittleEndian.Uint64(in[16*i+8:])
		out := dst[(i/2*8+i%2)*size+4*r:]
		for j := range 4 {
			binary.LittleEndian.PutUint32(out[2*j*size:], fourTwos(x>>(2*j)&eachPair, y>>(2*j)&eachPair))
		}
	}
}

func packQ2K(dst []byte, r, per int, block []byte) {
	putTwos(dst, r, codes2, block[16:])
	tail := dst[per*codes2:][:tail2K]
	putHalf(tail, r, block[80:], 0)
	putHalf(tail[2*Tile:], r, block[80:], 1)
	factors := tail[atBytes2K+r:]
	for g, f := range block[:per] {
		factors[Tile*g] = f
	}
}

func packQ3K(dst []byte, r, per int, block []byte) {
	putTwos(dst, r, codes3, block[32:])
	shift := r & 1 * 4
	for j := range 4 { // of the third bits of eight columns, eight times 32
		x := transpose8(binary.LittleEndian.Uint64(block[8*j:]))
		plane := dst[j/2*codes3+codes2+j%2*16+r/2:]
		for i := range 8 {
			out := plane[2*i*codes3:][:9]
			out[0] |= byte(x) & 15 << shift
			out[8] |= byte(x) >> 4 << shift
			x >>= 8
		}
	}
	tail := dst[per*codes3:]
	putHalf(tail, r, block[108:], 0)
	var f [16]int8
	dtype.Factors3K(&f, block)
	factors := tail[atBytes6K+r:]
	for g, f := range f[:per] {
		factors[Tile*g] = byte(f)
	}
}

// putNegated copies the half of a block at byte at to place r of a list, with the other sign.
func putNegated(list []byte, r int, block []byte, at int) {
	binary.LittleEndian.PutUint16(list[2*r:], binary.LittleEndian.Uint16(block[at:])^1<<15)
}

func packTQ2(dst []byte, r, _ int, block []byte) {
	putTwos(dst, r, codes2, block)
	for k := range 16 {
		out := dst[codes2*k+4*r:]
		binary.LittleEndian.PutUint32(out, ^binary.LittleEndian.Uint32(out))
	}
	putNegated(dst[16*codes2:], r, block, 64)
}

// packQ20: four codes of columns that follow one another are in a byte of the file, and here of columns four apart.
func packQ20(dst []byte, r, _ int, block []byte) {
	for k := range 4 {
		x := ^binary.LittleEndian.Uint32(block[2+4*k:])
		t := (x ^ x>>6) & 0x00cc00cc
		x ^= t ^ t<<6
		t = (x ^ x>>12) & 0x0000f0f0
		x ^= t ^ t<<12
		binary.LittleEndian.PutUint32(dst[codes2*k+4*r:], x)
	}
	putNegated(dst[4*codes2:], r, block, 0)
}

// packTwos is for codes of 2 bits that count from -1, with their scale at byte at. Here, and in packTQ2 and
// packQ20, they count from -2: so codes are taken from 3, and the scale is the other way round.
func packTwos(f dtype.Format, at int) blockPacker {
	columns, _ := f.BlockSize()
	return func(dst []byte, r, _ int, block []byte) {
		var codes [256]uint8
		f.BlockCodes(codes[:columns], block)
		out := dst[4*r:]
		for k := 0; k < columns; k += 16 {
			x, y := binary.LittleEndian.Uint64(codes[k:]), binary.LittleEndian.Uint64(codes[k+8:])
			binary.LittleEndian.PutUint32(out[4*k:], fourTwos(x^eachPair, y^eachPair))
		}
		putNegated(dst[columns*Tile*2/8:], r, block, at)
	}
}

// packE2M1 is for blocks of MXFP4 and NVFP4, which begin with the scales of their groups.
func (w *Weight) packE2M1(dst []byte, r, per int, block []byte, scales *[256]float32) {
	for g, src := 0, block[per:]; g < per; g, src = g+1, src[w.group/2:] {
		out := dst[g*w.block:]
		if w.group == 32 {
			putBlock(out, r, src)
		} else {
			x := binary.LittleEndian.Uint64(src)
			binary.LittleEndian.PutUint32(out[4*r:], twoFours(x&eachNibble))
			binary.LittleEndian.PutUint32(out[64+4*r:], twoFours(x>>4&eachNibble))
		}
		putFloat(out[w.codes+r*w.scale.Size():], w.scale, scales[block[g]])
	}
}
