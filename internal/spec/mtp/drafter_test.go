package mtp_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
	_ "github.com/foretoken/foretoken/internal/model/qwen35"
	"github.com/foretoken/foretoken/internal/sampling"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/mtp"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/sample"
)

// rig is a model with a head, and memory for sequences.
type rig struct{ *modeltest.Rig }

// open loads a model of the golden files, on the float path and a device that draws.
func open(t *testing.T, name string) *rig {
	t.Helper()
	b := backendtest.Drawing(backendtest.Open(t, backend.Options{}))
	return &rig{modeltest.OpenOn(t, b, golden.Dir(t, name), model.Options{Compute: backend.Float32, MaxDrafts: 8})}
}

// hidden are the rows of a text.
func (r *rig) hidden(t *testing.T, text []int32) []float32 {
	t.Helper()
	_, hidden := r.Feed(t, model.Span{State: r.Sequence(t), Tokens: text})
	return hidden
}

// TestHeadStoresTruePairsOnly runs rounds with draft tokens of any depth, some of which are accepted,
// and compares the head's cache after each with one that is built from the text at once,
// bit for bit.
func TestHeadStoresTruePairsOnly(t *testing.T) {
	for _, name := range []string{"dense", "moe"} {
		t.Run(name, func(t *testing.T) {
			f := golden.Load(t, name)
			r := open(t, name)
			d := mtp.New(r.Head(), mtp.Options{Vocab: r.Info().Vocab})
			rng := rand.New(rand.NewPCG(5, 6))
			text := f.Cases[len(f.Cases)-1].Tokens[:100] // crosses a page
			hidden := r.hidden(t, text)
			width := r.Info().Width
			cache := r.Memory(t, d.Layout())
			var host any
			for at := 0; at < len(text)-10; {
				n := 1 + rng.IntN(7) // pairs that this round has confirmed
				s, err := sampling.New(sample.Options{Temperature: 0.7, Seed: uint64(at)}, nil)
				if err != nil {
					t.Fatal(err)
				}
				_, err = d.Draft([]spec.Run{{
					State: cache, HostState: &host, Text: text[:at+n+1], Depth: rng.IntN(9), Sampler: s,
					Hidden: r.Upload(t, hidden[at*width:(at+n)*width]),
				}})
				if err != nil {
					t.Fatal(err)
				}
				at += n
				if cache.Len() != at {
					t.Fatalf("%d pairs stored after %d", cache.Len(), at)
				}
				r.compareHeads(t, fmt.Sprintf("after %d pairs", at), cache, hidden[:at*width], text[1:at+1])
			}
		})
	}
}

// nothingAfter allows everything at first and, from a depth on, an id only that is not in
// the draft vocabulary.
type nothingAfter struct {
	ahead int
	id    int32
}

func (c nothingAfter) Accept(int32) {}

func (c nothingAfter) Allowed(ahead []int32) []uint64 {
	if len(ahead) < c.ahead {
		return nil
	}
	mask := make([]uint64, c.id/64+1)
	mask[c.id/64] = 1 << (c.id % 64)
	return mask
}

// unused is a token, one of the last, whose block the text does not use.
func (r *rig) unused(text []int32) int32 {
	off := int32(r.Info().Vocab) - 1
	for slices.ContainsFunc(text, func(id int32) bool { return id/backend.RowBlock == off/backend.RowBlock }) {
		off -= backend.RowBlock
	}
	return off
}

// TestHeadForgetsWhatItCouldNotDraw ends chains of draft tokens early: nothing in the
// draft vocabulary is allowed. The KV cache must be that of the true pairs all the same.
func TestHeadForgetsWhatItCouldNotDraw(t *testing.T) {
	f := golden.Load(t, "dense")
	r := open(t, "dense")
	d := mtp.New(r.Head(), mtp.Options{Vocab: r.Info().Vocab, DraftVocab: 32})
	text := f.Cases[len(f.Cases)-1].Tokens[:100]
	hidden := r.hidden(t, text)
	width := r.Info().Width
	off := r.unused(text)
	cache := r.Memory(t, d.Layout())
	var host any
	for at := 0; at < len(text)-10; {
		n := 1 + at%5
		last := at % 4 // draft tokens that can be drawn
		s, err := sampling.New(sample.Options{Temperature: 0.7, Seed: uint64(at), Constraint: func() sample.Constraint { return nothingAfter{last, off} }}, nil)
		if err != nil {
			t.Fatal(err)
		}
		drafts, err := d.Draft([]spec.Run{{
			State: cache, HostState: &host, Text: text[:at+n+1], Depth: 6, Sampler: s,
			Hidden: r.Upload(t, hidden[at*width:(at+n)*width]),
		}})
		if err != nil {
			t.Fatal(err)
		}
		if len(drafts[0].Tokens) != last {
			t.Fatalf("%d draft tokens, want %d", len(drafts[0].Tokens), last)
		}
		if at += n; cache.Len() != at {
			t.Fatalf("%d pairs stored after %d, when %d draft tokens could be drawn", cache.Len(), at, last)
		}
		r.compareHeads(t, fmt.Sprintf("after %d pairs", at), cache, hidden[:at*width], text[1:at+1])
	}
}

// compareHeads compares a KV cache of the head with one built from pairs at once.
func (r *rig) compareHeads(t *testing.T, what string, got *state.State, hidden []float32, next []int32) {
	t.Helper()
	fresh, err := r.Pool.Open(r.Head().Layout())
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	if _, err := r.Head().Forward([]model.Span{{State: fresh, Tokens: next, Want: len(next), Hidden: r.Upload(t, hidden)}}, nil); err != nil {
		t.Fatal(err)
	}
	a, b := got.Seq(0, 0, 0, nil).Pages, fresh.Seq(0, 0, 0, nil).Pages
	kind := r.Head().Layout().Layers[0].(state.KV)
	width := kind.Key * kind.Type.Size() // of a head's key or value
	x, y := make([]byte, width), make([]byte, width)
	for pos := range next {
		page, slot := pos/backend.PageTokens, pos%backend.PageTokens
		for at := slot * width; at < a[page].Cols; at += backend.PageTokens * width {
			for data, pages := range map[*[]byte][]backend.Tensor{&x: a, &y: b} {
				if err := r.B.ReadBytes(*data, pages[page].ColRange(at, at+width)); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(x, y) {
				t.Fatalf("%s: position %d, byte %d of its page: %v, want %v", what, pos, at, x, y)
			}
		}
	}
}

// TestDrafterDrawsTheLowestID allows nothing but token 0.
func TestDrafterDrawsTheLowestID(t *testing.T) {
	f := golden.Load(t, "dense")
	r := open(t, "dense")
	text := f.Cases[0].Tokens[:2]
	s, err := sampling.New(sample.Options{Constraint: func() sample.Constraint { return nothingAfter{0, 0} }}, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := mtp.New(r.Head(), mtp.Options{Vocab: r.Info().Vocab})
	drafts, err := d.Draft([]spec.Run{{
		State: r.Memory(t, d.Layout()), HostState: new(any), Text: text, Depth: 3, Sampler: s,
		Hidden: r.Upload(t, r.hidden(t, text[:1])),
	}})
	if err != nil {
		t.Fatal(err)
	}
	if want := []int32{0, 0, 0}; !slices.Equal(drafts[0].Tokens, want) {
		t.Errorf("draft tokens %v, want %v", drafts[0].Tokens, want)
	}
}

// TestDrafterLeavesAutoToChoose checks that sizes of the draft vocabulary are offered where the
// user has not named one.
func TestDrafterLeavesAutoToChoose(t *testing.T) {
	for want, n := range map[int]int{0: 2, 100: 0, -1: 0} {
		if sizes := mtp.New(nil, mtp.Options{Vocab: 2048, DraftVocab: want}).VocabSizes(); len(sizes) != n {
			t.Errorf("%d wanted: sizes %v, want %d", want, sizes, n)
		}
	}
}

// counted is a head that counts what it is called for.
type counted struct {
	model.Chainer
	forwards, chains int
}

func (c *counted) Forward(batch []model.Span, only []int32) (model.Output, error) {
	c.forwards++
	return c.Chainer.Forward(batch, only)
}

func (c *counted) Chain(batch []model.Span, only []int32, draws [][]backend.Draw) ([][]model.Drawn, bool, error) {
	c.chains++
	return c.Chainer.Chain(batch, only, draws)
}

// scripted is a head whose Chain has an answer.
type scripted struct {
	model.Head
	drawn [][]model.Drawn
	ok    bool
	err   error
}

func (s *scripted) Chain([]model.Span, []int32, [][]backend.Draw) ([][]model.Drawn, bool, error) {
	return s.drawn, s.ok, s.err
}

// TestDrafterHeedsChain has a device that draws, one that cannot, and one that fails.
func TestDrafterHeedsChain(t *testing.T) {
	f := golden.Load(t, "dense")
	r := open(t, "dense")
	text := f.Cases[0].Tokens[:2]
	hidden := r.hidden(t, text[:1])
	failure := errors.New("no such device")
	draft := func(h model.Head) (tokens [][]int32, err error) {
		d := mtp.New(h, mtp.Options{Vocab: r.Info().Vocab})
		var batch []spec.Run
		for range 2 {
			s, err := sampling.New(sample.Options{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			batch = append(batch, spec.Run{
				State: r.Memory(t, d.Layout()), HostState: new(any), Text: text, Depth: 3, Sampler: s, Hidden: r.Upload(t, hidden),
			})
		}
		out, err := d.Draft(batch)
		for _, x := range out {
			tokens = append(tokens, x.Tokens)
		}
		return tokens, err
	}
	plain, err := draft(struct{ model.Head }{r.Head()})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		head scripted
		want [][]int32
	}{
		"draws":  {scripted{drawn: [][]model.Drawn{{{ID: 0}, {ID: 5}}, {{ID: 7}, {ID: -1}}, {{ID: 2}, {ID: 9}}}, ok: true}, [][]int32{{0, 7, 2}, {5}}},
		"cannot": {scripted{}, plain},
		"fails":  {scripted{ok: true, err: failure}, nil},
	} {
		c.head.Head = r.Head()
		got, err := draft(&c.head)
		if !errors.Is(err, c.head.err) {
			t.Errorf("%s: error %v, want %v", name, err, c.head.err)
		}
		if err == nil && !slices.EqualFunc(got, c.want, slices.Equal) {
			t.Errorf("%s: draft tokens %v, want %v", name, got, c.want)
		}
	}
}

// TestChainedDraftsAreTheSame drafts for two sequences in one call of the device and token by
// token: the same draft tokens with about the same probabilities, and the same KV cache
// afterwards. Filters of a device are coarse, so that it may draw another token once in a while.
// What a device cannot draw is drafted token by token.
func TestChainedDraftsAreTheSame(t *testing.T) {
	f := golden.Load(t, "dense")
	r := open(t, "dense")
	text := f.Cases[len(f.Cases)-1].Tokens[:100]
	hidden, width := r.hidden(t, text), r.Info().Width
	first := [2]int32{0, r.unused(text)} // one text has a rare token of its own
	for name, c := range map[string]struct {
		options sample.Options
		depths  [2]int
		vocab   int
		dists   bool
		chained bool
	}{
		"greedy":             {sample.Options{}, [2]int{4, 4}, -1, false, true},
		"temperature":        {sample.Options{Temperature: 0.9}, [2]int{3, 3}, -1, false, true},
		"two tokens":         {sample.Options{}, [2]int{2, 2}, -1, false, true},
		"top-k":              {sample.Options{Temperature: 0.9, TopK: 5}, [2]int{3, 3}, -1, false, true},
		"top-p":              {sample.Options{Temperature: 0.9, TopP: 0.8}, [2]int{3, 3}, -1, false, true},
		"min-p":              {sample.Options{Temperature: 0.9, MinP: 0.3}, [2]int{3, 3}, -1, false, true},
		"penalty":            {sample.Options{PresencePenalty: 1}, [2]int{3, 3}, -1, false, false},
		"one token":          {sample.Options{}, [2]int{1, 1}, -1, false, true},
		"unequal depths":     {sample.Options{Temperature: 0.6}, [2]int{2, 4}, -1, false, true},
		"one catches up":     {sample.Options{Temperature: 2}, [2]int{4, 0}, -1, false, true},
		"distributions":      {sample.Options{Temperature: 0.9}, [2]int{3, 3}, 32, true, false},
		"draft vocabulary":   {sample.Options{Temperature: 0.9}, [2]int{0, 3}, 32, false, true},
		"draft vocabularies": {sample.Options{Temperature: 0.9}, [2]int{3, 3}, 32, false, true},
	} {
		head := &counted{Chainer: r.Head().(model.Chainer)}
		one := struct{ model.Head }{head.Chainer} // can be called, and no more
		var drafts [2][]spec.Draft
		for way, h := range []model.Head{head, one} {
			d := mtp.New(h, mtp.Options{Vocab: r.Info().Vocab, DraftVocab: c.vocab})
			caches := [2]*state.State{r.Memory(t, d.Layout()), r.Memory(t, d.Layout())}
			for at := 0; at < 80; at += 5 {
				var batch []spec.Run
				for i, cache := range caches {
					o := c.options
					o.Seed = uint64(at + i)
					s, err := sampling.New(o, nil)
					if err != nil {
						t.Fatal(err)
					}
					batch = append(batch, spec.Run{
						State: cache, HostState: new(any), Text: append([]int32{first[i]}, text[:at+6]...), Depth: c.depths[i],
						Sampler: s, Dists: c.dists, Hidden: r.Upload(t, hidden[at*width:(at+5)*width]),
					})
				}
				out, err := d.Draft(batch)
				if err != nil {
					t.Fatal(err)
				}
				for i := range out {
					if len(out[i].Tokens) != c.depths[i] {
						t.Fatalf("%s: %d draft tokens, want %d", name, len(out[i].Tokens), c.depths[i])
					}
					if c.dists && len(out[i].Dists) != c.depths[i] {
						t.Fatalf("%s: %d distributions, want %d", name, len(out[i].Dists), c.depths[i])
					}
					drafts[way] = append(drafts[way], spec.Draft{Tokens: slices.Clone(out[i].Tokens), Probs: slices.Clone(out[i].Probs)})
				}
			}
			r.compareHeads(t, name, caches[0], hidden[:80*width], text[1:81])
		}
		others, factor := 0, float32(1.06)
		coarse := c.options.TopK > 0 || c.options.TopP > 0 || c.options.MinP > 0
		if coarse {
			factor = 1.5 // an id more or less
		}
		for i, a := range drafts[0] {
			b := drafts[1][i]
			for k, id := range a.Tokens {
				if id != b.Tokens[k] {
					others++
					break
				}
				if p, q := a.Probs[k], b.Probs[k]; !(p > 0 && p <= 1 && q > 0 && q <= 1 && p < factor*q && q < factor*p) {
					t.Errorf("%s: token %d of draft %d has probability %v, token by token %v", name, k, i, p, q)
				}
			}
		}
		if others > 0 && !coarse || others > 3 {
			t.Errorf("%s: %d drafts of %d are others: %v, token by token %v", name, others, len(drafts[0]), drafts[0], drafts[1])
		}
		if (head.chains > 0) != c.chained {
			t.Errorf("%s: %d calls for whole drafts, and %d others", name, head.chains, head.forwards)
		}
	}
}

// TestDrafterAsksForMore ends each draft where More reports false, and asks with what was drafted
// so far. Runs that have ended are no part of further passes.
func TestDrafterAsksForMore(t *testing.T) {
	f := golden.Load(t, "dense")
	r := open(t, "dense")
	text := f.Cases[0].Tokens[:2]
	hidden := r.hidden(t, text[:1])
	rows := &spansOf{Head: r.Head()}
	d := mtp.New(rows, mtp.Options{Vocab: r.Info().Vocab})
	draft := func(lengths ...int) (drafts []spec.Draft) {
		var batch []spec.Run
		for i, n := range lengths {
			s, err := sampling.New(sample.Options{Temperature: 0.7, Seed: uint64(i)}, nil)
			if err != nil {
				t.Fatal(err)
			}
			run := spec.Run{State: r.Memory(t, d.Layout()), HostState: new(any), Text: text, Depth: 5, Sampler: s, Hidden: r.Upload(t, hidden)}
			if n > 0 {
				asked := 0
				run.More = func(probs []float32) bool {
					if asked++; len(probs) != asked {
						t.Errorf("run %d: asked with %d probabilities the %dth time", i, len(probs), asked)
					}
					return asked < n
				}
			}
			batch = append(batch, run)
		}
		out, err := d.Draft(batch)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range out {
			drafts = append(drafts, spec.Draft{Tokens: slices.Clone(x.Tokens), Probs: slices.Clone(x.Probs)})
		}
		return drafts
	}
	all := draft(0, 0, 0)
	rows.calls = nil
	lengths := []int{2, 5, 1}
	for i, x := range draft(lengths...) {
		if n := lengths[i]; !slices.Equal(x.Tokens, all[i].Tokens[:n]) || !slices.Equal(x.Probs, all[i].Probs[:n]) {
			t.Errorf("run %d: %v, want %d tokens of %v", i, x, n, all[i])
		}
	}
	if want := []int{3, 2, 1, 1, 1}; !slices.Equal(rows.calls, want) {
		t.Errorf("calls of %v spans, want %v", rows.calls, want)
	}
}

// spansOf is a head that notes the number of spans of its calls.
type spansOf struct {
	model.Head
	calls []int
}

func (s *spansOf) Forward(batch []model.Span, only []int32) (model.Output, error) {
	s.calls = append(s.calls, len(batch))
	return s.Head.Forward(batch, only)
}
