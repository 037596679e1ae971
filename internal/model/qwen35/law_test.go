package qwen35

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/state"
)

// The laws of exactness: the bits of a sequence's logits do not depend on how its tokens
// were cut into calls, on its neighbors, on drafts rolled back, on saving and loading, or
// on the number of threads.

// subject is a model to hold to the laws, and a text for it.
type subject struct {
	name   string
	dir    string
	o      model.Options
	tokens []int32
}

// subjects are both compute paths over dense, mixture-of-experts and trained quantized
// weights, keys and values of 8 bits, and weights with rotated inputs. The text crosses a page border for the small models.
func subjects(t *testing.T) []subject {
	var list []subject
	for _, name := range golden.Names {
		for _, c := range []backend.Compute{backend.Int8, backend.Float32} {
			if testing.Short() && (name == "tiny" || (name == "moe") != (c == backend.Int8)) {
				continue // one dense, one with experts, one of each path
			}
			f := golden.Load(t, name)
			o := model.Options{Compute: c, MaxDrafts: 8}
			if name != "tiny" && c == backend.Int8 {
				o.Quantize = 4 // the files are bf16, which has no integer products
			}
			n := 80
			if name == "tiny" {
				n = 24
			}
			last := f.Cases[len(f.Cases)-1]
			list = append(list, subject{fmt.Sprintf("%s/%v", name, c), golden.Dir(t, name), o, last.Tokens[:n]})
			if name == "moe" {
				o.KVBits = 8
				list = append(list, subject{fmt.Sprintf("%s/%v/kv=8", name, c), golden.Dir(t, name), o, last.Tokens[:n]})
			}
		}
	}
	if !testing.Short() {
		list = append(list, rotated(t))
	}
	return list
}

// decode feeds tokens in chunks of the given sizes, the last size repeating, and returns
// all logits.
func decode(t *testing.T, r *rig, s *state.State, tokens []int32, chunks ...int) [][]float32 {
	t.Helper()
	var all [][]float32
	for i := 0; len(tokens) > 0; i++ {
		n := min(chunks[min(i, len(chunks)-1)], len(tokens))
		logits, _ := r.feed(t, model.Span{State: s, Tokens: tokens[:n], Want: n})
		all = append(all, logits...)
		tokens = tokens[n:]
	}
	return all
}

// same fails the test where two lists of rows differ in any bit.
func same(t *testing.T, what string, got, want [][]float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d rows, want %d", what, len(got), len(want))
	}
	for i := range want {
		for j := range want[i] {
			if math.Float32bits(got[i][j]) != math.Float32bits(want[i][j]) {
				t.Fatalf("%s: row %d, logit %d: %v, want %v", what, i, j, got[i][j], want[i][j])
			}
		}
	}
}

func TestForwardChunkInvariance(t *testing.T) {
	for _, sub := range subjects(t) {
		t.Run(sub.name, func(t *testing.T) {
			r := open(t, sub.dir, 0, sub.o)
			want := decode(t, r, r.sequence(t), sub.tokens, 1)
			for _, chunk := range []int{7, 64, len(sub.tokens)} {
				got := decode(t, r, r.sequence(t), sub.tokens, chunk)
				same(t, fmt.Sprintf("chunks of %d", chunk), got, want)
			}
		})
	}
}

func TestForwardThreadInvariance(t *testing.T) {
	for _, sub := range subjects(t) {
		t.Run(sub.name, func(t *testing.T) {
			tokens := sub.tokens[:16]
			var want [][]float32
			for _, on := range []struct{ threads, procs int }{{1, 1}, {3, 2}, {2, 1}} {
				old := runtime.GOMAXPROCS(on.procs)
				r := open(t, sub.dir, on.threads, sub.o)
				got := decode(t, r, r.sequence(t), tokens, 16)
				runtime.GOMAXPROCS(old)
				if want == nil {
					want = got
				}
				same(t, fmt.Sprintf("%d threads on %d processors", on.threads, on.procs), got, want)
				if testing.Short() && on.threads == 3 {
					break
				}
			}
		})
	}
}

// TestForwardBatchInvariance feeds three sequences together, each cut at random, and
// compares with each alone.
func TestForwardBatchInvariance(t *testing.T) {
	for _, sub := range subjects(t) {
		t.Run(sub.name, func(t *testing.T) {
			r := open(t, sub.dir, 0, sub.o)
			rng := rand.New(rand.NewPCG(1, 2))
			texts := make([][]int32, 3)
			states := make([]*state.State, len(texts))
			want, got := make([][][]float32, len(texts)), make([][][]float32, len(texts))
			for i := range texts {
				texts[i] = slices.Clone(sub.tokens[:len(sub.tokens)/(i+2)])
				rng.Shuffle(len(texts[i]), func(a, b int) { texts[i][a], texts[i][b] = texts[i][b], texts[i][a] })
				want[i] = decode(t, r, r.sequence(t), texts[i], len(texts[i]))
				states[i] = r.sequence(t)
			}
			for {
				var batch []model.Span
				var who []int
				for i, s := range states {
					left := texts[i][s.Len():]
					if n := min(rng.IntN(6), len(left)); n > 0 {
						batch = append(batch, model.Span{State: s, Tokens: left[:n], Want: n})
						who = append(who, i)
					}
				}
				if len(batch) == 0 {
					if slices.Equal(lengths(states), textLengths(texts)) {
						break
					}
					continue
				}
				out, err := r.Forward(batch)
				if err != nil {
					t.Fatal(err)
				}
				rows := rowsOf(t, out)
				for j, i := range who {
					n := batch[j].Want
					got[i], rows = append(got[i], rows[:n]...), rows[n:]
				}
			}
			for i := range texts {
				same(t, fmt.Sprintf("sequence %d", i), got[i], want[i])
			}
		})
	}
}

func lengths(states []*state.State) []int {
	n := make([]int, len(states))
	for i, s := range states {
		n[i] = s.Len()
	}
	return n
}

func textLengths(texts [][]int32) []int {
	n := make([]int, len(texts))
	for i, s := range texts {
		n[i] = len(s)
	}
	return n
}

// TestStateCommitEqualsReplay feeds draft tokens, accepts some, and compares what follows with a
// sequence that never drafted. Wrong drafts are followed by others, several times over.
func TestStateCommitEqualsReplay(t *testing.T) {
	for _, sub := range subjects(t) {
		t.Run(sub.name, func(t *testing.T) {
			r := open(t, sub.dir, 0, sub.o)
			rng := rand.New(rand.NewPCG(3, 4))
			want := decode(t, r, r.sequence(t), sub.tokens, len(sub.tokens))
			s := r.sequence(t)
			got := decode(t, r, s, sub.tokens[:5], 5)
			for s.Len() < len(sub.tokens) {
				left := sub.tokens[s.Len():]
				accepted := min(rng.IntN(5), len(left)-1)
				tokens := slices.Clone(left[:1+accepted])
				for range rng.IntN(4) {
					tokens = append(tokens, int32(rng.IntN(r.Info().Vocab)))
				}
				rows, _ := r.feed(t, model.Span{State: s, Tokens: tokens, Drafts: len(tokens) - 1, Want: len(tokens)})
				s.Commit(accepted)
				got = append(got, rows[:1+accepted]...)
			}
			same(t, "with draft tokens", got, want)
		})
	}
}

func TestStateLoadEqualsNeverHavingStopped(t *testing.T) {
	for _, sub := range subjects(t) {
		t.Run(sub.name, func(t *testing.T) {
			r := open(t, sub.dir, 0, sub.o)
			n := len(sub.tokens)
			want := decode(t, r, r.sequence(t), sub.tokens, n)
			s := r.sequence(t)
			decode(t, r, s, sub.tokens[:n/2], n)
			// Save with accepted draft tokens that are not yet part of the delta matrices.
			r.feed(t, model.Span{State: s, Tokens: sub.tokens[n/2 : n/2+4], Drafts: 3})
			s.Commit(2)
			snap, err := s.Save()
			if err != nil {
				t.Fatal(err)
			}
			defer snap.Close()
			decode(t, r, s, sub.tokens[:3], 3) // goes on elsewhere
			other := r.sequence(t)
			if err := other.Load(snap); err != nil {
				t.Fatal(err)
			}
			at := n/2 + 3
			if other.Len() != at || snap.Len() != at {
				t.Fatalf("loaded %d tokens, want %d", other.Len(), at)
			}
			same(t, "after loading", decode(t, r, other, sub.tokens[at:], 5), want[at:])
		})
	}
}
