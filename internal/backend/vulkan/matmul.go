package vulkan

import (
	"fmt"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
	"github.com/foretoken/foretoken/internal/backend/gpu"
	"github.com/foretoken/foretoken/internal/backend/vulkan/driver"
)

// rows is the input of a product: floats, and the same as integers if the weight needs them.
type rows struct {
	at                     driver.Ptr
	rows, cols, stride     int
	turn                   turn // that they went through
	group, coded, tailRows int  // columns of a group of codes, codes from row to row, tails from group to group
	codes, tails           driver.Ptr
}

// MatMul multiplies x with each product's weight.
func (b *Backend) MatMul(x backend.Tensor, products ...backend.Product) {
	b.begin()
	var known []rows
	for i := range products { // the forms of x first
		p := &products[i]
		backend.CheckProduct(x, p)
		if w := b.weight(p.W); !p.Each && !empty(x, w, p) {
			b.prepare(x, w, &known)
		}
	}
	b.beside(disjoint(products), func() {
		for i := range products {
			if p := &products[i]; !p.Each {
				b.product(x, b.weight(p.W), p, &known)
			}
		}
	})
	for i := range products {
		if p := &products[i]; p.Each {
			b.each(x, b.weight(p.W), p)
		}
	}
}

// empty reports whether a product has nothing to compute.
func empty(x backend.Tensor, w *weight, p *backend.Product) bool {
	return x.Rows == 0 || w.l.Groups == 0 || p.Only != nil && len(p.Only) == 0
}

// disjoint reports whether no two products write to the same numbers.
func disjoint(products []backend.Product) bool {
	for i := range products {
		for j := range i {
			x, y := &products[i].Dst, &products[j].Dst
			if x.Mem != y.Mem || x.Rows == 0 || y.Rows == 0 {
				continue
			}
			if x.Offset > y.Offset {
				x, y = y, x
			}
			apart := y.Offset - x.Offset
			behind := apart >= (x.Rows-1)*x.Stride+x.Cols
			columns := x.Stride == y.Stride && apart >= x.Cols && apart+y.Cols <= x.Stride // of the same rows
			if !behind && !columns {
				return false
			}
		}
	}
	return true
}

// each is the product of every head with its own matrix.
func (b *Backend) each(x backend.Tensor, w *weight, p *backend.Product) {
	in, out := x.Cols/w.Count(), p.Dst.Cols/w.Count()
	for i := range w.Count() {
		next := *b.space()
		var known []rows
		part := x.ColRange(i*in, i*in+w.Cols())
		b.multiply(b.prepare(part, w, &known), w, i, &backend.Product{Dst: p.Dst.ColRange(i*out, i*out+w.Rows()), Add: p.Add}, 0, w.l.Tiles, routed{})
		b.space().next = next.next // the device runs in order
	}
}

// product is one product with the first matrix of a stack. known is the existing forms of x.
func (b *Backend) product(x backend.Tensor, w *weight, p *backend.Product, known *[]rows) {
	if empty(x, w, p) {
		return
	}
	tiles, only := w.l.Tiles, driver.Ptr(0)
	if p.Only != nil {
		only, tiles = b.listsOf(backend.Pass{Only: p.Only}), gpu.Blocks(len(p.Only))
	}
	b.multiply(b.prepare(x, w, known), w, 0, p, only, tiles, routed{})
}

// prepare is x in the form for a weight. known is the existing forms; another is added.
func (b *Backend) prepare(x backend.Tensor, w *weight, known *[]rows) rows {
	group := 0
	if w.Integer() {
		group = w.l.Group * w.l.Per
	}
	for _, in := range *known {
		if in.group == group && in.turn == w.turn {
			return in
		}
	}
	in := rows{at: b.at(x), rows: x.Rows, cols: x.Cols, stride: x.Stride}
	if w.turns() {
		b.transform(&in, w)
	}
	if group > 0 {
		b.quantize(&in, group)
	}
	*known = append(*known, in)
	return in
}

// transform replaces rows by transformed ones.
func (b *Backend) transform(in *rows, w *weight) {
	t, to := w.turn, b.scratch(4*in.rows*in.cols)
	const columns = 128
	eachRows(in.rows, func(from, end int) {
		b.launch("transform", [3]int{(in.cols + columns - 1) / columns, end - from, 1}, in.at+driver.Ptr(4*from*in.stride), to+driver.Ptr(4*from*in.cols),
			t.order, t.scales, t.turns, t.places, in.stride, in.cols, t.rounds)
	})
	in.at, in.stride, in.turn = to, in.cols, t
}

// quantize adds the integers of rows, by groups of columns.
func (b *Backend) quantize(in *rows, group int) {
	groups := (in.cols + group - 1) / group
	in.group, in.coded, in.tailRows = group, groups*group, in.rows
	in.codes, in.tails = b.scratch(in.rows*in.coded), b.scratch(8*in.rows*groups)
	if b.takeCodes(in, group) {
		return
	}
	eachRows(in.rows, func(from, to int) {
		b.launch("quantize", [3]int{(groups + 15) / 16, to - from, 1}, in.at+driver.Ptr(4*from*in.stride), in.codes+driver.Ptr(from*in.coded), in.tails+driver.Ptr(8*from),
			in.stride, in.coded, in.cols, group, in.tailRows)
	})
}

// strip is how many rows a workgroup multiplies.
const strip = 8

// tile is what a workgroup of a kernel for many rows computes. high and across are the rows and outputs of a thread, 16 apart, or the
// matrices of 16 rows and outputs of a subgroup; down and beside are subgroups.
type tile struct{ high, across, down, beside, buffers int }

// Tiles, large ones first. The large ones are the fastest where there are many of them.
var (
	dotTiles    = []tile{{4, 8, 1, 1, 1}, {2, 4, 1, 1, 1}}
	matrixTiles = []tile{{2, 2, 2, 4, 1}, {1, 2, 4, 2, 2}, {1, 1, 2, 2, 2}}
)

// manyTiles is how many workgroups a product has before larger tiles are used: the multiprocessors of a large GPU.
const manyTiles = 128

// groups is how many workgroups a product has.
func (t tile) groups(rows, tiles int) [3]int {
	high, across := 16*t.high*t.down, t.across*t.beside
	return [3]int{(tiles + across - 1) / across, (rows + high - 1) / high, 1}
}

// tiled reports whether kernels/product_tile.comp multiplies w with many rows.
func (w *weight) tiled() bool {
	return w.Integer() && !w.super() && slices.Contains([]int{16, 32, 64, 128}, w.l.Group)
}

// cooperates reports whether cooperative matrices multiply w with many rows.
func (b *Backend) cooperates(w *weight) bool {
	return b.matrix > 0 && !w.dots && w.tiled() && w.l.Group%b.matrix == 0
}

// compileMatrices compiles the kernels of cooperative matrices for w when it is loaded: if one does not compile, w is multiplied
// without them, and that is compared with the CPU.
func (b *Backend) compileMatrices(w *weight) {
	for i := 0; i < len(matrixTiles) && b.cooperates(w); i++ {
		if _, err := b.kernel(b.tileKernel(w, matrixTiles[i])); err != nil {
			b.withoutMatrices(w, err.Error())
		}
	}
}

// withoutMatrices has w multiplied without cooperative matrices.
func (b *Backend) withoutMatrices(w *weight, reason string) {
	w.dots = true
	b.opts.Log.Warn("vulkan: a weight is multiplied without cooperative matrices, prompts are slower", "device", b.info.Name, "weight", fmt.Sprintf("%dx%d", w.Rows(), w.Cols()), "reason", reason)
}

// tiles are those of products of many rows with w.
func (b *Backend) tiles(w *weight) []tile {
	if b.cooperates(w) {
		return matrixTiles
	}
	return dotTiles
}

// tile is the tile for a product with w: the largest of which there are many.
func (b *Backend) tile(w *weight, rows int) tile {
	list := b.tiles(w)
	if b.tried > 0 {
		return list[min(b.tried, len(list))-1]
	}
	for _, t := range list {
		if g := t.groups(rows, w.l.Tiles); g[0]*g[1] >= manyTiles {
			return t
		}
	}
	return list[len(list)-1]
}

// tileShared is the shared memory of kernels for tiles.
const tileShared = 48 << 10

// tileKernel is the name of a tile's kernel for w.
func (b *Backend) tileKernel(w *weight, t tile) string {
	l := &w.l
	addends := 2 // see kernels/tile.glsl
	switch {
	case l.Kind == kernel.Pointed || l.Zero != 0:
		addends = 1
	case l.Kind == kernel.Biased:
		addends = 0
	}
	rows, outputs, stage := 16*t.high*t.down, 16*t.across*t.beside, max(64, l.Group)
	bytes := (rows + outputs) * (stage + 16 + 8*stage/l.Group) // of a buffer
	if addends == 1 || l.Bits == 8 {
		bytes += rows * stage / 4
	}
	if t.buffers*bytes > tileShared-1<<11 {
		t.buffers = 1
	}
	form := fmt.Sprintf("%d,%d,%d,%d,%d,%d,%d,%d", l.Bits, l.Group, l.Kind, addends, w.number(), t.buffers, t.high, t.across)
	if !b.cooperates(w) {
		return "product_tile:256," + form
	}
	return fmt.Sprintf("product_matrix:%d,%s,%d,%d,%d,%d,%d,%d", 32*t.down*t.beside, form, t.down, t.beside, b.matrix, b.places[0], b.places[1], b.places[2])
}

// few is the kernel for products of few rows, or none: see kernels/product_few.comp.
func (w *weight) few(rows int) string {
	l := &w.l
	if !w.Integer() || w.super() || l.Kind != kernel.Biased && l.Kind != kernel.Pointed || l.Bits != 4 && l.Bits != 8 || l.Group != 32 && l.Group != 64 && l.Group != 128 {
		return ""
	}
	most, zeroed := 1, 0
	for most < rows {
		most *= 2
	}
	if l.Kind == kernel.Pointed || l.Zero != 0 {
		zeroed = 1
	}
	own, each := 1, 1 // outputs of a thread and groups of a thread in a chunk, as an H200 is fastest
	if most == 1 || most == 4 {
		own = 2
	}
	return fmt.Sprintf("product_few:%d,%d,%d,%d,%d,%d,%d", most, l.Bits, l.Group, zeroed, w.number(), own, each)
}

// multiply launches a product: of all rows with a matrix, or of jobs.
func (b *Backend) multiply(in rows, w *weight, matrix int, p *backend.Product, only driver.Ptr, tiles int, r routed) {
	b.shape = [2]int{w.Rows(), w.Cols()}
	defer func() { b.shape = [2]int{} }()
	name := "product_float"
	switch {
	case w.super():
		name = "product_super"
	case w.Integer():
		name = "product_integer"
	}
	explicit := func(name string, groups [3]int) {
		l := &w.l
		b.launch(name, groups, w.head+headBytes+driver.Ptr(matrix*l.Tiles*l.TileSize), driver.Ptr(l.Tiles*l.TileSize), in.codes, in.tails, b.at(p.Dst), b.at(p.Bias), only,
			r.jobs, r.sources, l.TileSize, l.Groups, w.Rows(), l.Block, l.Zeros, in.tailRows, in.coded, p.Dst.Stride, in.rows, p.Add, l.First, l.Zero)
	}
	parts := r.most
	if r.jobs == 0 {
		parts = 1
	}
	if in.rows <= strip || r.jobs != 0 {
		if few := w.few(min(in.rows, strip)); few != "" {
			explicit(few, [3]int{tiles, parts, 1})
			return
		}
	}
	if r.jobs == 0 && in.rows > strip && w.tiled() {
		if b.proof == nil { // most weights of the proof have fewer rows
			b.compileMatrices(w)
		}
		t := b.tile(w, in.rows)
		explicit(b.tileKernel(w, t), t.groups(in.rows, tiles))
		return
	}
	const most = maxRows / strip * strip
	for from := 0; from < in.rows; from += most {
		n := min(most, in.rows-from)
		if r.jobs == 0 {
			parts = (n + strip - 1) / strip
		}
		b.launch(name, [3]int{tiles, parts, 1}, w.head, in.codes+driver.Ptr(from*in.coded), in.tails+driver.Ptr(8*from), in.at+driver.Ptr(4*from*in.stride),
			b.at(p.Dst.RowRange(from, p.Dst.Rows)), b.at(p.Bias), only, r.jobs, r.sources, matrix, in.tailRows, in.coded, in.stride, p.Dst.Stride, n, p.Add)
	}
}
