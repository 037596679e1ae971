package drafter_test

import (
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/sampling"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/sample"
)

// sequence is a text whose drafter has taken in some rows.
type sequence struct {
	text  []int32
	taps  backend.Tensor
	cache *state.State
	host  any
	at    int // rows taken in
}

// start makes a sequence of a text.
func (r *rig) start(tb testing.TB, d spec.Drafter, text []int32) *sequence {
	tb.Helper()
	return &sequence{text: text, taps: r.taps(tb, text, len(text)), cache: r.Memory(tb, d.Layout())}
}

// run is the round that drafts behind the first n tokens.
func (s *sequence) run(tb testing.TB, n, depth int, o sample.Options) spec.Run {
	tb.Helper()
	o.Seed = uint64(n)
	sampler, err := sampling.New(o, nil)
	if err != nil {
		tb.Fatal(err)
	}
	r := spec.Run{State: s.cache, HostState: &s.host, Text: s.text[:n], Hidden: s.taps.RowRange(s.at, n-1), Depth: depth, Sampler: sampler}
	s.at = n - 1
	return r
}

// draft drafts for some runs and returns copies.
func draft(tb testing.TB, d spec.Drafter, runs ...spec.Run) []spec.Draft {
	tb.Helper()
	out, err := d.Draft(runs)
	if err != nil {
		tb.Fatal(err)
	}
	list := slices.Clone(out)
	for i := range list {
		list[i].Tokens, list[i].Probs = slices.Clone(out[i].Tokens), slices.Clone(out[i].Probs)
	}
	return list
}

// texts are two texts that cross a page.
func texts(tb testing.TB) [][]int32 {
	tb.Helper()
	var list [][]int32
	for _, c := range golden.Load(tb, "dense").Cases {
		if len(c.Tokens) > 80 {
			list = append(list, c.Tokens[:80], slices.Concat(c.Tokens[40:80], c.Tokens[:40]))
		}
	}
	return list[:2]
}

// TestDraftsAreAFunctionOfTheText compares drafts of a sequence that takes in its text at once with those of one that takes it in
// piece by piece, drafts meanwhile, is in a batch with another of another depth, and is computed by several
// threads and by the fastest code of the machine instead of portable code.
func TestDraftsAreAFunctionOfTheText(t *testing.T) {
	text := texts(t)
	o := sample.Options{Temperature: 0.8, TopP: 0.9}
	for _, f := range golden.Drafters(t, "") {
		t.Run(f.Name, func(t *testing.T) {
			want := map[int]spec.Draft{}
			places := []int{2, 3, 9, 30, 63, 64, 65, 70, 79}
			one := open(t, "dense", f.Dir, backend.Options{Threads: 1, ISA: "generic"})
			d := one.drafts(-1)
			many := open(t, "dense", f.Dir, backend.Options{Threads: 3})
			fast := many.taps(t, text[0], len(text[0])) // the model's bits are the same on all instruction sets
			taps, err := one.B.Alloc(dtype.F32, fast.Rows, fast.Cols)
			if err != nil {
				t.Fatal(err)
			}
			if err := one.B.Write(taps, many.Host(t, fast)); err != nil {
				t.Fatal(err)
			}
			depths := func(i int) int { return 1 + 3*(i%((f.Drafts+2)/3)) }
			for i, n := range places {
				s := &sequence{text: text[0], taps: taps, cache: one.Memory(t, d.Layout())}
				want[n] = draft(t, d, s.run(t, n, depths(i), o))[0]
			}
			d = many.drafts(-1)
			s, other := many.start(t, d, text[0]), many.start(t, d, text[1])
			for i, n := range places {
				depth := depths(i)
				if step := s.at + (n-1-s.at)/2; step > s.at { // catch up with a part first
					draft(t, d, s.run(t, step+1, i%2, o))
				}
				runs := []spec.Run{other.run(t, n, 1+i%f.Drafts, o), s.run(t, n, depth, o)}
				if got, want := draft(t, d, runs...)[1], want[n]; !slices.Equal(got.Tokens, want.Tokens) || !slices.Equal(got.Probs, want.Probs) {
					t.Errorf("behind %d tokens, depth %d: %v with %v, want %v with %v", n, depth, got.Tokens, got.Probs, want.Tokens, want.Probs)
				}
			}
		})
	}
}

// TestDeviceDrawsTheTokensOfTheHost compares drafts that a device draws with those that the host draws from the same logits, for two
// texts of different depths, with all tokens and with a draft vocabulary.
func TestDeviceDrawsTheTokensOfTheHost(t *testing.T) {
	text := texts(t)
	for _, f := range golden.Drafters(t, "") {
		t.Run(f.Name, func(t *testing.T) {
			device := open(t, "dense", f.Dir, backend.Options{})
			host := openOn(t, "dense", golden.Open(t, f.Dir), silent{backendtest.Open(t, backend.Options{})}, model.Options{Compute: backend.Float32})
			for _, vocab := range []int{-1, 64} {
				var got [2][]spec.Draft
				for i, r := range []*rig{device, host} {
					d := r.drafts(vocab)
					first, second := r.start(t, d, text[0]), r.start(t, d, text[1])
					for n, o := range []sample.Options{{}, {Temperature: 0.9}, {Temperature: 2}} {
						n = 20 + 20*n
						got[i] = append(got[i], draft(t, d, first.run(t, n, 1+n%f.Drafts, o), second.run(t, n+5, f.Drafts, o))...)
					}
				}
				for i, x := range got[0] {
					if want := got[1][i]; !slices.Equal(x.Tokens, want.Tokens) || len(x.Tokens) == 0 || x.Vocab != want.Vocab {
						t.Errorf("vocabulary %d, draft %d: %v of %d, want %v of %d", vocab, i, x.Tokens, x.Vocab, want.Tokens, want.Vocab)
					}
					for j, p := range x.Probs {
						// With a draft vocabulary the host's sum has tokens of the other text.
						if want := got[1][i].Probs[j]; vocab < 0 && !(p-want < 1e-3 && want-p < 1e-3) {
							t.Errorf("vocabulary %d, draft %d: token %d has probability %v, want %v", vocab, i, j, p, want)
						}
					}
				}
			}
		})
	}
}

// silent is a device that cannot draw.
type silent struct{ backend.Backend }

// TestDraftsHaveDistributions asks for the distributions that tokens were drawn from.
func TestDraftsHaveDistributions(t *testing.T) {
	text := texts(t)
	for _, f := range golden.Drafters(t, "") {
		r := open(t, "dense", f.Dir, backend.Options{})
		d := r.drafts(-1)
		run := r.start(t, d, text[0]).run(t, 50, f.Drafts, sample.Options{Temperature: 1})
		run.Dists = true
		out := draft(t, d, run)[0]
		if len(out.Tokens) != f.Drafts || len(out.Dists) != f.Drafts {
			t.Fatalf("%s: %d tokens with %d distributions, want %d", f.Name, len(out.Tokens), len(out.Dists), f.Drafts)
		}
		for i, id := range out.Tokens {
			if p := out.Dists[i].Prob(id); !(p > 0 && p <= 1) {
				t.Errorf("%s: token %d has probability %v", f.Name, id, p)
			}
		}
	}
}

// TestDraftVocabularyIsKept drafts from a few tokens: those of the text and the first ones. A drafter with a vocabulary of its own has
// that.
func TestDraftVocabularyIsKept(t *testing.T) {
	text := texts(t)
	for _, f := range golden.Drafters(t, "") {
		r := open(t, "dense", f.Dir, backend.Options{})
		d := r.drafts(32)
		a, b := r.start(t, d, text[0][:40]), r.start(t, d, text[1][:40])
		allowed := map[int32]bool{}
		for _, id := range a.text[:20] {
			allowed[id/backend.RowBlock] = true
		}
		own := map[int32]bool{}
		for _, id := range r.d.Tokens {
			own[id] = true
		}
		runs := []spec.Run{a.run(t, 20, f.Drafts, sample.Options{Temperature: 2}), b.run(t, 40, f.Drafts, sample.Options{Temperature: 2})}
		for _, id := range draft(t, d, runs...)[0].Tokens {
			if r.d.Tokens != nil && !own[id] || r.d.Tokens == nil && id >= 32 && !allowed[id/backend.RowBlock] {
				t.Errorf("%s: token %d is drafted", f.Name, id)
			}
		}
	}
}

// TestRowsHaveTheirPositions has drafters that were not fed the first rows of a text. The rotation is relative, so drafts are the
// same if all positions, those of drafts included, are moved together.
func TestRowsHaveTheirPositions(t *testing.T) {
	text := texts(t)[0]
	const first, n = 20, 50
	for _, f := range golden.Drafters(t, "") {
		r := open(t, "dense", f.Dir, backend.Options{})
		d := r.drafts(-1)
		var drafts [2][]int32
		for moved := range drafts {
			s := r.start(t, d, text)
			s.at = first
			run := s.run(t, n, f.Drafts, sample.Options{})
			for i := range (n - 1 - first) * moved {
				p := int32(first + i)
				run.Positions = append(run.Positions, [3]int32{p, p, p})
			}
			drafts[moved] = draft(t, d, run)[0].Tokens
			if s.cache.Next() != n-1-first*(1-moved) {
				t.Errorf("%s: the text goes on at %d", f.Name, s.cache.Next())
			}
		}
		if !slices.Equal(drafts[0], drafts[1]) || len(drafts[0]) != f.Drafts {
			t.Errorf("%s: drafts %v at their positions, want %v", f.Name, drafts[1], drafts[0])
		}
	}
}
