package cuda

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
)

// A product with plain weights is two chains of multiply-adds for each output, which take their time however few outputs there
// are. If a multiprocessor has at most one tile, kernels/narrow.cu has a warp only for the chains.

const (
	narrowBlocks = 128 // tiles times strips of rows, at most
	narrowStages = 8   // chunks that are under way
	narrowChunk  = 256 // columns
	narrowRow    = 4 * (narrowChunk + 8)
)

// narrowShared is the shared memory of a block.
func (p *product) narrowShared() int {
	return narrowStages * (narrowChunk/p.w.Group*p.w.Block + min(strip, p.rows)*narrowRow)
}

// narrow reports whether p is one of kernels/narrow.cu.
func (b *Backend) narrow(p *product) bool {
	strips := (p.rows + strip - 1) / strip
	return p.w.Kind == kernel.Plain && p.jobs == 0 && p.only == 0 && p.tiles*strips <= narrowBlocks && p.narrowShared() <= b.info.Shared
}

// narrowAhead reports whether there are narrow products that go before the others: the device is idle beside them, and the
// kernel behind them loads its weights meanwhile. If results share memory, products stay in order.
func (b *Backend) narrowAhead(x backend.Tensor, products []backend.Product) bool {
	found := false
	for i := range products {
		p := &products[i]
		if p.Each || p.Dst.Mem == x.Mem || x.Rows > maxRelay {
			return false
		}
		w := b.weight(p.W)
		found = found || p.Only == nil && b.narrow(&product{w: w, rows: x.Rows, tiles: w.Layout.Tiles})
		for j := range i {
			if p.Dst.Mem == products[j].Dst.Mem {
				return false
			}
		}
	}
	return found
}

// launchNarrow launches products that joins has let through.
func (b *Backend) launchNarrow(list []product) {
	p := &list[0]
	b.launchAs("narrow.narrow_"+plainNames[p.w.Number], sizes(list...), grid{
		x: tilesOf(list), y: (p.rows + strip - 1) / strip, threads: 256, shared: p.narrowShared(),
	}, p.param(), parts(list))
}
