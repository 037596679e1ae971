package vulkan

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"math"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
	"github.com/foretoken/foretoken/internal/backend/vulkan/driver"
	"github.com/foretoken/foretoken/internal/dtype"
)

// weight is a stack of matrices on the device, in the blocks of the CPU backend.
type weight struct {
	*kernel.Weight
	l     kernel.Layout
	owner *Backend
	head  driver.Ptr // struct Weight of kernels/weight.glsl, before the tiles
	size  int64
	turn  turn
	dots  bool // cooperative matrices do not multiply it
}

// turn is the tables of a transformation of the input, behind the tiles: see kernels/transform.comp. The zero value is none.
type turn struct {
	order, scales, turns, places driver.Ptr
	rounds                       int
}

// turns reports whether the rows that w multiplies are transformed first.
func (w *weight) turns() bool { return w.turn != turn{} }

// headBytes is the space for struct Weight.
const headBytes = 256

// Bytes is the device memory of the weight.
func (w *weight) Bytes() int64 { return w.size }

// super reports whether integer products with w are those of superblocks.
func (w *weight) super() bool { return w.Integer() && w.l.Per > 1 }

// Load packs the matrices of a stack on all threads, some tiles at a time, and returns when they are on the device.
func (b *Backend) Load(c backend.Compute, stack ...dtype.Matrix) (backend.Weight, error) {
	form, err := kernel.NewWeight(c == backend.Int8, stack)
	if err != nil {
		return nil, err
	}
	w := &weight{Weight: form, l: form.Layout(), owner: b}
	if w.l.Kind == kernel.Grid {
		w.l = expanded(&w.l)
	}
	w.size = headBytes + int64(len(stack)*w.l.Tiles)*int64(w.l.TileSize)
	tables, at := w.tables(), (w.size+15)&^15
	if tables != nil {
		w.size = at + int64(len(tables))
	}
	if w.head, err = b.memory.Alloc(w.size); err != nil {
		return nil, err
	}
	b.weights[w] = struct{}{}
	if err := errors.Join(b.send(w.head, w.param()), b.send(w.head+driver.Ptr(at), tables), b.sendTiles(w, stack)); err != nil {
		b.Unload(w)
		return nil, err
	}
	w.place(w.head + driver.Ptr(at))
	if err := b.proveShape(w, c, &stack[0]); err != nil {
		b.Unload(w)
		return nil, err
	}
	return w, nil
}

// expanded is the layout of a grid format on the device: superblocks whose codes are written out, as type Expanded of package kernel.
func expanded(l *kernel.Layout) kernel.Layout {
	const group, per, tail = 16, 16, 4*kernel.Tile + 16*kernel.Tile
	e := kernel.Layout{
		Kind: kernel.Biased, Bits: 8, Group: group, Groups: l.Groups, Codes: group * kernel.Tile, Block: group * kernel.Tile, Per: per, Tail: tail,
		Tiles: l.Tiles, Number: dtype.F32, Factors: kernel.FactorsGrid, Zero: -dtype.GridMiddle,
	}
	e.TileSize = e.Groups / per * (per*e.Block + tail)
	return e
}

// expand writes a tile of a grid format as expanded has it.
func (w *weight) expand(dst []byte, m *dtype.Matrix, t int) {
	own := w.Layout()
	tile := make([]byte, own.TileSize)
	w.PackTiles(tile, m, t, t+1)
	var e kernel.Expanded
	super := own.TileSize / (own.Groups / own.Per)
	for ; len(tile) > 0; tile = tile[super:] {
		w.Expand(&e, tile[:super])
		for i, four := range e.Codes {
			binary.LittleEndian.PutUint32(dst[4*i:], four)
		}
		for i := range 4 * len(e.Codes) {
			dst[i] += dtype.GridMiddle
		}
		tail := dst[4*len(e.Codes):]
		for r, s := range e.Scales {
			binary.LittleEndian.PutUint32(tail[4*r:], math.Float32bits(s))
		}
		copy(tail[4*len(e.Scales):], e.Factors[:])
		dst = tail[4*len(e.Scales)+len(e.Factors):]
	}
}

// tables are those of the transformation of the input, or nil.
func (w *weight) tables() []byte {
	if w.Input == nil {
		return nil
	}
	scales, places, turns, _ := w.Input.Rotation()
	var data bytes.Buffer
	for _, list := range []any{w.Input.Order(), scales, turns, places} {
		_ = binary.Write(&data, binary.LittleEndian, list) // to memory
	}
	return data.Bytes()
}

// place notes where the tables are, and forgets them.
func (w *weight) place(at driver.Ptr) {
	if w.Input == nil {
		return
	}
	scales, _, turns, rounds := w.Input.Rotation()
	if w.turn = (turn{order: at}); w.Input.Order() == nil {
		turnsAt := at + driver.Ptr(4*len(scales))
		w.turn = turn{scales: at, turns: turnsAt, places: turnsAt + driver.Ptr(4*len(turns)), rounds: rounds}
	}
	w.Input = nil
}

// sendTiles brings the tiles of all matrices to the device.
func (b *Backend) sendTiles(w *weight, stack []dtype.Matrix) error {
	tiles, size := w.l.Tiles, w.l.TileSize
	all := len(stack) * tiles
	if all*size == 0 {
		return nil
	}
	at := max(1, min(all, len(b.staged.data)/2/size))
	buffer := make([]byte, at*size)
	for from := 0; from < all; from += at {
		n := min(at, all-from)
		clear(buffer)
		backend.Spread(b, n, func(i int) {
			t := from + i
			if w.l.Factors == kernel.FactorsGrid {
				w.expand(buffer[i*size:][:size], &stack[t/tiles], t%tiles)
			} else {
				w.PackTiles(buffer[i*size:][:size], &stack[t/tiles], t%tiles, t%tiles+1)
			}
			w.arrange(buffer[i*size:][:size])
		})
		if err := b.send(w.head+driver.Ptr(headBytes+from*size), buffer[:n*size]); err != nil {
			return err
		}
	}
	return b.wait()
}

// arrange puts four words of an output's codes side by side in a tile, where groups have a multiple of four of 4 or 8 bits.
func (w *weight) arrange(tile []byte) {
	const row, chunk = 4 * kernel.Tile, 4 * 4 * kernel.Tile // bytes
	l := &w.l
	if l.Bits != 4 && l.Bits != 8 || l.Kind == kernel.Bytes || l.Kind == kernel.Plain || l.Group*l.Bits%128 != 0 {
		return
	}
	var old [chunk]byte
	for g := range l.Groups {
		block := tile[g*l.Block+g/l.Per*l.Tail:][:l.Group*kernel.Tile*l.Bits/8]
		for ; len(block) > 0; block = block[chunk:] {
			copy(old[:], block)
			for r := range kernel.Tile {
				for i := range 4 {
					copy(block[16*r+4*i:][:4], old[row*i+4*r:][:4])
				}
			}
		}
	}
}

// number is the type of scales or plain numbers, as kernels/weight.glsl has it.
func (w *weight) number() int {
	return map[dtype.Type]int{dtype.BF16: 0, dtype.F16: 1, dtype.F32: 2}[w.l.Number]
}

// param is struct Weight of kernels/weight.glsl.
func (w *weight) param() []byte {
	l := &w.l
	var data bytes.Buffer
	put := func(list ...any) {
		for _, x := range list {
			_ = binary.Write(&data, binary.LittleEndian, x) // to memory
		}
	}
	put(uint64(w.head)+headBytes, int64(l.Tiles*l.TileSize))
	for _, n := range []int{w.Rows(), w.Cols(), l.Tiles, l.TileSize, l.Group, l.Groups, l.Codes, l.Block, l.Per, l.Tail, int(l.Kind), l.Bits, w.number(), int(l.Factors)} {
		put(i32(n))
	}
	first := int32(0)
	if l.First {
		first = 1
	}
	put(l.Zero, i32(l.Zeros), first)
	return data.Bytes()
}

// Unload frees a weight.
func (b *Backend) Unload(bw backend.Weight) {
	w := bw.(*weight)
	if _, ok := b.weights[w]; !ok {
		return
	}
	delete(b.weights, w)
	b.passes.Forget(w)
	b.fail(b.memory.Free(w.head))
}

// weight is w for an operation.
func (b *Backend) weight(bw backend.Weight) *weight {
	w, ok := bw.(*weight)
	if !ok || w.owner != b {
		panic("vulkan: weight of another device")
	}
	if _, ok := b.weights[w]; !ok {
		panic("vulkan: weight that was unloaded")
	}
	b.passes.note(w)
	return w
}

// Embed sets row i of dst to row ids[i] of table, multiplied with factor.
func (b *Backend) Embed(dst backend.Tensor, table backend.Weight, ids []int32, factor float32) {
	backend.CheckEmbed(dst, table, ids)
	b.begin()
	b.embed(dst, table, b.listsOf(backend.Pass{IDs: ids}), 0, 0, cmp.Or(factor, 1))
}

// embed launches Embed with the ids of the call, or those that were drawn.
func (b *Backend) embed(dst backend.Tensor, table backend.Weight, call, drawn driver.Ptr, apart int, factor float32) {
	w := b.weight(table)
	if w.turns() {
		panic("vulkan: embed with a table whose input is transformed")
	}
	b.launch("embed", columns(dst.Rows, dst.Cols), w.head, b.at(dst), call, drawn, dst.Stride, apart, factor)
}
