package kernel

import (
	"encoding/binary"
	"math/bits"

	"github.com/foretoken/foretoken/internal/dtype"
)

// GridPlaces is the offsets of the parts of a superblock of a grid format, in bytes: see Weight. Indices are first.
type GridPlaces struct {
	Entry   int  // bytes of an entry of the table
	High    int  // high bits of indices; 0: none
	Signs   int  // 0: none, but deltas
	Seven   bool // the last of eight signs is not stored
	Factors int
	Halves  int // scales; 0: these are in the factors
	Size    int // of the superblock
}

// gridPlaces are those of the formats, from dtype.IQ1S on.
var gridPlaces = [...]GridPlaces{
	{Entry: 8, High: 512, Factors: 512, Halves: 768, Size: 800},                             // IQ1_S
	{Entry: 8, High: 512, Factors: 768, Size: 896},                                          // IQ1_M
	{Entry: 8, Signs: 512, Seven: true, Factors: 960, Halves: 1024, Size: 1056},             // IQ2_XXS
	{Entry: 8, Signs: 512, Seven: true, Factors: 960, High: 1088, Halves: 1152, Size: 1184}, // IQ2_XS
	{Entry: 8, Signs: 512, Factors: 1024, High: 1152, Halves: 1280, Size: 1312},             // IQ2_S
	{Entry: 4, Signs: 1024, Seven: true, Factors: 1472, Halves: 1536, Size: 1568},           // IQ3_XXS
	{Entry: 4, Signs: 1024, Factors: 1536, High: 1600, Halves: 1728, Size: 1760},            // IQ3_S
}

// grid reports whether w has indices into tables, which products expand.
func (w *Weight) grid() bool { return w.format.Grid() && !w.expanded }

// places are those of w's superblocks.
func (w *Weight) places() *GridPlaces { return &gridPlaces[w.format-dtype.IQ1S] }

// packGrid writes one block of a file, of row r of 16, into a superblock. Bytes that rows share
// must be zero.
func (w *Weight) packGrid(dst []byte, r, _ int, block []byte) {
	p := w.places()
	w.packIndices(dst, r, block)
	switch w.format {
	case dtype.IQ1S:
		for h := range 8 {
			putHalf(dst[p.High+2*Tile*h:], r, block, 17+h)
		}
	case dtype.IQ1M:
		for h := range 8 {
			putHalf(dst[p.High+2*Tile*h:], r, block, 16+h)
		}
		for i := range 4 {
			putHalf(dst[p.Factors+2*Tile*i:], r, block, 24+i)
		}
		return
	case dtype.IQ2XS:
		for i := range 4 {
			high := byte(0)
			for e := range 8 {
				high |= block[3+16*i+2*e] & 1 << e
			}
			dst[p.High+Tile*i+r] = high
		}
	case dtype.IQ2S, dtype.IQ3S:
		for h := range 8 {
			dst[p.High+Tile*h+r] = block[66+h]
		}
	}
	putHalf(dst[p.Halves:], r, block, 0)
	if p.Signs > 0 {
		w.packSigns(dst, r, block)
	}
}

// packIndices writes the low eight bits of indices.
func (w *Weight) packIndices(dst []byte, r int, block []byte) {
	from, step, gap := 2, 1, 0 // gap: bytes after every fourth
	switch w.format {
	case dtype.IQ1M:
		from = 0
	case dtype.IQ2XXS:
		gap = 4
	case dtype.IQ2XS:
		step = 2
	}
	for i := range 256 / w.places().Entry {
		dst[Tile*i+r] = block[from+step*i+i/4*gap]
	}
}

// packSigns writes the signs and the factors.
func (w *Weight) packSigns(dst []byte, r int, block []byte) {
	p, shift := w.places(), 4*(r%2)
	for h := range 8 {
		s, out := w.format.GridSigns(block, h), (*[7*64 + 1]byte)(dst[p.Signs+8*h+r/2:])
		low, high := s, s>>4
		for n := range 3 {
			out[64*n] |= byte(low&15) << shift
			x := high & 15
			if p.Seven {
				x |= s >> (28 + n) & 1 << 3
			}
			out[64*(4+n)] |= byte(x) << shift
			low, high = low>>8, high>>8
		}
		out[64*3] |= byte(low&15) << shift
		if !p.Seven {
			out[64*7] |= byte(high) << shift
		}
	}
	for g := range w.gridGroups() {
		dst[p.Factors+8*g+r/2] |= w.format.GridFactor(block, g) << shift
	}
}

// gridGroups is how many factors a superblock has.
func (w *Weight) gridGroups() int {
	switch w.format {
	case dtype.IQ1M, dtype.IQ2XS, dtype.IQ2S:
		return 16
	default:
		return 8
	}
}

// gridCodes writes the codes of row r of a superblock.
func (w *Weight) gridCodes(q *[256]byte, super []byte, r int) {
	p, table := w.places(), w.format.GridTable()
	for i := range 256 / p.Entry {
		index := int(super[Tile*i+r]) | w.highBits(super, r, i)<<8
		copy(q[p.Entry*i:][:p.Entry], table[p.Entry*index:])
	}
	for e := range 32 {
		x := binary.LittleEndian.Uint64(q[8*e:])
		if p.Signs == 0 {
			x -= w.delta(super, r, e) * 0x0202020202020202
		} else {
			m := spreadBits(gridSigns(p, super, r, e)) * 255
			x = x&^m | (2*dtype.GridMiddle*0x0101010101010101-x)&m
		}
		binary.LittleEndian.PutUint64(q[8*e:], x)
	}
}

// spreadBits moves bit i to byte i.
func spreadBits(x byte) uint64 {
	const ones = 0x0101010101010101
	return (uint64(x)*ones&0x8040201008040201 + 127*ones) >> 7 & ones
}

// highBits are those bits of index i of row r above the low eight.
func (w *Weight) highBits(super []byte, r, i int) int {
	high := super[w.places().High:]
	switch w.format {
	case dtype.IQ1S:
		return int(binary.LittleEndian.Uint16(high[2*(Tile*(i/4)+r):]) >> (3 * (i % 4)) & 7)
	case dtype.IQ1M:
		return int(binary.LittleEndian.Uint16(high[2*(Tile*(i/4)+r):]) >> (4 * (i % 4)) & 7)
	case dtype.IQ2XS, dtype.IQ3S:
		return int(high[Tile*(i/8)+r] >> (i % 8) & 1)
	case dtype.IQ2S:
		return int(high[Tile*(i/4)+r] >> (2 * (i % 4)) & 3)
	}
	return 0
}

// delta is that of eight columns of row r.
func (w *Weight) delta(super []byte, r, e int) uint64 {
	x := binary.LittleEndian.Uint16(super[w.places().High+2*(Tile*(e/4)+r):])
	if w.format == dtype.IQ1S {
		return uint64(x >> 15)
	}
	return uint64(x >> (4*(e%4) + 3) & 1)
}

// gridSigns are the signs of eight columns of row r.
func gridSigns(p *GridPlaces, super []byte, r, e int) byte {
	n, h := e%4, e/4
	half := func(i int) byte { return super[p.Signs+64*i+8*h+r/2] >> (4 * (r % 2)) & 15 }
	switch {
	case !p.Seven:
		return half(n) | half(4+n)<<4
	case n < 3:
		s := half(n) | half(4+n)&7<<4
		return s | byte(bits.OnesCount8(s)&1)<<7
	default:
		s := half(n) | half(4)>>3<<4 | half(5)>>3<<5 | half(6)>>3<<6
		return s | byte(bits.OnesCount8(s)&1)<<7
	}
}

// gridFactor is the factor of row r and a group of 16 columns.
func (w *Weight) gridFactor(super []byte, r, g int) byte {
	p := w.places()
	switch w.format {
	case dtype.IQ1S:
		return 2*(super[p.High+2*(Tile*(g/2)+r)+1]>>4&7) + 1
	case dtype.IQ1M:
		return byte(2*(binary.LittleEndian.Uint16(super[p.Factors+2*(Tile*(g/4)+r):])>>(3*(g%4))&7) + 1)
	}
	if w.gridGroups() == 8 {
		g /= 2
	}
	return 2*(super[p.Factors+8*g+r/2]>>(4*(r%2))&15) + 1
}

// gridScale is the scale of row r of a superblock.
func (w *Weight) gridScale(super []byte, r int) float32 {
	p := w.places()
	h := uint16(0)
	if w.format == dtype.IQ1M {
		for i := range 4 {
			h |= binary.LittleEndian.Uint16(super[p.Factors+2*(Tile*i+r):]) >> 12 << (4 * i)
		}
	} else {
		h = binary.LittleEndian.Uint16(super[p.Halves+2*r:])
	}
	return dtype.FromF16(h) * w.format.GridScale()
}
