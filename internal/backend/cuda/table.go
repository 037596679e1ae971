package cuda

import (
	"encoding/binary"
	"math"

	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Codes of mxfp4, nvfp4 and IQ4_NL are looked up in tables: kernels/tensor.cuh has the layout of their words. A block is 64 columns in
// groups of 32 or 16, with adjacent scales of an output. Scales of nvfp4 are the bytes of the file. Their
// factor is behind the blocks of each tile, because the matrices of a stack have different ones.
const (
	tableCols   = 64
	tableFactor = 128               // bytes behind the blocks: tiles begin at whole lines of the cache
	factorShift = float32(1 << 119) // of the factor: see nanoScale
)

// arrangeTable changes the layout to that of codes that are looked up, if there are kernels for it.
func (w *weight) arrangeTable(stack []dtype.Matrix) {
	l := w.Layout
	tail := 0
	if l.Kind == kernel.Halves && l.Group == nanoGroup {
		if !nano(stack) {
			return
		}
		l.Number, tail = dtype.F8E4M3, tableFactor
	}
	n := tableCols / l.Group
	if l.Groups%n != 0 {
		return
	}
	l.Group, l.Groups = tableCols, l.Groups/n
	if _, ok := tensors[keyOf(&l)]; !ok {
		return
	}
	l.Codes = tableCols * kernel.Tile * l.Bits / 8
	l.Block = l.Codes + 4*kernel.Tile
	l.TileSize = l.Groups*l.Block + tail
	w.Layout, w.tabled = l, true
}

// nanoGroup is how many columns a group of nvfp4 has.
const nanoGroup = 16

// nano reports whether the scales of all matrices are supported by the kernels: bytes of E4M3 that are neither negative nor NaN,
// and a factor that can be shifted.
func nano(stack []dtype.Matrix) bool {
	for i := range stack {
		m := &stack[i]
		if f := m.Global * factorShift; math.IsInf(float64(f), 0) || f != f {
			return false
		}
		for _, b := range m.Scales {
			if b > 0x7e {
				return false
			}
		}
	}
	return true
}

// nanoScales writes the scales of a row's groups in a block of 64 columns.
func nanoScales(dst []byte, m *dtype.Matrix, row, block int) {
	if m.Format == dtype.NVFP4 {
		copy(dst, m.Scales[row*m.Groups()+block*len(dst):])
		return
	}
	_, size := m.Format.BlockSize()
	for i, b := range m.Data[row*m.RowBytes()+block*size:][:len(dst)] {
		dst[i] = dtype.UnsignedE4M3(b)
	}
}

// layTable writes tile t of a matrix from one that the CPU has packed.
func (w *weight) layTable(dst, tile []byte, m *dtype.Matrix, t int) {
	le, n := binary.LittleEndian, w.parts()
	var codes [tableCols / 4 * kernel.Tile]uint32
	nano := w.Number == dtype.F8E4M3
	for b := range w.Layout.Groups {
		block := dst[b*w.Block:][:w.Block]
		scales := block[w.Codes:]
		for part := range n {
			packed := tile[(b*n+part)*w.packed.Block:]
			w.BlockCodes(codes[part*len(codes)/n:], packed[:w.packed.Codes])
			if nano {
				continue
			}
			for o := range kernel.Tile {
				le.PutUint16(scales[4*pair(o)+2*part:], le.Uint16(packed[w.packed.Codes+2*o:]))
			}
		}
		w.layLookups(block, &codes)
		if !nano {
			continue
		}
		for o := range kernel.Tile {
			to := scales[4*pair(o):][:n]
			clear(to)
			if row := t*kernel.Tile + o; row < m.Rows {
				nanoScales(to, m, row, b)
			}
		}
	}
	if nano {
		tail := dst[w.Layout.Groups*w.Block:]
		clear(tail)
		le.PutUint32(tail, math.Float32bits(m.Global*factorShift))
	}
}

// layLookups writes the codes of a block, which are as BlockCodes has them: words of four columns of every output. Lane
// 4*(r%8)+q has, of each half of the block and of outputs r and r+8, columns 8q to 8q+7, or 4q to 4q+3 of both groups of 16.
func (w *weight) layLookups(block []byte, codes *[tableCols / 4 * kernel.Tile]uint32) {
	at, second := 2, 1 // of the words of a lane: from one to the next, to the other of its words
	if w.packed.Group == nanoGroup {
		at, second = 1, 4
	}
	for lane := range 32 {
		for i := range 4 { // half, output
			v := 8*(i/2) + at*(lane%4)
			r := lane/4 + 8*(i%2)
			binary.LittleEndian.PutUint32(block[16*lane+4*i:], lookup(codes[v*kernel.Tile+r], codes[(v+second)*kernel.Tile+r]))
		}
	}
}

// lookup is eight codes in the order of the lookup, four bits each: see lookUp of kernels/tensor.cuh.
func lookup(first, second uint32) uint32 { return uint32(squeeze(first) | squeeze(second)<<16) }

// tails is how many bytes of scales rows have beside their codes of a block, in shared memory.
func (w *weight) tails() int { return max(8, 4*w.parts()) }
