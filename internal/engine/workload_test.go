package engine

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/foretoken/foretoken/grammar"
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/ngram"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/sample"
)

// piece is a request with its expected answer.
type piece struct {
	Request
	ids    []int32
	hashes []uint64 // after each token
}

// repertoire is requests of all kinds, with answers that were computed one by one, without drafts and cache and with enough
// memory. Many have a common prefix, some of them with an image in it.
func repertoire(t *testing.T, m *headed, b *embedding, n int) []piece {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, 4))
	vocab := int32(m.Info().Vocab)
	text := func(n int) []int32 {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = rng.Int32N(vocab)
		}
		return ids
	}
	prefixes := [][]int32{nil, text(70), text(130), text(200)}
	e, err := New(m, state.NewPool(b, 1<<30), Options{Tower: b})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	options, grammars := samplings(), constraints(t, int(vocab), m.Info().Stop)
	var list []piece
	for i := range n {
		r := Request{
			Prompt:    slices.Concat(prefixes[rng.IntN(len(prefixes))], text(1+rng.IntN(40))),
			MaxTokens: 1 + rng.IntN(24), Sampling: options[rng.IntN(len(options))], Hash: true,
			IgnoreEnd: i%3 > 0,
		}
		r.Boundaries = []int{70, len(r.Prompt) - 1}
		if i%4 == 0 {
			r.Sampling.Constraint, r.IgnoreEnd = grammars[i/4%len(grammars)], false
		}
		if i%3 == 2 { // the first is ids: where the rows of images come from
			r = illustrated(b, r, i)
		}
		p := piece{Request: r}
		r.NoForced = true
		p.ids, p.hashes = said(t, e, r)
		list = append(list, p)
	}
	return list
}

// illustrated makes parts of a prompt images: one in what prompts have in common, two of equal
// size in one place, and one at the end.
func illustrated(b *embedding, r Request, i int) Request {
	n := len(r.Prompt)
	if n > 70 {
		r.Prompt = slices.Clone(r.Prompt)
		r.Prompt[20] = int32(i & 1) // which image it is
		r = b.asImage(r, 20, 30, 6)
	}
	if n > 110 {
		r = b.asImage(r, 65, 40, 0)
	}
	if i%2 == 0 {
		r = b.asImage(r, n-1, 1, 1)
	}
	return r
}

// until is the first n tokens of a prompt, with the images in them.
func (p *piece) until(n int) (ids []int32, inputs []Input) {
	for _, in := range p.Inputs {
		if in.At >= n {
			break
		}
		if in.N = min(in.N, n-in.At); in.Positions != nil {
			in.Positions = in.Positions[:in.N]
		}
		inputs = append(inputs, in)
	}
	return p.Prompt[:n], inputs
}

// constraints are grammars for answers, for a vocabulary in which the ids after the
// first stand for bytes and those beyond them for two letters.
func constraints(t *testing.T, vocab int, end []int32) (list []func() sample.Constraint) {
	t.Helper()
	tokens := make([]string, vocab)
	for id := range tokens {
		if tokens[id] = string([]byte{byte(id - 1)}); id > 256 {
			tokens[id] = string([]byte{'a' + byte(id%26), 'a' + byte(id/26%26)})
		}
	}
	v, err := grammar.NewVocab(tokens, end)
	if err != nil {
		t.Fatal(err)
	}
	v.SetEncoder(func(text string, _ bool) []int32 { return []int32{int32(text[0]) + 1} })
	for _, source := range []grammar.Source{
		grammar.Regexp(`[a-z]{4,30}(, [a-z]+)*`), grammar.JSON(), grammar.Choice("yes, indeed", "no, never", "perhaps"),
	} {
		g, err := grammar.Compile(source, v)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, func() sample.Constraint { return g.Matcher() })
	}
	return list
}

// check compares the answer of a piece with the expected one, as far as it went.
func (p *piece) check(ids []int32, hashes []uint64, whole bool) error {
	if whole && len(ids) != len(p.ids) {
		return fmt.Errorf("%d tokens, want %d", len(ids), len(p.ids))
	}
	for i := range ids {
		if i >= len(p.ids) || ids[i] != p.ids[i] || hashes[i] != p.hashes[i] {
			return fmt.Errorf("token %d is %d with hash %x, want %v", i, ids[i], hashes[i], p.ids)
		}
	}
	return nil
}

// workload is a random choice of pieces, of their start and end, and of the options of the engine.
type workload struct {
	options  Options
	budget   int64
	pieces   []piece
	after    []int      // tokens of all pieces together before a piece comes
	cancel   []int      // tokens after which it is canceled; -1: never
	prefills []*Prefill // what is prefilled in the background before it comes, if there is time; nil: nothing
	await    []bool     // and there is
	drafting string
}

func (w *workload) String() string {
	o := w.options
	return fmt.Sprintf("%d requests, %d tokens a round, batch of %d, cache %v, %d bytes, %s", len(w.pieces), o.RoundTokens, o.MaxBatch, o.Cache, w.budget, w.drafting)
}

// newWorkload draws one. need is the memory of the largest piece.
func newWorkload(rng *rand.Rand, m *headed, b *embedding, from []piece, need int64) *workload {
	lookup, _ := ngram.New(ngram.Options{})
	drafters := map[string]spec.Drafter{
		"head": m.Drafter(), "lookup": lookup, "both": spec.Auto(m.Drafter(), lookup), "none": nil,
	}
	w := &workload{drafting: []string{"head", "head", "lookup", "both", "none"}[rng.IntN(5)]}
	w.options = Options{
		RoundTokens: []int{1, 7, 40, 512}[rng.IntN(4)], MaxBatch: 1 + rng.IntN(16), Cache: rng.IntN(2) == 0,
		MaxRound: time.Duration(rng.IntN(2)) * time.Millisecond,
		Drafter:  drafters[w.drafting], Tower: b, TowerMemory: rng.Int64N(2),
	}
	w.budget = need * int64(100+rng.IntN(3)*rng.IntN(400)) / 100
	for range 1 + rng.IntN(16) {
		p := from[rng.IntN(len(from))]
		p.Depth = spec.Depth(rng.IntN(spec.MaxDepth+2) - 1)
		p.Priority, p.Offline = rng.IntN(3), rng.IntN(2) == 0
		p.Salt = prefix.Salt{byte(rng.IntN(2))}
		p.Conversation = []string{"", "0", "1"}[rng.IntN(3)]
		w.pieces = append(w.pieces, p)
		w.after = append(w.after, rng.IntN(60))
		cancel := -1
		if rng.IntN(5) == 0 {
			cancel = rng.IntN(10)
		}
		w.cancel = append(w.cancel, cancel)
		var prefill *Prefill
		if rng.IntN(3) == 0 {
			of := from[rng.IntN(len(from))]
			if rng.IntN(2) == 0 {
				of = p
			}
			ids, inputs := of.until(1 + rng.IntN(len(of.Prompt)))
			prefill = &Prefill{
				Conversation: fmt.Sprint(rng.IntN(3)), Prompt: ids, Inputs: inputs,
				Boundaries: []int{70}, Depth: spec.FixedDepth(rng.IntN(2)),
			}
		}
		w.prefills, w.await = append(w.prefills, prefill), append(w.await, rng.IntN(2) == 0)
	}
	w.after[0] = 0
	return w
}

// run runs a workload. A piece starts when the others have generated a number of tokens, or have all ended.
func (w *workload) run(t *testing.T, e *Engine) {
	var mu sync.Mutex // protects what follows
	said, active, next := 0, 0, sync.NewCond(&mu)
	step := func(tokens, pieces int) {
		mu.Lock()
		said, active = said+tokens, active+pieces
		mu.Unlock()
		next.Broadcast()
	}
	var all sync.WaitGroup
	for i := range w.pieces {
		mu.Lock()
		for said < w.after[i] && active > 0 {
			next.Wait()
		}
		active++
		mu.Unlock()
		if p := w.prefills[i]; p != nil {
			done, err := e.Prefill(*p)
			if err != nil {
				t.Errorf("%v: in advance %d: %v", w, i, err)
			} else if w.await[i] {
				<-done
			}
		}
		all.Go(func() {
			defer step(0, -1)
			p := &w.pieces[i]
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if w.cancel[i] == 0 {
				cancel()
			}
			s, err := e.Generate(ctx, p.Request)
			if err != nil {
				t.Errorf("%v: request %d: %v", w, i, err)
				return
			}
			var ids []int32
			var hashes []uint64
			for token, err := range s.Tokens() {
				if err != nil {
					if w.cancel[i] < 0 {
						t.Errorf("%v: request %d: %v", w, i, err)
					}
					break
				}
				ids, hashes = append(ids, token.ID), append(hashes, token.Hash)
				step(1, 0)
				if len(ids) == w.cancel[i] {
					cancel()
				}
			}
			if err := p.check(ids, hashes, s.Result().Finish != ""); err != nil {
				t.Errorf("%v: request %d: %v", w, i, err)
			}
		})
	}
	all.Wait()
}

// TestWorkloadsChangeNothing is the invariant of exactness for a whole engine: in any batch, with any
// limits, with a cache or without, with memory taken away and given back, every request
// gives the tokens and the bits of logits that it gives alone and without drafts.
func TestWorkloadsChangeNothing(t *testing.T) {
	for _, name := range []string{"dense", "moe"} {
		t.Run(name, func(t *testing.T) {
			m, b := openEmbedding(t, name, backend.Options{}, false)
			workloadsChangeNothing(t, m, b, 12, func(int, *workload) {})
		})
	}
}

// workloadsChangeNothing runs some workloads, which change may change.
func workloadsChangeNothing(t *testing.T, m *headed, b *embedding, workloads int, change func(i int, w *workload)) {
	kinds := 40
	switch {
	case brief(t):
		workloads, kinds = 3, 12
	case long:
		workloads = 400
	}
	pieces := repertoire(t, m, b, kinds)
	before := runtime.NumGoroutine()
	probe := &Engine{model: m, o: Options{Drafter: m.Drafter()}}
	need := probe.bytes(200 + 40 + 24 + spec.MaxDepth)
	preempted, hits, prefill, kept := int64(0), int64(0), int64(0), int64(0)
	for i := range workloads {
		w := newWorkload(rand.New(rand.NewPCG(uint64(i), 7)), m, b, pieces, need)
		change(i, w)
		tight, log := state.NewPool(b, w.budget), newJournal("")
		w.options.Log = slog.New(log)
		e, err := New(m, tight, w.options)
		if err != nil {
			t.Fatal(err)
		}
		w.run(t, e)
		preempted += e.Stats().Preemptions
		hits += e.Stats().CachedTokens
		prefill += e.Stats().Background.Tokens
		kept += e.Stats().Tower.Cached
		e.Close()
		if _, alive, open := b.counts(); alive+open > 0 {
			t.Errorf("%v: left behind rows of %d images, %d passes", w, alive, open)
		}
		if s := tight.Stats(); s.Used != 0 || s.Pages != 0 || s.States != 0 {
			t.Errorf("%v: left behind %+v", w, s)
		}
		if log.text.Len() > 0 {
			t.Errorf("%v: %s", w, log.text)
		}
		if t.Failed() {
			return
		}
	}
	awaitGoroutines(t, before)
	t.Logf("%d workloads, %d preemptions, %d tokens from the cache, %d prefilled in the background, rows of %d images were there", workloads, preempted, hits, prefill, kept)
}

// TestCrowdChangesNothing has all kinds of requests meet in one round, with memory for two
// or three of them. In workloads, preemptions and cache hits are random; here they are certain.
func TestCrowdChangesNothing(t *testing.T) {
	m, b := openEmbedding(t, "dense", backend.Options{}, false)
	pieces := repertoire(t, m, b, 16)
	slices.SortFunc(pieces, func(a, b piece) int { return len(a.Prompt) - len(b.Prompt) })
	requests := make([]Request, len(pieces))
	for i := range pieces {
		requests[i] = pieces[i].Request
		requests[i].Depth = spec.Depth(i%(spec.MaxDepth+2) - 1)
	}
	probe := &Engine{model: m, o: Options{Drafter: m.Drafter()}}
	pool := state.NewPool(b, probe.bytes(200+40+24+spec.MaxDepth)*9/4)
	gate := &gated{m, make(chan int32), make(chan struct{})}
	e, err := New(gate, pool, Options{Drafter: m.Drafter(), Cache: true, RoundTokens: 48, Log: quiet, Tower: b})
	if err != nil {
		t.Fatal(err)
	}
	check := func(i int, s *Stream) {
		var ids []int32
		var hashes []uint64
		for token, err := range s.Tokens() {
			if err != nil {
				t.Errorf("request %d: %v", i, err)
			}
			ids, hashes = append(ids, token.ID), append(hashes, token.Hash)
		}
		if err := pieces[i].check(ids, hashes, true); err != nil {
			t.Errorf("request %d: %v", i, err)
		}
	}
	together(t, e, gate, requests, check)
	again := len(requests) / 2 // of a length that leaves memory for the cache
	for range 2 {
		together(t, e, gate, requests[again:again+1], func(_ int, s *Stream) { check(again, s) })
	}
	x := e.Stats()
	e.Close()
	t.Logf("%d preemptions, %d tokens from the cache", x.Preemptions, x.CachedTokens)
	if x.Preemptions == 0 || x.CachedTokens == 0 {
		t.Errorf("%d preemptions, %d tokens from the cache", x.Preemptions, x.CachedTokens)
	}
	if s := pool.Stats(); s.Used != 0 || s.Pages != 0 || s.States != 0 {
		t.Errorf("left behind %+v", s)
	}
}
