package cuda

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
	"github.com/foretoken/foretoken/internal/topk"
)

// topScratch is the memory of Top's answers and of the host's part of them.
type topScratch struct {
	best   []backend.Best
	input  []byte
	order  []listedParam
	maxima []float32
	spare  []uint64
	draws  []backend.Draw // of all rows, none if no draw is requested
	beyond []int          // rows with more numbers to list than there is space for
}

// Sizes in top.cu and draw.cu.
const (
	askBytes    = int(unsafe.Sizeof(askParam{}))
	answerBytes = int(unsafe.Sizeof(topAnswerParam{}))
	listedBytes = int(unsafe.Sizeof(listedParam{}))
	drawnBytes  = 12
)

// topRoom is how much is listed of a row for K: as a rule a few more than K reach the K-th highest
// maximum. A row with more, because many of its numbers are equal, is looked at by the host.
func topRoom(k int) int { return k + k/2 + 64 }

// Top returns the highest numbers of each row.
func (b *Backend) Top(src backend.Tensor, asks []backend.Ask) ([]backend.Best, error) {
	backend.CheckTop(src, asks)
	atMost(maxRows, src.Rows)
	b.begin()
	t := &b.tops
	for len(t.best) < len(asks) {
		t.best = append(t.best, backend.Best{})
	}
	room, places := t.ask(src, asks)
	rows, blocks := src.Rows, (src.Cols+topk.Block-1)/topk.Block
	input := b.upload(t.input)
	also := rows * (answerBytes + room*listedBytes) // offset of the numbers of single columns
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
		b.launch("top.top_list", grid{x: rows, threads: 1024}, x, src.Stride, input, maxima, sums, blocks, out, out+driver.Ptr(rows*answerBytes), room)
	}
	if places > 0 {
		b.launch("top.top_also", grid{x: (places + 255) / 256, threads: 256}, b.at(src), src.Stride, input+driver.Ptr(rows*askBytes), out+driver.Ptr(also), places)
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
	t.answer(asks, data[:end], room)
	t.drawn(asks, data[end:])
	for _, r := range t.beyond {
		if err := b.topOfHost(src.RowRange(r, r+1), &asks[r], &t.best[r]); err != nil {
			return nil, err
		}
	}
	return t.best[:len(asks)], nil
}

// ask writes the requests for kernels: an Ask of each row, and the places of single columns, of which
// it returns the number; room is the number of listed numbers per row, 0 if none.
func (t *topScratch) ask(src backend.Tensor, asks []backend.Ask) (room, places int) {
	le := binary.LittleEndian
	t.input = t.input[:0]
	for i := range asks {
		a := &asks[i]
		if a.Cols < 0 || a.Cols > src.Cols || a.K < 0 {
			panic(fmt.Sprintf("cuda: query for the top %d values in the first %d columns of %d", a.K, a.Cols, src.Cols))
		}
		n := 0
		if a.K > 0 {
			n = min(topRoom(a.K), cmp.Or(a.Cols, src.Cols))
			room = max(room, n)
		}
		t.input = append(t.input, raw(askParam{cols: i32(cmp.Or(a.Cols, src.Cols)), k: i32(a.K), room: i32(n), sum: b32(a.Sum)})...)
	}
	for r := range asks {
		for _, id := range asks[r].Also {
			if id < 0 || int(id) >= cmp.Or(asks[r].Cols, src.Cols) {
				panic(fmt.Sprintf("cuda: query for column %d of %d", id, src.Cols))
			}
			t.input = le.AppendUint32(le.AppendUint32(t.input, uint32(r)), uint32(id))
			places++
		}
	}
	return room, places
}

// answer reads the answers of kernels.
func (t *topScratch) answer(asks []backend.Ask, data []byte, room int) {
	t.beyond = t.beyond[:0]
	le, rows := binary.LittleEndian, len(asks)
	answers, lists := unraw[topAnswerParam](data[:rows*answerBytes]), data[rows*answerBytes:]
	also := lists[rows*room*listedBytes:]
	for r := range asks {
		a, best := &asks[r], &t.best[r]
		best.IDs, best.Logits, best.Also, best.Low, best.Sum = best.IDs[:0], best.Logits[:0], best.Also[:0], float32(math.Inf(1)), 0
		for range a.Also {
			best.Also = append(best.Also, math.Float32frombits(le.Uint32(also)))
			also = also[4:]
		}
		if a.K == 0 {
			continue
		}
		answer := answers[r]
		best.Low, best.Sum = answer.low, answer.sum
		n := int(answer.count)
		if n > room || n > topRoom(a.K) {
			t.beyond = append(t.beyond, r)
			continue
		}
		t.order = append(t.order[:0], unraw[listedParam](lists[r*room*listedBytes:][:n*listedBytes])...)
		slices.SortFunc(t.order, func(a, b listedParam) int { return cmp.Compare(a.id, b.id) })
		for _, x := range t.order {
			best.IDs = append(best.IDs, x.id)
			best.Logits = append(best.Logits, x.logit)
		}
	}
}

// drawn reads the draws.
func (t *topScratch) drawn(asks []backend.Ask, data []byte) {
	for r := range asks {
		best := &t.best[r]
		best.Drawn = -1
		if asks[r].Draw == nil {
			continue
		}
		x := data[r*drawnBytes:]
		if exact := binary.LittleEndian.Uint32(x[8:]); exact != 0 {
			best.Drawn = int32(math.Float32frombits(binary.LittleEndian.Uint32(x)))
		}
	}
}

// topOfHost lists the numbers of at least best.Low of a row that the host reads whole.
func (b *Backend) topOfHost(src backend.Tensor, a *backend.Ask, best *backend.Best) error {
	row, err := b.Host(src)
	if err != nil {
		return err
	}
	t := &b.tops
	if a.Cols > 0 {
		row = row[:a.Cols]
	}
	t.maxima = topk.Maxima(t.maxima[:0], row)
	t.spare = topk.Gather(t.spare[:0], row, t.maxima, best.Low)
	for _, k := range t.spare {
		id := topk.ID(k)
		best.IDs = append(best.IDs, id)
		best.Logits = append(best.Logits, row[id])
	}
	return nil
}
