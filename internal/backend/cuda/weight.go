package cuda

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
	"github.com/foretoken/foretoken/internal/dtype"
)

// weight is a stack of matrices on the device, in the blocks of the CPU backend. Those for products
// on tensor cores have another layout: codes of 4 or 8 bits, for any file format, in the order of the
// lanes, and each scale beside its bias. Codes whose biases are a multiple of their scales are signed, in blocks
// of two groups, with adjacent scales of both.
type weight struct {
	*kernel.Weight // as the CPU packs it, without Data
	kernel.Layout  // the layout on the device
	owner          *Backend
	at             driver.Ptr
	size           int64
	packed         kernel.Layout // by the CPU
	places         []uint16      // of the words of a block; nil: the layout is the CPU's, or another one
	tabled         bool          // codes are in the layout for lookup: see table.go
	format         dtype.Format
	table          []byte      // of a grid format in its own bits: it is behind the tiles
	params         weightParam // the result of param; without data: none
	turn           *transformation
}

// Bytes is the device memory of the weight and the tables of its input.
func (w *weight) Bytes() int64 {
	if w.turn != nil {
		return w.size + w.turn.bytes
	}
	return w.size
}

// laid reports whether w has the layout for tensor cores.
func (w *weight) laid() bool { return w.Integer() && (w.places != nil || w.tabled || w.super()) }

// parts is how many groups of columns a block has.
func (w *weight) parts() int { return max(1, w.Group/w.packed.Group) }

// weightBytes is what a weight takes that is written like m.
func weightBytes(m *dtype.Matrix) int64 {
	form, err := kernel.Form(true, []dtype.Matrix{*m})
	if err != nil {
		return int64(m.Rows) * int64(m.LoadedRowBytes()) // loading it says what is wrong
	}
	return newWeight(form, []dtype.Matrix{*m}).size + m.InputBytes()
}

// WeightBytes implements backend.Sizer.
func (b *Backend) WeightBytes(m *dtype.Matrix) int64 { return weightBytes(m) }

// newWeight is a weight that is yet to be loaded.
func newWeight(form *kernel.Weight, stack []dtype.Matrix) *weight {
	w := &weight{Weight: form, Layout: form.Layout(), packed: form.Layout(), format: stack[0].Format}
	w.arrange(stack)
	w.size = w.tileBytes() + int64(len(w.table))
	return w
}

// Load packs the matrices of stack on all threads, some tiles while others are on their way, and
// returns when they are there.
func (b *Backend) Load(c backend.Compute, stack ...dtype.Matrix) (backend.Weight, error) {
	form, err := kernel.NewWeight(c == backend.Int8, stack)
	if err != nil {
		return nil, err
	}
	w := newWeight(form, stack)
	w.owner = b
	if w.at, err = b.memory.Alloc(w.size); err != nil {
		return nil, err
	}
	b.weights[w] = struct{}{}
	if err := cmp.Or(b.shareInput(w), b.sendTiles(w, stack), b.sendTable(w)); err != nil {
		b.Unload(w)
		return nil, err
	}
	return w, nil
}

// tileBytes is what the tiles of all matrices take.
func (w *weight) tileBytes() int64 {
	return int64(w.Count()) * int64(w.Layout.Tiles) * int64(w.TileSize)
}

// sendTiles brings the tiles of all matrices of a weight to the device, through the two halves of the
// staging memory. Each has a stream of its own: while one is copied, the other is packed.
func (b *Backend) sendTiles(w *weight, stack []dtype.Matrix) (err error) {
	tiles, size := w.Layout.Tiles, w.TileSize
	all, half := len(stack)*tiles, len(b.staged.data)/2
	if all*size == 0 {
		return nil
	}
	// What was queued before may use the staging memory, or memory that the weight lies in now.
	if err := b.stream.Wait(); err != nil {
		return err
	}
	b.staged.used = 0
	pack := func(dst []byte, t int) { w.pack(dst, &stack[t/tiles], t%tiles) }
	if size > half {
		large := make([]byte, size)
		for t := range all {
			pack(large, t)
			if err := b.send(w.at+driver.Ptr(t*size), large); err != nil {
				return err
			}
		}
		return b.stream.Wait()
	}
	defer func() {
		for _, lane := range b.lanes {
			if waited := lane.Wait(); err == nil {
				err = waited
			}
		}
	}()
	for from, turn := 0, 0; from < all; turn = 1 - turn {
		n, lane, piece := min(half/size, all-from), b.lanes[turn], b.staged.data[turn*half:][:half]
		if err := lane.Wait(); err != nil {
			return err
		}
		backend.Spread(b, n, func(i int) { pack(piece[i*size:][:size], from+i) })
		if err := lane.Write(w.at+driver.Ptr(from*size), piece[:n*size]); err != nil {
			return err
		}
		from += n
	}
	return nil
}

// sendTable brings the table of a grid format to its place behind the tiles.
func (b *Backend) sendTable(w *weight) error {
	if w.table == nil {
		return nil
	}
	if err := b.send(w.at+driver.Ptr(w.tileBytes()), w.table); err != nil {
		return err
	}
	return b.stream.Wait()
}

// maxGroup is the longest group of codes that there are tensor cores for.
const maxGroup = 128

// tiles are buffers of pack.
var tiles = sync.Pool{New: func() any { return new([]byte) }}

// pack writes tile t of a matrix to dst.
func (w *weight) pack(dst []byte, m *dtype.Matrix, t int) {
	if w.places == nil && !w.tabled && !w.super() {
		clear(dst)
		w.PackTiles(dst, m, t, t+1)
		return
	}
	buffer := tiles.Get().(*[]byte)
	defer tiles.Put(buffer)
	*buffer = kernel.Grow(*buffer, w.packed.TileSize)
	clear(*buffer)
	w.PackTiles(*buffer, m, t, t+1)
	switch {
	case w.super():
		w.laySuper(dst, *buffer)
		return
	case w.tabled:
		w.layTable(dst, *buffer, m, t)
		return
	}
	n := w.parts()
	for g := range w.packed.Groups {
		at := g*w.packed.Block + g/w.packed.Per*w.packed.Tail
		out, part := dst[g/n*w.Block:][:w.Block], g%n
		w.layCodes(out, (*buffer)[at:][:w.packed.Codes], w.places[part*len(w.places)/n:(part+1)*len(w.places)/n])
		w.layScales(out[w.Codes:], *buffer, g)
	}
}

// sign is what makes the words of symmetric codes signed: the distance of each code from the middle of
// its range, to be added, and then the highest bits, to be turned over.
func (w *weight) sign() (add, flip uint32) {
	switch {
	case w.Zero == 0:
		return 0, 0
	case w.Bits == 4:
		return uint32(w.packed.Zero-w.Zero) * 0x11111111, 0x88888888
	}
	return uint32(w.packed.Zero-w.Zero) * 0x01010101, 0x80808080
}

// layCodes brings the codes of a group to their places, in the order of the lanes.
func (w *weight) layCodes(dst, src []byte, places []uint16) {
	le := binary.LittleEndian
	add, flip := w.sign()
	if w.Bits == w.packed.Bits {
		for i, to := range places {
			le.PutUint32(dst[4*int(to):], le.Uint32(src[4*i:])+add^flip)
		}
		return
	}
	var block [maxGroup / 4 * kernel.Tile]uint32
	w.BlockCodes(block[:], src)
	for i, to := range places {
		word := block[i]
		if w.Bits == 4 {
			first := 2*i - i%kernel.Tile
			word = block[first] | block[first+kernel.Tile]<<4
		}
		le.PutUint32(dst[4*int(to):], word+add^flip)
	}
}

// layScales writes the scales and biases of block g of a packed tile.
func (w *weight) layScales(dst, tile []byte, g int) {
	le := binary.LittleEndian
	if w.Number == dtype.F16 { // one for each part of a block
		src, part := tile[g*w.packed.Block+w.packed.Codes:], g%w.parts()
		for o := range kernel.Tile {
			scale := le.Uint16(src[2*o:])
			if w.packed.Number == dtype.BF16 {
				scale = dtype.ToF16(dtype.FromBF16(scale))
			}
			le.PutUint16(dst[4*pair(o)+2*part:], scale)
		}
		return
	}
	if w.Number == dtype.BF16 && w.Zeros == 0 { // as they are
		src := tile[g*w.packed.Block+w.packed.Codes:]
		for o := range kernel.Tile {
			to := dst[4*pair(o):]
			copy(to[:2], src[2*o:])
			copy(to[2:4], src[2*kernel.Tile+2*o:])
		}
		return
	}
	var scales, biases [kernel.Tile]float32
	w.Scales(&scales, &biases, tile, g)
	if w.packed.Zero != 0 && w.Zeros > 0 { // zero points, all of them alike
		for o := range biases {
			biases[o] = w.packed.Zero
		}
	}
	for o := range kernel.Tile {
		if w.Number == dtype.BF16 {
			le.PutUint32(dst[4*pair(o):], math.Float32bits(scales[o])&^0xff|uint32(-biases[o]))
			continue
		}
		to := dst[8*pair(o):]
		le.PutUint32(to, math.Float32bits(scales[o]))
		le.PutUint32(to[4:], math.Float32bits(biases[o]))
	}
}

// pair is the place of output o among those of a tile: beside the one eight further.
func pair(o int) int { return 2*(o%8) + o/8 }

// symmetricGroup is how many columns a group of symmetric codes has that there are tensor cores for: two are a block.
const symmetricGroup = 32

// halves reports whether scales of type t are halves or, of bf16, numbers that halves are as well: zero, and from 2^-17 to 65,504.
// Without data they are taken for such, as they nearly always are.
func halves(t dtype.Type, stack []dtype.Matrix) bool {
	if t != dtype.BF16 {
		return t == dtype.F16
	}
	for i := range stack {
		scales := stack[i].Scales
		for at := 0; at+1 < len(scales); at += 2 {
			h := binary.LittleEndian.Uint16(scales[at:]) & 0x7fff
			if exponent := int(h>>7) - 127; h != 0 && (exponent < -17 || exponent > 15) {
				return false
			}
		}
	}
	return true
}

// arrange changes the layout to that of tensor cores, if there are kernels for it. Codes of other
// widths than 4 and 8 bits get the next of them, and scales that have biases and are not bf16 become float32: more
// memory than the file has, for products that are several times as fast.
func (w *weight) arrange(stack []dtype.Matrix) {
	switch {
	case w.super():
		w.arrangeSuper()
		return
	case !w.Integer():
		return
	case w.Kind == kernel.Halves || w.Kind == kernel.Leveled:
		w.arrangeTable(stack)
		return
	}
	l := w.Layout
	if l.Bits = 4; w.packed.Bits > 4 {
		l.Bits = 8
	}
	scale, brief := 4, l.Number == dtype.BF16
	switch {
	case l.Kind != kernel.Biased && l.Kind != kernel.Pointed:
		return
	case l.Zeros == 0 && l.Zero != 0 && l.Group == symmetricGroup && l.Groups%2 == 0 && halves(l.Number, stack):
		l.Number = dtype.F16
		l.Group, l.Groups, l.Zero, brief = 2*l.Group, l.Groups/2, -float32(int(1)<<(l.Bits-1)), true
	case l.Kind == kernel.Pointed || l.Zero != 0: // see ZEROED in kernels/tensor.cuh, which has space for a half, too
		l.Zeros, l.Zero = l.Codes, 0
		if brief = l.Number != dtype.F32; brief {
			l.Number = dtype.BF16
		}
	}
	if !brief {
		scale, l.Number = 8, dtype.F32
	}
	if _, ok := tensors[keyOf(&l)]; !ok {
		return
	}
	l.Codes = l.Group * kernel.Tile * l.Bits / 8
	if l.Zeros > 0 {
		l.Zeros = l.Codes // beside the scales
	}
	l.Block = l.Codes + scale*kernel.Tile
	l.TileSize = l.Groups * l.Block
	w.Layout, w.places = l, places(&l)
}

// places is where the words of a block go: the function place of kernels/weight.cuh.
func places(l *kernel.Layout) []uint16 {
	list := make([]uint16, l.Codes/4)
	n := l.Group / 32
	for i := range list {
		v, r := i/kernel.Tile, i%kernel.Tile
		lane, high := 4*(r%8), r/8
		switch {
		case l.Number == dtype.F16 && l.Bits == 8:
			list[i] = uint16(128*(v/8) + 4*(lane+v/2%4) + 2*(v%2) + high)
		case l.Number == dtype.F16:
			list[i] = uint16(4*(lane+v%4) + 2*(v/4) + high)
		case l.Bits == 8:
			list[i] = uint16(128*(v/2%n) + 4*(lane+v/(2*n)) + 2*(v%2) + high)
		case n == 1:
			list[i] = uint16(2*(lane+v) + high)
		default:
			m := v % n
			list[i] = uint16(128*(m/2) + 4*(lane+v/n) + 2*(m%2) + high)
		}
	}
	return list
}

// Unload frees a weight.
func (b *Backend) Unload(bw backend.Weight) {
	w := bw.(*weight)
	if _, ok := b.weights[w]; !ok {
		return
	}
	delete(b.weights, w)
	b.passes.Forget(w)
	b.fail(b.memory.Free(w.at))
	b.unshareInput(w)
}

// weight is w for an operation.
func (b *Backend) weight(bw backend.Weight) *weight {
	w, ok := bw.(*weight)
	if !ok || w.owner != b {
		panic("cuda: weight of another device")
	}
	if _, ok := b.weights[w]; !ok {
		panic("cuda: weight that was unloaded")
	}
	b.passes.note(w)
	return w
}

// param is struct Weight of kernels/weight.cuh.
func (w *weight) param() weightParam {
	if w.params.data != 0 {
		return w.params
	}
	number := map[dtype.Type]int32{dtype.BF16: 0, dtype.F16: 1, dtype.F32: 2, dtype.F8E4M3: 3}[w.Number]
	l := &w.Layout
	laid := int32(0)
	switch {
	case w.super():
		laid = 2
	case w.tabled:
		laid = 3
	case w.laid():
		laid = 1
	}
	table := driver.Ptr(0)
	if w.table != nil {
		table = w.at + driver.Ptr(w.tileBytes())
	}
	w.params = weightParam{
		data: w.at, matrix: int64(l.Tiles * l.TileSize), rows: i32(w.Rows()), cols: i32(w.Cols()), tiles: i32(l.Tiles), tileBytes: i32(l.TileSize),
		group: i32(l.Group), groups: i32(l.Groups), codes: i32(l.Codes), block: i32(l.Block), per: i32(l.Per), tail: i32(l.Tail),
		kind: int32(l.Kind), bits: i32(l.Bits), number: number, factors: int32(l.Factors), zero: l.Zero, laid: laid, zeros: i32(l.Zeros), grid: i32(w.grid()), table: table,
	}
	return w.params
}

// table is w for its rows.
func (b *Backend) table(bw backend.Weight) *weight {
	w := b.weight(bw)
	if w.turn != nil {
		panic("cuda: embed with a table whose input is transformed")
	}
	return w
}

// Embed sets row i of dst to row ids[i] of table.
func (b *Backend) Embed(dst backend.Tensor, table backend.Weight, ids []int32, factor float32) {
	w := b.table(table)
	backend.CheckEmbed(dst, table, ids)
	atMost(maxRows, dst.Rows)
	b.begin()
	call := b.lists(backend.Pass{IDs: ids})
	b.launch("plain.embed", pieces(dst.Rows, dst.Cols), raw(w.param()), b.at(dst), dst.Stride, call, driver.Ptr(0), 0, cmp.Or(factor, 1))
}

// EmbedDrawn implements backend.Drawer.
func (b *Backend) EmbedDrawn(dst backend.Tensor, table backend.Weight, ids backend.Tensor, factor float32) {
	w := b.table(table)
	if backend.CheckEmbedDrawn(dst, table, ids); dst.Rows > maxRows {
		panic(fmt.Sprintf("cuda: embed %d drawn ids", dst.Rows))
	}
	b.begin()
	b.launch("plain.embed", pieces(dst.Rows, dst.Cols), raw(w.param()), b.at(dst), dst.Stride, driver.Ptr(0), b.at(ids), ids.Stride, cmp.Or(factor, 1))
}
