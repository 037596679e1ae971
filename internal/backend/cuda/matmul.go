package cuda

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
	"github.com/foretoken/foretoken/internal/backend/gpu"
	"github.com/foretoken/foretoken/internal/dtype"
)

// rounding is how rows become integers.
type rounding struct {
	group int  // columns that have one scale; 0: they do not
	super bool // which are a superblock: instead of a scaled sum there are the sums of every 32 columns
	whole bool // the sums of groups are not scaled, for codes with zero points
}

// rounding is that of rows that are multiplied with w.
func (w *weight) rounding() rounding {
	return rounding{w.packed.Per * w.packed.Group, w.super(), w.places != nil && w.Zeros > 0}
}

// quantized is rows as integers: see struct Product of kernels/product.cuh.
type quantized struct {
	codes, tails driver.Ptr
	rounding
	stride   int // of codes
	tailRows int
	turn     *transformation // of the rows; nil: none
	halves   driver.Ptr      // the same for weights that are halved; 0: nothing
}

// space is memory for rows of cols numbers as integers. Kernels read whole chunks of groups or of pairs of
// groups, and of rows up to maxRelay at once.
func (b *Backend) space(rows, cols int, r rounding) quantized {
	chunk, tail := 8, 8 // bytes of a row's tail
	switch {
	case r.super:
		chunk, tail = 1, 24
	case r.group <= symmetricGroup:
		chunk = 8 * 64 / r.group
	}
	groups := (cols/r.group + chunk - 1) &^ (chunk - 1)
	q := quantized{rounding: r, stride: groups * r.group, tailRows: (rows + maxRelay - 1) &^ (strip - 1)}
	q.codes, q.tails = b.take(&b.codes, q.tailRows*q.stride), b.take(&b.codes, q.tailRows*groups*tail)
	return q
}

// strip is how many rows go together through tensor cores.
const strip = 8

// MatMul multiplies x with each product's weight.
func (b *Backend) MatMul(x backend.Tensor, products ...backend.Product) {
	b.begin()
	b.products(x, nil, products...)
}

// products is MatMul as part of another operation. Neighbors that one kernel can multiply together are
// one launch. known is the existing forms of x.
func (b *Backend) products(x backend.Tensor, known []input, products ...backend.Product) {
	var list, later []product
	b.prepareAll(x, products, &known)
	ahead := b.narrowAhead(x, products)
	for i := range products {
		p := &products[i]
		if backend.CheckProduct(x, p); p.Each {
			b.multiply(list...)
			list = list[:0]
			b.each(x, p)
			continue
		}
		w := b.weight(p.W)
		d, ok := b.product(x, w, *p, &known)
		if !ok {
			continue
		}
		if ahead && !d.narrow {
			later = append(later, d)
			continue
		}
		list = b.collect(list, d)
	}
	for _, d := range later {
		list = b.collect(list, d)
	}
	b.multiply(list...)
}

// collect adds a product to those of the next launch, or launches them if it does not fit.
func (b *Backend) collect(list []product, d product) []product {
	if !joins(list, &d) {
		b.multiply(list...)
		list = list[:0]
	}
	return append(list, d)
}

// product is one product with the first matrix of a stack, or false if there is nothing to do. known is
// the existing forms of x; a missing one is added.
func (b *Backend) product(x backend.Tensor, w *weight, p backend.Product, known *[]input) (product, bool) {
	if x.Rows == 0 || w.Layout.Groups == 0 || p.Only != nil && len(p.Only) == 0 {
		return product{}, false
	}
	in := b.prepare(input{x: b.at(x), rows: x.Stride}, x.Rows, x.Cols, w, known)
	d := product{w: w, in: in, rows: x.Rows, mem: p.Dst.Mem, dst: b.at(p.Dst), stride: p.Dst.Stride, bias: b.at(p.Bias), add: p.Add, tiles: w.Layout.Tiles}
	if p.Only != nil {
		d.only, d.tiles = b.lists(backend.Pass{Only: p.Only}), gpu.Blocks(len(p.Only))
	}
	d.narrow = b.narrow(&d)
	return d, true
}

// input is the rows of a product: floats, and the same as integers if the weight needs them.
type input struct {
	x    driver.Ptr
	rows int // numbers from row to row
	quantized
}

// quantize rounds rows of x to integers.
func (b *Backend) quantize(x input, rows, cols int, r rounding) quantized {
	q := b.space(rows, cols, r)
	if !b.coded(q, x.x, x.rows, rows, cols) {
		b.quantizeInto(q, x, 0, 0, 0, rows, cols)
	}
	return q
}

// quantizeInto quantizes rows. With slots they go to those, and come from there or, if share rows
// come from one, from that; the rows from alone on are those of x once more.
func (b *Backend) quantizeInto(q quantized, x input, slots driver.Ptr, share, alone, rows, cols int) {
	const groupsAtOnce = 8
	unit := q.group // columns of a warp
	if unit == nanoGroup {
		unit = 8 * nanoGroup
	}
	for from := 0; from < rows; from += maxRows {
		n := min(maxRows, rows-from)
		if from > 0 && slots != 0 {
			panic("cuda: too many rows for experts")
		}
		b.launch(q.kernel("plain.quantize"), grid{x: (cols + groupsAtOnce*unit - 1) / (groupsAtOnce * unit), y: n, threads: 32 * groupsAtOnce},
			x.x+driver.Ptr(4*from*x.rows), x.rows, q.codes+driver.Ptr(from*q.stride), q.stride, q.tails+driver.Ptr(8*from), cols, q.group, q.tailRows, q.whole, slots, share, alone)
	}
}

// product is one product on its way to a kernel: struct Product of kernels/product.cuh.
type product struct {
	w      *weight
	other  *weight // with jobs: matrix -1 of them; or nil
	in     input
	same   bool           // with jobs: all have row 0
	mem    backend.Memory // of dst; with jobs nil
	dst    driver.Ptr
	stride int
	rows   int // of the input; with jobs the maximum of one of them
	bias   driver.Ptr
	add    bool
	tiles  int        // at most; with jobs of all of them
	only   driver.Ptr // call block with the list of tiles; 0: all
	narrow bool       // see narrow.go

	jobs, jobCount driver.Ptr
}

// rowsFrom is the product of rows [from, to).
func (p *product) rowsFrom(from, to int) product {
	q := *p
	q.rows = to - from
	q.dst += driver.Ptr(4 * from * p.stride)
	q.in.x += driver.Ptr(4 * from * p.in.rows)
	q.in.codes += driver.Ptr(from * p.in.stride)
	q.in.tails += driver.Ptr(8 * from)
	return q
}

func (p *product) param() []byte {
	if p.in.group == 0 {
		p.in.codes, p.in.tails = 0, 0
	}
	return raw(productParam{
		w: p.w.param(), codes: p.in.codes, tails: p.in.tails, x: p.in.x, dst: p.dst, bias: p.bias, only: p.only, jobs: p.jobs, jobCount: p.jobCount,
		tailRows: i32(p.in.tailRows), codeStride: i32(p.in.stride), xStride: i32(p.in.rows), dstStride: i32(p.stride), rows: i32(p.rows), add: b32(p.add),
	})
}

// large reports whether p has at least manyTiles tiles, from which on the blocks of many beat relays, for formats without panels.
func (p *product) large() bool {
	return p.rows > 2*strip && p.tiles >= manyTiles && p.only|p.jobs == 0 && !p.w.super() && len(p.w.forms().panels) == 0
}

// relayed reports whether p is one of a kernel that multiplies several matrices at once.
func (p *product) relayed() bool {
	return p.w.laid() && (p.rows <= maxRelay || p.inHalves()) && !p.large()
}

// inHalves reports whether p is multiplied as two products of at most maxRelay rows, whose panels take less time than blocks of many:
// these are too few to fill the device.
func (p *product) inHalves() bool {
	return p.rows > maxRelay && p.rows <= 2*maxRelay && p.jobs == 0 && p.w.Bits == 4 && !p.w.tabled && len(p.w.forms().panels) > 0
}

// maxParts is how many products a relay has at most.
const maxParts = len(partsParam{}.part)

// joins reports whether p can be launched together with others of the same rows: one kernel has them all,
// they have one layout, and no two have results in the same memory.
func joins(list []product, p *product) bool {
	if len(list) == 0 {
		return true
	}
	first := &list[0]
	a, b := &first.w.Layout, &p.w.Layout
	alike := a.Kind == b.Kind && a.Zeros == b.Zeros && a.Bits == b.Bits && a.Group == b.Group && a.Number == b.Number && a.TileSize == b.TileSize && a.Factors == b.Factors
	together := first.narrow && p.narrow || first.relayed() && p.relayed()
	if len(list) == maxParts || first.in.turn != p.in.turn || !alike || !together || first.only != 0 || p.only != 0 {
		return false
	}
	for i := range list {
		if p.mem != nil && list[i].mem == p.mem {
			return false
		}
	}
	return true
}

// sizes is how many outputs and columns products have, for people.
func sizes(list ...product) string {
	outs := 0
	for i := range list {
		outs += list[i].w.Rows()
	}
	return fmt.Sprintf(" %d×%d", outs, list[0].w.Cols())
}

func (p *product) sizes() string { return sizes(*p) }

// multiply launches products: one, or several that joins has let through.
func (b *Backend) multiply(list ...product) {
	if len(list) == 0 {
		return
	}
	r, p := find(b, productRules, list), &list[0]
	if r.most == 0 {
		r.run(b, list)
		return
	}
	for from := 0; from < p.rows; from += r.most {
		var pieces [maxParts]product
		for i := range list {
			pieces[i] = list[i].rowsFrom(from, min(from+r.most, p.rows))
		}
		b.multiply(pieces[:len(list)]...)
	}
}

// floatPlain and integerPlain launch a product of any format.
func (b *Backend) floatPlain(list []product)   { b.plain("plain.floatPlain", 128, &list[0]) }
func (b *Backend) integerPlain(list []product) { b.plain("plain.integerPlain", 256, &list[0]) }

func (b *Backend) plain(kernel string, threads int, p *product) {
	b.launch(kernel, grid{x: p.tiles, y: min((p.rows+strip-1)/strip, maxRows), threads: threads}, p.param())
}

// plainNames are those of plain numbers in names of kernels.
var plainNames = map[dtype.Type]string{dtype.BF16: "bf16", dtype.F16: "f16", dtype.F32: "f32"}

// floats launches a product with plain numbers.
func (b *Backend) floats(list []product) {
	p := &list[0]
	const warps, stages = 4, 6 // of a block, a tile each; blocks of columns under way
	rows := 1
	if p.rows > 1 {
		rows = strip
	}
	name := fmt.Sprintf("floats.floats_%s_%d", plainNames[p.w.Number], rows)
	g := grid{
		x: (p.tiles + warps - 1) / warps, y: min((p.rows+rows-1)/rows, maxRows),
		threads: 32 * warps, shared: warps * stages * (p.w.Block + rows*4*p.w.Group),
	}
	if p.only|p.jobs != 0 || b.allows(name, g.shared) {
		b.launchAs(name, p.sizes(), g, p.param())
		return
	}
	// Half of the warps have half of the memory. They take the first two of every four tiles: the rest are another launch.
	g.threads, g.shared = g.threads/2, g.shared/2
	b.launchAs(name, p.sizes(), g, p.param())
	if p.tiles > warps/2 {
		others := p.tilesFrom(warps / 2)
		b.launchAs(name, p.sizes(), g, others.param())
	}
}

// tilesFrom is the product with the tiles of a plain weight from a number on.
func (p *product) tilesFrom(tile int) product {
	q, outs := *p, tile*kernel.Tile
	form, err := kernel.Form(false, []dtype.Matrix{{Rows: p.w.Rows() - outs, Cols: p.w.Cols(), Type: p.w.Number}})
	if err != nil {
		panic(err) // it is the weight's own
	}
	q.w = &weight{Weight: form, Layout: form.Layout(), packed: form.Layout(), owner: p.w.owner, at: p.w.at + driver.Ptr(tile*p.w.TileSize)}
	q.tiles, q.dst = q.w.Layout.Tiles, p.dst+driver.Ptr(4*outs)
	if p.bias != 0 {
		q.bias += driver.Ptr(4 * outs)
	}
	return q
}

// manyTiles is from how many tiles on the blocks of many are enough to beat a relay with more than
// 16 rows.
const manyTiles = 1500

// tensorKey is a format of weights that tensor cores multiply: halves are scales of signed codes, and such a block is
// two groups.
type tensorKey struct {
	bits, group int
	scales      dtype.Type
	zeros       bool        // beside the scales
	kind        kernel.Kind // Halves, Leveled, or Biased for all others
}

// tensorForms are the kernels for a format, in kernels/MODULE.cu.
type tensorForms struct {
	module string
	relays []relayForm // by rows
	few    string      // the module with kernels of up to four rows, or none
	panels []panelForm // for a few dozen rows
	tall   bool        // many rows have a kernel with twice the rows in a block
	dense  bool        // and one with twice the warps
}

// relayForm is the shape of a relay: strips of rows, groups of a chunk, chunks that are under way.
type relayForm struct{ strips, groups, stages int }

// shared is the shared memory of a block of eight warps.
func (f *relayForm) shared(l *kernel.Layout) int { return 8 * f.stages * f.groups * l.Block }

var tensors = map[tensorKey]tensorForms{
	{4, 64, dtype.BF16, false, kernel.Biased}:  {"product", []relayForm{{1, 8, 2}, {2, 4, 2}, {4, 4, 4}}, "few", nibblePanels, true, true},
	{8, 64, dtype.BF16, false, kernel.Biased}:  {"product", []relayForm{{1, 4, 2}, {2, 2, 4}, {4, 2, 2}}, "", nil, false, true},
	{4, 32, dtype.BF16, false, kernel.Biased}:  {"grouped", []relayForm{{1, 8, 2}, {4, 4, 2}}, "", nil, false, false},
	{8, 32, dtype.BF16, false, kernel.Biased}:  {"grouped", []relayForm{{1, 8, 2}, {4, 4, 2}}, "", nil, false, false},
	{4, 128, dtype.BF16, false, kernel.Biased}: {"grouped", []relayForm{{1, 4, 2}, {4, 2, 2}}, "", nil, false, false},
	{8, 128, dtype.BF16, false, kernel.Biased}: {"grouped", []relayForm{{1, 2, 2}, {4, 1, 2}}, "", nil, false, false},
	{4, 32, dtype.F32, false, kernel.Biased}:   {"wide", []relayForm{{1, 8, 2}, {4, 4, 2}}, "", nil, false, false},
	{8, 32, dtype.F32, false, kernel.Biased}:   {"wide", []relayForm{{1, 8, 2}, {4, 4, 2}}, "", nil, false, false},
	{4, 64, dtype.F32, false, kernel.Biased}:   {"wide", []relayForm{{1, 8, 2}, {4, 4, 2}}, "", nil, false, false},
	{8, 64, dtype.F32, false, kernel.Biased}:   {"wide", []relayForm{{1, 4, 2}, {4, 2, 2}}, "", nil, false, false},
	{4, 64, dtype.F16, false, kernel.Biased}:   {"symmetric", []relayForm{{1, 4, 4}, {4, 4, 4}}, "symmetricfew", nibblePanels, true, true},
	{8, 64, dtype.F16, false, kernel.Biased}:   {"symmetric", []relayForm{{1, 4, 2}, {2, 2, 4}, {4, 2, 2}}, "", bytePanels, true, true},
	{4, 64, dtype.BF16, true, kernel.Biased}:   {"zero", []relayForm{{1, 8, 2}, {2, 4, 2}, {4, 4, 4}}, "zerofew", nibblePanels, true, true},
	{8, 64, dtype.BF16, true, kernel.Biased}:   {"zero", []relayForm{{1, 4, 2}, {2, 2, 4}, {4, 2, 2}}, "", nil, false, true},
	{4, 32, dtype.BF16, true, kernel.Biased}:   {"zero", []relayForm{{1, 8, 2}, {4, 4, 2}}, "", nil, false, false},
	{8, 32, dtype.BF16, true, kernel.Biased}:   {"zero", []relayForm{{1, 8, 2}, {4, 4, 2}}, "", nil, false, false},
	{4, 128, dtype.BF16, true, kernel.Biased}:  {"zero", []relayForm{{1, 4, 2}, {2, 2, 2}, {4, 2, 2}}, "", nil, false, true},
	{8, 128, dtype.BF16, true, kernel.Biased}:  {"zero", []relayForm{{1, 2, 2}, {4, 1, 2}}, "", nil, false, false},
	{4, 32, dtype.F32, true, kernel.Biased}:    {"zerowide", []relayForm{{1, 8, 2}, {4, 4, 2}}, "", nil, false, false},
	{8, 32, dtype.F32, true, kernel.Biased}:    {"zerowide", []relayForm{{1, 8, 2}, {4, 4, 2}}, "", nil, false, false},
	{4, 64, dtype.F32, true, kernel.Biased}:    {"zerowide", []relayForm{{1, 8, 2}, {4, 4, 2}}, "", nil, false, false},
	{8, 64, dtype.F32, true, kernel.Biased}:    {"zerowide", []relayForm{{1, 4, 2}, {4, 2, 2}}, "", nil, false, false},
	{4, 128, dtype.F32, true, kernel.Biased}:   {"zerowide", []relayForm{{1, 4, 2}, {4, 2, 2}}, "", nil, false, false},
	{8, 128, dtype.F32, true, kernel.Biased}:   {"zerowide", []relayForm{{1, 2, 2}, {4, 1, 2}}, "", nil, false, false},

	{4, 64, dtype.BF16, false, kernel.Halves}:   {"micro", []relayForm{{1, 4, 4}, {4, 2, 4}}, "microfew", tablePanels, true, true},
	{4, 64, dtype.F8E4M3, false, kernel.Halves}: {"nano", []relayForm{{1, 2, 4}, {4, 1, 4}}, "nanofew", nanoPanels, true, true},
	{4, 64, dtype.F16, false, kernel.Leveled}:   {"levels", []relayForm{{1, 4, 4}, {4, 2, 4}}, "levelsfew", tablePanels, true, true},
}

// packedRows is how many rows the kernels for few have at most.
const packedRows = 4

// relay is the kernel for that many rows and its shape.
func (f tensorForms) relay(l *kernel.Layout, rows int) (string, relayForm) {
	form := f.relays[0]
	for _, form = range f.relays {
		if rows <= strip*form.strips {
			break
		}
	}
	return fmt.Sprintf("%s.relay_%d_%d_%d", f.module, l.Bits, l.Group, form.strips), form
}

// keyOf is the format of blocks in the layout for tensor cores.
func keyOf(l *kernel.Layout) tensorKey {
	k := tensorKey{l.Bits, l.Group, l.Number, l.Zeros > 0, l.Kind}
	if l.Kind == kernel.Pointed {
		k.kind = kernel.Biased
	}
	return k
}

// forms are the kernels for w.
func (w *weight) forms() tensorForms {
	if !w.laid() {
		return tensorForms{}
	}
	return tensors[keyOf(&w.Layout)]
}

// maxRelay is how many rows a relay multiplies.
const maxRelay = 32

// parts is struct Parts of kernels/relay.cuh.
func parts(list []product) []byte {
	tiles := 0
	for i := range list {
		tiles += list[i].w.Layout.Tiles
	}
	return partsOf(list, tiles)
}

// partsOf is parts with another number of tiles.
func partsOf(list []product, tiles int) []byte {
	f := partsParam{count: i32(len(list)), tiles: i32(tiles), same: b32(list[0].same)}
	for i := range list {
		p := &list[i]
		f.part[i] = partParam{
			data: p.w.at, dst: p.dst, bias: p.bias,
			tiles: i32(p.w.Layout.Tiles), rows: i32(p.w.Rows()), dstStride: i32(p.stride), add: b32(p.add),
		}
		if p.other != nil {
			f.part[i].other = p.other.at
		}
	}
	return raw(f)
}

// relay launches products of up to maxRelay rows.
func (b *Backend) relay(list []product) {
	w := list[0].w
	name, form := w.forms().relay(&w.Layout, list[0].rows)
	b.teams(name, form.shared(&w.Layout), form.groups, list)
}

// teams launches a kernel whose blocks have teams of warps for tiles: more if tiles are fewer than multiprocessors, twice that for
// one row, or many for each, or if table lookups take warps long, and no more than there are chunks, of chunk blocks of columns each.
func (b *Backend) teams(name string, shared, chunk int, list []product, more ...any) {
	w, tiles := list[0].w, tilesOf(list)
	shift, few := 2, b.info.Multiprocessors
	if list[0].rows == 1 && !w.super() {
		few *= 2 // all blocks that run at once then have a tile
	}
	if tiles <= few || tiles >= 1000 || w.tabled {
		shift = 3
	}
	for shift > 0 && 1<<shift > (w.Layout.Groups+chunk-1)/chunk {
		shift--
	}
	args := append([]any{list[0].param(), parts(list), shift}, more...)
	blocks := min(b.occupancy(name, 256, shared), tiles)
	b.launchAs(name, sizes(list...), grid{x: blocks, threads: 256, shared: shared}, args...)
}

// tilesOf is how many tiles products have.
func tilesOf(list []product) int {
	tiles := 0
	for i := range list {
		tiles += list[i].tiles
	}
	return tiles
}
