package cpu

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
	"github.com/foretoken/foretoken/sample"
)

// drawOp draws from rows: a part is a row.
type drawOp struct {
	b           *Backend
	ids, logits backend.Tensor
	draws       []backend.Draw
}

// Draw implements backend.Drawer.
func (b *Backend) Draw(ids, logits backend.Tensor, draws []backend.Draw) {
	if ids.Rows != logits.Rows || ids.Cols != 1 || len(draws) != logits.Rows {
		panic(fmt.Sprintf("cpu: %d draws from %d rows into %d×%d", len(draws), logits.Rows, ids.Rows, ids.Cols))
	}
	b.draw = drawOp{b: b, ids: ids, logits: logits, draws: draws}
	b.pool.run(&b.draw, len(draws), 1)
}

func (op *drawOp) part(worker, from, to int) {
	for r := from; r < to; r++ {
		d := &op.draws[r]
		p := sample.Plain{Vocab: d.Cols, Temperature: d.Temperature, Noise: d.Noise}
		row(op.ids, r)[0] = float32(op.b.workers[worker].sampler.Draw(p, row(op.logits, r)))
	}
}

// EmbedDrawn implements backend.Drawer.
func (b *Backend) EmbedDrawn(dst backend.Tensor, table backend.Weight, ids backend.Tensor) {
	w := table.(*kernel.Weight)
	if dst.Rows != ids.Rows || ids.Cols != 1 || dst.Cols != w.Cols() {
		panic(fmt.Sprintf("cpu: embed %d×%d ids of width %d into %d×%d", ids.Rows, ids.Cols, w.Cols(), dst.Rows, dst.Cols))
	}
	for r := range dst.Rows {
		w.RowFloats(row(dst, r), 0, max(int(row(ids, r)[0]), 0))
	}
}
