package kernel

import (
	"encoding/binary"
	"fmt"

	"github.com/foretoken/foretoken/internal/dtype"
)

// plainGroup is how many columns of an unquantized matrix make a block.
const plainGroup = 64

// Weight is a stack of matrices in blocks: for every tile of 16 rows, for every group of
// columns, one block, all of them one after another, so that a product reads one stream.
//
// A block has the codes of 16 rows × group columns, then 16 scales, then 16 biases where
// the format has them, or 16 zero points, a byte each, where a ZeroPoint matrix stores them.
// Missing rows of the last tile are zero. A long group of ZeroPoint becomes several, which repeat its
// scale: see dtype.Matrix.LoadedGroup.
//
//	integers  Split into planes of 4, 2 and 1 bits (8 bits are one plane of bytes), lowest
//	          bits first. Columns go four by four: vector v covers columns 4v..4v+3, its
//	          byte 4r+i is row r, column 4v+i. A plane of p bits puts 8/p vectors into one,
//	          the first in the lowest bits: vector v is field v%(8/p) of number v/(8/p).
//	          The plane of single bits has eight bytes a vector, bit 4r+i of them in
//	          little-endian order.
//	E2M1      As 4-bit integers; the scale is half the format's, for codes count halves.
//	E4M3      Byte 16k+r is row r, column k.
//	plain     Number 16k+r is row r, column k; bf16: number 32j+2r+i is row r, column 2j+i.
//
// GGUF's formats that imply their biases have none here. TQ1_0, TQ2_0, Q1_0 and Q2_0 have codes of
// 2 bits that count from -2 as other symmetric codes of 2 bits do: the numbers -1 to 2 of the file are
// there with the other sign, and so is their scale. MXFP4 and NVFP4 blocks are as the formats E2M1.
// Formats of superblocks have the codes of all groups of one, and then a tail: a half for
// each row, of those with biases another for these, and small factors, which scale groups.
//
//	Q4_K, Q5_K  Low four bits of the scales' factors: number r of 32 bits has those of row r,
//	            group g in bits 4g. Likewise of the biases'. Number r of 32 bits has high bits
//	            of both: bits 2g the scales', 16+2g the biases'.
//	IQ4_XS      As of Q4_K the scales', the high bits in numbers of 16 bits.
//	Q6_K, Q3_K  Byte 16g+r is the factor of row r, group g. Padded to whole cache lines.
//	Q2_K        Byte 16g+r has the factors of row r, group g: the scale's in its low half, the
//	            bias' in its high half.
//
// Superblocks of the grid formats have the bits of the file, those of 16 rows side by side, and no
// blocks: see GridPlaces for where the parts are. Products expand them: see grid_generic.go.
//
//	indices     Low eight bits: byte 16i+r is index i of row r, which stands for columns 8i to 8i+7, or of
//	            IQ3 4i to 4i+3.
//	high bits   IQ2_S, IQ3_S: byte 16h+r has those of the indices of row r in columns 32h to 32h+31, two
//	            (IQ3_S: one) each, the first lowest. IQ2_XS: byte 16i+r, columns 64i to 64i+63, one each.
//	            IQ1: number 16h+r of 16 bits, columns 32h to 32h+31: of IQ1_S three bits each, then three
//	            bits of the factor and one of the delta; of IQ1_M three bits and the delta of each index.
//	signs       Number 8i+h of 64 bits has in bits 4r to 4r+3 signs of row r: i < 4 of columns 32h+8i to 3
//	            more, others of columns 32h+8(i-4)+4 to 3 more. Where seven of eight are stored there is no
//	            i = 7: bits of columns 32h+24+4 to 2 more are bit 3 of i = 4, 5, 6, and the sign of every
//	            eighth column makes the number of minus signs among the eight even.
//	factors     Bits 4r to 4r+3 of number g of 64 bits: f of row r, group g; the factor is 2f+1. Groups have
//	            16 columns in IQ2_XS and IQ2_S, else 32. IQ1_M: number 16i+r of 16 bits has four of three
//	            bits, groups of 16 columns from 4i on, and above them four bits of the scale, lowest first.
//	scales      A half for each row.
type Weight struct {
	rows, cols, count int
	integer           bool // products are integer products
	format            dtype.Format
	elem              dtype.Type // of a plain matrix
	bits              int        // of a code
	group, groups     int        // columns of a block, blocks of a tile
	scale             dtype.Type // of scales and biases
	codes, block      int        // bytes of a block's codes, and of a block
	per, tail         int        // blocks of a superblock, or 1; bytes after them
	factors           Factors    // in the tail
	first             bool       // blocks of 256 columns without factors: see integerTiles
	zero              float32    // biases in multiples of scales; 0: they are stored, or there are none
	zeros             int        // offset of zero points in a block; 0: none are stored
	tiles             int        // of one matrix
	expanded          bool       // of a grid format: see expandSuper

	Input *Input // transformation of the rows that the matrices multiply; nil: none
	Data  []byte // [count, tiles, groups, block]: Size bytes of the caller
}

// Rows is the number of rows of each matrix.
func (w *Weight) Rows() int { return w.rows }

// Cols is the number of columns of each matrix.
func (w *Weight) Cols() int { return w.cols }

// Count is the number of matrices.
func (w *Weight) Count() int { return w.count }

// Bytes is the size of Data and of the input's tables.
func (w *Weight) Bytes() int64 {
	n := int64(len(w.Data))
	if w.Input != nil {
		n += w.Input.Bytes()
	}
	return n
}

// Size is how many bytes Data needs.
func (w *Weight) Size() int { return w.count * w.tiles * w.tileBytes() }

// Tiles is the number of tiles of each matrix.
func (w *Weight) Tiles() int { return w.tiles }

// Groups is the number of blocks of a tile.
func (w *Weight) Groups() int { return w.groups }

// Integer reports whether products with w are integer products.
func (w *Weight) Integer() bool { return w.integer }

func (w *Weight) fp4() bool { return w.format.E2M1() }

// biased reports whether numbers are scale*code + bias.
func (w *Weight) biased() bool {
	return w.format == dtype.Affine || w.format.Blocks() && !w.format.Leveled() && !w.fp4()
}

// pointed reports whether numbers are scale*(code - zero point).
func (w *Weight) pointed() bool { return w.format == dtype.ZeroPoint }

// least reports whether superblocks have biases.
func (w *Weight) least() bool { return w.factors == FactorsK || w.factors == Factors2K }

// coded reports whether codes have the layout of integers.
func (w *Weight) coded() bool { return w.biased() || w.pointed() || w.fp4() || w.format.Leveled() }

// superBytes is the size of a superblock, tileBytes that of a tile.
func (w *Weight) superBytes() int { return w.per*w.block + w.tail }

func (w *Weight) tileBytes() int {
	if w.per == 1 { // nearly always; a division is slow for small blocks
		return w.groups * w.block
	}
	return w.groups / w.per * w.superBytes()
}

// tile is tile t of matrix n.
func (w *Weight) tile(n, t int) []byte {
	size := w.tileBytes()
	at := (n*w.tiles + t) * size
	return w.Data[at : at+size : at+size]
}

// super is superblock i of tile t of matrix n.
func (w *Weight) super(n, t, i int) []byte {
	size := w.superBytes()
	return w.tile(n, t)[i*size:][:size:size]
}

// at is block g of tile t of matrix n.
func (w *Weight) at(n, t, g int) []byte {
	at := g * w.block
	if w.per > 1 {
		at += g / w.per * w.tail
	}
	return w.tile(n, t)[at:][:w.block:w.block]
}

// width is the number of columns of block g that exist.
func (w *Weight) width(g int) int { return min(w.group, w.cols-g*w.group) }

// NewWeight lays out a weight for the matrices of stack, which must be of one shape and format.
// The caller sets Data to Size zeroed bytes and packs every tile. With integer, products of
// integer and E2M1 formats quantize their input and multiply integers; all others use floats.
func NewWeight(integer bool, stack []dtype.Matrix) (*Weight, error) {
	if len(stack) == 0 {
		return nil, fmt.Errorf("cpu: no matrix to load")
	}
	m := stack[0]
	for i := range stack {
		x := &stack[i]
		if x.Rows != m.Rows || x.Cols != m.Cols || x.Format != m.Format || x.Type != m.Type ||
			x.Bits != m.Bits || x.Group != m.Group || x.ScaleType != m.ScaleType || (x.Zeros == nil) != (m.Zeros == nil) {
			return nil, fmt.Errorf("cpu: matrix %d of a stack differs from the first in shape or format", i)
		}
		if err := x.Validate(); err != nil {
			return nil, fmt.Errorf("cpu: matrix %d: %w", i, err)
		}
		if !x.Input.Equal(m.Input) {
			return nil, fmt.Errorf("cpu: matrix %d of a stack has another order or rotation of its inputs than the first: foretoken convert writes matrices without them", i)
		}
	}
	w, err := Form(integer, stack)
	if err == nil && m.Input != nil {
		w.Input = NewInput(m.Input)
	}
	return w, err
}

// Form is NewWeight without reading the matrices' data.
func Form(integer bool, stack []dtype.Matrix) (*Weight, error) {
	m := stack[0]
	w := &Weight{
		rows: m.Rows, cols: m.Cols, count: len(stack),
		format: m.Format, elem: m.Type, bits: m.Bits, group: m.Group, scale: m.ScaleType, per: 1,
	}
	extras := 1 // scales and biases of a row's group
	points := 0 // bytes of a block's zero points
	switch m.Format {
	case dtype.Plain:
		w.group, extras = plainGroup, 0
		w.codes = plainGroup * Tile * m.Type.Size()
	case dtype.Affine:
		extras = 2
		w.codes = w.group * Tile * w.bits / 8
	case dtype.ZeroPoint:
		w.group = m.LoadedGroup()
		w.codes = w.group * Tile * w.bits / 8
		if m.Zeros == nil {
			w.zero = -float32(int(1) << (w.bits - 1))
		} else {
			points = Tile
			w.zeros = w.codes + Tile*w.scale.Size()
		}
	case dtype.MXFP4, dtype.NVFP4, dtype.MXFP4Blocks, dtype.NVFP4Blocks:
		w.bits, w.scale = 4, dtype.BF16
		for _, x := range stack {
			if (x.Format == dtype.NVFP4 || x.Format == dtype.NVFP4Blocks) && x.Global != 1 {
				w.scale = dtype.F32
			}
		}
		w.codes = w.group * Tile / 2
	case dtype.MXFP8, dtype.FP8:
		w.bits, w.scale = 8, dtype.F32
		w.codes = w.group * Tile
	default:
		if !m.Format.Blocks() || !m.Format.Grid() && int(m.Format-dtype.Q4_0) >= len(blockPackers) {
			return nil, fmt.Errorf("cpu: weights of format %v are not supported", m.Format)
		}
		extras = w.layBlocks(&m)
	}
	w.integer = integer && w.coded()
	w.block = w.codes + extras*Tile*w.scale.Size() + points
	w.groups = (w.cols + w.group - 1) / w.group
	w.tiles = (w.rows + Tile - 1) / Tile
	return w, nil
}

// Tails of superblocks.
const (
	tailK      = 256
	atNibblesK = 4 * Tile
	atBiasesK  = 8 * Tile
	atPairsK   = 12 * Tile

	tailXS      = 128
	atNibblesXS = 2 * Tile
	atPairsXS   = 6 * Tile

	tail2K    = 320
	atBytes6K = 2 * Tile
	atBytes2K = 4 * Tile
)

// layBlocks lays out a block format, and returns how many numbers follow the codes of a row in
// a block.
func (w *Weight) layBlocks(m *dtype.Matrix) (extras int) {
	if m.Format.Grid() {
		w.layGrid()
		return 0
	}
	w.bits = m.ElementBits()
	w.codes = w.group * Tile * w.bits / 8
	if w.scale == dtype.F32 { // stored as halves and factors
		size, _ := m.Format.BlockSize()
		w.per = size / w.group
	}
	switch m.Format {
	case dtype.Q4_1, dtype.Q5_1:
		return 2
	case dtype.Q4_0:
		w.zero = -8
	case dtype.Q5_0:
		w.zero = -16
	case dtype.Q8_0:
		w.zero = -128
	case dtype.TQ1, dtype.TQ2:
		w.zero, w.first = -2, true
	case dtype.Q1_0, dtype.Q2_0:
		w.zero = -2
	case dtype.Q4K, dtype.Q5K:
		w.factors, w.tail = FactorsK, tailK
	case dtype.Q6K, dtype.Q3K:
		w.factors, w.zero, w.tail = Factors6K, -float32(int(1)<<(w.bits-1)), atBytes6K+w.per*Tile
		w.tail += -(w.per*w.codes + w.tail) & (cacheLine - 1)
	case dtype.IQ4XS:
		w.factors, w.tail = FactorsXS, tailXS
	case dtype.Q2K:
		w.factors, w.tail = Factors2K, tail2K
	}
	if w.per > 1 {
		return 0 // its scales are in the tail
	}
	return 1
}

// Pack writes tiles [from, to) of the stack that w was laid out for, counted through all of its
// matrices. Calls for different tiles may run at the same time.
func (w *Weight) Pack(stack []dtype.Matrix, from, to int) {
	var scales [256]float32
	last := -1
	for i := from; i < to; i++ {
		n, t := i/w.tiles, i%w.tiles
		m := &stack[n]
		if n != last {
			scaleTable(&scales, m)
			last = n
		}
		if w.format.Blocks() {
			w.packTile(m, n, t, &scales)
			continue
		}
		rows := min(Tile, w.rows-t*Tile)
		bytes := m.RowBytes()
		for g := 0; g < w.groups; {
			end := min(g+packPanel, w.groups)
			for r := range rows {
				w.packRow(n, t, r, g, end, m.Data[(t*Tile+r)*bytes:], m.ElementBits())
			}
			for ; g < end; g++ {
				w.packScales(w.at(n, t, g), m, t, rows, g, &scales)
			}
		}
	}
}

// packPanel is how many blocks are packed together: they stay in the first cache while all
// their rows are written.
const packPanel = 8

// packRow writes groups [from, to) of a row as row r of their blocks. src is the row, of
// bits bits a code, and the bytes after it.
func (w *Weight) packRow(n, t, r, from, to int, src []byte, bits int) {
	step := w.group * bits / 8
	tile := w.tile(n, t)
	for g := from; g < to; g++ {
		block, s := tile[g*w.block:][:w.block:w.block], src[g*step:]
		switch {
		case w.format == dtype.Plain && w.elem == dtype.F16:
			packHalves(block, r, s[:2*w.width(g)])
		case w.format == dtype.Plain:
			packWords(block, r, s[:w.width(g)*bits/8])
		case w.format == dtype.MXFP8 || w.format == dtype.FP8:
			packBytes(block, r, s[:w.width(g)])
		case bits == 8:
			packWords(block, r, s[:step])
		case bits == 4:
			packNibbles(block, r, s[:step])
		case bits == 2:
			packPairs(block, r, s[:step])
		case bits == 3:
			packThrees(block, r, s, w.group)
		case bits == 5:
			packFives(block, r, s, w.group)
		default:
			packSixes(block, r, s, w.group)
		}
	}
}

// packScales writes the scales, and biases or zero points, of block g of tile t. table has the values of
// scales of one byte.
func (w *Weight) packScales(block []byte, m *dtype.Matrix, t, rows, g int, table *[256]float32) {
	size := w.scale.Size()
	scales := block[w.codes:]
	for r := range rows {
		i := (t*Tile+r)*w.groups + g
		switch w.format {
		case dtype.Plain:
			return
		case dtype.Affine:
			biases := scales[Tile*size:]
			if size == 2 {
				binary.LittleEndian.PutUint16(scales[2*r:], binary.LittleEndian.Uint16(m.Scales[2*i:]))
				binary.LittleEndian.PutUint16(biases[2*r:], binary.LittleEndian.Uint16(m.Biases[2*i:]))
			} else {
				binary.LittleEndian.PutUint32(scales[4*r:], binary.LittleEndian.Uint32(m.Scales[4*i:]))
				binary.LittleEndian.PutUint32(biases[4*r:], binary.LittleEndian.Uint32(m.Biases[4*i:]))
			}
		case dtype.ZeroPoint:
			i = (t*Tile+r)*m.Groups() + g*w.group/m.Group
			copy(scales[size*r:][:size], m.Scales[size*i:])
			if w.zeros > 0 {
				block[w.zeros+r] = m.Zeros[i]
			}
		case dtype.FP8:
			copy(scales[4*r:][:4], m.Scales[4*i:])
		default:
			putFloat(scales[r*size:], w.scale, table[m.Scales[i]])
		}
	}
}

// scaleTable writes the values of scales of one byte in this layout.
func scaleTable(table *[256]float32, m *dtype.Matrix) {
	for i := range table {
		switch x := uint8(i); m.Format {
		case dtype.MXFP4, dtype.MXFP4Blocks:
			table[i] = 0.5 * dtype.FromE8M0(x)
		case dtype.NVFP4:
			table[i] = 0.5 * dtype.FromE4M3(x) * m.Global
		case dtype.NVFP4Blocks:
			table[i] = 0.5 * dtype.FromE4M3(dtype.UnsignedE4M3(x)) * m.Global
		case dtype.MXFP8:
			table[i] = dtype.FromE8M0(x)
		default:
			return
		}
	}
}
