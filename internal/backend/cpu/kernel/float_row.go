package kernel

import "github.com/foretoken/foretoken/internal/dtype"

// RowFloats writes row r of matrix n as float32 values: what Weight.floats gives for it,
// without the other rows of its tile.
func (w *Weight) RowFloats(dst []float32, n, r int) {
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
		s, b = w.factors(w.super(n, t, g/w.per)[w.per*w.block:], lane, g%w.per)
	} else {
		s, b = w.scaleAt(block, lane)
	}
	vectors := w.group / 4
	for v := range vectors {
		codes := laneCodes(block, vectors, v, lane, w.bits)
		out := dst[4*v:][:4]
		for i := range out {
			q := codes >> (8 * i) & 0xff
			switch {
			case w.fp4():
				out[i] = s * float32(e2m1Halves[q])
			case w.biased():
				out[i] = float32(s*float32(q)) + b
			default:
				out[i] = s * float32(dtype.Levels[q])
			}
		}
	}
}

// laneCodes puts the planes of four columns of a row together, a code per byte.
func laneCodes(block []byte, vectors, v, lane, bits int) uint32 {
	var codes uint32
	at, shift := 0, 0
	for _, p := range planes(bits) {
		if p == 1 {
			nibble := uint32(block[at+8*v+lane/2]) >> (4 * (lane & 1))
			for i := range 4 {
				codes |= nibble >> i & 1 << (8*i + shift)
			}
			at += 8 * vectors
		} else {
			fields := 8 / p
			i := at + 64*(v/fields) + 4*lane
			word := uint32(block[i]) | uint32(block[i+1])<<8 | uint32(block[i+2])<<16 | uint32(block[i+3])<<24
			mask := uint32(1<<p-1) * 0x01010101
			codes |= word >> (v % fields * p) & mask << shift
			at += 8 * vectors * p
		}
		shift += p
	}
	return codes
}
