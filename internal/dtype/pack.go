package dtype

import (
	"encoding/binary"
	"fmt"
)

// A packed row is one little-endian bit stream: element i occupies bits
// [i*bits, (i+1)*bits), bit n of the stream is bit n%8 of byte n/8. So eight
// elements are exactly `bits` bytes at any width, which is the step of the loops
// here: the eight are moved apart, or together, by halves inside one 64-bit word.

// packedBytes is the number of bytes that n elements of the given width occupy.
func packedBytes(n, bits int) int { return (n*bits + 7) / 8 }

// Unpack reads len(dst) elements of 1 to 8 bits from src, which must hold them;
// else it panics.
func Unpack(dst []uint8, bits int, src []byte) {
	checkPacked("Unpack", len(dst), bits, len(src))
	if bits == 8 {
		copy(dst, src)
		return
	}
	b := uint(bits) // masked in the shifts below, which spares the test for shifts past 63
	one := uint64(1)<<b - 1
	two := one | one<<b
	four := two | two<<(2*b)
	one *= 0x0001000100010001 // in every lane of 16 bits; pairs in every lane of 32
	two *= 0x0000000100000001
	for len(dst) >= 8 {
		w := eight(src, bits)
		w = w&four | w>>(4*b&63)&four<<32
		w = w&two | w>>(2*b&63)&two<<16
		w = w&one | w>>(b&63)&one<<8
		binary.LittleEndian.PutUint64(dst, w)
		dst, src = dst[8:], src[bits:]
	}
	for i := range dst {
		pos := i * bits
		v := uint(src[pos/8]) >> (pos % 8)
		if pos%8+bits > 8 {
			v |= uint(src[pos/8+1]) << (8 - pos%8)
		}
		dst[i] = uint8(v) & (1<<b - 1)
	}
}

// eight loads the stream of eight elements: the first bits bytes of src in the
// low bits. Higher bits are undefined.
func eight(src []byte, bits int) uint64 {
	if len(src) >= 8 {
		return binary.LittleEndian.Uint64(src)
	}
	var w uint64
	for i, b := range src[:bits] {
		w |= uint64(b) << (8 * i)
	}
	return w
}

// Pack writes the elements of q, each below 2^bits, into the first
// packedBytes(len(q), bits) bytes of dst; unused bits of the last byte become
// zero. It panics when dst is shorter.
func Pack(dst []byte, bits int, q []uint8) {
	checkPacked("Pack", len(q), bits, len(dst))
	dst = dst[:packedBytes(len(q), bits)]
	if bits == 8 {
		copy(dst, q)
		return
	}
	b := uint(bits)
	mask := uint64(1)<<b - 1
	for len(q) >= 8 {
		w := binary.LittleEndian.Uint64(q) & (mask * 0x0101010101010101)
		w = w&0x00ff00ff00ff00ff | w>>8&0x00ff00ff00ff00ff<<(b&63)
		w = w&0x0000ffff0000ffff | w>>16&0x0000ffff0000ffff<<(2*b&63)
		w = w&0x00000000ffffffff | w>>32<<(4*b&63)
		if len(dst) >= 8 { // bytes past these eight elements are written next
			binary.LittleEndian.PutUint64(dst, w)
		} else {
			putBytes(dst[:bits], w)
		}
		dst, q = dst[bits:], q[8:]
	}
	var w uint64
	for i, v := range q {
		w |= uint64(v) & mask << (i * bits)
	}
	putBytes(dst, w)
}

// putBytes writes the low bytes of w.
func putBytes(dst []byte, w uint64) {
	for i := range dst {
		dst[i] = uint8(w >> (8 * i))
	}
}

func checkPacked(what string, n, bits, bytes int) {
	if bits < 1 || bits > 8 || bytes < packedBytes(n, bits) {
		panic(fmt.Sprintf("dtype: %s of %d elements of %d bits with %d bytes", what, n, bits, bytes))
	}
}

// Repeat is b with each unit of size bytes n times.
func Repeat(b []byte, size, n int) []byte {
	out := make([]byte, 0, len(b)*n)
	for i := 0; i < len(b); i += size {
		for range n {
			out = append(out, b[i:i+size]...)
		}
	}
	return out
}
