package cpu

import (
	"fmt"

	"github.com/foretoken/foretoken/backend"
	"github.com/foretoken/foretoken/dtype"
)

// tile is how many output rows lie together: one per lane of a vector.
const tile = 16

// plainGroup is how many columns of an unquantised matrix make a block.
const plainGroup = 64

// weight is a stack of matrices in blocks: for every tile of 16 rows, for every group of
// columns, one block, all of them one after another, so that a product reads one stream.
//
// A block holds the codes of 16 rows × group columns, then 16 scales, then 16 biases where
// the format has them. Missing rows of the last tile are zero.
//
//	integers  Split into planes of 4, 2 and 1 bits (8 bits are one plane of bytes), lowest
//	          bits first. Columns go four by four: vector v covers columns 4v..4v+3, its
//	          byte 4r+i is row r, column 4v+i. A plane of p bits puts 8/p vectors into one:
//	          field f of vector t of n is vector f*n+t. The plane of single bits has eight
//	          bytes a vector, bit 4r+i of them in little-endian order.
//	E2M1      As 4-bit integers; the scale is half the format's, for codes count halves.
//	E4M3      Byte 16k+r is row r, column k.
//	plain     Number 16k+r is row r, column k; bf16: number 32j+2r+i is row r, column 2j+i.
type weight struct {
	rows, cols, count int
	compute           backend.Compute
	format            dtype.Format
	elem              dtype.Type // of a plain matrix
	bits              int        // of a code
	group, groups     int        // columns of a block, blocks of a tile
	scale             dtype.Type // of scales and biases
	codes, block      int        // bytes of a block's codes, and of a block
	tiles             int        // of one matrix
	data              []byte     // [count, tiles, groups, block]
}

func (w *weight) Rows() int    { return w.rows }
func (w *weight) Cols() int    { return w.cols }
func (w *weight) Count() int   { return w.count }
func (w *weight) Bytes() int64 { return int64(len(w.data)) }

// integer reports whether products with w are integer products.
func (w *weight) integer() bool {
	return w.compute == backend.Int8 && (w.format == dtype.Affine || w.fp4())
}

func (w *weight) fp4() bool { return w.format == dtype.MXFP4 || w.format == dtype.NVFP4 }

// at is block g of tile t of matrix n.
func (w *weight) at(n, t, g int) []byte {
	i := ((n*w.tiles+t)*w.groups + g) * w.block
	return w.data[i : i+w.block : i+w.block]
}

// width is the number of columns of block g that exist.
func (w *weight) width(g int) int { return min(w.group, w.cols-g*w.group) }

// Load packs the matrices of stack into one weight, on all threads.
func (b *Backend) Load(c backend.Compute, stack ...dtype.Matrix) (backend.Weight, error) {
	w, err := newWeight(c, stack)
	if err != nil {
		return nil, err
	}
	if w.data, err = mapMemory(w.count * w.tiles * w.groups * w.block); err != nil {
		return nil, err
	}
	b.weights[w] = struct{}{}
	b.pool.run(&packOp{w: w, src: stack}, w.count*w.tiles, 1)
	return w, nil
}

// newWeight lays out a weight for the matrices of stack, without memory.
func newWeight(c backend.Compute, stack []dtype.Matrix) (*weight, error) {
	if len(stack) == 0 {
		return nil, fmt.Errorf("cpu: no matrix to load")
	}
	m := stack[0]
	w := &weight{
		rows: m.Rows, cols: m.Cols, count: len(stack), compute: c,
		format: m.Format, elem: m.Type, bits: m.Bits, group: m.Group, scale: m.ScaleType,
	}
	for i := range stack {
		x := &stack[i]
		if x.Rows != m.Rows || x.Cols != m.Cols || x.Format != m.Format || x.Type != m.Type ||
			x.Bits != m.Bits || x.Group != m.Group || x.ScaleType != m.ScaleType {
			return nil, fmt.Errorf("cpu: matrix %d of a stack differs from the first in shape or format", i)
		}
		if err := x.Validate(); err != nil {
			return nil, fmt.Errorf("cpu: matrix %d: %w", i, err)
		}
	}
	extras := 1 // scales and biases of a row's group
	switch m.Format {
	case dtype.Plain:
		w.group, extras = plainGroup, 0
		w.codes = plainGroup * tile * m.Type.Size()
	case dtype.Affine:
		extras = 2
		w.codes = w.group * tile * w.bits / 8
	case dtype.MXFP4, dtype.NVFP4:
		w.bits, w.scale = 4, dtype.BF16
		for _, x := range stack {
			if x.Format == dtype.NVFP4 && x.Global != 1 {
				w.scale = dtype.F32
			}
		}
		w.codes = w.group * tile / 2
	case dtype.MXFP8, dtype.FP8:
		w.bits, w.scale = 8, dtype.F32
		w.codes = w.group * tile
	default:
		return nil, fmt.Errorf("cpu: weights of format %v are not supported", m.Format)
	}
	w.block = w.codes + extras*tile*w.scale.Size()
	w.groups = (w.cols + w.group - 1) / w.group
	w.tiles = (w.rows + tile - 1) / tile
	return w, nil
}

// packOp packs tiles.
type packOp struct {
	w   *weight
	src []dtype.Matrix
}

func (op *packOp) part(_, from, to int) {
	w := op.w
	codes := make([]byte, tile*w.groups*w.group) // of one tile: [row, column]
	for i := from; i < to; i++ {
		n, t := i/w.tiles, i%w.tiles
		m := &op.src[n]
		rows := min(tile, w.rows-t*tile)
		if w.format == dtype.Plain {
			w.packPlain(n, t, rows, m)
			continue
		}
		clear(codes)
		stride := w.groups * w.group
		for r := range rows {
			unpackCodes(codes[r*stride:][:w.cols], m, t*tile+r)
		}
		for g := range w.groups {
			block := w.at(n, t, g)
			if w.bits == 8 && w.format != dtype.Affine {
				packBytes(block, codes[g*w.group:], stride, w.group)
			} else {
				packPlanes(block, codes[g*w.group:], stride, w.group, w.bits)
			}
			w.packScales(block, m, t, rows, g)
		}
	}
}

// unpackCodes writes the codes of row r of m, one byte each.
func unpackCodes(dst []byte, m *dtype.Matrix, r int) {
	n := m.RowBytes()
	dtype.Unpack(dst, m.ElementBits(), m.Data[r*n:(r+1)*n])
}

// packPlanes writes codes, [row, column] with rows stride apart, as planes of bits.
func packPlanes(block, codes []byte, stride, group, bits int) {
	vectors := group / 4
	at, shift := 0, 0
	for _, p := range planes(bits) {
		mask := byte(1<<p - 1)
		if p == 1 {
			for v := range vectors {
				for r := range tile {
					for i := range 4 {
						bit := codes[r*stride+4*v+i] >> shift & 1
						block[at+8*v+r/2] |= bit << (4*(r&1) + i)
					}
				}
			}
			at += 8 * vectors
		} else {
			n := vectors * p / 8
			for v := range vectors {
				f, t := v/n, v%n
				out := block[at+64*t:][:64]
				for r := range tile {
					for i := range 4 {
						out[4*r+i] |= (codes[r*stride+4*v+i] >> shift & mask) << (f * p)
					}
				}
			}
			at += 64 * n
		}
		shift += p
	}
}

// planes are the widths a code of so many bits is split into, lowest bits first.
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

// packBytes writes byte codes column by column.
func packBytes(block, codes []byte, stride, group int) {
	for k := range group {
		for r := range tile {
			block[tile*k+r] = codes[r*stride+k]
		}
	}
}

// packScales writes the scales, and biases, of block g of tile t.
func (w *weight) packScales(block []byte, m *dtype.Matrix, t, rows, g int) {
	size := w.scale.Size()
	scales := block[w.codes:]
	for r := range rows {
		i := (t*tile+r)*w.groups + g
		switch w.format {
		case dtype.Affine:
			copy(scales[r*size:][:size], m.Scales[i*size:])
			copy(scales[(tile+r)*size:][:size], m.Biases[i*size:])
		default:
			putFloat(scales[r*size:], w.scale, w.scaleOf(m, i))
		}
	}
}

// scaleOf is number i of m's scales as this layout wants it.
func (w *weight) scaleOf(m *dtype.Matrix, i int) float32 {
	switch m.Format {
	case dtype.MXFP4:
		return 0.5 * dtype.FromE8M0(m.Scales[i])
	case dtype.NVFP4:
		return 0.5 * dtype.FromE4M3(m.Scales[i]) * m.Global
	case dtype.MXFP8:
		return dtype.FromE8M0(m.Scales[i])
	default:
		return getFloat(m.Scales[4*i:], dtype.F32)
	}
}

// packPlain writes tile t of an unquantised matrix.
func (w *weight) packPlain(n, t, rows int, m *dtype.Matrix) {
	size := w.elem.Size()
	for r := range rows {
		src := m.Data[(t*tile+r)*w.cols*size:]
		for k := range w.cols {
			g, c := k/w.group, k%w.group
			i := tile*c + r
			if w.elem == dtype.BF16 {
				i = 2*tile*(c/2) + 2*r + c%2
			}
			copy(w.at(n, t, g)[i*size:][:size], src[k*size:][:size])
		}
	}
}
