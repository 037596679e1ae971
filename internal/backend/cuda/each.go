package cuda

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
)

// each multiplies every head with its own matrix, one after another.
func (b *Backend) each(x backend.Tensor, p *backend.Product) {
	w := b.weight(p.W)
	n := w.Count()
	in, out := x.Cols/n, p.Dst.Cols/n
	for i := range n {
		one := *w
		one.at += driver.Ptr(i * w.Layout.Tiles * w.TileSize)
		var known []input
		if d, ok := b.product(x.ColRange(i*in, i*in+w.Cols()), &one, backend.Product{Dst: p.Dst.ColRange(i*out, i*out+w.Rows()), Add: p.Add}, &known); ok {
			b.multiply(d)
		}
	}
}
