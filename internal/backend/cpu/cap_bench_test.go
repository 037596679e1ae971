package cpu

import (
	"math/rand/v2"
	"testing"
)

// BenchmarkCap is the cap of a row of logits.
func BenchmarkCap(b *testing.B) {
	be := openTest(b, Options{Threads: 1})
	x := randomTensor(b, be, rand.New(rand.NewPCG(1, 2)), 1, 262144)
	b.SetBytes(4 * 262144)
	for b.Loop() {
		be.Cap(x, 30)
	}
}
