package kernel

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
)

// BenchmarkKernel times the kernels that BenchmarkVector leaves out, each by itself and in the
// first caches: those of one page of keys and values, with four queries of the 2B shape (sixteen if
// it is of codes, 64 of a prompt), of a head of the delta rule, and the small ones between them.
// Bytes are those of the page, the state or the row that is read.
func BenchmarkKernel(b *testing.B) {
	const d, queries, page = 256, 4, PageTokens
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
	kv32, kv16 := floats(page*d), make([]uint16, page*d)
	narrow(kv16, kv32)
	coded := newCodedTrial(&Generic, d, d, Lanes, rng, floats)
	all, now := SoftmaxSum{Top: 1, Weight: 2}, SoftmaxSum{Top: 1, Weight: 1}
	const many = 64 // queries of a prompt
	mq, mp, laid, strip, partial := floats(many*d), floats(many*page), floats(page*d), floats(page*PromptStrip), make([]float32, PromptSums)
	mout, rows, factors, next := floats(many*d), make([]*float32, many), floats(many), make([]int8, 64)
	for i := range rows {
		rows[i] = &mout[i*d]
	}
	state, key := floats(128*128), floats(128)
	mixed, gates, outs := floats(64*384), slices.Repeat([]float32{0.5}, 64), make([]float32, 64*64)
	for i := range mixed {
		mixed[i] /= 16
	}
	half := make([]uint16, len(x))
	for _, set := range runnable() {
		v := &set.Vector
		for _, k := range []struct {
			op    string
			bytes int
			run   func()
		}{
			{"add", 4 * len(x), func() { copy(z, y); v.Add(z, x) }},
			{"keys", 8 * 128 * 64, func() { v.Delta.Keys(mixed, 384, 128, 1, outs[:64]) }},
			{"gatedNorm", 8 * 128 * 64, func() { v.Delta.GatedNorm(mixed[256:], 384, 64, mixed, 384, key, 1e-6) }},
			{"gateSigmoid", 4 * len(x), func() { copy(z, y); v.GateSigmoid(z, x, 1) }},
			{"rotate", 4 * 64, func() { v.Rotate(q[:64], cos, sin) }},
			{"narrow", 4 * len(x), func() { v.Narrow(half, x) }},
			{"scores32", 4 * page * d, func() { v.Page.Scores32(out, q, kv32, kv32, d, page, 0.1) }},
			{"scores16", 2 * page * d, func() { v.Page.Scores16(out, q, kv16, kv16, d, page, 0.1) }},
			{"weigh32", 4 * page * d, func() { v.Page.Weigh32(sum, p, kv32, kv32, d, page) }},
			{"weigh16", 2 * page * d, func() { v.Page.Weigh16(sum, p, kv16, kv16, d, page) }},
			{"promptRows16", 2 * page * d, func() { v.Prompt.Rows16(laid, kv16, d) }},
			{"promptValues16", 2 * page * PromptStrip, func() { v.Prompt.Values16(strip, kv16, d) }},
			{"promptScores", 4 * page * d, func() { v.Prompt.Scores(mp, mq, laid, partial, next, d, 0.1) }},
			{"promptSoftmax", 4 * page * many, func() { v.Prompt.Softmax(mp, factors, factors) }},
			{"promptWeigh", 4 * page * PromptStrip, func() { v.Prompt.Weigh(rows, mp, strip, nil, nil, next, 0) }},
			{"codedScores", page * d, func() { v.Coded.Scores(&coded.page) }},
			{"codedSoftmax", 4 * page * Lanes, func() { v.Coded.Softmax(&coded.page) }},
			{"codedWeigh", page * d, func() { v.Coded.Weigh(&coded.page) }},
			{"codedMerge", 4 * d * Lanes, func() { v.Coded.Merge(&coded.merge) }},
			{"merge", 4 * d, func() { all.Weight = 2; v.Page.Merge(sum[:d], q[:d], &all, &now) }},
			{"deltaRead", 4 * len(state), func() { v.Delta.Read(z[:128], z[128:256], state, 128, 0, key, key, x[:128], 0.9, 0.5, 1) }},
			{"deltaUpdate", 4 * len(state), func() { v.Delta.Update(state, 128, state, 128, 0, key, x[:128], 0.5) }},
			{"deltaSteps", 4 * 64 * 128 * 32, func() { v.Delta.Steps(outs, 32, outs[:32], state[:128*32], mixed, 384, 128, 256, gates, gates, gates) }},
		} {
			b.Run(fmt.Sprintf("op=%s/isa=%s", k.op, set.Name), func(b *testing.B) {
				b.SetBytes(int64(k.bytes))
				for b.Loop() {
					k.run()
				}
			})
		}
	}
}

// BenchmarkVector times kernels on rows in the first cache.
func BenchmarkVector(b *testing.B) {
	const n = 2048
	rng := rand.New(rand.NewPCG(1, 2))
	x, y, z := make([]float32, n), make([]float32, n), make([]float32, n)
	for i := range x {
		x[i], y[i] = float32(rng.NormFloat64()), float32(rng.NormFloat64())
	}
	w := make([]float32, n)
	taps := []Tap{{&x[0], &y[0]}, {&y[0], &x[0]}, {&x[0], &y[0]}, {&y[0], &x[0]}}
	for _, set := range runnable() {
		v := &set.Vector
		for _, k := range []struct {
			op  string
			run func()
		}{
			{"dot", func() { v.Dot(x, y) }},
			{"addScaled", func() { v.AddScaled(z, x, 0.5) }},
			{"norm", func() { v.Norm(z, x, y, 1e-6) }},
			{"swiglu", func() { v.SwiGLU(z, x, y) }},
			{"sigmoids", func() { v.Sigmoids(z, x) }},
			{"decays", func() { v.Decays(z, x, -1, 0.5) }},
			{"convolve", func() { v.Delta.Convolve(z, 0, n, 1, taps, 0) }},
			{"softmax", func() { copy(w, x); v.Softmax(w) }},
		} {
			b.Run(fmt.Sprintf("op=%s/isa=%s", k.op, set.Name), func(b *testing.B) {
				for b.Loop() {
					k.run()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/number")
			})
		}
	}
}

// integerMatrix is n×k with codes of bits bits, in groups of 64 with bf16 scales.
func integerMatrix(tb testing.TB, n, k, bits int) dtype.Matrix {
	m, err := dtype.NewAffine(n, k, bits, 64, dtype.BF16)
	if err != nil {
		tb.Fatal(err)
	}
	for i := range m.Data {
		m.Data[i] = byte(i * 7)
	}
	return m
}

// BenchmarkPack packs weights on one thread; bytes are those of the packed weight.
func BenchmarkPack(b *testing.B) {
	const n, k = 1024, 2048
	formats := map[string]dtype.Matrix{
		"bf16": {Type: dtype.BF16}, "f16": {Type: dtype.F16}, "f32": {Type: dtype.F32},
		"mxfp4": {Format: dtype.MXFP4, Group: 32, ScaleType: dtype.F8E8M0},
		"nvfp4": {Format: dtype.NVFP4, Group: 16, ScaleType: dtype.F8E4M3, Global: 1},
		"fp8":   {Format: dtype.FP8, Group: 128, ScaleType: dtype.F32},
	}
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		formats[fmt.Sprintf("q%d", bits)] = integerMatrix(b, n, k, bits)
	}
	for _, f := range blockFormats {
		formats[f.String()] = dtype.NewBlocks(f, n, k)
	}
	for name, m := range formats {
		m.Rows, m.Cols = n, k
		if m.Data == nil {
			m.Data = make([]byte, n*m.RowBytes())
			m.Scales = make([]byte, n*m.ScaleRowBytes())
		}
		b.Run("type="+name, func(b *testing.B) {
			w := packed(b, integers, heap, m)
			stack := []dtype.Matrix{m}
			b.SetBytes(w.Bytes())
			for b.Loop() {
				w.Pack(stack, 0, w.tiles)
			}
		})
	}
}

// BenchmarkRowFloats decodes single rows of a table, as embedding a token does.
func BenchmarkRowFloats(b *testing.B) {
	for _, bits := range []int{4, 5, 8} {
		b.Run(fmt.Sprintf("bits=%d", bits), func(b *testing.B) {
			w := packed(b, integers, heap, integerMatrix(b, 4096, 512, bits))
			dst := make([]float32, w.cols)
			b.SetBytes(int64(4 * w.cols))
			for i := 0; b.Loop(); i++ {
				w.RowFloats(dst, 0, i*37%w.rows)
			}
		})
	}
}

// BenchmarkQuantize quantizes one row of activations, for groups of 64 and for superblocks.
func BenchmarkQuantize(b *testing.B) {
	for _, w := range []Weight{
		{group: 64, groups: 64, per: 1},
		{group: 32, groups: 128, per: 8},
		{group: 16, groups: 256, per: 16},
	} {
		for _, set := range runnable() {
			b.Run(fmt.Sprintf("group=%d/per=%d/isa=%s", w.group, w.per, set.Name), func(b *testing.B) {
				x := make([]float32, 4096)
				for i := range x {
					x[i] = float32(i%31) - 15
				}
				var a Activations
				set.Lay(&a, 4, &w)
				b.SetBytes(int64(4 * len(x)))
				for b.Loop() {
					set.Put(&a, 1, x)
				}
			})
		}
	}
}
