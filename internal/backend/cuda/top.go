package cuda

import (
	"unsafe"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
	"github.com/foretoken/foretoken/internal/backend/gpu"
	"github.com/foretoken/foretoken/internal/topk"
)

// Sizes in gpu: a difference to those of kernels/top.cu does not compile.
var (
	_ [gpu.AskBytes]byte    = [unsafe.Sizeof(askParam{})]byte{}
	_ [gpu.AnswerBytes]byte = [unsafe.Sizeof(topAnswerParam{})]byte{}
	_ [gpu.ListedBytes]byte = [unsafe.Sizeof(listedParam{})]byte{}
)

// Top returns the highest numbers of each row.
func (b *Backend) Top(src backend.Tensor, asks []backend.Ask) ([]backend.Best, error) {
	backend.CheckTop(src, asks)
	atMost(maxRows, src.Rows)
	b.begin()
	t := &b.tops
	queries, room, places := t.Ask(src, asks)
	rows, blocks := src.Rows, (src.Cols+topk.Block-1)/topk.Block
	input := b.upload(queries)
	also := rows * (gpu.AnswerBytes + room*gpu.ListedBytes) // offset of the numbers of single columns
	end := also + 4*places
	draws := t.Draws(asks)
	out := b.scratch(end + gpu.DrawnBytes*len(draws) + 1)
	if room > 0 {
		maxima, sums := b.scratch(4*rows*blocks), b.scratch(4*rows*blocks)
		x := b.at(src)
		b.launch("top.top_maxima", grid{x: (blocks + 7) / 8, y: rows, threads: 256}, x, src.Stride, input, maxima, sums, blocks)
		b.launch("top.top_list", grid{x: rows, threads: 1024}, x, src.Stride, input, maxima, sums, blocks, out, out+driver.Ptr(rows*gpu.AnswerBytes), room)
	}
	if places > 0 {
		b.launch("top.top_also", grid{x: (places + 255) / 256, threads: 256}, b.at(src), src.Stride, input+driver.Ptr(rows*gpu.AskBytes), out+driver.Ptr(also), places)
	}
	b.drawRows(out+driver.Ptr(end), gpu.DrawnBytes/4, src, backend.Tensor{}, draws)
	data, err := b.read(out, end+gpu.DrawnBytes*len(draws))
	if err != nil {
		return nil, err
	}
	return t.Read(src, asks, data, end, room, b.Host)
}
