package vulkan

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/vulkan/driver"
	"github.com/foretoken/foretoken/internal/topk"
)

// Bytes of the structures of kernels/top.glsl.
const askBytes, answerBytes, listedBytes = 16, 16, 8

// topRoom is how much is listed of a row for K. The host looks at a row with more, because many of its numbers are equal.
func topRoom(k int) int { return k + k/2 + 64 }

// tops is the memory of Top's answers.
type tops struct {
	best  []backend.Best
	input []byte
	order []listed
	host  backend.Lister
}

type listed struct {
	id    int32
	logit float32
}

// Top returns the highest numbers of each row.
func (b *Backend) Top(src backend.Tensor, asks []backend.Ask) ([]backend.Best, error) {
	backend.CheckTop(src, asks)
	b.begin()
	t := &b.tops
	for len(t.best) < len(asks) {
		t.best = append(t.best, backend.Best{})
	}
	if len(asks) > maxRows {
		b.missing(fmt.Sprintf("the highest numbers of %d rows (at most %d)", len(asks), maxRows))
	}
	room, places := t.ask(src, asks)
	if room == 0 && places == 0 {
		t.answer(asks, nil, 0)
		return t.best[:len(asks)], b.wait()
	}
	rows, blocks := src.Rows, (src.Cols+topk.Block-1)/topk.Block
	input := b.keep(t.input)
	also := rows * (answerBytes + room*listedBytes) // offset of the numbers of single columns
	out := b.scratch(also + 4*places)
	if room > 0 {
		maxima, sums := b.scratch(4*rows*blocks), b.scratch(4*rows*blocks)
		b.launch("top_maxima", [3]int{blocks, rows, 1}, b.at(src), input, maxima, sums, src.Stride, blocks)
		b.launch("top_list", [3]int{rows, 1, 1}, b.at(src), input, maxima, sums, out, out+driver.Ptr(rows*answerBytes), src.Stride, blocks, room)
	}
	if places > 0 {
		b.launch("top_also", columns(1, places), b.at(src), input+driver.Ptr(rows*askBytes), out+driver.Ptr(also), src.Stride, places)
	}
	data, err := b.read(out, also+4*places)
	if err != nil {
		return nil, err
	}
	for _, r := range t.answer(asks, data, room) {
		row, err := b.Host(src.RowRange(r, r+1))
		if err != nil {
			return nil, err
		}
		sum := t.best[r].Sum
		t.host.List(&t.best[r], row[:cmp.Or(asks[r].Cols, len(row))], &asks[r])
		t.best[r].Sum = sum
	}
	return t.best[:len(asks)], nil
}

// ask writes the requests for kernels: an Ask of each row, and the places of single columns, of which it returns the number; room is
// the number of listed numbers per row, 0 if none.
func (t *tops) ask(src backend.Tensor, asks []backend.Ask) (room, places int) {
	le, flag := binary.LittleEndian, map[bool]uint32{true: 1}
	t.input = t.input[:0]
	for i := range asks {
		a, n := &asks[i], 0
		cols := cmp.Or(a.Cols, src.Cols)
		if a.K > 0 {
			n = min(topRoom(a.K), cols)
			room = max(room, n)
		}
		for _, x := range []uint32{uint32(i32(cols)), uint32(i32(a.K)), uint32(i32(n)), flag[a.Sum]} {
			t.input = le.AppendUint32(t.input, x)
		}
	}
	for r := range asks {
		for _, id := range asks[r].Also {
			if id < 0 || int(id) >= cmp.Or(asks[r].Cols, src.Cols) {
				panic(fmt.Sprintf("vulkan: query for column %d of %d", id, src.Cols))
			}
			t.input = le.AppendUint32(le.AppendUint32(t.input, uint32(r)), uint32(id))
			places++
		}
	}
	return room, places
}

// answer reads the answers of kernels. It returns the rows with more numbers to list than there is space for.
func (t *tops) answer(asks []backend.Ask, data []byte, room int) (beyond []int) {
	le, rows := binary.LittleEndian, len(asks)
	also := data[min(len(data), rows*(answerBytes+room*listedBytes)):]
	for r := range asks {
		a, best := &asks[r], &t.best[r]
		best.IDs, best.Logits, best.Also, best.Low, best.Sum, best.Drawn = best.IDs[:0], best.Logits[:0], best.Also[:0], float32(math.Inf(1)), 0, -1
		for range a.Also {
			best.Also = append(best.Also, math.Float32frombits(le.Uint32(also)))
			also = also[4:]
		}
		if a.K == 0 {
			continue
		}
		answer := data[r*answerBytes:]
		best.Low, best.Sum = math.Float32frombits(le.Uint32(answer)), math.Float32frombits(le.Uint32(answer[8:]))
		n := int(le.Uint32(answer[4:]))
		if n > topRoom(a.K) {
			beyond = append(beyond, r)
			continue
		}
		t.order = t.order[:0]
		for list := data[rows*answerBytes+r*room*listedBytes:][:n*listedBytes]; len(list) > 0; list = list[listedBytes:] {
			t.order = append(t.order, listed{int32(le.Uint32(list)), math.Float32frombits(le.Uint32(list[4:]))})
		}
		slices.SortFunc(t.order, func(a, b listed) int { return cmp.Compare(a.id, b.id) })
		for _, x := range t.order {
			best.IDs, best.Logits = append(best.IDs, x.id), append(best.Logits, x.logit)
		}
	}
	return beyond
}
