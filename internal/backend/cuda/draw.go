package cuda

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
	"github.com/foretoken/foretoken/internal/backend/gpu"
	"github.com/foretoken/foretoken/internal/topk"
)

const (
	drawsAtOnce  = len(drawsParam{}.of)  // rows of a launch, whose draws are a parameter
	copiesAtOnce = len(copiesParam{}.of) // rows of a launch of copies
	drawParts    = 128                   // blocks of a row, more if each had more than 4096 columns
)

// CopyEach implements backend.Copier: equal rows of all tensors are copied together.
func (b *Backend) CopyEach(dst, src []backend.Tensor) {
	b.begin()
	rows, words := 0, 0
	flush := func() {
		if rows > 0 {
			b.launch("draw.copy_each", grid{x: (words + 1023) / 1024, y: rows, threads: 256}, raw(b.copies), words)
		}
		rows = 0
	}
	for i := range dst {
		d, s := &dst[i], &src[i]
		n := d.Cols * d.Type.Size()
		if d.Rows > copiesAtOnce || n%4 != 0 || d.Type != s.Type || d.Rows != s.Rows || d.Cols != s.Cols {
			b.Copy(*d, *s)
			continue
		}
		to, from := b.at(*d), b.at(*s)
		for r := range d.Rows {
			if rows == copiesAtOnce || words != n/4 {
				flush()
			}
			words = n / 4
			b.copies.of[rows] = copyRowParam{to + driver.Ptr(r*d.Stride*d.Type.Size()), from + driver.Ptr(r*s.Stride*s.Type.Size())}
			rows++
		}
	}
	flush()
}

// Draw draws from rows.
func (b *Backend) Draw(drawn, logits, tokens backend.Tensor, draws []backend.Draw) {
	backend.CheckDraw(drawn, logits, tokens, draws)
	b.begin()
	b.drawRows(b.at(drawn), drawn.Stride, logits, tokens, draws)
}

// rowParts is in how many parts a row is read: none has more than 4096 columns.
func rowParts(cols int) int { return max(min(drawParts, (cols+1023)/1024), (cols+4095)/4096, 1) }

// Candidates implements backend.Drawer.
func (b *Backend) Candidates(ids, best, logits backend.Tensor, draws []backend.Draw) {
	backend.CheckCandidates(ids, best, logits, draws)
	top, parts := ids.Cols, rowParts(logits.Cols)
	if top > 256 || parts > 256 {
		panic(fmt.Sprintf("cuda: %d candidates of %d logits", top, logits.Cols))
	}
	b.begin()
	tops := b.scratch(8 * min(drawsAtOnce, len(draws)) * parts * top)
	masks, words := b.masks(draws, logits.Cols)
	for first := 0; first < len(draws); first += drawsAtOnce {
		rows := min(drawsAtOnce, len(draws)-first)
		x := logits.RowRange(first, first+rows)
		b.setDraws(draws[first:][:rows], logits.Cols)
		b.launch("draw.best_part", grid{x: parts, y: rows, threads: 256}, b.at(x), x.Stride, raw(b.draws), masks+driver.Ptr(4*words*first), words, tops, top)
		b.launch("draw.best_row", grid{x: rows, threads: 256}, b.at(x), x.Stride, tops, parts, top,
			b.at(ids.RowRange(first, first+rows)), ids.Stride, b.at(best.RowRange(first, first+rows)), best.Stride)
	}
}

// Score implements backend.Drawer.
func (b *Backend) Score(scores, left, mid, right backend.Tensor) {
	if backend.CheckScore(scores, left, mid, right); scores.Cols > 256 {
		panic(fmt.Sprintf("cuda: %d scores of a row", scores.Cols))
	}
	b.begin()
	b.launch("draw.score", grid{x: scores.Rows, threads: scores.Cols}, b.at(scores), scores.Stride, b.at(left), left.Stride, b.at(mid), mid.Stride,
		b.at(right), right.Stride, left.Cols)
}

// drawRows draws from rows into others that are stride apart.
func (b *Backend) drawRows(to driver.Ptr, stride int, logits, tokens backend.Tensor, draws []backend.Draw) {
	parts := rowParts(logits.Cols)
	ids, apart := driver.Ptr(0), 0
	if tokens.Rows > 0 {
		if ids = b.at(tokens); tokens.Rows > 1 {
			apart = tokens.Stride
		}
	}
	n := min(drawsAtOnce, len(draws))
	tops, bins := b.scratch(8*n*parts), b.scratch(n*len(raw(binsParam{})))
	sums, best := b.scratch(8*n*parts), b.scratch(4*n*parts)
	masks, words := b.masks(draws, logits.Cols)
	for first := 0; first < len(draws); first += drawsAtOnce {
		rows := min(drawsAtOnce, len(draws)-first)
		x := logits.RowRange(first, first+rows)
		b.setDraws(draws[first:][:rows], logits.Cols)
		params, own := raw(b.draws), masks+driver.Ptr(4*words*first)
		g := grid{x: parts, y: rows, threads: 256}
		b.launch("draw.draw_top", g, b.at(x), x.Stride, params, own, words, tops, bins)
		b.launch("draw.draw_levels", g, b.at(x), x.Stride, params, own, words, tops, bins)
		b.launch("draw.draw_part", g, b.at(x), x.Stride, params, own, words, tops, bins, sums, best, ids+driver.Ptr(4*apart*first), apart, to+driver.Ptr(4*stride*first), stride)
	}
}

// setDraws sets the parameter of a launch.
func (b *Backend) setDraws(draws []backend.Draw, cols int) {
	b.draws.weights = topk.LevelWeights
	for i := range draws {
		d := gpu.DrawOf(&draws[i], cols)
		b.draws.of[i] = drawParam{d.Noise, d.Inverse, d.Steps, d.Share, d.Cols, d.Most, d.Levels, d.First}
	}
}

// masks uploads gpu.DrawMasks; 0 if there are none.
func (b *Backend) masks(draws []backend.Draw, cols int) (at driver.Ptr, words int) {
	if b.owned, words = gpu.DrawMasks(b.owned, draws, cols); words == 0 {
		return 0, 0
	}
	return b.upload(b.owned), words
}
