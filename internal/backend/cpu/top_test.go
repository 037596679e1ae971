package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
)

// asksOf are asks of rows: for the highest logits, and every third for some ids only.
func asksOf(rows int) []backend.Ask {
	asks := make([]backend.Ask, rows)
	for i := range asks {
		asks[i] = backend.Ask{K: 20 * (1 - i%3/2), Also: []int32{3, int32(i), 1}}
	}
	return asks
}

func TestTopAllocatesNothing(t *testing.T) {
	b := openTest(t, Options{Threads: 2})
	x, asks := randomTensor(t, b, rand.New(rand.NewPCG(1, 1)), 7, 5000), asksOf(7)
	run := func() {
		if _, err := b.Top(x, asks); err != nil {
			t.Fatal(err)
		}
	}
	if n := allocations(b, 10, run); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkTop(b *testing.B) {
	for _, rows := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			dev := openTest(b, Options{})
			x, asks := randomTensor(b, dev, rand.New(rand.NewPCG(1, 1)), rows, 248_320), asksOf(rows)
			b.SetBytes(int64(4 * rows * x.Cols))
			for b.Loop() {
				if _, err := dev.Top(x, asks); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
