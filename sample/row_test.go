package sample

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// oddRow is a row with ties, zeros of both signs, -Inf and both kinds of NaN.
func oddRow(r *rand.Rand, n int) []float32 {
	row := make([]float32, n)
	offset := float32(r.IntN(3)*10 - 10)
	coarse := r.IntN(2) == 0
	for i := range row {
		z := float32(3 * r.NormFloat64())
		if coarse {
			z = float32(math.Round(float64(z)))
		}
		row[i] = z + offset
		switch r.IntN(40) {
		case 0:
			row[i] = float32(math.Inf(-1))
		case 1:
			row[i] = float32(math.NaN())
		case 2:
			row[i] = math.Float32frombits(0xffc00001)
		case 3:
			row[i] = float32(math.Copysign(0, -1))
		case 4:
			row[i] = 0
		case 5:
			row[i] = row[r.IntN(i+1)]
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
		got := maxima(nil, row)
		if want := (len(row) + blockSize - 1) / blockSize; len(got) != want {
			t.Fatalf("%d logits have %d maxima, want %d", len(row), len(got), want)
		}
		for b, m := range got {
			block := row[b*blockSize : min((b+1)*blockSize, len(row))]
			if want := plainMax(block); m != want {
				t.Fatalf("block %v: maximum %v, want %v", block, m, want)
			}
		}
	}
}

func TestKeyOrder(t *testing.T) {
	zero := float32(0)
	rising := []uint64{
		key(-math.MaxFloat32, 0), key(-1, 9), key(-1, 8), key(-1e-40, 0),
		key(0, 3), key(-zero, 2), key(float32(math.Copysign(0, -1)), 1), key(0, 0),
		key(1e-40, 5), key(1, math.MaxInt32), key(1, 0), key(math.MaxFloat32, 7),
	}
	if !slices.IsSorted(rising) {
		t.Errorf("keys are out of order: %x", rising)
	}
	for _, z := range []float32{-math.MaxFloat32, -3.5, -1e-45, 0, 1e-45, 2, math.MaxFloat32} {
		for _, id := range []int32{0, 1, MaxVocab} {
			if k := key(z, id); keyLogit(k) != z || keyID(k) != id {
				t.Errorf("key(%v, %d) reads back as %v, %d", z, id, keyLogit(k), keyID(k))
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
		if got := reach(slices.Clone(keys), goal, weigh); got != want {
			t.Fatalf("reach(%x, %d) = %x, want %x", keys, goal, got, want)
		}
	}
}
