package spec

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/sampling"
	"github.com/foretoken/foretoken/sample"
)

// script is a constraint: what is allowed by what was said.
type script struct {
	said    []int32
	allowed func(said []int32) []int32 // nil: everything
}

func (s *script) Accept(id int32) { s.said = append(s.said, id) }

func (s *script) Allowed(ahead []int32) []uint64 {
	ids := s.allowed(slices.Concat(s.said, ahead))
	if ids == nil {
		return nil
	}
	mask := make([]uint64, 2)
	for _, id := range ids {
		mask[id/64] |= 1 << (id % 64)
	}
	return mask
}

// TestForceFollowsTheConstraint completes random drafts under random constraints and compares
// with the tokens and marks that a look at each position gives.
func TestForceFollowsTheConstraint(t *testing.T) {
	const vocab, end = 100, 99
	long, cut := 0, 0
	for i := range 3000 {
		rng := rand.New(rand.NewPCG(31, uint64(i)))
		share := rng.IntN(5) // of positions where one id is left
		allowed := func(said []int32) []int32 {
			r := rand.New(rand.NewPCG(uint64(i), uint64(len(said))<<8+uint64(len(said)+1)*uint64(slices.Max(append([]int32{0}, said...)))))
			switch n := r.IntN(6); {
			case n <= share:
				return []int32{int32(r.IntN(vocab))}
			case n == 5:
				return nil
			}
			return []int32{int32(r.IntN(vocab)), int32(r.IntN(vocab/2)) + vocab/2, 7}
		}
		s, err := sampling.New(sample.Options{Constraint: func() sample.Constraint { return &script{allowed: allowed} }}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var d Draft
		for range rng.IntN(6) {
			id := int32(rng.IntN(vocab))
			if ids := allowed(d.Tokens); ids != nil && rng.IntN(4) > 0 {
				id = ids[rng.IntN(len(ids))]
			}
			d.Tokens = append(d.Tokens, id)
		}
		d.Dists = make([]sampling.Dist, rng.IntN(len(d.Tokens)+1))
		most := rng.IntN(60)
		var want []int32
		var marks []bool
		forced := 0
		rest := d.Tokens
		for len(want) < most {
			ids := allowed(want)
			slices.Sort(ids)
			ids = slices.Compact(ids)
			one := len(ids) == 1 && forced < MaxForced
			if one && (len(rest) == 0 || rest[0] != ids[0]) {
				rest = ids
			}
			if len(rest) == 0 || ids != nil && !slices.Contains(ids, rest[0]) {
				break
			}
			if one {
				forced++
			}
			want, marks, rest = append(want, rest[0]), append(marks, one), rest[1:]
			if want[len(want)-1] == end {
				break
			}
		}
		before := len(d.Tokens)
		d.Force(s, []int32{end}, most)
		if !slices.Equal(d.Tokens, want) || !slices.Equal(d.Forced, marks) || len(d.Dists) > len(d.Tokens) {
			t.Fatalf("case %d: %d %v, want %d %v", i, d.Tokens, d.Forced, want, marks)
		}
		certain := 0
		for certain < len(want) && marks[certain] && want[certain] != end {
			certain++
		}
		if got := d.Certain([]int32{end}); got != certain {
			t.Fatalf("case %d: %d certain, want %d of %d %v", i, got, certain, want, marks)
		}
		if len(want) > before {
			long++
		}
		if len(want) < before {
			cut++
		}
	}
	t.Logf("%d drafts longer, %d shorter", long, cut)
	if long < 300 || cut < 300 {
		t.Errorf("%d drafts became longer and %d shorter", long, cut)
	}
}

// TestForcedTokensTeachNothing has rounds whose drafts are forced and accepted, beside drafts
// that are always rejected: what is known of the drafter, and what is drafted, is as if there had
// been no others.
func TestForcedTokensTeachNothing(t *testing.T) {
	with, without := NewController(), NewController()
	r, plain := &Record{}, &Record{}
	for range 20 {
		with.Report(r, Outcome{Rows: 3, Drafted: 2, Accepted: 1, Forced: []bool{false, true}, Tokens: 2})
		without.Report(plain, Outcome{Rows: 2, Drafted: 1, Accepted: 1, Tokens: 2})
		with.Report(r, Outcome{Rows: 42, Drafted: 40, Accepted: 40, Forced: slices.Repeat([]bool{true}, 40), Tokens: 41})
	}
	if with.accepted != without.accepted || r.accepted != plain.accepted {
		t.Errorf("accepted %v, want %v", with.accepted, without.accepted)
	}
	if r.Drafted != 20 || r.Accepted != 20 || r.Forced != 800 || r.DraftedAt != plain.DraftedAt || r.AcceptedAt != plain.AcceptedAt {
		t.Errorf("%+v, want the drafts of %+v", r.Stats, plain.Stats)
	}
}

// TestChooseDraftsBehindWhatIsKnown checks depths against trying each: what is known is fed in
// any case, and the head drafts it again only if that pays for what follows.
func TestChooseDraftsBehindWhatIsKnown(t *testing.T) {
	behind, alone, mean := 0, 0, 0.0
	const cases = 400
	for i := range cases {
		rng := rand.New(rand.NewPCG(37, uint64(i)))
		c, r := NewController(), &Record{}
		draft := time.Duration(1+rng.IntN(60)) * time.Microsecond
		for range 40 {
			for rows := 1; rows <= MaxDepth+1; rows++ {
				c.ObservePass(rows, time.Millisecond+time.Duration(rows)*50*time.Microsecond)
				if rows <= MaxDepth {
					c.ObserveDraft(Computed, []int{rows}, 0, time.Duration(rows)*draft)
				}
			}
		}
		for range 30 {
			c.Report(r, Outcome{Drafted: 4, Accepted: rng.IntN(5), Tokens: 1})
		}
		known := rng.IntN(MaxDepth + 4)
		limit := max(known, rng.IntN(MaxDepth+4))
		best, most, rates := 0, 0.0, map[int]float64{}
		gains := c.chances(r, Computed, 0, MaxCopy)
		tokens, all := 1+float64(known), 1.0
		for d := known; d <= max(min(limit, MaxDepth), known); d++ {
			drafted := 0
			if d > known {
				before := 1.0
				if d > 1 {
					before = gains[d-2]
				}
				all *= gains[d-1] / before
				tokens += all
				drafted = d
			}
			rates[drafted] = tokens / (c.Pass(1+d) + c.Draft(0, drafted, drafted, 0))
			if most = max(most, rates[drafted]); rates[drafted] == most {
				best = drafted
			}
		}
		batch := []Run{{Depth: limit, Known: known, Sources: Computed.only()}}
		c.left = 1 // no trial
		c.Choose(batch, []*Record{r})
		if mean += rates[batch[0].Depth] / most / cases; rates[batch[0].Depth] < 0.97*most {
			t.Fatalf("case %d: depth %d behind %d known tokens, want %d", i, batch[0].Depth, known, best)
		}
		if known > 0 && best > 0 {
			behind++
		}
		if known > 0 && best == 0 {
			alone++
		}
		for _, fixed := range []Depth{DepthOff, 2} {
			batch = []Run{{Depth: limit, Known: known, Sources: Computed.only()}}
			c.Choose(batch, []*Record{{Fixed: fixed}})
			n, _ := fixed.Fixed()
			want := max(min(known+n, limit, MaxDepth), known)
			if want == known {
				want = 0
			}
			if batch[0].Depth != want {
				t.Fatalf("case %d: fixed depth %v behind %d of %d: %d, want %d", i, fixed, known, limit, batch[0].Depth, want)
			}
		}
	}
	t.Logf("%d choices draft behind what is known, %d do not", behind, alone)
	if behind < 50 || alone < 50 || mean < 0.995 {
		t.Errorf("%d choices draft behind what is known, %d do not; %.4f of the best rate on average", behind, alone, mean)
	}
}
