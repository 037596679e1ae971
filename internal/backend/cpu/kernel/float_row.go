package kernel

import (
	"encoding/binary"

	"github.com/foretoken/foretoken/internal/dtype"
)

// RowFloats writes row r of matrix n as float32 values: those of Weight.floats,
// without the other rows of its tile.
func (w *Weight) RowFloats(dst []float32, n, r int) {
	if w.grid() {
		w.gridRow(dst, n, r)
		return
	}
	lane := r % Tile
	for g := range w.groups {
		block, out := w.at(n, r/Tile, g), dst[g*w.group:][:w.width(g)]
		switch w.format {
		case dtype.Plain:
			w.plainRow(out, block, lane)
		case dtype.MXFP8, dtype.FP8:
			s, _ := w.scaleAt(block, lane)
			for k := range out {
				out[k] = dtype.FromE4M3(block[Tile*k+lane]) * s
			}
		default:
			w.codeRow(out, n, r, g)
		}
	}
}

// plainRow decodes one lane of an unquantized block.
func (w *Weight) plainRow(dst []float32, block []byte, lane int) {
	size := w.elem.Size()
	for k := range dst {
		i := Tile*k + lane
		if w.elem == dtype.BF16 {
			i = 2*Tile*(k/2) + 2*lane + k%2
		}
		dst[k] = getFloat(block[i*size:], w.elem)
	}
}

// codeRow decodes group g of row r of matrix n, of integers. A block of these has all its
// columns.
func (w *Weight) codeRow(dst []float32, n, r, g int) {
	t, lane := r/Tile, r%Tile
	block := w.at(n, t, g)
	var s, b float32
	if w.per > 1 {
		s, b = w.superScale(w.super(n, t, g/w.per)[w.per*w.block:], lane, g%w.per)
	} else {
		s, b = w.scaleAt(block, lane)
	}
	var piece [32]uint32 // a multiple of the vector of any plane; groups may be longer
	for from := 0; from < w.group/4; from += len(piece) {
		codes := piece[:min(len(piece), w.group/4-from)]
		w.laneCodes(codes, block, from, lane)
		out := dst[4*from:][:4*len(codes)]
		switch { // outside of the loops: a row is decoded for every token that is fed
		case w.fp4():
			for k := range out {
				out[k] = s * float32(e2m1Halves[codes[k/4]>>(8*(k%4))&0xff])
			}
		case w.biased():
			for v, q := range codes {
				x := out[4*v:][:4]
				x[0] = float32(s*float32(int32(q&0xff))) + b
				x[1] = float32(s*float32(int32(q>>8&0xff))) + b
				x[2] = float32(s*float32(int32(q>>16&0xff))) + b
				x[3] = float32(s*float32(int32(q>>24))) + b
			}
		case w.pointed():
			for k := range out {
				out[k] = s * (float32(codes[k/4]>>(8*(k%4))&0xff) + b)
			}
		default:
			for k := range out {
				out[k] = s * float32(dtype.Levels[codes[k/4]>>(8*(k%4))&0xff])
			}
		}
	}
}

// laneCodes combines the planes of a row: those of vectors [from, from+len(codes)) of a
// block, a code per byte.
func (w *Weight) laneCodes(codes []uint32, block []byte, from, lane int) {
	clear(codes)
	shift := 0
	for _, p := range planes(w.bits) {
		mask := uint32(1<<p-1) * 0x01010101
		plane := block[8*from*p:]
		switch fields := 8 / p; p {
		case 8:
			for v := range codes {
				codes[v] = binary.LittleEndian.Uint32(plane[64*v+4*lane:])
			}
		case 1:
			for v := range codes {
				nibble := uint32(plane[8*v+lane/2]) >> (4 * (lane & 1)) & 15
				codes[v] |= nibble * 0x00204081 & mask << shift // bit i to byte i
			}
		default:
			for v := 0; v < len(codes); v += fields {
				word := binary.LittleEndian.Uint32(plane[64*(v/fields)+4*lane:])
				for i := range codes[v:min(v+fields, len(codes))] {
					codes[v+i] |= word >> (i * p) & mask << shift
				}
			}
		}
		block = block[2*w.group*p:]
		shift += p
	}
}
