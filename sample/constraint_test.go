package sample

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// masks is a constraint whose mask is a function of what was said.
type masks struct {
	said []int32
	mask func(said []int32) []uint64
}

func (m *masks) Allowed(ahead []int32) []uint64 { return m.mask(slices.Concat(m.said, ahead)) }
func (m *masks) Accept(id int32)                { m.said = append(m.said, id) }

// randomMask allows about one id in so many; words may be missing at the end.
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
// of the text too: what is kept, its probabilities and the drawn token are those of the
// plain implementation on a row in which what is not allowed is -Inf.
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
		o.Constraint = func() Constraint { return &masks{mask: of} }
		s := newSampler(t, o)
		var said []int32
		for range 3 {
			row := oddRow(r, vocab)
			if r.IntN(30) == 0 {
				row[r.IntN(vocab)] = float32(math.Inf(1))
			}
			before := slices.Clone(row)
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
			d := s.Dist(row, ahead)
			if got, want := s.Draw(d), refDraw(ref, len(text), want); got != want {
				t.Fatalf("case %d: drew %d, want %d\noptions %+v", i, got, want, ref)
			}
			checkDist(t, d, want, vocab)
			if !slices.EqualFunc(row, before, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
				t.Fatalf("case %d: Dist modified the logits", i)
			}
			id := int32(r.IntN(vocab))
			s.Accept(id)
			said = append(said, id)
		}
	}
	if empty > 3*cases/2 {
		t.Errorf("%d of %d distributions were empty", empty, 3*cases)
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
		for _, o := range []Options{{}, {Temperature: 0.8, TopK: 20}, {Temperature: 0.8}, {Temperature: 1, MinP: 0.1}} {
			o.Constraint = func() Constraint { return fixed(mask) }
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

// BenchmarkConstraint draws under masks like those of a grammar: inside a string nearly
// everything is allowed, between the parts of JSON next to nothing.
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
		options Options
	}{
		{"greedy", Options{}},
		{"topk+topp", Options{Temperature: 0.8, TopK: 20, TopP: 0.95}},
		{"minp", Options{Temperature: 0.8, MinP: 0.05}},
		{"topp", Options{Temperature: 0.8, TopP: 0.95}},
		{"temperature", Options{Temperature: 0.8}},
		{"penalties", Options{Temperature: 0.8, TopK: 20, RepetitionPenalty: 1.1}},
	}
	for _, c := range chains {
		for _, m := range []struct {
			name string
			mask []uint64
		}{{"none", nil}, {"wide", wide}, {"narrow", narrow}} {
			b.Run("chain="+c.name+"/mask="+m.name, func(b *testing.B) {
				o := c.options
				if m.mask != nil {
					o.Constraint = func() Constraint { return fixed(m.mask) }
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

// TestForcedIsTheOnlyDraw compares Forced and Allows with the ids in random masks, and what is
// forced with what is drawn.
func TestForcedIsTheOnlyDraw(t *testing.T) {
	forced := 0
	for i := range 2000 {
		r := rand.New(rand.NewPCG(41, uint64(i)))
		vocab := 1 + r.IntN(300)
		mask := randomMask(r, vocab, 1+r.IntN(2*vocab))
		o := randomOptions(r, vocab)
		o.Vocab = vocab
		o.Constraint = func() Constraint {
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
