package cuda

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/foretoken/foretoken/internal/backend"
)

const (
	drawsAtOnce = 64 // rows of a launch, whose draws are a parameter
	drawBytes   = 32 // of one of them
	drawParts   = 64 // blocks of a row at most
	octave      = 1 << 24

	copiesAtOnce = 64 // rows of a launch of copies
	copyBytes    = 16 // of one of them
)

// CopyEach implements backend.Copier: rows of all tensors go together, as far as they are alike.
func (b *Backend) CopyEach(dst, src []backend.Tensor) {
	b.begin()
	p, words := b.copies[:0], 0
	flush := func() {
		if rows := len(p) / copyBytes; rows > 0 {
			p = append(p, make([]byte, copiesAtOnce*copyBytes-len(p))...)
			b.launch("draw.copy_each", grid{x: (words + 1023) / 1024, y: rows, threads: 256}, p, words)
		}
		p = p[:0]
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
			if len(p) == copiesAtOnce*copyBytes || words != n/4 {
				flush()
			}
			words = n / 4
			p = binary.LittleEndian.AppendUint64(p, uint64(to)+uint64(r*d.Stride*d.Type.Size()))
			p = binary.LittleEndian.AppendUint64(p, uint64(from)+uint64(r*s.Stride*s.Type.Size()))
		}
	}
	flush()
	b.copies = p
}

// Draw draws from rows.
func (b *Backend) Draw(ids, logits backend.Tensor, draws []backend.Draw) {
	if ids.Rows != logits.Rows || ids.Cols != 1 || len(draws) != logits.Rows {
		panic(fmt.Sprintf("cuda: %d draws from %d rows into %d×%d", len(draws), logits.Rows, ids.Rows, ids.Cols))
	}
	b.begin()
	for first := 0; first < len(draws); first += drawsAtOnce {
		rows := min(drawsAtOnce, len(draws)-first)
		x, to := logits.RowRange(first, first+rows), ids.RowRange(first, first+rows)
		parts := max(1, min(drawParts, (logits.Cols+255)/256))
		b.draws = appendDraws(b.draws[:0], draws[first:][:rows], logits.Cols)
		params := b.draws
		tops, sums, best := b.scratch(8*drawsAtOnce*parts), b.scratch(8*drawsAtOnce*parts), b.scratch(4*drawsAtOnce*parts)
		g := grid{x: parts, y: rows, threads: 256}
		b.launch("draw.draw_top", g, b.at(x), x.Stride, params, tops)
		b.launch("draw.draw_part", g, b.at(x), x.Stride, params, tops, sums, best)
		b.launch("draw.draw_best", grid{x: rows, threads: 256}, b.at(to), to.Stride, sums, best, parts)
		b.begin()
	}
}

// appendDraws appends draws as draw.cu has them, and zeros for those that are not there. The two factors of a
// temperature are those of package sample's scale, its limits included.
func appendDraws(p []byte, draws []backend.Draw, cols int) []byte {
	le := binary.LittleEndian
	for i := range draws {
		d := &draws[i]
		if d.Cols < 0 || d.Cols > cols {
			panic(fmt.Sprintf("cuda: draw from %d of %d columns", d.Cols, cols))
		}
		inverse, steps := 0.0, 0.0
		if d.Temperature != 0 {
			inverse = min(1/d.Temperature, math.MaxFloat64)
			steps = min(1/math.Ln2*octave/d.Temperature, math.MaxFloat64)
		}
		p = le.AppendUint64(p, d.Noise)
		p = le.AppendUint64(p, math.Float64bits(inverse))
		p = le.AppendUint64(p, math.Float64bits(steps))
		p = le.AppendUint32(p, uint32(cmp.Or(d.Cols, cols)))
		p = le.AppendUint32(p, 0)
	}
	return append(p, make([]byte, (drawsAtOnce-len(draws))*drawBytes)...)
}
