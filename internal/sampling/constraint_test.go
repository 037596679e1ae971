package sampling

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/topk"
	"github.com/foretoken/foretoken/sample"
)

// masks is a constraint whose mask is a function of the accepted tokens.
type masks struct {
	said []int32
	mask func(said []int32) []uint64
}

func (m *masks) Allowed(ahead []int32) []uint64 { return m.mask(slices.Concat(m.said, ahead)) }
func (m *masks) Accept(id int32)                { m.said = append(m.said, id) }

// randomMask allows about one id in oneIn; words may be missing at the end.
func randomMask(r *rand.Rand, vocab, oneIn int) []uint64 {
	mask := make([]uint64, (vocab+63)/64+r.IntN(2))
	for id := range vocab {
		if r.IntN(oneIn) == 0 {
			mask[id/64] |= 1 << (id % 64)
		}
	}
	if r.IntN(3) == 0 {
		for i := range mask {
			mask[i] = ^mask[i] // ids beyond the row included
		}
	}
	if r.IntN(6) == 0 {
		mask = mask[:r.IntN(len(mask)+1)]
	}
	return mask
}

func allowedIn(mask []uint64, id int) bool {
	return id/64 < len(mask) && mask[id/64]>>(id%64)&1 != 0
}

// TestConstraintEqualsReference runs random chains under random masks, at positions ahead
// of the text too. The kept ids, their probabilities and the drawn token equal those of the plain
// implementation on a row in which logits outside of the mask are -Inf.
func TestConstraintEqualsReference(t *testing.T) {
	cases := 2000
	if testing.Short() {
		cases = 800
	}
	empty := 0
	for i := range cases {
		r := rand.New(rand.NewPCG(23, uint64(i)))
		vocab := 1 + r.IntN(300)
		if i%10 == 0 {
			vocab = 1 + r.IntN(3000)
		}
		o := randomOptions(r, vocab)
		if i%5 == 0 {
			o.TopP, o.TopK = 0, 0 // min-p alone, or nothing
		}
		oneIn := []int{1, 2, 20, 200}[r.IntN(4)]
		seed := r.Uint64()
		of := func(said []int32) []uint64 {
			n := uint64(len(said))
			if seed>>5%8 == n {
				return nil
			}
			return randomMask(rand.New(rand.NewPCG(seed, n)), vocab, oneIn)
		}
		ref := o
		o.Constraint = func() sample.Constraint { return &masks{mask: of} }
		s := newSampler(t, o)
		var said []int32
		for range 3 {
			row := oddRow(r, vocab)
			if r.IntN(30) == 0 {
				row[r.IntN(vocab)] = float32(math.Inf(1))
			}
			ahead := make([]int32, r.IntN(3))
			for j := range ahead {
				ahead[j] = int32(r.IntN(vocab))
			}
			text := slices.Concat(said, ahead)
			held := slices.Clone(row)
			if mask := of(text); mask != nil {
				for id := range held {
					if !allowedIn(mask, id) {
						held[id] = float32(math.Inf(-1))
					}
				}
			}
			want := refDist(ref, nil, text, held)
			if len(want) == 0 {
				empty++
			}
			checkDraw(t, i, ref, s, row, ahead, want, refDraw(ref, len(text), want))
			id := int32(r.IntN(vocab))
			s.Accept(id)
			said = append(said, id)
		}
	}
	if empty > 3*cases/2 {
		t.Errorf("%d of %d distributions were empty", empty, 3*cases)
	}
}

// TestMinPUnderConstraintIsExact has logits on both sides of the last one that min-p keeps, one
// float32 apart, under masks that allow all, half and few of the ids.
func TestMinPUnderConstraintIsExact(t *testing.T) {
	o := sample.Options{Temperature: 1, MinP: 0.9}
	row := make([]float32, 64)
	z := newScale(0, 1).lowest(newSampler(t, o).minLevel + 1)
	for range len(row) / 2 {
		z = math.Nextafter32(z, -1)
	}
	for i := range row[1:] {
		z = math.Nextafter32(z, 0)
		row[1+i] = z
	}
	for _, mask := range []uint64{math.MaxUint64, 0x5555555555555555, 1<<0 | 1<<30 | 1<<33} {
		held := slices.Clone(row)
		for id := range held {
			if !allowedIn([]uint64{mask}, id) {
				held[id] = float32(math.Inf(-1))
			}
		}
		ref := o
		o.Constraint = func() sample.Constraint { return fixed{mask} }
		s := newSampler(t, o)
		checkDist(t, s.Dist(row, nil), refDist(ref, nil, nil, held), len(row))
	}
}

// TestFewListsWhatIsAllowed has masks of no more than a sixteenth of a row, and of more.
func TestFewListsWhatIsAllowed(t *testing.T) {
	row := make([]float32, 96)
	row[3], row[70] = float32(math.Inf(1)), -math.MaxFloat32
	for want, ids := range [][]int32{{}, {3}, {3, 70}, {3, 50, 70}, {3, 50, 70, 72}, {3, 50, 70, 72, 73}, {3, 50, 70, 72, 73, 95}, {3, 50, 70, 72, 73, 74, 95}} {
		mask := make([]uint64, 2)
		for _, id := range ids {
			mask[id/64] |= 1 << (id % 64)
		}
		var w scratch
		if few := w.few(row, mask); few != (want*16 <= len(row)) {
			t.Errorf("%d of %d ids are few: %t", want, len(row), few)
		}
		for i, k := range w.keys {
			if z := min(row[ids[i]], math.MaxFloat32); k != topk.Key(z, ids[i]) {
				t.Errorf("key %d of %v is of id %d and logit %v, want %v", i, ids, topk.ID(k), topk.Logit(k), z)
			}
		}
		if want*16 <= len(row) && len(w.keys) != want {
			t.Errorf("%d keys of %d ids", len(w.keys), want)
		}
	}
}

// TestBlottedLogitsWeighNothing replaces logits outside of a mask: at ordinary scales by a number, which
// makes sums faster, and at extreme scales by a value without weight.
func TestBlottedLogitsWeighNothing(t *testing.T) {
	const word = 0x123456789abcdef0
	for _, top := range []float32{0, 20, -20, -3e38, math.MaxFloat32, -math.MaxFloat32} {
		for _, temperature := range []float64{5e-324, 1e-30, 0.5, 1, 2, 100} {
			sc := newScale(top, temperature)
			block := slices.Repeat([]float32{top}, topk.Block-3)
			var held [topk.Block]float32
			blotted := sc.blot(&held, block, word)
			if len(blotted) != len(block) {
				t.Fatalf("%d logits of %d", len(blotted), len(block))
			}
			for i, z := range blotted {
				switch in := uint64(word)>>i&1 != 0; {
				case in && z != top:
					t.Errorf("top %v, temperature %v: logit %d, which is allowed, becomes %v", top, temperature, i, z)
				case !in && sc.level(z) != floorLevel:
					t.Errorf("top %v, temperature %v: logit %d becomes %v of level %d", top, temperature, i, z, sc.level(z))
				case !in && math.Abs(float64(top)) < 100 && 0.1 < temperature && temperature < 10 && math.IsInf(float64(z), 0):
					t.Errorf("top %v, temperature %v: logit %d becomes %v", top, temperature, i, z)
				}
			}
		}
	}
}

// fixed is a constraint that always allows the same.
type fixed []uint64

func (f fixed) Allowed([]int32) []uint64 { return f }
func (f fixed) Accept(int32)             {}

func TestConstraintAllocatesNothing(t *testing.T) {
	row := noiseRow(5000, 30)
	for _, oneIn := range []int{1, 2, 300} {
		mask := randomMask(rand.New(rand.NewPCG(1, 1)), len(row), oneIn)
		for _, o := range []sample.Options{{}, {Temperature: 0.8, TopK: 20}, {Temperature: 0.8}, {Temperature: 1, MinP: 0.1}} {
			o.Constraint = func() sample.Constraint { return fixed(mask) }
			s := newSampler(t, o)
			round := func() { s.Accept(s.Draw(s.Dist(row, nil))) }
			round()
			round()
			if n := testing.AllocsPerRun(20, round); n > 0 {
				t.Errorf("one in %d, %+v: %v allocations", oneIn, o, n)
			}
		}
	}
}

// BenchmarkConstraint draws under masks like those of a grammar: nearly all ids inside a string, few ids
// between the parts of JSON.
func BenchmarkConstraint(b *testing.B) {
	wide := make([]uint64, benchVocab/64)
	narrow := make([]uint64, benchVocab/64)
	r := rand.New(rand.NewPCG(3, 4))
	for id := range benchVocab {
		if r.IntN(20) > 0 {
			wide[id/64] |= 1 << (id % 64)
		}
		if r.IntN(10_000) == 0 {
			narrow[id/64] |= 1 << (id % 64)
		}
	}
	chains := []struct {
		name    string
		options sample.Options
	}{
		{"greedy", sample.Options{}},
		{"topk+topp", sample.Options{Temperature: 0.8, TopK: 20, TopP: 0.95}},
		{"minp", sample.Options{Temperature: 0.8, MinP: 0.05}},
		{"topp", sample.Options{Temperature: 0.8, TopP: 0.95}},
		{"temperature", sample.Options{Temperature: 0.8}},
		{"penalties", sample.Options{Temperature: 0.8, TopK: 20, RepetitionPenalty: 1.1}},
	}
	for _, c := range chains {
		for _, m := range []struct {
			name string
			mask []uint64
		}{{"none", nil}, {"wide", wide}, {"narrow", narrow}} {
			b.Run("chain="+c.name+"/mask="+m.name, func(b *testing.B) {
				o := c.options
				if m.mask != nil {
					o.Constraint = func() sample.Constraint { return fixed(m.mask) }
				}
				s, err := New(o, []int32{1, 2, 3})
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(4 * benchVocab)
				for b.Loop() {
					s.Accept(s.Draw(s.Dist(benchRows[0].row, nil)))
				}
			})
		}
	}
}

// TestForcedIsTheOnlyDraw compares Forced and Allows with the ids in random masks, and forced ids with
// drawn ones.
func TestForcedIsTheOnlyDraw(t *testing.T) {
	forced := 0
	for i := range 2000 {
		r := rand.New(rand.NewPCG(41, uint64(i)))
		vocab := 1 + r.IntN(300)
		mask := randomMask(r, vocab, 1+r.IntN(2*vocab))
		o := randomOptions(r, vocab)
		o.Vocab = vocab
		o.Constraint = func() sample.Constraint {
			return &masks{mask: func(said []int32) []uint64 {
				if len(said) == 1 {
					return mask
				}
				return nil
			}}
		}
		s, err := New(o, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := s.Forced(nil); ok {
			t.Fatal("forced where everything is allowed")
		}
		var ids []int32
		for id := range 64 * len(mask) {
			allowed := allowedIn(mask, id)
			if allowed {
				ids = append(ids, int32(id))
			}
			if got := s.Allows([]int32{0}, int32(id)); got != allowed {
				t.Fatalf("case %d: id %d allowed: %v, want %v", i, id, got, allowed)
			}
		}
		id, ok := s.Forced([]int32{0})
		if want := len(ids) == 1 && int(ids[0]) < vocab; ok != want || ok && id != ids[0] {
			t.Fatalf("case %d: forced %d, %v of %d in a vocabulary of %d", i, id, ok, ids, vocab)
		}
		if !ok {
			continue
		}
		forced++
		logits := make([]float32, vocab)
		for j := range logits {
			logits[j] = float32(r.NormFloat64() * 10)
		}
		if got := s.Draw(s.Dist(logits, []int32{0})); got != id {
			t.Fatalf("case %d: %d is forced and %d drawn", i, id, got)
		}
	}
	if forced < 200 {
		t.Errorf("only %d cases with a forced id", forced)
	}
}
