package vulkan

import (
	"cmp"
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/gpu"
	"github.com/foretoken/foretoken/internal/backend/vulkan/driver"
)

var _ backend.Drawer = (*Backend)(nil)

// Bytes of the structures of kernels/draw.glsl: levels of a row, a candidate, a cut.
const (
	binsBytes = 3 * 4 * 688
	sumBytes  = 16
	cutBytes  = 16
)

// drawParts is in how many parts a row is read: none has more than 4096 columns, and a workgroup reads what all parts have found.
func drawParts(cols int) int { return max(min(128, (cols+1023)/1024), (cols+4095)/4096, 1) }

// Draw implements backend.Drawer.
func (b *Backend) Draw(drawn, logits, tokens backend.Tensor, draws []backend.Draw) {
	backend.CheckDraw(drawn, logits, tokens, draws)
	b.begin()
	b.drawRows(b.at(drawn), drawn.Stride, logits, tokens, draws)
}

// drawRows draws from rows into others that are stride apart.
func (b *Backend) drawRows(to driver.Ptr, stride int, logits, tokens backend.Tensor, draws []backend.Draw) {
	rows := len(draws)
	if rows == 0 {
		return
	}
	parts, how, masks, words := b.draws(logits.Cols, draws)
	if b.err != nil {
		return
	}
	ids, apart := driver.Ptr(0), 0
	if tokens.Rows > 0 {
		if ids = b.at(tokens); tokens.Rows > 1 {
			apart = tokens.Stride
		}
	}
	x, tops, bins, sums, cuts := b.at(logits), b.scratch(8*rows*parts), b.scratch(rows*binsBytes), b.scratch(sumBytes*rows*parts), b.scratch(cutBytes*rows)
	g := [3]int{parts, rows, 1}
	b.launch("draw_top", g, x, how, masks, tops, bins, logits.Stride, words)
	b.launch("draw_levels", g, x, how, masks, tops, bins, logits.Stride, words)
	b.launch("draw_part", g, x, how, masks, tops, bins, sums, cuts, ids, logits.Stride, words, apart)
	b.launch("draw_row", [3]int{rows, 1, 1}, x, how, tops, sums, cuts, ids, to, logits.Stride, parts, apart, stride)
}

// draws uploads how to draw from rows of some columns, and the masks of their own blocks of columns: 0 if no row has any. It returns in
// how many parts a row is read.
func (b *Backend) draws(cols int, draws []backend.Draw) (parts int, how, masks driver.Ptr, words int) {
	if parts = drawParts(cols); parts > 256 || len(draws) > maxRows {
		b.missing(fmt.Sprintf("draws from %d rows of %d logits", len(draws), cols))
		return parts, 0, 0, 0
	}
	how = b.keep(gpu.DrawParams(draws, cols))
	mask, words := gpu.DrawMasks(nil, draws, cols)
	if words > 0 {
		masks = b.keep(mask)
	}
	return parts, how, masks, words
}

// Candidates implements backend.Drawer.
func (b *Backend) Candidates(ids, best, logits backend.Tensor, draws []backend.Draw) {
	backend.CheckCandidates(ids, best, logits, draws)
	b.begin()
	n := ids.Cols
	parts, how, masks, words := b.draws(logits.Cols, draws)
	if n > 256 {
		b.missing(fmt.Sprintf("%d candidates", n))
	}
	if b.err != nil {
		return
	}
	x, tops := b.at(logits), b.scratch(8*len(draws)*parts*n)
	b.launch("best_part", [3]int{parts, len(draws), 1}, x, how, masks, tops, logits.Stride, words, n)
	b.launch("best_row", [3]int{len(draws), 1, 1}, x, tops, b.at(ids), b.at(best), logits.Stride, parts, n, ids.Stride, best.Stride)
}

// Score implements backend.Drawer.
func (b *Backend) Score(scores, left, mid, right backend.Tensor) {
	backend.CheckScore(scores, left, mid, right)
	b.begin()
	if scores.Rows > maxRows {
		b.missing(fmt.Sprintf("scores of %d rows", scores.Rows))
	}
	b.launch("score", columns(scores.Rows, scores.Cols), b.at(scores), b.at(left), b.at(mid), b.at(right), scores.Stride, left.Stride, mid.Stride, right.Stride, left.Cols, scores.Cols)
}

// EmbedDrawn implements backend.Drawer.
func (b *Backend) EmbedDrawn(dst backend.Tensor, table backend.Weight, drawn backend.Tensor, factor float32) {
	backend.CheckEmbedDrawn(dst, table, drawn)
	b.begin()
	b.embed(dst, table, 0, b.at(drawn), drawn.Stride, cmp.Or(factor, 1))
}
