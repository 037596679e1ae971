package vulkan

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/gpu"
	"github.com/foretoken/foretoken/internal/backend/vulkan/driver"
	"github.com/foretoken/foretoken/internal/topk"
)

// Top returns the highest numbers of each row.
func (b *Backend) Top(src backend.Tensor, asks []backend.Ask) ([]backend.Best, error) {
	backend.CheckTop(src, asks)
	b.begin()
	t := &b.tops
	if len(asks) > maxRows {
		b.missing(fmt.Sprintf("the highest numbers of %d rows (at most %d)", len(asks), maxRows))
	}
	queries, room, places := t.Ask(src, asks)
	draws := t.Draws(asks)
	if room == 0 && places == 0 && len(draws) == 0 {
		t.Answer(asks, make([]byte, len(asks)*gpu.AnswerBytes), 0)
		return t.Best[:len(asks)], b.wait()
	}
	rows, blocks := src.Rows, (src.Cols+topk.Block-1)/topk.Block
	input := b.keep(queries)
	also := rows * (gpu.AnswerBytes + room*gpu.ListedBytes) // offset of the numbers of single columns
	end := also + 4*places
	out := b.scratch(end + gpu.DrawnBytes*len(draws))
	if room > 0 {
		maxima, sums := b.scratch(4*rows*blocks), b.scratch(4*rows*blocks)
		b.launch("top_maxima", [3]int{blocks, rows, 1}, b.at(src), input, maxima, sums, src.Stride, blocks)
		b.launch("top_list", [3]int{rows, 1, 1}, b.at(src), input, maxima, sums, out, out+driver.Ptr(rows*gpu.AnswerBytes), src.Stride, blocks, room)
	}
	if places > 0 {
		b.launch("top_also", columns(1, places), b.at(src), input+driver.Ptr(rows*gpu.AskBytes), out+driver.Ptr(also), src.Stride, places)
	}
	b.drawRows(out+driver.Ptr(end), gpu.DrawnBytes/4, src, backend.Tensor{}, draws)
	data, err := b.read(out, end+gpu.DrawnBytes*len(draws))
	if err != nil {
		return nil, err
	}
	return t.Read(src, asks, data, end, room, b.Host)
}
