package engine

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/engine/schedule"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/picture"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/prefix/store"
	"github.com/foretoken/foretoken/internal/sampling"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/ngram"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/sample"
)

// gallery is requests of texts with inputs, and their expected answers. The first kind has rows of the embedding table in
// place of ids. The second has images at positions of images. Many have a common prefix.
func gallery(t *testing.T, m *headed, b *embedding, n int) (list []piece) {
	t.Helper()
	rng := rand.New(rand.NewPCG(14, 6))
	plain, err := New(m, state.NewPool(b, 1<<30), Options{Tower: b})
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
		dressed = b.asImage(dressed, 20, 25, cols)
		if n > 120 {
			dressed = b.asImage(dressed, 45, 1, 0)
			dressed = b.asImage(dressed, 60, 50, cols)
		}
		switch i % 4 {
		case 0:
			dressed = b.asImage(dressed, n-3, 3, 0) // to the end
		case 1:
			dressed.Inputs[0].Positions = nil // said to be text
			for i := range int32(25) {
				dressed.Inputs[0].Positions = append(dressed.Inputs[0].Positions, [3]int32{i, i, i})
			}
		case 2:
			dressed = Request{
				Prompt: slices.Clone(r.Prompt), MaxTokens: r.MaxTokens, Hash: true, IgnoreEnd: true, Sampling: r.Sampling,
			}
			dressed = b.asImage(dressed, 0, 19, 0)
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

// TestInputsChangeNothing runs texts with rows in place of ids, and images: with any drafter, size of rounds and memory,
// from the cache and from disk, every request has the tokens and bits that it has as ids, or alone.
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
			m, b := openEmbedding(t, on.name, backend.Options{Threads: 1}, on.opaque)
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
				for memory := range int64(2) { // of rows: the default, and none to spare; // the second begins with what the first has left on disk
					disk, err := store.OpenDisk(dir, store.DiskOptions{Bytes: 1 << 28, Fingerprint: on.name, Log: quiet})
					if err != nil {
						t.Fatal(err)
					}
					pool := state.NewPool(b, c.budget)
					gate := &gated{m, make(chan int32), make(chan struct{})}
					e, err := New(gate, pool, Options{Drafter: c.drafter, RoundTokens: c.round, Cache: c.cache, Disk: disk, Log: quiet, Tower: b, TowerMemory: memory})
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
					if made, alive, open := b.counts(); made == 0 || alive+open > 0 {
						t.Errorf("engine %d: %d images made, rows of %d and %d passes left", i, made, alive, open)
					}
				}
			}
			if t.Logf("%d preemptions, %d tokens from the cache, %d files read", preempted, hits, read); min(preempted, hits, read) == 0 {
				t.Error("not all of that has happened")
			}
		})
	}
}

// TestImageRowsAreComputedWhenNeeded counts how often rows are computed: not for cached prefixes, once otherwise, again
// after an eviction, and for the one row that the next pair of the drafter begins with.
func TestImageRowsAreComputedWhenNeeded(t *testing.T) {
	m, b := openEmbedding(t, "dense", backend.Options{Threads: 1}, false)
	pool := state.NewPool(b, 1<<30)
	for i, drafter := range []spec.Drafter{m.Drafter(), nil} {
		// Enough for one image of 40 rows; those in use stay, however many.
		e, err := New(m, pool, Options{Drafter: drafter, Cache: true, RoundTokens: 16, Log: quiet, Tower: b, TowerMemory: int64(40 * 4 * m.Info().Width)})
		if err != nil {
			t.Fatal(err)
		}
		// The first prompt is ids: the device records the table.
		text := prompt(120, 5)
		ask := func(what string, r Request, rows, cached int) {
			t.Helper()
			before, _, _ := b.counts()
			r.MaxTokens, r.IgnoreEnd, r.Depth = 3, true, 2
			_, res, err := collect(e, r)
			made, alive, _ := b.counts()
			if err != nil || made-before != rows || alive > 1 || res.Cached != cached {
				t.Errorf("%s, drafter %v: %v, rows made %d times, want %d; %d tokens cached, want %d; rows of %d images kept",
					what, drafter != nil, err, made-before, rows, res.Cached, cached, alive)
			}
		}
		ask("ids", Request{Prompt: text}, 0, 0)
		picture := b.asImage(Request{Prompt: text}, 30, 40, 8)
		picture.Inputs[0].Image = b.image(text[30:70], byte(i)) // another one for each engine
		picture.Boundaries = []int{30, 50, 70, 100}
		ask("an image", picture, 1, 0)
		ask("the same", picture, 0, 100)
		longer := picture
		longer.Prompt = slices.Concat(picture.Prompt[:110], prompt(9, 8))
		ask("another text behind it", longer, 0, 100)
		moved := picture
		moved.Inputs = slices.Clone(picture.Inputs)
		moved.Inputs[0].Positions = nil
		ask("the image at other positions", moved, 0, 30)
		other := picture
		other.Inputs = slices.Clone(picture.Inputs)
		other.Inputs[0].Hash[0]++
		other.Inputs[0].Image = b.image(text[30:70], 9)
		ask("another image of that size", other, 1, 30)
		ask("the other again", other, 0, 100)
		short := picture
		short.Prompt = slices.Clone(picture.Prompt[:60])
		short.Inputs = slices.Clone(picture.Inputs)
		short.Inputs[0].N, short.Inputs[0].Positions = 30, picture.Inputs[0].Positions[:30]
		ask("a part of the image", short, 1, 50)
		x := e.Stats().Tower
		if x.Pictures != 3 || x.Cached < 1 || x.Took <= 0 || x.Bytes != int64(40*4*m.Info().Width) {
			t.Errorf("drafter %v: %+v", drafter != nil, x)
		}
		e.Close()
		if _, alive, open := b.counts(); alive+open > 0 {
			t.Errorf("rows of %d images and %d passes left", alive, open)
		}
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

// TestDraftsOfInputs compares the drafts of a head after inputs, for which it is fed their rows and positions: they equal
// those after the same ids, for any chunks and any cached prefix.
func TestDraftsOfInputs(t *testing.T) {
	m, b := openEmbedding(t, "dense", backend.Options{Threads: 1}, false)
	text := Request{Prompt: prompt(90, 4)}
	start := func(round int, cache bool) *Engine {
		e, err := New(m, state.NewPool(b, 1<<30), Options{Drafter: m.Drafter(), Cache: cache, RoundTokens: round, Log: quiet, Tower: b})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		return e
	}
	whole := start(512, false)
	ids := traced(t, whole, text)
	disguise := func(cols int32) Request {
		r := b.asImage(text, 10, 30, cols)
		return b.asImage(r, 70, 20, cols) // to the end
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
			t.Errorf("rounds of %d, images:\n%s, want\n%s", round, got, want)
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
				t.Errorf("images, boundary at %d:\n%s, want\n%s", at, got, want)
			}
		}
	}
}

// TestHeadIsFedImages compares the first drafts after prompts with an image with those of a head that is fed all pairs at
// once. The position of a pair is that of the token of its hidden row. Its second half may be a row.
func TestHeadIsFedImages(t *testing.T) {
	m, b := openEmbedding(t, "dense", backend.Options{Threads: 1}, false)
	pool := state.NewPool(b, 1<<30)
	e, err := New(m, pool, Options{Drafter: m.Drafter(), RoundTokens: 9, Log: quiet, Tower: b})
	if err != nil {
		t.Fatal(err)
	}
	traced(t, e, Request{Prompt: prompt(5, 0)}) // the device records the table
	const at, rows, cols = 6, 4, 7
	wrong := 0
	for seed := range 4 {
		r := b.asImage(Request{Prompt: prompt(50, seed)}, at, rows*cols, cols)
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
		want := headDrafts(t, m, b, pool, r, answer[0].ID, true)
		if !slices.Equal(got, want) {
			t.Errorf("prompt %d: drafts %v, want %v", seed, got, want)
		}
		if !slices.Equal(want, headDrafts(t, m, b, pool, r, answer[0].ID, false)) {
			wrong++
		}
	}
	e.Close()
	if wrong == 0 {
		t.Error("the head's positions do not count")
	}
}

// headDrafts are the drafts after a prompt with one image and the first token of the answer. The
// head is fed everything at once, at the positions of the image or at slots.
func headDrafts(t *testing.T, m *headed, b *embedding, pool *state.Pool, r Request, first int32, positioned bool) []int32 {
	t.Helper()
	in := r.Inputs[0]
	pass, err := b.Begin([]*picture.Patches{in.Image})
	if err != nil {
		t.Fatal(err)
	}
	defer pass.Close()
	for done := false; !done; {
		if done, err = pass.Step(); err != nil {
			t.Fatal(err)
		}
	}
	rows := pass.Take(0)
	defer b.Free(rows)
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
	sampler, err := sampling.New(sample.Options{Vocab: m.Info().Vocab}, nil)
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

// TestInputsInTheBackground prefills an image in the background. The next request finds it in the cache.
func TestInputsInTheBackground(t *testing.T) {
	m, b := openEmbedding(t, "dense", backend.Options{Threads: 1}, false)
	e, err := New(m, state.NewPool(b, 1<<30), Options{Drafter: m.Drafter(), Cache: true, RoundTokens: 16, Log: quiet, Tower: b})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	text := prompt(90, 6)
	want, hashes := said(t, e, Request{Prompt: text, MaxTokens: 4, IgnoreEnd: true, Hash: true})
	r := b.asImage(Request{Prompt: text, MaxTokens: 4, IgnoreEnd: true, Hash: true}, 10, 70, 0)
	done, err := e.Prefill(Prefill{Conversation: "a", Prompt: r.Prompt[:85], Inputs: r.Inputs})
	if err != nil {
		t.Fatal(err)
	}
	<-done
	if made, _, _ := b.counts(); made != 1 {
		t.Errorf("%d images made in the background", made)
	}
	p := piece{ids: want, hashes: hashes}
	ids, got := said(t, e, r)
	if err := p.check(ids, got, true); err != nil {
		t.Error(err)
	}
	if made, _, _ := b.counts(); made != 1 {
		t.Errorf("made %d times though the cache has it", made)
	}
	broken := r
	broken.Inputs = slices.Clone(r.Inputs)
	broken.Inputs[0].Hash[3]++
	broken.Inputs[0].Image = b.image(text[10:80], 1)
	b.flaw = func(string, *picture.Patches) error { panic("no image") }
	if done, err = e.Prefill(Prefill{Conversation: "a", Prompt: r.Prompt, Inputs: broken.Inputs}); err != nil {
		t.Fatal(err)
	}
	<-done
	if x := e.Stats(); x.Background.Completed != 1 || x.Background.Dropped != 1 {
		t.Errorf("%+v", x.Background)
	}
}

// TestFaultsOfTowers has a tower fail at one image in every way. Other requests, of text and of another image, are unchanged
// even if the images share a pass.
func TestFaultsOfTowers(t *testing.T) {
	m, b := openEmbedding(t, "dense", backend.Options{Threads: 1}, false)
	pool := state.NewPool(b, 1<<30)
	e, err := New(m, pool, Options{Drafter: m.Drafter(), Cache: true, RoundTokens: 24, Log: quiet, Tower: b})
	if err != nil {
		t.Fatal(err)
	}
	text := prompt(60, 2)
	others := []Request{
		{Prompt: prompt(40, 1), MaxTokens: 40, IgnoreEnd: true, Hash: true},
		{Prompt: prompt(30, 6), MaxTokens: 10, IgnoreEnd: true, Hash: true},
	}
	var want []piece
	for i, r := range others {
		p := piece{Request: r}
		if p.ids, p.hashes = said(t, e, r); i == 1 {
			p.Request = b.asImage(r, 3, 10, 0)
		}
		want = append(want, p)
	}
	failure := errors.New("no such image")
	salt := byte(0)
	for _, act := range []string{"begin", "step", "take", "close"} {
		for _, panics := range []bool{false, true} {
			// Needed by the model; by the drafter alone, a round before; by the pair that a hit of
			// the cache has parted.
			for _, at := range []int{10, 24, 56} {
				if act == "close" && !panics || act == "take" && panics {
					continue
				}
				salt++
				r := b.asImage(Request{Prompt: text, MaxTokens: 30, IgnoreEnd: true, Boundaries: []int{56}}, at, 4, 0)
				bad := b.image(text[at:at+4], salt)
				r.Inputs[0].Image, r.Inputs[0].Hash = bad, bad.Hash // nothing of it is in the cache
				b.flaw = func(now string, p *picture.Patches) error {
					if p.Hash != bad.Hash || now != act {
						return nil
					}
					if panics {
						panic(failure)
					}
					return failure
				}
				var beside []*Stream
				for i := range want {
					x := want[i].Request
					x.Salt = prefix.Salt{salt}
					for j := range x.Inputs { // it needs its rows
						x.Inputs = slices.Clone(x.Inputs)
						x.Inputs[j].Image = b.image(others[i].Prompt[3:13], salt)
					}
					s, err := e.Generate(t.Context(), x)
					if err != nil {
						t.Fatal(err)
					}
					beside = append(beside, s)
				}
				_, _, err := collect(e, r)
				if act == "close" { // by then the rows are there
					err = failure
				}
				if err == nil || !strings.Contains(err.Error(), failure.Error()) {
					t.Errorf("%s at %d: %v, want %q", act, at, err, failure)
				}
				for i, s := range beside {
					var ids []int32
					var hashes []uint64
					for token, err := range s.Tokens() {
						if err != nil {
							t.Fatalf("%s: other request %d: %v", act, i, err)
						}
						ids, hashes = append(ids, token.ID), append(hashes, token.Hash)
					}
					if err := want[i].check(ids, hashes, true); err != nil {
						t.Errorf("%s: other request %d: %v", act, i, err)
					}
					if n := s.Result().Preempted; n > 0 {
						t.Errorf("%s: other request %d was preempted %d times", act, i, n)
					}
				}
			}
		}
	}
	b.flaw = nil
	few := b.asImage(Request{Prompt: text, MaxTokens: 3}, 10, 8, 0)
	few.Inputs[0].Image, few.Inputs[0].Hash = b.image(text[:7], 99), [32]byte{}
	if _, _, err := collect(e, few); err == nil || !strings.Contains(err.Error(), "computed 7 rows, want 8") {
		t.Errorf("too few rows: %v", err)
	}
	e.Close()
	if made, alive, open := b.counts(); made == 0 || alive+open > 0 {
		t.Errorf("%d images made, rows of %d and %d passes left", made, alive, open)
	}
	if n := pool.Used(); n != 0 {
		t.Errorf("%d bytes still in use", n)
	}
}

// TestInputsAreChecked refuses prompts and inputs that do not go together.
func TestInputsAreChecked(t *testing.T) {
	some := &picture.Patches{}
	sound := func() Request {
		return Request{Prompt: []int32{1, -1, -1, 2, -1, 3}, Inputs: []Input{
			{prefix.Input{At: 1, N: 2, Positions: [][3]int32{{0, 0, 0}, {0, 0, 1}}}, some, 0}, {prefix.Input{At: 4, N: 1}, some, 2},
		}}
	}
	info := model.Info{Vocab: 10, Width: 4}
	s, err := newSequence(sound(), info, 100)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(s.inputs.positions(0, 6, 0)); got != "[[0 0 0] [1 1 1] [1 1 2] [3 3 3] [4 4 4] [5 5 5]]" {
		t.Errorf("positions %s", got)
	}
	if s.inputs.positions(3, 6, 3) != nil {
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
		{func(r *Request) { r.Inputs[0].Positions[0][1] = -1 }, "row at position [0 -1 0]"},
		{func(r *Request) { r.Inputs[0].Positions[1][2] = 2 }, "row at position [0 0 2]"},
		{func(r *Request) { r.Inputs[1].Image = nil }, "no source for its rows"},
		{func(r *Request) { r.Prompt[2] = 5 }, "prompt id 5 at the position of input 0"},
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

// TestPairBeforeAnImageFindsSpace has a prefix end before an image, and others take all memory while the tower
// runs: the pair of the drafter gets memory by preemption.
func TestPairBeforeAnImageFindsSpace(t *testing.T) {
	m, b := openEmbedding(t, "dense", backend.Options{Threads: 1}, false)
	e := &Engine{model: m, o: Options{RoundTokens: 512, Drafter: m.Drafter(), Tower: b, Log: quiet}}
	e.pool = state.NewPool(b, 2*e.bytes(3*backend.PageTokens))
	e.vision, e.drafting.device, e.drafting.parts = newVisionQueue(b, b, 0), b, newParts(e.o.Drafter)
	e.sched = schedule.Scheduler[*sequence]{RoundTokens: 512, Cost: e.cost()}
	var list []*sequence
	for i, r := range []Request{{Prompt: prompt(5, 1)}, b.asImage(Request{Prompt: prompt(80, 2)}, backend.PageTokens+1, 10, 0)} {
		s, err := newSequence(r, m.Info(), 200)
		if err == nil {
			s.claim.Priority = i
			err = e.open(s)
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	other, s := list[0], list[1]
	e.running = list[:1]
	e.round() // the device records the table
	feed := func(s *state.State, n int) {
		if err := s.Reserve(n); err != nil {
			t.Fatal(err)
		}
		s.Fed(n, 0)
	}
	feed(s.target, backend.PageTokens+1)
	feed(s.drafts[0].state, backend.PageTokens)
	row, err := b.Alloc(dtype.F32, 1, m.Info().Width)
	if err == nil {
		_, err = s.drafts[0].backlog.Add(row)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []*state.State{other.target, other.drafts[0].state} {
		for n := 1; x.Reserve(n) == nil; {
			n += backend.PageTokens
		}
	}
	e.running = []*sequence{s, other}
	e.feed(s, 100)
	for e.vision.busy() {
		e.stepTower(0)
	}
	if n := e.feed(s, 100); n != 80-backend.PageTokens-1 || s.fault != nil || other.claim.Preempted != 1 {
		t.Errorf("%d tokens fed, with the error %v, and %d preempted", n, s.fault, other.claim.Preempted)
	}
	s.release()
	if n := e.pool.Used(); n != 0 {
		t.Errorf("%d bytes in use", n)
	}
}

// TestLastRowIsAnImage has a prompt end with an image behind a cached prefix. The head, which need not draft, is fed the pair before it
// while the image is there.
func TestLastRowIsAnImage(t *testing.T) {
	m, b := openEmbedding(t, "dense", backend.Options{Threads: 1}, false)
	log := newJournal("")
	e, err := New(m, state.NewPool(b, 1<<30), Options{Drafter: m.Drafter(), Cache: true, Tower: b, Log: slog.New(log)})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := collect(e, Request{Prompt: prompt(5, 1), MaxTokens: 1}); err != nil { // the device records the table
		t.Fatal(err)
	}
	for i := range 2 {
		_, r, err := collect(e, b.asImage(Request{Prompt: prompt(65, 2), MaxTokens: 2, IgnoreEnd: true}, 64, 1, 0))
		if err != nil || r.Cached != i*64 {
			t.Errorf("%v, %d cached", err, r.Cached)
		}
	}
	if e.Close(); log.text.Len() > 0 {
		t.Error(log.text.String())
	}
}
