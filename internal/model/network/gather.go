package network

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
)

// Gatherer collects the hidden rows of all spans of a call. It keeps its lists for the next call.
type Gatherer struct{ to, from []backend.Tensor }

// Gather returns the rows: where they are if they follow one another, or copied to dst.
func (g *Gatherer) Gather(b backend.Backend, dst backend.Tensor, batch []model.Span) backend.Tensor {
	all, solid, at := batch[0].Hidden, true, 0
	for i := range batch {
		x := batch[i].Hidden
		solid = solid && x.Mem == all.Mem && x.Stride == all.Stride && x.Offset == all.Offset+at*all.Stride
		at += x.Rows
	}
	if solid {
		all.Rows = at
		return all
	}
	g.Copy(b, dst, batch)
	return dst
}

// Copy copies the rows to dst.
func (g *Gatherer) Copy(b backend.Backend, dst backend.Tensor, batch []model.Span) {
	g.to, g.from = g.to[:0], g.from[:0]
	at := 0
	for i := range batch {
		x := batch[i].Hidden
		g.to, g.from = append(g.to, dst.RowRange(at, at+x.Rows)), append(g.from, x)
		at += x.Rows
	}
	backend.CopyEach(b, g.to, g.from)
}
