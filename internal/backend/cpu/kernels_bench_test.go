package cpu

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
)

// BenchmarkKernel times the kernels that BenchmarkVector leaves out, each by itself and in the
// first caches: those of one page of keys and values, with four queries of the 2B shape, of a
// head of the delta rule, and the small ones between them. Bytes are those of the page, the
// state or the row that is read.
func BenchmarkKernel(b *testing.B) {
	const d, queries, page = 256, 4, backend.PageTokens
	rng := rand.New(rand.NewPCG(6, 6))
	floats := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		return x
	}
	x, y, z := floats(2048), floats(2048), make([]float32, 2048) // what gates multiply again and again ends in numbers that are slow
	cos, sin := slices.Repeat([]float32{0.6}, 32), slices.Repeat([]float32{0.8}, 32)
	q, p, out := floats(queries*d), floats(queries*page), make([]float32, queries*page)
	sum := make([]float32, queries*d)
	kv32, kv16, kv8 := floats(page*d), make([]uint16, page*d), make([]int8, page*d)
	narrow(kv16, kv32)
	for i := range kv8 {
		kv8[i] = int8(rng.IntN(255) - 127)
	}
	all, now := softmaxSum{top: 1, weight: 2}, softmaxSum{top: 1, weight: 1}
	state, key, value := floats(128*128), floats(128), floats(128)
	half := make([]uint16, len(x))
	for _, set := range runnable() {
		v := &set.vector
		for _, k := range []struct {
			op    string
			bytes int
			run   func()
		}{
			{"add", 4 * len(x), func() { copy(z, y); v.add(z, x) }},
			{"normalize", 4 * len(value), func() { v.normalize(value, 1) }},
			{"gateSilu", 4 * len(x), func() { copy(z, y); v.gateSilu(z, x) }},
			{"gateSigmoid", 4 * len(x), func() { copy(z, y); v.gateSigmoid(z, x, 1) }},
			{"rotate", 4 * 64, func() { v.rotate(q[:64], cos, sin) }},
			{"narrow", 4 * len(x), func() { v.narrow(half, x) }},
			{"scores32", 4 * page * d, func() { v.page.scores32(out, q, kv32, kv32, d, page, 0.1) }},
			{"scores16", 2 * page * d, func() { v.page.scores16(out, q, kv16, kv16, d, page, 0.1) }},
			{"scores8", page * d, func() { v.page.scores8(out, q, kv8, kv8, d, page, 0.1) }},
			{"weigh32", 4 * page * d, func() { v.page.weigh32(sum, p, kv32, kv32, d, page) }},
			{"weigh16", 2 * page * d, func() { v.page.weigh16(sum, p, kv16, kv16, d, page) }},
			{"weigh8", page * d, func() { v.page.weigh8(sum, p, kv8, kv8, d, page) }},
			{"scalePage", 4 * len(out), func() { copy(out, p); v.page.scale(out, x[:page]) }},
			{"merge", 4 * d, func() { all.weight = 2; v.page.merge(sum[:d], q[:d], &all, &now) }},
			{"deltaRead", 4 * len(state), func() { v.delta.read(z[:128], z[128:256], state, 128, 0, key, key, x[:128], 0.9, 0.5, 1) }},
			{"deltaUpdate", 4 * len(state), func() { v.delta.update(state, 128, state, 128, 0, key, x[:128], 0.5) }},
		} {
			b.Run(fmt.Sprintf("op=%s/isa=%s", k.op, set.name), func(b *testing.B) {
				b.SetBytes(int64(k.bytes))
				for b.Loop() {
					k.run()
				}
			})
		}
	}
}
