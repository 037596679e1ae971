package sampling

import (
	"math"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/exactmath"
	"github.com/foretoken/foretoken/sample"
)

// chiSquareZ maps a chi-square statistic to a standard normal one (Wilson and
// Hilferty, 1931).
func chiSquareZ(chi float64, freedom int) float64 {
	k := float64(freedom)
	return (math.Cbrt(chi/k) - (1 - 2/(9*k))) / math.Sqrt(2/(9*k))
}

// checkChiSquare fails if the counts are unlikely under the expected ones. Bins
// of small expectation are pooled, since the statistic is not chi-square there.
func checkChiSquare(t *testing.T, counts []int, expected []float64) {
	t.Helper()
	chi, bins := 0.0, 0
	var restCount, restExpected float64
	for i, e := range expected {
		switch {
		case e == 0 && counts[i] > 0:
			t.Fatalf("outcome %d has probability 0 and came %d times", i, counts[i])
		case e < 10:
			restCount += float64(counts[i])
			restExpected += e
			continue
		}
		d := float64(counts[i]) - e
		chi += d * d / e
		bins++
	}
	if restExpected >= 10 {
		d := restCount - restExpected
		chi += d * d / restExpected
		bins++
	}
	if bins < 2 {
		return
	}
	// Both sides: counts too even are as suspicious as counts too uneven.
	if z := chiSquareZ(chi, bins-1); math.Abs(z) > 4.5 {
		t.Errorf("chi-square %.1f with %d degrees of freedom, z = %.2f", chi, bins-1, z)
	}
}

// TestNoiseIsSplitMix64 holds noise against the published outputs of SplitMix64
// for the seed 1234567.
func TestNoiseIsSplitMix64(t *testing.T) {
	want := []uint64{6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821}
	for id, w := range want {
		if got := noise(1234567, int32(id)); got != w {
			t.Errorf("noise(1234567, %d) = %d, want %d", id, got, w)
		}
	}
}

// TestRandomVersionOneIsFrozen pins the layout: if it fails, either undo the
// change or raise randomVersion and write new vectors.
func TestRandomVersionOneIsFrozen(t *testing.T) {
	if randomVersion != 1 {
		t.Fatal("the vectors below are those of version 1")
	}
	for _, c := range []struct {
		seed   uint64
		use    use
		pos    int
		id     int32
		word   uint64
		gumbel uint64 // its bits
	}{
		{0x0, useToken, 0, 0, 0x733a135ad4dbd2d3, 0x3fccd6b7a1d38869},
		{0x0, useToken, 0, 1, 0x1758a81c487efccd, 0xbfebf1dc34dbc2b7},
		{0x0, useToken, 1, 0, 0x5b084c022c20ba2f, 0xbfa11986e1609490},
		{0x1, useToken, 0, 0, 0xd81627f3b56d2d19, 0x3ffc6609af4143e4},
		{0x2a, useXTC, 7, 0, 0xc08f6f17c5b425e4, 0x3ff418e74663be2a},
		{0x2a, useAccept, 7, 0, 0xc2390f273eb21bb3, 0x3ff4967753e7fe6e},
		{0x2a, useResidual, 7, 248319, 0x522603e04645c1cc, 0xbfc065119701cb70},
		{0xffffffffffffffff, useToken, 262143, 248319, 0x93b3337eccd0d637, 0x3fe32191158ccd48},
	} {
		h := noise(stream(c.seed, c.use, c.pos), c.id)
		if h != c.word || math.Float64bits(gumbel(h)) != c.gumbel {
			t.Errorf("seed %d use %d pos %d id %d: word %#x gumbel %#x, want %#x %#x",
				c.seed, c.use, c.pos, c.id, h, math.Float64bits(gumbel(h)), c.word, c.gumbel)
		}
	}
}

func TestUnitStaysInside(t *testing.T) {
	for _, c := range []struct {
		h    uint64
		want float64
	}{
		{0, 0x1p-53},
		{1<<12 - 1, 0x1p-53},
		{1 << 63, 0.5 + 0x1p-53},
		{math.MaxUint64, 1 - 0x1p-53},
	} {
		if got := unit(c.h); got != c.want {
			t.Errorf("unit(%#x) = %v, want %v", c.h, got, c.want)
		}
		if g := gumbel(c.h); math.IsInf(g, 0) || math.IsNaN(g) {
			t.Errorf("gumbel(%#x) = %v", c.h, g)
		}
	}
}

// TestNoiseUniform counts units in 64 bins along each coordinate alone.
func TestNoiseUniform(t *testing.T) {
	const n, bins = 1 << 16, 64
	coordinates := map[string]func(i int) uint64{
		"id":       func(i int) uint64 { return noise(stream(7, useToken, 3), int32(i)) },
		"position": func(i int) uint64 { return noise(stream(7, useToken, i), 3) },
		"seed":     func(i int) uint64 { return noise(stream(uint64(i), useToken, 3), 3) },
		"coin":     func(i int) uint64 { return noise(stream(7, useXTC, i), 0) },
	}
	for name, word := range coordinates {
		t.Run("along="+name, func(t *testing.T) {
			counts, expected := make([]int, bins), make([]float64, bins)
			for i := range n {
				counts[int(unit(word(i))*bins)]++
			}
			for b := range expected {
				expected[b] = n / bins
			}
			checkChiSquare(t, counts, expected)
		})
	}
}

// TestNoiseIndependent counts pairs of units in 16×16 bins: neighbors in id, in
// position, in seed, and two uses of one position.
func TestNoiseIndependent(t *testing.T) {
	const n, side = 1 << 16, 16
	pairs := map[string]func(i int) (a, b uint64){
		"ids": func(i int) (a, b uint64) {
			k := stream(1, useToken, 0)
			return noise(k, int32(2*i)), noise(k, int32(2*i+1))
		},
		"positions": func(i int) (a, b uint64) {
			return noise(stream(1, useToken, 2*i), 5), noise(stream(1, useToken, 2*i+1), 5)
		},
		"position and id": func(i int) (a, b uint64) {
			return noise(stream(1, useToken, i), 6), noise(stream(1, useToken, i+1), 5)
		},
		"seeds": func(i int) (a, b uint64) {
			return noise(stream(uint64(2*i), useToken, 9), 5), noise(stream(uint64(2*i+1), useToken, 9), 5)
		},
		"coin and token": func(i int) (a, b uint64) {
			return noise(stream(1, useAccept, i), 0), noise(stream(1, useToken, i), 0)
		},
		"coins": func(i int) (a, b uint64) {
			return noise(stream(1, useAccept, i), 0), noise(stream(1, useXTC, i), 0)
		},
		"residual and token": func(i int) (a, b uint64) {
			return noise(stream(1, useResidual, i), 4), noise(stream(1, useToken, i), 4)
		},
	}
	for name, pair := range pairs {
		t.Run("of="+name, func(t *testing.T) {
			counts, expected := make([]int, side*side), make([]float64, side*side)
			for i := range n {
				a, b := pair(i)
				counts[int(unit(a)*side)*side+int(unit(b)*side)]++
			}
			for b := range expected {
				expected[b] = n / (side * side)
			}
			checkChiSquare(t, counts, expected)
		})
	}
}

func TestGumbelMoments(t *testing.T) {
	const n = 1 << 17
	var sum, squares float64
	for i := range n {
		g := gumbel(noise(stream(11, useToken, 0), int32(i)))
		sum += g
		squares += g * g
	}
	mean := sum / n
	variance := squares/n - mean*mean
	const euler = 0.5772156649015329
	if want := math.Pi * math.Pi / 6; math.Abs(mean-euler) > 0.015 || math.Abs(variance-want) > 0.05 {
		t.Errorf("mean %.4f variance %.4f, want %.4f %.4f", mean, variance, euler, want)
	}
}

func TestPremixedEqualsNoise(t *testing.T) {
	ids := []int32{0, 3, 4, 9, 100, 101, 5000, 248319}
	for ones := range 32 {
		limit := uint64(math.MaxUint64) << (64 - ones)
		key := stream(uint64(ones), useToken, 0)
		for _, span := range [][2]int{{0, 64}, {64, 128}, {5, 5}, {7, 14}, {100, 163}} {
			var want []int32
			for i := span[0]; i < span[1]; i++ {
				if noise(key, int32(i)) >= limit {
					want = append(want, int32(i))
				}
			}
			if got := premixed(nil, key, limit, span[0], span[1]); !slices.Equal(got, want) {
				t.Errorf("ones %d span %v: %v, want %v", ones, span, got, want)
			}
		}
		var want []int32
		for i := 1; i < len(ids); i++ {
			if noise(key, ids[i]) >= limit {
				want = append(want, int32(i))
			}
		}
		if got := premixedOf(nil, ids, key, limit, 1, len(ids)); !slices.Equal(got, want) {
			t.Errorf("ones %d listed: %v, want %v", ones, got, want)
		}
	}
}

// TestPremixedIncludesTheLimit makes the noise of each id in turn equal to the limit: ids of a step of four,
// and ids of the remainder.
func TestPremixedIncludesTheLimit(t *testing.T) {
	const limit = uint64(0x7edcba98 << 33)
	inverse := func(odd uint64) uint64 {
		x := odd // right in three bits, and in twice as many after every step
		for range 5 {
			x *= 2 - odd*x
		}
		return x
	}
	x := limit * inverse(0x94d049bb133111eb)
	x = (x ^ x>>27 ^ x>>54) * inverse(0xbf58476d1ce4e5b9)
	x = x ^ x>>30 ^ x>>60
	if premix(x) != limit {
		t.Fatalf("premix(%#x) = %#x, want %#x", x, premix(x), limit)
	}
	for id := range int32(7) {
		stream := x - (uint64(id)+1)*golden
		if hits := premixed(nil, stream, limit, 0, 7); !slices.Contains(hits, id) {
			t.Errorf("id %d is not in %v", id, hits)
		}
		if hits := premixedOf(nil, []int32{id}, stream, limit, 0, 1); len(hits) != 1 {
			t.Errorf("listed id %d is not there", id)
		}
	}
}

// TestGateCountsOnes has the noise that words with ones leading ones can just reach.
func TestGateCountsOnes(t *testing.T) {
	for ones := range 53 {
		limit, ok := gate(float64(ones+1) * math.Ln2)
		if want := uint64(math.MaxUint64) << (64 - min(ones, 31)); !ok || limit != want {
			t.Errorf("%d ones: %#x, %t, want %#x", ones, limit, ok, want)
		}
	}
	if limit, ok := gate(54 * math.Ln2); ok {
		t.Errorf("no word has 53 ones, and those from %#x on could do", limit)
	}
}

// TestDrawTakesLowestOfTies makes the sums of two ids the same, whichever has the higher logit, by
// the choice of the temperature; and then the quotients of a draw from probabilities.
func TestDrawTakesLowestOfTies(t *testing.T) {
	var ties [3]int
	for seed := range uint64(200) {
		key := stream(seed, useToken, 0)
		a, b := gumbel(noise(key, 0)), gumbel(noise(key, 1))
		row, high := []float32{0, -1}, 0
		if a > b {
			row, high = []float32{-1, 0}, 1
		}
		o := sample.Options{Temperature: 1 / math.Abs(a-b), Seed: seed}
		if sc := newScale(0, o.Temperature); Temperature.Holds(o.Temperature) && sc.score(row[0])+a == sc.score(row[1])+b {
			ties[high]++
			s := newSampler(t, o)
			if got := s.Draw(s.Dist(row, nil)); got != 0 {
				t.Errorf("seed %d: drew %d where %v tie", seed, got, row)
			}
		}
		la, lb := -exactmath.Log(unit(noise(key, 0))), -exactmath.Log(unit(noise(key, 1)))
		p := []float64{0.5, lb / (la / 0.5)}
		if la/p[0] == lb/p[1] {
			ties[2]++
			if got := (&dist{id: []int32{0, 1}, p: p}).race(key); got != 0 {
				t.Errorf("seed %d: drew %d where %v tie", seed, got, p)
			}
		}
	}
	if min(ties[0], ties[1], ties[2]) < 10 {
		t.Errorf("%d ties", ties)
	}
}

// TestGateIsNecessary checks gumbelMax's proof on numbers: no word under the gate
// has noise that reaches g.
func TestGateIsNecessary(t *testing.T) {
	for i := range 20_000 {
		h := mix(uint64(i))
		h |= ^(uint64(math.MaxUint64) >> (i % 53)) // many leading ones too
		exact := gumbel(h)
		for _, g := range []float64{exact, exact - 1e-12, exact - 0.5} {
			if limit, ok := gate(g); !ok || premixLimited(h) < limit {
				t.Fatalf("word %#x has noise %v, but the gate for %v is %#x, %v", h, exact, g, limit, ok)
			}
		}
	}
	if _, ok := gate(37); ok {
		t.Error("gate(37) lets something through; the highest noise is 36.74")
	}
	if _, ok := gate(math.Inf(1)); ok {
		t.Error("gate(+Inf) lets something through")
	}
}

// premixLimited is the part of a word that the gate compares.
func premixLimited(h uint64) uint64 { return h &^ (1<<33 - 1) }
