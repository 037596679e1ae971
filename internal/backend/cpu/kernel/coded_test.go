package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
)

// codedTrial is a page of codes with a block of queries, of which some see only a part.
type codedTrial struct {
	page  CodedPage
	merge CodedMerge
	masks [PageTokens]uint16
	all   LaneSums
	out   []float32
}

// newCodedTrial quantizes numbers for queries and keys of key numbers and values of value
// numbers. The last position is unused and holds NaN.
func newCodedTrial(set *Set, key, value, queries int, rng *rand.Rand, numbers func(n int) []float32) *codedTrial {
	x := &codedTrial{}
	p := &x.page
	p.Prepare()
	var buf []float32
	var codes []byte
	p.Groups, p.ScaleStep = CodedGroups(key), PageTokens
	p.Queries = make([]byte, QueryBytes(key))
	for l := range queries {
		set.PutQuery(p.Queries, l, numbers(key), 0.1, &buf)
	}
	p.Dims, p.Width = (value+15)&^15, 4
	for p.Width < queries {
		p.Width *= 2
	}
	Repeat(p.Queries, p.Width)
	p.Keys, p.KeyScales = make([]byte, PageTokens*p.Groups*codedGroup), make([]float32, p.Groups*PageTokens)
	p.Values, p.ValueScales = make([]int8, p.Dims*PageTokens), make([]float32, PageTokens)
	for i := range PageTokens {
		k, v := numbers(key), numbers(value)
		if i == PageTokens-1 {
			k[0], v[0] = float32(math.NaN()), float32(math.NaN())
		}
		set.PutKey(p.Keys[i*p.Groups*codedGroup:], p.KeyScales, i, k, &buf, &codes)
		set.PutValue(p.Values, p.ValueScales, i, v, &codes)
	}
	for l := range p.Width {
		from, to := 0, PageTokens-1
		if l%3 == 1 {
			from = rng.IntN(PageTokens - 2)
			to = from + rng.IntN(PageTokens-1-from) // nothing at all, sometimes
		}
		for lane := l; lane < Lanes; lane += p.Width {
			for i := from; i < to; i++ {
				x.masks[i] |= 1 << lane
			}
			if from < to {
				x.merge.Sees |= 1 << lane
			}
		}
	}
	p.Masks = &x.masks
	p.Sums = make([]int32, p.Dims*p.Width)
	x.out = make([]float32, p.Dims*p.Width)
	x.merge.All, x.merge.Now, x.merge.Out, x.merge.Sums = &x.all, &p.Now, x.out, p.Sums
	for l := range x.all.Top {
		x.all.Top[l] = float32(math.Inf(-1))
	}
	return x
}

// run computes the page and merges it twice, the second time with other tops.
func (x *codedTrial) run(k *Coded) {
	k.Scores(&x.page)
	k.Softmax(&x.page)
	k.Weigh(&x.page)
	k.Merge(&x.merge)
	for l := range x.page.Now.Top {
		x.page.Now.Top[l] += float32(l%3 - 1)
	}
	k.Merge(&x.merge)
}

func TestCodedPagesEqualGeneric(t *testing.T) {
	trials := 150
	if testing.Short() {
		trials = 25
	}
	for _, set := range accelerated(runnable()) {
		rng := rand.New(rand.NewPCG(9, 9))
		for range trials {
			key, value, queries := 1+rng.IntN(300), 1+rng.IntN(300), 1+rng.IntN(Lanes)
			if rng.IntN(3) == 0 {
				key = 256 // the usual width
			}
			seed := rng.Uint64()
			spread := rng.IntN(7)
			made := func() *codedTrial {
				r := rand.New(rand.NewPCG(seed, 1))
				x := newCodedTrial(&Generic, key, value, queries, r, func(n int) []float32 {
					x := make([]float32, n)
					for i := range x {
						x[i] = float32(r.NormFloat64()) * float32(math.Ldexp(1, r.IntN(2*spread+1)-spread))
						if spread == 6 { // values of nothing and of too little
							x[i] *= 0x1p-106
						}
					}
					return x
				})
				if seed%3 == 0 { // the second part of a latent row
					x.page.More, x.page.ScaleStep = 1, 0
					for i := range x.page.Scores {
						x.page.Scores[i] = r.Float32()
						if l := i % Lanes; l >= x.page.Width {
							x.page.Scores[i] = x.page.Scores[i-x.page.Width]
						}
					}
				}
				if seed%5 == 0 { // a row that is not a number, for those that see it
					x.page.ValueScales[r.IntN(PageTokens)] = float32(math.NaN())
				}
				return x
			}
			got, want := made(), made()
			k, g := &set.Vector.Coded, &codedGeneric
			same := func(what string, got, want []float32) {
				t.Helper()
				for i := range want {
					if !sameFloat(got[i], want[i]) {
						t.Fatalf("%s, %s of %d and %d, %d queries: number %d is %v, want %v", set.Name, what, key, value, queries, i, got[i], want[i])
					}
				}
			}
			k.Scores(&got.page)
			g.Scores(&want.page)
			anything := func(free func(i, l int) bool) {
				for i := range got.page.Scores {
					if free(i/Lanes, i%Lanes) {
						got.page.Scores[i], want.page.Scores[i] = 1e30, 1e30
					}
				}
			}
			anything(func(i, l int) bool { return want.masks[i]>>l&1 == 0 })
			same("scores", got.page.Scores, want.page.Scores)
			k.Softmax(&got.page)
			g.Softmax(&want.page)
			anything(func(_, l int) bool { return l >= want.page.Width }) // copies
			same("weights", got.page.Scores, want.page.Scores)
			for l := range Lanes { // of two zeros either may be the highest
				got.page.Now.Top[l] += 0
				want.page.Now.Top[l] += 0
			}
			same("tops", got.page.Now.Top[:], want.page.Now.Top[:])
			same("sums of weights", got.page.Now.Weight[:], want.page.Now.Weight[:])
			same("scales", got.page.Now.Scale[:], want.page.Now.Scale[:])
			for i := range want.page.Weights {
				l := i / 4 % Lanes
				if l < want.page.Width && want.page.Now.Scale[l] == want.page.Now.Scale[l] && got.page.Weights[i] != want.page.Weights[i] {
					t.Fatalf("%s: byte %d of the weights is %d, want %d", set.Name, i, got.page.Weights[i], want.page.Weights[i])
				}
			}
			copy(got.page.Weights, want.page.Weights)
			k.Weigh(&got.page)
			g.Weigh(&want.page)
			for i, s := range want.page.Sums {
				if got.page.Sums[i] != s {
					t.Fatalf("%s, %d values, %d queries: sum %d is %d, want %d", set.Name, value, queries, i, got.page.Sums[i], s)
				}
			}
			for i := range 2 {
				if k.WeighMerge != nil && got.page.Width == Lanes && i == 1 {
					k.WeighMerge(&got.page, &got.merge)
				} else {
					k.Merge(&got.merge)
				}
				g.Merge(&want.merge)
				same("merged sums", got.out, want.out)
				same("merged tops", got.all.Top[:], want.all.Top[:])
				same("merged weights", got.all.Weight[:], want.all.Weight[:])
				for l := range Lanes {
					got.page.Now.Top[l] += float32(l%3 - 1)
					want.page.Now.Top[l] += float32(l%3 - 1)
				}
			}
		}
	}
}
