package kernel

import "github.com/foretoken/foretoken/internal/dtype"

// Layout says where the numbers of a Weight lie in its Data, for devices with kernels of their
// own: see Weight for what the fields mean.
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
	// Number is the type of a plain weight's numbers, of others the type of scales and biases.
	Number  dtype.Type
	Factors Factors
	Zero    float32 // what biases are in scales; 0: they are stored, or there are none
}

// Kind is how codes become numbers.
type Kind uint8

const (
	Biased  Kind = iota // scale*code + bias
	Halves              // scale*E2M1, in halves
	Leveled             // scale*dtype.Levels[code]
	Bytes               // scale*E4M3
	Plain               // numbers are stored
)

// Factors is what the tail of a superblock has.
type Factors uint8

const (
	NoFactors Factors = iota
	FactorsK          // Q4_K and Q5_K
	Factors6K
	FactorsXS
)

// Layout is w's.
func (w *Weight) Layout() Layout {
	l := Layout{
		Bits: w.bits, Group: w.group, Groups: w.groups, Codes: w.codes, Block: w.block,
		Per: w.per, Tail: w.tail, Tiles: w.tiles, TileSize: w.tileBytes(), Number: w.scale, Zero: w.zero,
	}
	switch {
	case w.format == dtype.Plain:
		l.Kind, l.Number = Plain, w.elem
	case w.fp4():
		l.Kind = Halves
	case w.format.Leveled():
		l.Kind = Leveled
	case !w.coded():
		l.Kind = Bytes
	}
	switch {
	case w.per == 1:
	case w.format == dtype.Q6K:
		l.Factors = Factors6K
	case w.format == dtype.IQ4XS:
		l.Factors = FactorsXS
	default:
		l.Factors = FactorsK
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

// RowCodes is the codes of the first columns of row r of a block of integers, a byte each: four in each
// word. There is a multiple of eight words.
func (w *Weight) RowCodes(codes []uint32, block []byte, r int) { w.laneCodes(codes, block, 0, r) }

// Scales decodes the scales and biases of block g of a tile that PackTiles has written.
func (w *Weight) Scales(s, b *[Tile]float32, tile []byte, g int) {
	v := *w
	v.count, v.tiles, v.Data = 1, 1, tile
	v.scales(s, b, 0, 0, g)
}
