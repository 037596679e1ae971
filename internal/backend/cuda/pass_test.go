package cuda

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/dtype"
)

// tower is a small network of passes: embedding, a norm, products of some blocks of rows.
type tower struct {
	testing.TB
	b          backend.Backend
	embed, out backend.Weight
	gain       backend.Tensor
	x, y       backend.Tensor // of a pass
}

const towerWidth, towerVocab = 64, 100

func newTower(tb testing.TB, b backend.Backend) *tower {
	tb.Helper()
	rng := rand.New(rand.NewPCG(7, 8))
	w := &tower{TB: tb, b: b}
	w.embed = w.load(randomMatrix(tb, rng, towerVocab, towerWidth, 8, 32, dtype.BF16))
	w.out = w.load(randomMatrix(tb, rng, towerVocab, towerWidth, 4, 64, dtype.BF16))
	w.gain = w.alloc(1, towerWidth)
	b.Fill(w.gain, 0.75)
	return w
}

func (w *tower) load(m dtype.Matrix) backend.Weight {
	w.Helper()
	loaded, err := w.b.Load(backend.Int8, m)
	if err != nil {
		w.Fatal(err)
	}
	return loaded
}

func (w *tower) alloc(rows, cols int) backend.Tensor {
	w.Helper()
	x, err := w.b.Alloc(dtype.F32, rows, cols)
	if err != nil {
		w.Fatal(err)
	}
	return x
}

// space gives passes memory for rows.
func (w *tower) space(rows int) {
	w.Helper()
	w.b.Free(w.x)
	w.b.Free(w.y)
	w.x, w.y = w.alloc(rows, towerWidth), w.alloc(rows, towerVocab)
}

// run is the logits of a pass.
func (w *tower) run(ids, want, only []int32) []float32 {
	w.Helper()
	got, err := w.try(ids, want, only)
	if err != nil {
		w.Fatal(err)
	}
	return got
}

func (w *tower) try(ids, want, only []int32) ([]float32, error) {
	x, y := w.x.RowRange(0, len(ids)), w.y.RowRange(0, len(want))
	p := backend.Pass{Of: w, IDs: ids, Want: want, Only: only, Batch: []backend.Seq{{N: len(ids)}}}
	w.b.Pass(p, func() {
		w.b.Embed(x, w.embed, p.IDs, 0)
		w.b.RMSNorm(x, x, w.gain, 1e-6)
		last := w.x.RowRange(w.x.Rows-len(want), w.x.Rows)
		w.b.Gather(last, x, p.Want)
		w.b.Fill(y, -5)
		w.b.MatMul(last, backend.Product{Dst: y, W: w.out, Only: p.Only})
	})
	got, err := w.b.Host(y)
	return slices.Clone(got), err
}

// Passes have the CPU's bits whether they are queued, recorded, replayed or given up, and every
// shape that comes again is replayed.
func TestPassesAreReplayed(t *testing.T) {
	b := open(t, Options{})
	gpu, cpu := newTower(t, b), newTower(t, backendtest.CPU(t, backend.Options{Threads: 1}))
	rng := rand.New(rand.NewPCG(9, 10))
	list := func(n, limit int) []int32 {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = int32(rng.IntN(limit))
		}
		return ids
	}
	only := [][]int32{nil, {0, 3}, {1, 2}, {6}, {2, 4, 5}, {0, 1, 2, 3, 4, 5, 6}}
	gpu.space(12)
	cpu.space(12)
	replays := 0
	for i := range 60 {
		rows := 1 + rng.IntN(3)
		ids, want, some := list(rows, towerVocab), list(1+rng.IntN(2), rows), only[rng.IntN(len(only))]
		before := b.passes.Replayed
		got, expected := gpu.run(ids, want, some), cpu.run(ids, want, some)
		if !slices.Equal(got, expected) {
			t.Fatalf("pass %d, of %d rows: other bits", i, rows)
		}
		replays += int(b.passes.Replayed - before)
		switch i {
		case 30: // other memory
			gpu.space(13)
			cpu.space(13)
			if len(b.passes.Known) != 0 {
				t.Errorf("%d recordings of memory that was freed", len(b.passes.Known))
			}
		case 45: // another weight
			b.Unload(gpu.out)
			if len(b.passes.Known) != 0 {
				t.Errorf("%d recordings of a weight that was unloaded", len(b.passes.Known))
			}
			m := randomMatrix(t, rng, towerVocab, towerWidth, 4, 64, dtype.BF16)
			gpu.out, cpu.out = gpu.load(m), cpu.load(m)
		}
	}
	if replays == 0 {
		t.Error("no pass was replayed")
	}
	t.Logf("%d of 60 passes were replayed", replays)
}

// What is rehearsed is not computed, and what comes after it was prepared for and has the CPU's bits.
func TestPassesAreRehearsed(t *testing.T) {
	b := open(t, Options{})
	gpu, cpu := newTower(t, b), newTower(t, backendtest.CPU(t, backend.Options{Threads: 1}))
	gpu.space(6)
	cpu.space(6)
	lists := func(rows int) (ids, want []int32) {
		for i := range int32(rows) {
			ids, want = append(ids, i), append(want, i)
		}
		return ids, want
	}
	err := b.Rehearse(func() error {
		for rows := 3; rows > 0; rows-- {
			ids, want := lists(rows)
			got, err := gpu.try(ids, want, nil)
			if err != nil {
				return err
			}
			if slices.ContainsFunc(got, func(x float32) bool { return x != 0 }) {
				t.Errorf("a pass of %d rows was computed", rows)
			}
		}
		return nil
	})
	if err != nil || len(b.passes.Known) != 3 {
		t.Fatalf("%d recordings: %v", len(b.passes.Known), err)
	}
	before := b.Prepared()
	for i := range 9 {
		ids, want := lists(1 + i%3)
		for j := range ids {
			ids[j] += int32(7 * i)
		}
		if got, expected := gpu.run(ids, want, nil), cpu.run(ids, want, nil); !slices.Equal(got, expected) {
			t.Fatalf("pass %d: other bits", i)
		}
	}
	if n := b.Prepared() - before; n != 0 {
		t.Errorf("%d passes were prepared that had been rehearsed", n)
	}
	b.fail(errors.New("broken"))
	if err := b.Rehearse(func() error { return nil }); err == nil {
		t.Error("an error of the device does not come out")
	}
}

// As many recordings are kept as there is room for, the last used.
func TestPassesAreForgotten(t *testing.T) {
	b := open(t, Options{})
	w := newTower(t, b)
	w.space(10)
	const kept = 6
	for rows := 1; rows <= kept+2; rows++ {
		w.run(make([]int32, rows), []int32{0}, nil)
		switch rows {
		case 1:
			b.passes.Most = (kept+1)*b.passes.Operations - 1 // one too few for another
		case kept:
			w.run([]int32{1}, []int32{0}, nil)
		}
	}
	if n := len(b.passes.Known); n != kept {
		t.Errorf("%d recordings, want %d", n, kept)
	}
	before := b.passes.Replayed
	w.run([]int32{2}, []int32{0}, nil)       // used last
	w.run([]int32{2, 3}, []int32{0}, nil)    // the oldest: forgotten
	w.run([]int32{2, 3, 4}, []int32{0}, nil) // forgotten for its sake
	if n := b.passes.Replayed - before; n != 1 {
		t.Errorf("%d of three passes were replayed, want one", n)
	}
}

// An operation of a pass with a list that is not the pass's cannot be replayed: it does not pass.
func TestPassRefusesOtherLists(t *testing.T) {
	b := open(t, Options{})
	w := newTower(t, b)
	w.space(2)
	defer func() {
		if recover() == nil {
			t.Error("another list was accepted")
		}
	}()
	p := backend.Pass{Of: w, IDs: []int32{1, 2}, Batch: []backend.Seq{{N: 2}}}
	b.Pass(p, func() { b.Embed(w.x, w.embed, []int32{1, 2}, 0) })
}

// Within a pass a norm or a gate writes its rows as integers for the product after it, unless the
// product is of other rows or wants other groups than one; the bits stay.
func TestNormsWriteCodesForProducts(t *testing.T) {
	const rows, width = 5, 256
	run := func(b backend.Backend) (results [][]float32) {
		w := newTower(t, b)
		rng := rand.New(rand.NewPCG(11, 12))
		var weights []backend.Weight
		for _, group := range []int{32, 64, 128} {
			weights = append(weights, w.load(randomMatrix(t, rng, 40, width, 4, group, dtype.BF16)))
		}
		x, up, gain, h, y, z := w.alloc(rows, width), w.alloc(rows, width), w.alloc(1, width), w.alloc(rows, width), w.alloc(rows, 40), w.alloc(rows, 40)
		numbers := make([]float32, rows*width)
		for i := range numbers {
			numbers[i] = float32(rng.NormFloat64())
		}
		for _, to := range []backend.Tensor{x, up} {
			if err := b.Write(to, numbers); err != nil {
				t.Fatal(err)
			}
		}
		b.Fill(gain, 1.25)
		read := func() {
			for _, from := range []backend.Tensor{h, y, z} {
				got, err := b.Host(from)
				if err != nil {
					t.Fatal(err)
				}
				results = append(results, slices.Clone(got))
			}
		}
		for i, weight := range weights {
			p := backend.Pass{Of: i, Batch: []backend.Seq{{N: rows}}}
			b.Pass(p, func() {
				b.RMSNorm(h, x, gain, 1e-6)
				b.MatMul(h, backend.Product{Dst: y, W: weight}, backend.Product{Dst: z, W: weights[0]})
			})
			read()
			p.Of = i + 10
			b.Pass(p, func() {
				b.GLU(h, x, up, backend.SiLU)
				b.MatMul(h.RowRange(0, rows-1), backend.Product{Dst: y.RowRange(0, rows-1), W: weight})
				b.GLU(h, h, up, backend.SiLU)
				b.MatMul(h, backend.Product{Dst: z, W: weight})
			})
			read()
		}
		return results
	}
	b := open(t, Options{})
	got, want := run(b), run(backendtest.CPU(t, backend.Options{Threads: 1}))
	for i := range want {
		if !slices.Equal(got[i], want[i]) {
			t.Errorf("result %d differs", i)
		}
	}
	for key, r := range b.passes.Known { // a norm and two products, or two gates and two products, one with codes
		n := 0
		for _, op := range r.ops {
			if op.launch.Function.Name() == "quantize" {
				n++
			}
		}
		if most := map[bool]int{true: 0, false: 1}[key.Of == any(0)]; n > most {
			t.Errorf("pass %v rounds %d times more than it has to", key.Of, n-most)
		}
	}
}
