package engine

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/ngram"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/sample"
)

// embedding is a device that remembers the table that a model embeds tokens with.
type embedding struct {
	backend.Backend
	table backend.Weight

	mu           sync.Mutex // protects what follows
	made, closed int        // inputs
}

func (e *embedding) Embed(dst backend.Tensor, table backend.Weight, ids []int32) {
	e.table = table
	e.Backend.Embed(dst, table, ids)
}

// openEmbedding loads a model on such a device.
func openEmbedding(t *testing.T, name string, opaque bool) (*headed, *embedding) {
	t.Helper()
	c, err := checkpoint.Open(golden.Dir(t, name))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // read only
	b := backendtest.Open(t, backend.Options{Threads: 1})
	if opaque {
		b = backendtest.NewOpaque(b)
	}
	e := &embedding{Backend: b}
	m, err := model.Open(c, e, model.Options{Quantize: 8, MaxDrafts: spec.MaxDepth, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	return &headed{Model: m}, e
}

// counts are how many inputs were made, and done with.
func (e *embedding) counts() (made, closed int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.made, e.closed
}

// disguised makes the ids of a prompt at [at, at+n) an input: rows that are what the ids are
// embedded as. With cols, they are a picture of that many columns.
func (e *embedding) disguised(r Request, at, n int, cols int32) Request {
	ids := slices.Clone(r.Prompt[at : at+n])
	in := Input{Input: prefix.Input{At: at, N: n, Hash: sha256.Sum256(fmt.Append(nil, ids))}, Rows: func() (backend.Tensor, func(), error) {
		x, err := e.Alloc(dtype.F32, n, e.table.Cols())
		if err == nil {
			e.Backend.Embed(x, e.table, ids)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.made++
		return x, func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.closed++
			e.Free(x)
		}, err
	}}
	for i := range int32(n) {
		if cols > 0 {
			in.Positions = append(in.Positions, [3]int32{0, i / cols, i % cols})
		}
	}
	r.Prompt, r.Inputs = slices.Clone(r.Prompt), append(slices.Clip(r.Inputs), in)
	for i := range n {
		r.Prompt[at+i] = model.NoToken
	}
	return r
}

// gallery is requests of texts with inputs in them, and what must come of each. Those of the first
// kind are texts of ids in disguise; those of the second have pictures, whose positions are no
// text's. Many begin alike.
func gallery(t *testing.T, m *headed, b *embedding, n int) (list []piece) {
	t.Helper()
	rng := rand.New(rand.NewPCG(14, 6))
	plain, err := New(m, state.NewPool(b, 1<<30), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	text := prompt(240, 3)
	for i := range n {
		r := Request{
			Prompt: slices.Concat(text[:50+60*(i%3)], prompt(30, 10+i)), MaxTokens: 6 + rng.IntN(8), Hash: true, IgnoreEnd: true,
			Sampling: sample.Options{Temperature: []float64{0, 0.7}[i%2], Seed: uint64(i)}, Boundaries: []int{21, 40},
		}
		n := len(r.Prompt)
		dressed, cols := r, int32(0)
		if i%4 == 3 {
			cols = 5
		}
		dressed = b.disguised(dressed, 20, 25, cols)
		if n > 120 {
			dressed = b.disguised(dressed, 45, 1, 0)
			dressed = b.disguised(dressed, 60, 50, cols)
		}
		switch i % 4 {
		case 0:
			dressed = b.disguised(dressed, n-3, 3, 0) // to the end
		case 1:
			dressed.Inputs[0].Positions = nil // said to be text
			for i := range int32(25) {
				dressed.Inputs[0].Positions = append(dressed.Inputs[0].Positions, [3]int32{i, i, i})
			}
		case 2:
			dressed = Request{
				Prompt: slices.Clone(r.Prompt), MaxTokens: r.MaxTokens, Hash: true, IgnoreEnd: true, Sampling: r.Sampling,
			}
			dressed = b.disguised(dressed, 0, 19, 0)
		}
		if cols > 0 {
			r = dressed
		}
		p := piece{Request: dressed}
		p.ids, p.hashes = said(t, plain, r)
		list = append(list, p)
	}
	return list
}

// said is the tokens of an answer, with the hash after each.
func said(t *testing.T, e *Engine, r Request) (ids []int32, hashes []uint64) {
	t.Helper()
	s, err := e.Generate(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for token, err := range s.Tokens() {
		if err != nil {
			t.Fatal(err)
		}
		ids, hashes = append(ids, token.ID), append(hashes, token.Hash)
	}
	return ids, hashes
}

// TestInputsChangeNothing gives engines texts in disguise, and pictures: whatever the drafter, the
// size of rounds and the want of memory, from the cache and from disk, every request gives the
// tokens and the bits that it gives as ids, or alone.
func TestInputsChangeNothing(t *testing.T) {
	for _, on := range []struct {
		name   string
		opaque bool
	}{{"dense", false}, {"moe", true}} {
		few := brief(t)
		if few && !on.opaque {
			continue
		}
		t.Run(on.name, func(t *testing.T) {
			m, b := openEmbedding(t, on.name, on.opaque)
			count := 12
			if few {
				count = 5
			}
			pieces := gallery(t, m, b, count)
			lookup, err := ngram.New(ngram.Options{})
			if err != nil {
				t.Fatal(err)
			}
			probe := &Engine{model: m, o: Options{Drafter: m.Drafter()}}
			ample, tight := int64(1<<30), probe.bytes(250)*2
			preempted, hits, read := int64(0), int64(0), int64(0)
			for i, c := range []struct {
				drafter spec.Drafter
				round   int
				cache   bool
				budget  int64
			}{
				{nil, 7, false, ample},
				{m.Drafter(), 1, false, ample},
				{m.Drafter(), 40, true, tight},
				{spec.Auto(m.Drafter(), lookup), 9, true, ample},
				{lookup, 512, true, tight},
				{m.Drafter(), 23, true, ample},
			} {
				if on.opaque && i%3 != 2 {
					continue // one tight, one ample, both with a head
				}
				dir := t.TempDir()
				for range 2 { // the second begins with what the first has left on disk
					disk, err := prefix.OpenDisk(dir, prefix.DiskOptions{Bytes: 1 << 28, Fingerprint: on.name, Log: quiet})
					if err != nil {
						t.Fatal(err)
					}
					pool := state.NewPool(b, c.budget)
					gate := &gated{m, make(chan int32), make(chan struct{})}
					e, err := New(gate, pool, Options{Drafter: c.drafter, RoundTokens: c.round, Cache: c.cache, Disk: disk, Log: quiet})
					if err != nil {
						t.Fatal(err)
					}
					requests := make([]Request, len(pieces))
					for j := range pieces {
						requests[j] = pieces[j].Request
						requests[j].Depth = spec.Depth((i+j)%4 + 1)
					}
					together(t, e, gate, requests, func(j int, s *Stream) {
						var ids []int32
						var hashes []uint64
						for token, err := range s.Tokens() {
							if err != nil {
								t.Errorf("engine %d, request %d: %v", i, j, err)
							}
							ids, hashes = append(ids, token.ID), append(hashes, token.Hash)
						}
						if err := pieces[j].check(ids, hashes, true); err != nil {
							t.Errorf("engine %d, request %d: %v", i, j, err)
						}
					})
					x := e.Stats()
					e.Close()
					disk.Close()
					preempted, hits, read = preempted+x.Preemptions, hits+x.CachedTokens, read+disk.Stats().Read
					if s := pool.Stats(); s.Used != 0 || s.States != 0 {
						t.Errorf("engine %d: left behind %+v", i, s)
					}
					if made, closed := b.counts(); made != closed || made == 0 {
						t.Errorf("engine %d: %d inputs made, %d done with", i, made, closed)
					}
				}
			}
			if t.Logf("%d preemptions, %d tokens from the cache, %d files read", preempted, hits, read); min(preempted, hits, read) == 0 {
				t.Error("not all of that has happened")
			}
		})
	}
}

// TestInputsAreMadeWhenNeeded counts how often rows are made: not for what the cache has, once for
// what it lacks, and for the one row that the drafter's next pair begins with.
func TestInputsAreMadeWhenNeeded(t *testing.T) {
	m, b := openEmbedding(t, "dense", false)
	pool := state.NewPool(b, 1<<30)
	for _, drafter := range []spec.Drafter{m.Drafter(), nil} {
		kept := 0 // rows that were there after the last round
		e, err := New(m, pool, Options{Drafter: drafter, Cache: true, RoundTokens: 16, Log: quiet, Observe: func(Round) {
			made, closed := b.counts()
			kept = made - closed
		}})
		if err != nil {
			t.Fatal(err)
		}
		// The first prompt is ids: that is where the table comes from.
		text := prompt(120, 5)
		ask := func(what string, r Request, rows, cached int) {
			t.Helper()
			before, _ := b.counts()
			r.MaxTokens, r.IgnoreEnd, r.Depth = 3, true, 2
			_, res, err := collect(e, r)
			made, closed := b.counts()
			if err != nil || made-before != rows || made != closed || kept != 0 || res.Cached != cached {
				t.Errorf("%s, drafter %v: %v, rows made %d times, want %d; %d tokens cached, want %d; %d made, %d closed, %d of them at the end",
					what, drafter != nil, err, made-before, rows, res.Cached, cached, made, closed, kept)
			}
		}
		ask("ids", Request{Prompt: text}, 0, 0)
		picture := b.disguised(Request{Prompt: text}, 30, 40, 8)
		picture.Boundaries = []int{30, 50, 70, 100}
		ask("a picture", picture, 1, 0)
		ask("the same", picture, 0, 100)
		longer := picture
		longer.Prompt = slices.Concat(picture.Prompt[:110], prompt(9, 8))
		ask("another text behind it", longer, 0, 100)
		other := picture
		other.Inputs = slices.Clone(picture.Inputs)
		other.Inputs[0].Hash[0]++
		ask("another picture of that size", other, 1, 30)
		ask("the other again", other, 0, 100)
		moved := picture
		moved.Inputs = slices.Clone(picture.Inputs)
		moved.Inputs[0].Positions = nil
		ask("the picture at other positions", moved, 1, 30)
		short := picture
		short.Prompt = slices.Clone(picture.Prompt[:60])
		short.Inputs = []Input{{Input: picture.Inputs[0].Input, Rows: func() (backend.Tensor, func(), error) {
			x, done, err := picture.Inputs[0].Rows()
			return x.RowRange(0, 30), done, err
		}}}
		short.Inputs[0].N, short.Inputs[0].Positions = 30, picture.Inputs[0].Positions[:30]
		ask("a part of the picture", short, 1, 50)
		e.Close()
	}
	if n := pool.Used(); n != 0 {
		t.Errorf("%d bytes still in use", n)
	}
}

// traced is an answer with all its drafts.
func traced(t *testing.T, e *Engine, r Request) string {
	t.Helper()
	r.MaxTokens, r.IgnoreEnd, r.Depth, r.Trace = 8, true, 3, true
	s, err := e.Generate(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for token, err := range s.Tokens() {
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%d:%d %v\n", token.ID, token.Draft, token.Rejected)
	}
	return b.String()
}

// TestDraftsOfInputs compares what a head drafts after inputs, for which it has to be fed their
// rows and positions: as after the same ids, and the same however the prompt was cut and whatever
// the cache had of it.
func TestDraftsOfInputs(t *testing.T) {
	m, b := openEmbedding(t, "dense", false)
	text := Request{Prompt: prompt(90, 4)}
	start := func(round int, cache bool) *Engine {
		e, err := New(m, state.NewPool(b, 1<<30), Options{Drafter: m.Drafter(), Cache: cache, RoundTokens: round, Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		return e
	}
	whole := start(512, false)
	ids := traced(t, whole, text)
	disguise := func(cols int32) Request {
		r := b.disguised(text, 10, 30, cols)
		return b.disguised(r, 70, 20, cols) // to the end
	}
	flat, picture := disguise(0), disguise(6)
	want := traced(t, whole, picture)
	if want == ids {
		t.Error("positions do not count")
	}
	rounds, boundaries := []int{5, 7, 40, 512}, []int{9, 10, 11, 25, 38, 39, 40, 41, 69, 70, 71, 89}
	if brief(t) {
		rounds, boundaries = []int{7}, []int{10, 38, 71}
	}
	for _, round := range rounds {
		e := start(round, false)
		if got := traced(t, e, flat); got != ids {
			t.Errorf("rounds of %d, rows of ids:\n%s, want\n%s", round, got, ids)
		}
		if got := traced(t, e, picture); got != want {
			t.Errorf("rounds of %d, pictures:\n%s, want\n%s", round, got, want)
		}
	}
	for _, at := range boundaries {
		flat.Boundaries, picture.Boundaries = []int{at}, []int{at}
		e := start([]int{5, 32}[at%2], true)
		for range 2 { // the second time from the cache
			if got := traced(t, e, flat); got != ids {
				t.Errorf("rows of ids, boundary at %d:\n%s, want\n%s", at, got, ids)
			}
			if got := traced(t, e, picture); got != want {
				t.Errorf("pictures, boundary at %d:\n%s, want\n%s", at, got, want)
			}
		}
	}
}

// TestHeadIsFedPictures compares the first drafts after prompts with a picture with those of a head
// that is fed all pairs at once: the position of a pair is that of its hidden row's token, and its
// token may be a row.
func TestHeadIsFedPictures(t *testing.T) {
	m, b := openEmbedding(t, "dense", false)
	pool := state.NewPool(b, 1<<30)
	e, err := New(m, pool, Options{Drafter: m.Drafter(), RoundTokens: 9, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	traced(t, e, Request{Prompt: prompt(5, 0)}) // where the table comes from
	const at, rows, cols = 6, 4, 7
	wrong := 0
	for seed := range 4 {
		r := b.disguised(Request{Prompt: prompt(50, seed)}, at, rows*cols, cols)
		r.MaxTokens, r.IgnoreEnd, r.Depth, r.Trace = 8, true, 3, true
		s, err := e.Generate(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		var answer []Token
		for token, err := range s.Tokens() {
			if err != nil {
				t.Fatal(err)
			}
			answer = append(answer, token)
		}
		// The first token has no drafts; then come those that were accepted, and the rest with the
		// one that follows them.
		got, i := []int32(nil), 1
		for ; answer[i].Draft > 0; i++ {
			got = append(got, answer[i].ID)
		}
		got = append(got, answer[i].Rejected...)
		want := headDrafts(t, m, pool, r, answer[0].ID, true)
		if !slices.Equal(got, want) {
			t.Errorf("prompt %d: drafts %v, want %v", seed, got, want)
		}
		if !slices.Equal(want, headDrafts(t, m, pool, r, answer[0].ID, false)) {
			wrong++
		}
	}
	e.Close()
	if wrong == 0 {
		t.Error("the head's positions do not count")
	}
}

// headDrafts are the drafts after a prompt with one picture and the first token of the answer. The
// head is fed everything at once, at the positions of the picture or at slots.
func headDrafts(t *testing.T, m *headed, pool *state.Pool, r Request, first int32, positioned bool) []int32 {
	t.Helper()
	in := r.Inputs[0]
	rows, done, err := in.Rows()
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	var positions [][3]int32
	next := int32(0)
	for slot := range r.Prompt {
		p := [3]int32{next, next, next}
		if i := slot - in.At; i >= 0 && i < in.N {
			base := int32(in.At)
			p = [3]int32{base, base + in.Positions[i][1], base + in.Positions[i][2]}
		}
		positions = append(positions, p)
		next = max(p[0], p[1], p[2]) + 1
	}
	target, err := pool.Open(m.Layout())
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	memory, err := pool.Open(m.Head().Layout())
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	out, err := m.Forward([]model.Span{{
		State: target, Tokens: r.Prompt, Want: 1, Inputs: []backend.Input{{At: in.At, Rows: rows}}, Positions: positions,
	}})
	if err != nil {
		t.Fatal(err)
	}
	sampler, err := sample.New(sample.Options{Vocab: m.Info().Vocab}, nil)
	if err != nil {
		t.Fatal(err)
	}
	run := spec.Run{
		State: memory, HostState: new(any), Text: append(slices.Clone(r.Prompt), first), Hidden: out.Hidden, Depth: 3, Sampler: sampler,
		Inputs: []backend.Input{{At: in.At - 1, Rows: rows}},
	}
	if positioned {
		run.Positions = positions
	}
	drafts, err := m.Drafter().Draft([]spec.Run{run})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(drafts[0].Tokens)
}

// TestInputsInTheBackground prefills a picture, which the request then finds.
func TestInputsInTheBackground(t *testing.T) {
	m, b := openEmbedding(t, "dense", false)
	e, err := New(m, state.NewPool(b, 1<<30), Options{Drafter: m.Drafter(), Cache: true, RoundTokens: 16, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	text := prompt(90, 6)
	want, hashes := said(t, e, Request{Prompt: text, MaxTokens: 4, IgnoreEnd: true, Hash: true})
	r := b.disguised(Request{Prompt: text, MaxTokens: 4, IgnoreEnd: true, Hash: true}, 10, 70, 0)
	done, err := e.Prefill(Prefill{Conversation: "a", Prompt: r.Prompt[:85], Inputs: r.Inputs})
	if err != nil {
		t.Fatal(err)
	}
	<-done
	if made, closed := b.counts(); made != 1 || closed != 1 {
		t.Errorf("%d inputs made in the background, %d done with", made, closed)
	}
	p := piece{ids: want, hashes: hashes}
	ids, got := said(t, e, r)
	if err := p.check(ids, got, true); err != nil {
		t.Error(err)
	}
	if made, _ := b.counts(); made != 1 {
		t.Errorf("made %d times though the cache has it", made)
	}
	broken := r
	broken.Inputs = slices.Clone(r.Inputs)
	broken.Inputs[0].Hash[3]++
	broken.Inputs[0].Rows = func() (backend.Tensor, func(), error) { panic("no picture") }
	if done, err = e.Prefill(Prefill{Conversation: "a", Prompt: r.Prompt, Inputs: broken.Inputs}); err != nil {
		t.Fatal(err)
	}
	<-done
	if x := e.Stats(); x.Background.Completed != 1 || x.Background.Dropped != 1 {
		t.Errorf("%+v", x.Background)
	}
}

// TestFaultsOfInputs has rows fail in every way, beside a request that must not notice.
func TestFaultsOfInputs(t *testing.T) {
	m, b := openEmbedding(t, "dense", false)
	pool := state.NewPool(b, 1<<30)
	e, err := New(m, pool, Options{Drafter: m.Drafter(), Cache: true, RoundTokens: 24, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	text := prompt(60, 2)
	other := Request{Prompt: prompt(40, 1), MaxTokens: 40, IgnoreEnd: true, Hash: true}
	p := piece{Request: other}
	p.ids, p.hashes = said(t, e, other)
	failure := errors.New("no such picture")
	for name, c := range map[string]struct {
		change func(in *Input)
		want   string
	}{
		"an error": {func(in *Input) {
			in.Rows = func() (backend.Tensor, func(), error) { return backend.Tensor{}, nil, failure }
		}, failure.Error()},
		"a panic": {func(in *Input) {
			in.Rows = func() (backend.Tensor, func(), error) { panic("broken") }
		}, "internal fault: broken"},
		"too few rows": {func(in *Input) {
			rows := in.Rows
			in.Rows = func() (backend.Tensor, func(), error) {
				x, done, err := rows()
				return x.RowRange(0, 3), done, err
			}
		}, "3 rows of"},
		"a panic at the end": {func(in *Input) {
			rows := in.Rows
			in.Rows = func() (backend.Tensor, func(), error) {
				x, done, err := rows()
				return x, func() {
					done()
					panic("twice")
				}, err
			}
		}, "internal fault: twice"},
	} {
		// Needed by the model; by the drafter alone, a round before; by the pair that a hit of the
		// cache has parted.
		for _, at := range []int{10, 24, 56} {
			r := b.disguised(Request{Prompt: text, MaxTokens: 30, IgnoreEnd: true, Boundaries: []int{56}}, at, 4, 0)
			c.change(&r.Inputs[0])
			r.Inputs[0].Hash[5]++ // nothing of it is in the cache
			beside, err := e.Generate(t.Context(), other)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := collect(e, r); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s at %d: %v, want %q", name, at, err, c.want)
			}
			var ids []int32
			var hashes []uint64
			for token, err := range beside.Tokens() {
				if err != nil {
					t.Fatalf("%s: the other request: %v", name, err)
				}
				ids, hashes = append(ids, token.ID), append(hashes, token.Hash)
			}
			if err := p.check(ids, hashes, true); err != nil {
				t.Errorf("%s: the other request: %v", name, err)
			}
			if n := beside.Result().Preempted; n > 0 {
				t.Errorf("%s: the other request was preempted %d times", name, n)
			}
		}
	}
	e.Close()
	if made, closed := b.counts(); made != closed || made == 0 {
		t.Errorf("%d inputs made, %d done with", made, closed)
	}
	if n := pool.Used(); n != 0 {
		t.Errorf("%d bytes still in use", n)
	}
}

// TestInputsAreChecked refuses prompts and inputs that do not go together.
func TestInputsAreChecked(t *testing.T) {
	rows := func() (backend.Tensor, func(), error) { return backend.Tensor{}, nil, nil }
	sound := func() Request {
		return Request{Prompt: []int32{1, -1, -1, 2, -1, 3}, Inputs: []Input{
			{prefix.Input{At: 1, N: 2, Positions: [][3]int32{{0, 0, 0}, {0, 0, 1}}}, rows}, {prefix.Input{At: 4, N: 1}, rows},
		}}
	}
	info := model.Info{Vocab: 10, Width: 4}
	s, err := newSequence(sound(), info, 100)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(s.inputs.positions(0, 6)); got != "[[0 0 0] [1 1 1] [1 1 2] [3 3 3] [4 4 4] [5 5 5]]" {
		t.Errorf("positions %s", got)
	}
	if s.inputs.positions(3, 6) != nil {
		t.Error("positions where there is text")
	}
	for _, c := range []struct {
		damage func(r *Request)
		want   string
	}{
		{func(r *Request) { r.Inputs[0].At = -1 }, "2 rows at -1"},
		{func(r *Request) { r.Inputs[1].At = 2 }, "1 rows at 2"},
		{func(r *Request) { r.Inputs[1].N = 3 }, "3 rows at 4"},
		{func(r *Request) { r.Inputs[1].N = 0 }, "0 rows at 4"},
		{func(r *Request) { r.Inputs[1].N = 1 << 62 }, "rows at 4"},
		{func(r *Request) { r.Inputs[0].Positions = r.Inputs[0].Positions[:1] }, "2 rows and 1 positions"},
		{func(r *Request) { r.Inputs[0].Positions[0][1] = -1 }, "row at [0 -1 0]"},
		{func(r *Request) { r.Inputs[0].Positions[1][2] = 2 }, "row at [0 0 2]"},
		{func(r *Request) { r.Inputs[1].Rows = nil }, "nothing to make its rows"},
		{func(r *Request) { r.Prompt[2] = 5 }, "prompt id 5 in the place of input 0"},
		{func(r *Request) { r.Prompt[3] = -1 }, "prompt id -1 is outside"},
		{func(r *Request) { r.Inputs = nil }, "prompt id -1 is outside"},
		{func(r *Request) { r.Prompt[5] = 10 }, "prompt id 10 is outside"},
	} {
		r := sound()
		c.damage(&r)
		if _, err := newSequence(r, info, 100); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
