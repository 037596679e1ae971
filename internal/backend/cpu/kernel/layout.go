package kernel

import (
	"encoding/binary"

	"github.com/foretoken/foretoken/internal/dtype"
)

// Layout is the layout of a Weight's Data, for devices with their own
// kernels: see Weight for the meaning of the fields.
type Layout struct {
	Kind     Kind
	Bits     int // of a code
	Group    int // columns of a block
	Groups   int // blocks of a tile
	Codes    int // bytes of a block's codes
	Block    int // bytes of a block
	Per      int // blocks of a superblock, or 1
	Tail     int // bytes after them
	Tiles    int // of one matrix
	TileSize int // bytes of a tile
	// Number is the type of a plain weight's numbers, for other weights the type of scales and biases.
	Number  dtype.Type
	Factors Factors
	First   bool        // the integer sum of a block is multiplied by the scale of the weight first, as in superblocks
	Zero    float32     // biases in multiples of scales; 0: they are stored, or there are none
	Grid    *GridPlaces // of a grid format, else nil: Block is zero, and Tail a superblock
	Zeros   int         // offset of the 16 zero points of a block, a byte each; 0: none are stored
}

// Kind is how codes become numbers: the numbers of kernels/weight.cuh of the CUDA backend, too.
type Kind uint8

const (
	Biased  Kind = iota // scale*code + bias
	Halves              // scale*E2M1, in halves
	Leveled             // scale*dtype.Levels[code]
	Bytes               // scale*E4M3
	Plain               // numbers are stored
	Pointed             // scale*(code - zero point); where none are stored, scale*(code + Zero)
	Grid                // factor*(code - dtype.GridMiddle)*scale, codes from a table: see GridPlaces
)

// Factors is the contents of the tail of a superblock.
type Factors uint8

const (
	NoFactors   Factors = iota
	FactorsK            // Q4_K and Q5_K
	Factors6K           // Q6_K and Q3_K
	FactorsXS           // IQ4_XS
	Factors2K           // Q2_K
	FactorsGrid         // grid formats, expanded: see grid_generic.go
)

// Layout is w's.
func (w *Weight) Layout() Layout {
	l := Layout{
		Bits: w.bits, Group: w.group, Groups: w.groups, Codes: w.codes, Block: w.block,
		Per: w.per, Tail: w.tail, Tiles: w.tiles, TileSize: w.tileBytes(), Number: w.scale,
		Factors: w.factors, First: w.first, Zero: w.zero, Zeros: w.zeros,
	}
	switch {
	case w.format == dtype.Plain:
		l.Kind, l.Number = Plain, w.elem
	case w.pointed():
		l.Kind = Pointed
	case w.grid():
		l.Kind, l.Grid = Grid, w.places()
	case w.fp4():
		l.Kind = Halves
	case w.format.Leveled():
		l.Kind = Leveled
	case !w.coded():
		l.Kind = Bytes
	}
	return l
}

// PackTiles packs tiles [from, to) of m, a matrix of the stack that w was laid out for, into dst
// instead of Data: zeroed bytes, as many as the tiles have. Calls may run at the same time.
func (w *Weight) PackTiles(dst []byte, m *dtype.Matrix, from, to int) {
	part := m.RowRange(from*Tile, min(to*Tile, w.rows))
	v := *w
	v.rows, v.count, v.tiles, v.Data = part.Rows, 1, to-from, dst
	v.Pack([]dtype.Matrix{part}, 0, v.tiles)
}

// BlockCodes is the codes of a block of integers, a byte each: four columns of a row in each word, and words of
// all rows of a tile one after another.
func (w *Weight) BlockCodes(codes []uint32, block []byte) {
	codes = codes[:w.group/4*Tile]
	clear(codes)
	shift := 0 // of the plane; that all shifts are less than a word is said to the compiler
	for _, p := range planes(w.bits) {
		mask, fields := uint32(1<<p-1)*0x01010101<<(shift&31), max(1, 8/p)
		for at := 0; at < len(codes); at += fields * Tile {
			if p == 1 {
				fields = 1
				bits, out := binary.LittleEndian.Uint64(block[at/2:]), (*[Tile]uint32)(codes[at:])
				for r := range out {
					out[r] |= uint32(bits&15) * 0x00204081 << (shift & 31) & mask // bit i to byte i
					bits >>= 4
				}
				continue
			}
			words := (*[4 * Tile]byte)(block[4*at/fields:])
			for i := range fields {
				out, right, left := (*[Tile]uint32)(codes[at+i*Tile:]), i*p, shift
				for r := range out {
					out[r] |= binary.LittleEndian.Uint32(words[4*r:]) >> (right & 31) << (left & 31) & mask
				}
			}
		}
		block = block[2*w.group*p:]
		shift += p
	}
}

// SmallFactors are the factors of the scale and of the bias of row r and group g of a superblock, relative to the superblock's;
// the bias is subtracted. The tail is one that PackTiles has written; it begins with the superblock's halves,
// 16 scales and, for FactorsK and Factors2K, 16 of the biases.
func (w *Weight) SmallFactors(tail []byte, r, g int) (scale, bias int32) {
	return w.smallFactors(tail, r, g)
}

// Scales decodes the scales and biases of block g of a tile that PackTiles has written. If codes have
// zero points, these are the biases, negative: the addend of a code.
func (w *Weight) Scales(s, b *[Tile]float32, tile []byte, g int) {
	v := *w
	v.count, v.tiles, v.Data = 1, 1, tile
	v.scales(s, b, 0, 0, g)
}

// Expanded is a superblock of a grid format with its codes written out, as signed bytes: four columns of a row in each word, and
// words of all rows of a tile one after another. Factors are by group of 16 columns and row.
type Expanded struct {
	Codes   [256 / 4 * Tile]uint32
	Scales  [Tile]float32
	Factors [gridPer * Tile]byte
}

// Expand writes out a superblock of a grid format that PackTiles has written.
func (w *Weight) Expand(e *Expanded, super []byte) {
	var q [256]byte
	for r := range Tile {
		w.gridCodes(&q, super, r)
		for i := range q {
			q[i] -= dtype.GridMiddle
		}
		for v := range len(q) / 4 {
			e.Codes[Tile*v+r] = binary.LittleEndian.Uint32(q[4*v:])
		}
		e.Scales[r] = w.gridScale(super, r)
		for g := range gridPer {
			e.Factors[Tile*g+r] = w.gridFactor(super, r, g)
		}
	}
}

// GridParts is a superblock of a grid format that has signs: of each row the indices of the table, the signs of every eight
// columns, and the scale as a half; factors are as in Expanded.
type GridParts struct {
	Indices [Tile][64]uint16
	Signs   [Tile][32]byte
	Halves  [Tile]uint16
	Factors [gridPer * Tile]byte
}

// GridParts splits a superblock that PackTiles has written.
func (w *Weight) GridParts(g *GridParts, super []byte) {
	p := w.places()
	for r := range Tile {
		for i := range 256 / p.Entry {
			g.Indices[r][i] = uint16(super[Tile*i+r]) | uint16(w.highBits(super, r, i))<<8
		}
		for e := range g.Signs[r] {
			g.Signs[r][e] = gridSigns(p, super, r, e)
		}
		g.Halves[r] = binary.LittleEndian.Uint16(super[p.Halves+2*r:])
		for i := range gridPer {
			g.Factors[Tile*i+r] = w.gridFactor(super, r, i)
		}
	}
}
