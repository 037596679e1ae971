package cuda

import (
	"encoding/binary"
	"math"
	"slices"
	"unsafe"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
	"github.com/foretoken/foretoken/internal/backend/gpu"
	"github.com/foretoken/foretoken/internal/topk"
)

// topScratch is the memory of Top's answers and draws.
type topScratch struct {
	gpu.Tops
	draws []backend.Draw // of all rows, none if no draw is requested
}

const drawnBytes = 12 // in draw.cu

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
	t.draws = t.draws[:0]
	for i := range asks {
		if asks[i].Draw != nil { // then all rows are drawn from
			t.draws = slices.Grow(t.draws, rows)[:rows]
			clear(t.draws)
			break
		}
	}
	out := b.scratch(end + drawnBytes*len(t.draws) + 1)
	if room > 0 {
		maxima, sums := b.scratch(4*rows*blocks), b.scratch(4*rows*blocks)
		x := b.at(src)
		b.launch("top.top_maxima", grid{x: (blocks + 7) / 8, y: rows, threads: 256}, x, src.Stride, input, maxima, sums, blocks)
		b.launch("top.top_list", grid{x: rows, threads: 1024}, x, src.Stride, input, maxima, sums, blocks, out, out+driver.Ptr(rows*gpu.AnswerBytes), room)
	}
	if places > 0 {
		b.launch("top.top_also", grid{x: (places + 255) / 256, threads: 256}, b.at(src), src.Stride, input+driver.Ptr(rows*gpu.AskBytes), out+driver.Ptr(also), places)
	}
	for i := range t.draws {
		if d := asks[i].Draw; d != nil {
			t.draws[i] = *d
		}
	}
	b.drawRows(out+driver.Ptr(end), drawnBytes/4, src, backend.Tensor{}, t.draws)
	data, err := b.read(out, end+drawnBytes*len(t.draws))
	if err != nil {
		return nil, err
	}
	beyond := t.Answer(asks, data[:end], room)
	t.drawn(asks, data[end:])
	for _, r := range beyond {
		row, err := b.Host(src.RowRange(r, r+1))
		if err != nil {
			return nil, err
		}
		t.Whole(r, row, &asks[r])
	}
	return t.Best[:len(asks)], nil
}

// drawn reads the draws.
func (t *topScratch) drawn(asks []backend.Ask, data []byte) {
	for r := range asks {
		if asks[r].Draw == nil {
			continue
		}
		x := data[r*drawnBytes:]
		if exact := binary.LittleEndian.Uint32(x[8:]); exact != 0 {
			t.Best[r].Drawn = int32(math.Float32frombits(binary.LittleEndian.Uint32(x)))
		}
	}
}
