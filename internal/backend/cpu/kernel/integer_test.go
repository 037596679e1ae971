package kernel

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
)

// integerCase is a shape of integer product.
type integerCase struct {
	format              dtype.Format
	bits, group         int
	scale               dtype.Type
	zeros               bool // zero points are stored
	rows, cols, m, from int
}

func (c integerCase) String() string {
	return fmt.Sprintf("format=%v/bits=%d/group=%d/scale=%v/zeros=%v/m=%d/n=%d/k=%d/from=%d", c.format, c.bits, c.group, c.scale, c.zeros, c.m, c.rows, c.cols, c.from)
}

// randomCase draws a format, a group and odd sizes.
func randomCase(r *rand.Rand) integerCase {
	c := integerCase{rows: 1 + r.IntN(70), m: 1 + r.IntN(33), bits: []int{2, 3, 4, 5, 6, 8}[r.IntN(6)]}
	c.format, c.group = dtype.Affine, []int{16, 32, 64, 128, 96}[r.IntN(5)]
	c.scale = []dtype.Type{dtype.BF16, dtype.F16, dtype.F32}[r.IntN(3)]
	switch r.IntN(8) {
	case 2, 3, 4:
		c.format, c.group, c.zeros = dtype.ZeroPoint, []int{16, 32, 64, 128, 96, 256, 320}[r.IntN(7)], r.IntN(2) == 0
	case 0:
		c.format, c.bits, c.group, c.scale = dtype.MXFP4, 4, 32, dtype.F8E8M0
	case 1:
		c.format, c.bits, c.group, c.scale = dtype.NVFP4, 4, 16, dtype.F8E4M3
	}
	if r.IntN(8) == 0 { // enough to share unpacked blocks
		c.m = 34 + r.IntN(40)
	}
	c.cols = c.group * (1 + r.IntN(10))
	c.from = r.IntN((c.rows + Tile - 1) / Tile)
	return c
}

// randomWeights fills a matrix of the case with random codes and mild scales.
func randomWeights(c integerCase, r *rand.Rand) dtype.Matrix {
	groups := c.cols / c.group
	m := dtype.Matrix{
		Rows: c.rows, Cols: c.cols, Format: c.format, Bits: c.bits, Group: c.group, ScaleType: c.scale, Global: 1,
		Data: make([]byte, c.rows*c.cols*c.bits/8),
	}
	for i := range m.Data {
		m.Data[i] = byte(r.Uint32())
	}
	if c.format == dtype.ZeroPoint {
		m.Scales = randomNumbers(c.scale, c.rows*groups, r)
		if c.zeros {
			m.Zeros = randomZeros(c.bits, c.rows*groups, r)
		}
		return m
	}
	if c.format == dtype.Affine {
		m.Scales = randomNumbers(c.scale, c.rows*groups, r)
		m.Biases = randomNumbers(c.scale, c.rows*groups, r)
		return m
	}
	m.Bits = 0
	m.Scales = make([]byte, c.rows*groups)
	for i := range m.Scales {
		m.Scales[i] = byte(r.IntN(0x7e))
		if c.format == dtype.MXFP4 {
			m.Scales[i] = byte(120 + r.IntN(10))
		}
	}
	if c.format == dtype.NVFP4 && r.IntN(2) == 0 {
		m.Global = 0.37
	}
	return m
}

// randomZeros draws n zero points of bits-bit codes.
func randomZeros(bits, n int, r *rand.Rand) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.IntN(1 << bits))
	}
	return b
}

func randomNumbers(t dtype.Type, n int, r *rand.Rand) []byte {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	b := make([]byte, n*t.Size())
	dtype.FromF32(b, t, x)
	return b
}

// randomInput draws rows of activations, some of them zero, extreme or not finite.
func randomInput(rows, cols int, r *rand.Rand) Rows {
	x := make([]float32, rows*cols)
	for i := range x {
		x[i] = float32(r.NormFloat64() * math.Exp(2*r.NormFloat64()))
	}
	if r.IntN(4) == 0 {
		i := r.IntN(len(x))
		clear(x[i:min(len(x), i+100)])
	}
	if r.IntN(8) == 0 {
		x[r.IntN(len(x))] *= []float32{1e38, 1e-38, 1e-45, float32(math.Inf(1)), float32(math.NaN())}[r.IntN(5)]
	}
	if r.IntN(16) == 0 { // everything subnormal
		for i := range x {
			x[i] *= 1e-40
		}
	}
	return Rows{Data: x, N: rows, Cols: cols, Stride: cols}
}

// quantized lays x out for a set of kernels.
func quantized(set *Set, x Rows, w *Weight) *Activations {
	a := &Activations{}
	set.Lay(a, x.N, w)
	for r := range x.N {
		a.put(r, x.at(r), set.quantize)
	}
	return a
}

// integerProduct is tiles [from, to) of w times x, [to-from, rows, tile].
func integerProduct(set *Set, w *Weight, from, to int, x Rows, s *Scratch) []float32 {
	a := quantized(set, x, w)
	m := a.OutRows()
	all := make([]float32, (to-from)*m*Tile)
	set.Integer(all, w, 0, from, to, a, s)
	out := make([]float32, 0, (to-from)*x.N*Tile)
	for t := range to - from {
		out = append(out, all[t*m*Tile:][:x.N*Tile]...)
	}
	return out
}

// cases is how many of n random cases to try: a twentieth in short tests, as emulators take their
// time, and a third as a rule.
func cases(n int) int {
	switch {
	case testing.Short() && long:
		return n / 5
	case testing.Short():
		return n / 20
	case long:
		return 4 * n
	}
	return n / 3
}

// largeCases go past what kernels take at a time, in every direction.
var largeCases = []integerCase{
	{dtype.Affine, 4, 64, dtype.BF16, false, 20, 4288, 290, 0},
	{dtype.Affine, 6, 128, dtype.F16, false, 17, 4352, 140, 0},
	{dtype.MXFP4, 4, 32, dtype.F8E8M0, false, 16, 4160, 257, 0},
	{dtype.NVFP4, 4, 16, dtype.F8E4M3, false, 16, 4112, 33, 0},
	{dtype.Affine, 8, 32, dtype.F32, false, 300, 64, 21, 0},
	{dtype.Affine, 5, 96, dtype.BF16, false, 400, 96, 70, 0},
	{dtype.Affine, 3, 512, dtype.BF16, false, 30, 1024, 40, 0},
	{dtype.Affine, 2, 64, dtype.BF16, false, 64, 320, 100, 0},  // seven strips, pairs of tiles only
	{dtype.Affine, 8, 128, dtype.F16, false, 48, 128, 65, 0},   // five strips, one group
	{dtype.Affine, 4, 32, dtype.BF16, false, 70, 16448, 48, 0}, // more columns than three strips take at once
	{dtype.Affine, 4, 64, dtype.BF16, false, 176, 448, 30, 0},  // twice four tiles and three, two strips
	{dtype.Affine, 8, 64, dtype.F16, false, 144, 576, 13, 0},   // twice four tiles and one, one strip
	{dtype.MXFP4, 4, 32, dtype.F8E8M0, false, 224, 192, 80, 0}, // three times four tiles and two, five strips
	{dtype.MXFP4, 4, 32, dtype.F8E8M0, false, 80, 448, 300, 0}, // pairs of tiles and one more, panels and two groups
	{dtype.NVFP4, 4, 16, dtype.F8E4M3, false, 64, 208, 49, 0},
	{dtype.Affine, 6, 128, dtype.BF16, false, 96, 1536, 100, 0},
	{dtype.ZeroPoint, 4, 128, dtype.BF16, true, 80, 1536, 100, 0},
	{dtype.ZeroPoint, 4, 32, dtype.F16, true, 70, 16448, 48, 0},
	{dtype.ZeroPoint, 8, 128, dtype.F32, false, 48, 640, 65, 0},
	{dtype.ZeroPoint, 8, 64, dtype.F16, true, 144, 576, 40, 0},
	{dtype.ZeroPoint, 3, 128, dtype.BF16, false, 176, 384, 30, 0},
}

// rowCases has every format and group with every number of rows that kernels tell apart, or
// in short tests with some.
func rowCases() []integerCase {
	formats := []integerCase{
		{format: dtype.MXFP4, bits: 4, group: 32, scale: dtype.F8E8M0},
		{format: dtype.NVFP4, bits: 4, group: 16, scale: dtype.F8E4M3},
	}
	for i, bits := range []int{2, 3, 4, 5, 6, 8} {
		for j, group := range []int{16, 32, 64, 128} {
			scale := []dtype.Type{dtype.BF16, dtype.F16, dtype.F32}[(i+j)%3]
			formats = append(formats, integerCase{format: dtype.Affine, bits: bits, group: group, scale: scale},
				integerCase{format: dtype.ZeroPoint, bits: bits, group: group, scale: scale, zeros: (i+j)%2 == 0})
		}
	}
	step := 1
	if testing.Short() {
		step = 7
	}
	var list []integerCase
	for i, c := range formats {
		step := step
		if c.format == dtype.ZeroPoint { // whose kernels are those of Affine but for their ends
			step = max(step, 3)
		}
		for c.m = 1 + i%step; c.m <= 50; c.m += step {
			c.rows, c.cols = 33, 5*c.group
			list = append(list, c)
		}
	}
	return list
}

func TestIntegerProductEqualsGeneric(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	list := accelerated(runnable())
	s := make([]Scratch, len(list))
	fixed := rowCases()
	if !testing.Short() {
		fixed = append(fixed, largeCases...)
	}
	for i := range len(fixed) + cases(2500) {
		c := fixed[min(i, len(fixed)-1)]
		if i >= len(fixed) {
			c = randomCase(r)
		}
		w := packed(t, integers, heap, randomWeights(c, r))
		x := randomInput(c.m, c.cols, r)
		to := w.tiles
		if i >= len(fixed) {
			to = c.from + 1 + r.IntN(w.tiles-c.from)
		}
		want := integerProduct(&Generic, w, c.from, to, x, &Scratch{})
		for i := range list {
			got := integerProduct(&list[i], w, c.from, to, x, &s[i])
			for j := range want {
				if !sameFloat(got[j], want[j]) {
					t.Fatalf("isa=%s/%v: tile %d, row %d, lane %d is %g, want %g", list[i].Name, c,
						c.from+j/(c.m*Tile), j/Tile%c.m, j%Tile, got[j], want[j])
				}
			}
		}
	}
}

func TestIntegerProductIsRowExact(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, set := range accelerated(runnable()) {
		var s Scratch
		for range cases(150) {
			c := randomCase(r)
			w := packed(t, integers, heap, randomWeights(c, r))
			x := randomInput(c.m, c.cols, r)
			all := integerProduct(&set, w, 0, w.tiles, x, &s)
			for i := range c.m {
				one := integerProduct(&set, w, 0, w.tiles, x.slice(i, i+1), &s)
				for j, v := range one {
					if got := all[(j/Tile*c.m+i)*Tile+j%Tile]; !sameFloat(got, v) {
						t.Fatalf("isa=%s/%v: row %d of %d has %g, alone %g", set.Name, c, i, c.m, got, v)
					}
				}
			}
		}
	}
}

// layouts are layouts of some rows.
func layouts(rows int) []strips {
	return []strips{
		{height: 1},
		{height: 4, pad: 1},
		{height: 8},
		{height: 11, pad: (11 - rows%11) % 11, byRow: true},
		{height: 16, pad: -rows & 15, byRow: true},
	}
}

func TestQuantizeEqualsGeneric(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	list := accelerated(distinct(func(set Set) func([]byte, []float32, int, place) { return set.quantize }))
	for range cases(2000) {
		how := rounding{group: 16 * (1 + r.IntN(9)), raise: codeOffset}
		if r.IntN(2) == 0 {
			how = rounding{group: 256, part: 16 << r.IntN(2)}
		}
		x := randomInput(1+r.IntN(19), how.group*(1+r.IntN(9)), r)
		for _, set := range list {
			for _, layout := range layouts(x.N) {
				got, want := &Activations{}, &Activations{}
				got.lay(x.N, x.Cols/how.group, how, layout)
				want.lay(x.N, x.Cols/how.group, how, layout)
				for i := range x.N {
					got.put(i, x.at(i), set.quantize)
					want.put(i, x.at(i), quantizeRow)
				}
				if !bytes.Equal(got.data, want.data) {
					t.Fatalf("isa=%s: rows=%d cols=%d %+v %+v differ", set.Name, x.N, x.Cols, how, layout)
				}
			}
		}
	}
}

// TestActivationsKeepValues reads back what was laid out in every way.
func TestActivationsKeepValues(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range cases(200) {
		how := rounding{group: 16 * (1 + r.IntN(9)), raise: codeOffset}
		if r.IntN(3) == 0 {
			how = rounding{group: 256, part: 16 << r.IntN(2)}
		}
		group := how.group
		x := randomInput(1+r.IntN(40), group*(1+r.IntN(5)), r)
		q, want := make([]int8, group), make([]int8, group)
		for _, layout := range layouts(x.N) {
			a := &Activations{}
			a.lay(x.N, x.Cols/group, how, layout)
			for i := range x.N {
				a.put(i, x.at(i), quantizeRow)
			}
			for i := range x.N {
				for g := range a.groups {
					scale, sum := a.codes(q, i, g)
					wantScale, wantSum, _ := quantizeGroup(want, x.at(i)[g*group:][:group])
					if !sameFloat(scale, wantScale) || how.part == 0 && !sameFloat(sum, wantSum) || !slices.Equal(q, want) {
						t.Fatalf("rows=%d group=%d %+v: row %d group %d is not what was put", x.N, group, layout, i, g)
					}
				}
			}
		}
	}
}

// TestIntegerProductSurvivesGC multiplies on more goroutines than processors while the
// garbage collector and the scheduler interrupt them as often as they can.
func TestIntegerProductSurvivesGC(t *testing.T) {
	for _, m := range []int{12, 60} {
		t.Run(fmt.Sprintf("m=%d", m), func(t *testing.T) { survivesGC(t, m) })
	}
}

func survivesGC(t *testing.T, m int) {
	r := rand.New(rand.NewPCG(11, 12))
	c := integerCase{format: dtype.Affine, bits: 4, group: 64, scale: dtype.BF16, rows: 64, cols: 1024, m: m}
	w := packed(t, integers, heap, randomWeights(c, r))
	x := randomInput(c.m, c.cols, r)
	set := runnable()[0]
	want := integerProduct(&set, w, 0, w.tiles, x, &Scratch{})
	done := make(chan struct{})
	var workers, collector sync.WaitGroup
	collector.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				runtime.GC()
			}
		}
	})
	for range 4 {
		workers.Go(func() {
			var s Scratch
			for range cases(600) {
				got := integerProduct(&set, w, 0, w.tiles, x, &s)
				for i := range want {
					if !sameFloat(got[i], want[i]) {
						t.Errorf("isa=%s: number %d is %g, undisturbed %g", set.Name, i, got[i], want[i])
						return
					}
				}
			}
		})
	}
	workers.Wait()
	close(done)
	collector.Wait()
}

func TestReadReadsAll(t *testing.T) {
	b := make([]byte, 5*512+100)
	for i := range b {
		b[i] = byte(i * i)
	}
	if got, want := Read(b), streamReadGeneric(b); got != want {
		t.Errorf("Read is %x, want %x", got, want)
	}
}
