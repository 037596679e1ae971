package gpu

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/foretoken/foretoken/internal/backend"
)

// Bytes of the structures that the kernels of Top share with the host: for each row a query (columns, K, room, sum) and an answer
// (lowest listed number, count, sum, unused), and a listed number (id, number).
const AskBytes, AnswerBytes, ListedBytes = 16, 16, 8

// topRoom is how much is listed of a row for K: as a rule a few more than K reach the K-th highest maximum. The host looks at a row
// with more, because many of its numbers are equal.
func topRoom(k int) int { return k + k/2 + 64 }

// Tops is the memory of Top's queries and answers.
type Tops struct {
	Best   []backend.Best
	input  []byte
	listed []listed
	beyond []int
	host   backend.Lister
	draws  []backend.Draw
}

type listed struct {
	id    int32
	logit float32
}

// Ask writes the queries for kernels: one of each row, and the places of single columns, of which it returns the number; room is the
// number of listed numbers per row, 0 if none. The queries are valid until the next call.
func (t *Tops) Ask(src backend.Tensor, asks []backend.Ask) (queries []byte, room, places int) {
	for len(t.Best) < len(asks) {
		t.Best = append(t.Best, backend.Best{})
	}
	le := binary.LittleEndian
	t.input = t.input[:0]
	for i := range asks {
		a, n := &asks[i], 0
		if a.Cols < 0 || a.Cols > src.Cols || a.K < 0 || a.K > math.MaxInt32 {
			panic(fmt.Sprintf("gpu: query for the top %d values in the first %d columns of %d", a.K, a.Cols, src.Cols))
		}
		cols := cmp.Or(a.Cols, src.Cols)
		if a.K > 0 {
			n = min(topRoom(a.K), cols)
			room = max(room, n)
		}
		sum := uint32(0)
		if a.Sum {
			sum = 1
		}
		for _, x := range [...]uint32{uint32(cols), uint32(a.K), uint32(n), sum} {
			t.input = le.AppendUint32(t.input, x)
		}
	}
	for r := range asks {
		for _, id := range asks[r].Also {
			if id < 0 || int(id) >= cmp.Or(asks[r].Cols, src.Cols) {
				panic(fmt.Sprintf("gpu: query for column %d of %d", id, src.Cols))
			}
			t.input = le.AppendUint32(le.AppendUint32(t.input, uint32(r)), uint32(id))
			places++
		}
	}
	return t.input, room, places
}

// Answer reads the answers of kernels: one of each row, room listed numbers of each row, and those of single columns. It returns the
// rows with more numbers to list than there is space for: see whole. No row is drawn from: see drawn.
func (t *Tops) Answer(asks []backend.Ask, data []byte, room int) (beyond []int) {
	t.beyond = t.beyond[:0]
	le := binary.LittleEndian
	answers, lists := data[:len(asks)*AnswerBytes], data[len(asks)*AnswerBytes:]
	also := lists[len(asks)*room*ListedBytes:]
	for r := range asks {
		a, best := &asks[r], &t.Best[r]
		best.IDs, best.Logits, best.Also, best.Low, best.Sum, best.Drawn = best.IDs[:0], best.Logits[:0], best.Also[:0], float32(math.Inf(1)), 0, -1
		for range a.Also {
			best.Also = append(best.Also, math.Float32frombits(le.Uint32(also)))
			also = also[4:]
		}
		if a.K == 0 {
			continue
		}
		answer := answers[r*AnswerBytes:]
		best.Low, best.Sum = math.Float32frombits(le.Uint32(answer)), math.Float32frombits(le.Uint32(answer[8:]))
		n := int(le.Uint32(answer[4:]))
		if n > room || n > topRoom(a.K) {
			t.beyond = append(t.beyond, r)
			continue
		}
		t.listed = t.listed[:0]
		for list := lists[r*room*ListedBytes:][:n*ListedBytes]; len(list) > 0; list = list[ListedBytes:] {
			t.listed = append(t.listed, listed{int32(le.Uint32(list)), math.Float32frombits(le.Uint32(list[4:]))})
		}
		slices.SortFunc(t.listed, func(a, b listed) int { return cmp.Compare(a.id, b.id) })
		for _, x := range t.listed {
			best.IDs, best.Logits = append(best.IDs, x.id), append(best.Logits, x.logit)
		}
	}
	return t.beyond
}

// Read reads what kernels have written: answers up to end, and draws behind them. Rows that have no space are read whole by host.
func (t *Tops) Read(src backend.Tensor, asks []backend.Ask, data []byte, end, room int, host func(backend.Tensor) ([]float32, error)) ([]backend.Best, error) {
	beyond := t.Answer(asks, data[:end], room)
	t.drawn(asks, data[end:])
	for _, r := range beyond {
		row, err := host(src.RowRange(r, r+1))
		if err != nil {
			return nil, err
		}
		t.whole(r, row, &asks[r])
	}
	return t.Best[:len(asks)], nil
}

// whole lists the numbers of row r, which the host has read whole. Its sum and what was drawn stay.
func (t *Tops) whole(r int, row []float32, a *backend.Ask) {
	best := &t.Best[r]
	sum, drawn := best.Sum, best.Drawn
	t.host.List(best, row[:cmp.Or(a.Cols, len(row))], a)
	best.Sum, best.Drawn = sum, drawn
}
