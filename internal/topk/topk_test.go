package topk

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// oddRow is a row with ties, zeros of both signs, infinities and both kinds of NaN.
func oddRow(r *rand.Rand, n int) []float32 {
	special := []float32{
		float32(math.Inf(-1)), float32(math.Inf(1)), float32(math.NaN()), math.Float32frombits(0xffc00001),
		0, float32(math.Copysign(0, -1)), math.MaxFloat32, -math.MaxFloat32,
	}
	row := make([]float32, n)
	offset := float32(r.IntN(3)*10 - 10)
	for i := range row {
		row[i] = float32(math.Round(6*r.NormFloat64())/2) + offset
		if at := r.IntN(20 * len(special)); at < len(special) {
			row[i] = special[at]
		}
	}
	return row
}

func TestMaximaEqualPlain(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	rows := [][]float32{nil, make([]float32, 130)}
	for n := range 300 {
		rows = append(rows, oddRow(r, n))
	}
	for _, fill := range []float32{float32(math.NaN()), math.Float32frombits(0xffffffff), float32(math.Inf(-1)), float32(math.Inf(1)), -5, float32(math.Copysign(0, -1))} {
		row := make([]float32, 128)
		for i := range row {
			row[i] = fill
		}
		rows = append(rows, row)
	}
	for _, row := range rows {
		got := Maxima(nil, row)
		if want := (len(row) + Block - 1) / Block; len(got) != want {
			t.Fatalf("%d logits have %d maxima, want %d", len(row), len(got), want)
		}
		for b, m := range got {
			block := row[b*Block : min((b+1)*Block, len(row))]
			if want := Max(block); m != want {
				t.Fatalf("block %v: maximum %v, want %v", block, m, want)
			}
		}
	}
}

func TestKeyOrder(t *testing.T) {
	zero := float32(0)
	rising := []uint64{
		Key(-math.MaxFloat32, 0), Key(-1, 9), Key(-1, 8), Key(-1e-40, 0),
		Key(0, 3), Key(-zero, 2), Key(float32(math.Copysign(0, -1)), 1), Key(0, 0),
		Key(1e-40, 5), Key(1, math.MaxInt32), Key(1, 0), Key(math.MaxFloat32, 7),
	}
	if !slices.IsSorted(rising) {
		t.Errorf("keys are out of order: %x", rising)
	}
	for _, z := range []float32{-math.MaxFloat32, -3.5, -1e-45, 0, 1e-45, 2, math.MaxFloat32} {
		for _, id := range []int32{0, 1, 1 << 21} {
			if k := Key(z, id); Logit(k) != z || ID(k) != id {
				t.Errorf("Key(%v, %d) reads back as %v, %d", z, id, Logit(k), ID(k))
			}
		}
	}
}

func TestReachEqualsSorting(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for range 3000 {
		keys := make([]uint64, 1+r.IntN(60))
		for i := range keys {
			keys[i] = uint64(i)<<32 | uint64(r.Uint32())
		}
		switch r.IntN(3) {
		case 0:
			slices.Reverse(keys)
		case 1:
			r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		}
		weigh := func(k uint64) uint64 { return k & 7 } // zero weights too
		goal := uint64(r.IntN(4 * len(keys)))
		sorted := slices.SortedFunc(slices.Values(keys), func(a, b uint64) int { return cmp.Compare(b, a) })
		sum, want := uint64(0), sorted[len(sorted)-1]
		for _, k := range sorted {
			if sum += weigh(k); sum >= goal {
				want = k
				break
			}
		}
		if got := Reach(slices.Clone(keys), goal, weigh); got != want {
			t.Fatalf("Reach(%x, %d) = %x, want %x", keys, goal, got, want)
		}
	}
}

// TestReachIsLinear counts how often keys are weighed, over orders that are bad for a pivot at a
// fixed place.
func TestReachIsLinear(t *testing.T) {
	const n = 2000
	rising := make([]uint64, n)
	for i := range rising {
		rising[i] = uint64(i + 1)
	}
	falling := slices.Clone(rising)
	slices.Reverse(falling)
	for name, keys := range map[string][]uint64{"rising": rising, "falling": falling, "pipes": append(rising[n/2:n:n], falling[n/2:]...)} {
		for _, goal := range []uint64{1, n / 3, n} {
			weighed := 0
			Reach(slices.Clone(keys), goal, func(uint64) uint64 { weighed++; return 1 })
			if weighed > 10*n {
				t.Errorf("%s keys: %d of %d are weighed %d times", name, goal, n, weighed)
			}
		}
	}
}

func TestRetainKeepsTheCut(t *testing.T) {
	if got, want := Retain([]uint64{5, 9, 4, 7, 5}, 5), []uint64{5, 9, 7, 5}; !slices.Equal(got, want) {
		t.Errorf("%v are kept, want %v", got, want)
	}
}

// TestKthEqualsSorting compares with the sorted list, over lists that are sorted out on the way;
// some begin with the highest.
func TestKthEqualsSorting(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	var spare []uint64
	for range 500 {
		row := oddRow(r, 1+r.IntN(1500))
		if r.IntN(4) == 0 {
			slices.SortFunc(row, func(a, b float32) int { return cmp.Compare(b, a) })
		}
		low := []float32{-math.MaxFloat32, -3, 0, 4}[r.IntN(4)]
		k := 1 + r.IntN(len(row)/4+1)
		sorted := slices.DeleteFunc(slices.Clone(row), func(z float32) bool { return !(z > low) })
		slices.SortFunc(sorted, func(a, b float32) int { return cmp.Compare(b, a) })
		want := low
		if len(sorted) >= k {
			want = sorted[k-1]
		}
		var got float32
		if got, spare = Kth(row, k, low, spare); got != want {
			t.Fatalf("number %d of %v above %v: %v, want %v", k, row, low, got, want)
		}
	}
}
