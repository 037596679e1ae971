package kernel

import "encoding/binary"

// Every function of this file writes one row of a block, row r of 16, from its bytes in the
// file. They work on words: loading a model is mostly this.

// packWords writes numbers, or fours of byte codes, of 32 bits each.
func packWords(block []byte, r int, src []byte) {
	at := 4 * r
	for ; len(src) >= 8; src = src[8:] {
		x := binary.LittleEndian.Uint64(src)
		out := block[at:][:68]
		binary.LittleEndian.PutUint32(out, uint32(x))
		binary.LittleEndian.PutUint32(out[64:], uint32(x>>32))
		at += 128
	}
	if len(src) > 0 { // one number, or half a pair
		copy(block[at:], src)
	}
}

// packHalves writes numbers of 16 bits.
func packHalves(block []byte, r int, src []byte) {
	at := 2 * r
	for ; len(src) >= 8; src = src[8:] {
		x := binary.LittleEndian.Uint64(src)
		out := block[at:][:98]
		binary.LittleEndian.PutUint16(out, uint16(x))
		binary.LittleEndian.PutUint16(out[32:], uint16(x>>16))
		binary.LittleEndian.PutUint16(out[64:], uint16(x>>32))
		binary.LittleEndian.PutUint16(out[96:], uint16(x>>48))
		at += 128
	}
	for ; len(src) >= 2; src = src[2:] {
		copy(block[at:][:2], src)
		at += 32
	}
}

// packBytes writes byte codes column by column.
func packBytes(block []byte, r int, src []byte) {
	for k, x := range src {
		block[Tile*k+r] = x
	}
}

// packNibbles writes 4-bit codes from their stream, two to a byte.
func packNibbles(block []byte, r int, src []byte) {
	block = block[4*r:]
	for len(src) >= 32 { // a group of 64, without a check for each word
		in, out := (*[32]byte)(src), (*[7*64 + 4]byte)(block)
		binary.LittleEndian.PutUint32(out[0:], nibbles(binary.LittleEndian.Uint32(in[0:])))
		binary.LittleEndian.PutUint32(out[64:], nibbles(binary.LittleEndian.Uint32(in[4:])))
		binary.LittleEndian.PutUint32(out[128:], nibbles(binary.LittleEndian.Uint32(in[8:])))
		binary.LittleEndian.PutUint32(out[192:], nibbles(binary.LittleEndian.Uint32(in[12:])))
		binary.LittleEndian.PutUint32(out[256:], nibbles(binary.LittleEndian.Uint32(in[16:])))
		binary.LittleEndian.PutUint32(out[320:], nibbles(binary.LittleEndian.Uint32(in[20:])))
		binary.LittleEndian.PutUint32(out[384:], nibbles(binary.LittleEndian.Uint32(in[24:])))
		binary.LittleEndian.PutUint32(out[448:], nibbles(binary.LittleEndian.Uint32(in[28:])))
		src, block = src[32:], block[min(512, len(block)):]
	}
	for at := 0; len(src) >= 4; at, src = at+64, src[4:] {
		binary.LittleEndian.PutUint32(block[at:], nibbles(binary.LittleEndian.Uint32(src)))
	}
}

// nibbles spreads the low four of eight codes over the low halves of four bytes, the high
// four over the high halves.
func nibbles(x uint32) uint32 {
	y := uint64(x)
	y = (y | y<<16) & 0x0000ffff0000ffff
	y = (y | y<<8) & 0x00ff00ff00ff00ff
	y = (y | y<<4) & 0x0f0f0f0f0f0f0f0f
	return uint32(y) | uint32(y>>32)<<4
}

// packPairs writes 2-bit codes from their stream, four to a byte.
func packPairs(block []byte, r int, src []byte) {
	at := 4 * r
	for ; len(src) >= 4; src = src[4:] {
		// A byte has four columns of one vector and shall have one column of four
		// vectors: a matrix of 4×4 pairs of bits, transposed by two rounds of swaps.
		x := binary.LittleEndian.Uint32(src)
		t := (x ^ x>>6) & 0x00cc00cc
		x ^= t ^ t<<6
		t = (x ^ x>>12) & 0x0000f0f0
		x ^= t ^ t<<12
		binary.LittleEndian.PutUint32(block[at:], x)
		at += 64
	}
}

// packThrees writes a group of 3-bit codes. src is their stream and the following bytes of the
// file: the next two functions and it read eight codes as eight bytes.
func packThrees(block []byte, r int, src []byte, group int) {
	high := block[4*group+r/2:]
	low := block[4*r:]
	for k := 0; k < group; k += 16 {
		x, y := sixteen(src[k/8*3:], 3)
		x, y = spread3(x), spread3(y)
		putPairs(low[4*k:], x&0x0303030303030303|y&0x0303030303030303<<4)
		putBits(high[2*k:], r, x>>2, y>>2)
	}
}

// packFives writes a group of 5-bit codes.
func packFives(block []byte, r int, src []byte, group int) {
	high := block[8*group+r/2:]
	low := block[4*r:]
	for k := 0; k < group; k += 16 {
		x, y := sixteen(src[k/8*5:], 5)
		x, y = spread5(x), spread5(y)
		putNibbles(low[8*k:], x&0x0f0f0f0f0f0f0f0f, y&0x0f0f0f0f0f0f0f0f)
		putBits(high[2*k:], r, x>>4, y>>4)
	}
}

// packSixes writes a group of 6-bit codes.
func packSixes(block []byte, r int, src []byte, group int) {
	high := block[8*group+4*r:]
	low := block[4*r:]
	for k := 0; k < group; k += 16 {
		x, y := sixteen(src[k/8*6:], 6)
		x, y = spread6(x), spread6(y)
		putNibbles(low[8*k:], x&0x0f0f0f0f0f0f0f0f, y&0x0f0f0f0f0f0f0f0f)
		putPairs(high[4*k:], x>>4&0x0303030303030303|y&0x3030303030303030)
	}
}

// sixteen loads the streams of sixteen codes, eight to a word, with the bytes after them.
func sixteen(src []byte, bits int) (x, y uint64) {
	if len(src) < 16 { // the end of the file
		var last [16]byte
		copy(last[:], src)
		src = last[:]
	}
	return binary.LittleEndian.Uint64(src), binary.LittleEndian.Uint64(src[bits:])
}

// spread3 moves eight codes of 3 bits apart, one to a byte, as spread5 and spread6 do.
func spread3(x uint64) uint64 {
	x = x&0xfff | x&0xfff000<<20
	x = x&0x0000003f0000003f | x&0x00000fc000000fc0<<10
	return x&0x0007000700070007 | x&0x0038003800380038<<5
}

func spread5(x uint64) uint64 {
	x = x&0xfffff | x&0xfffff00000<<12
	x = x&0x000003ff000003ff | x&0x000ffc00000ffc00<<6
	return x&0x001f001f001f001f | x&0x03e003e003e003e0<<3
}

func spread6(x uint64) uint64 {
	x = x&0xffffff | x&0xffffff000000<<8
	x = x&0x00000fff00000fff | x&0x00fff00000fff000<<4
	return x&0x003f003f003f003f | x&0x0fc00fc00fc00fc0<<2
}

// putNibbles writes sixteen codes of 4 bits, x before y, into two vectors.
func putNibbles(plane []byte, x, y uint64) {
	plane = plane[:68]
	binary.LittleEndian.PutUint32(plane, uint32(x)|uint32(x>>32)<<4)
	binary.LittleEndian.PutUint32(plane[64:], uint32(y)|uint32(y>>32)<<4)
}

// putPairs writes sixteen codes of 2 bits: of z's bytes the low halves have the first
// eight, the high halves the others.
func putPairs(plane []byte, z uint64) {
	binary.LittleEndian.PutUint32(plane, uint32(z)|uint32(z>>32)<<2)
}

// putBits writes the lowest bits of sixteen bytes, x before y, into four vectors.
func putBits(plane []byte, r int, x, y uint64) {
	// The multiplication brings the bits of each half together in its fourth byte.
	const ones, gather = 0x0101010101010101, 0x01020408
	plane, shift := plane[:25], r&1*4
	x, y = x&ones, y&ones
	plane[0] |= byte(uint32(x)*gather>>24) << shift
	plane[8] |= byte(uint32(x>>32)*gather>>24) << shift
	plane[16] |= byte(uint32(y)*gather>>24) << shift
	plane[24] |= byte(uint32(y>>32)*gather>>24) << shift
}

// planes are the widths a code of bits bits is split into, lowest bits first.
func planes(bits int) []int {
	switch bits {
	case 2:
		return planes2[:1]
	case 3:
		return planes2[:]
	case 4:
		return planes4[:1]
	case 5:
		return planes4[:]
	case 6:
		return planes6[:]
	default:
		return planes8[:]
	}
}

var (
	planes2 = [...]int{2, 1}
	planes4 = [...]int{4, 1}
	planes6 = [...]int{4, 2}
	planes8 = [...]int{8}
)
