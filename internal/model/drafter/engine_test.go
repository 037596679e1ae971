package drafter_test

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/engine"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/picture"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/prefix/store"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/mtp"
	"github.com/foretoken/foretoken/internal/spec/ngram"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/sample"
)

// answer is the result of a request.
type answer struct {
	ids []int32
	engine.Result
}

// engine starts an engine with a budget of memory.
func (r *rig) engine(t *testing.T, budget int64, o engine.Options) *engine.Engine {
	t.Helper()
	o.Log = slog.New(slog.DiscardHandler)
	e, err := engine.New(r.Model, state.NewPool(r.B, budget), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// ask makes a request and reads the answer.
func ask(t *testing.T, e *engine.Engine, q engine.Request) (a answer) {
	s, err := e.Generate(t.Context(), q)
	if err != nil {
		t.Error(err)
		return a
	}
	for token, err := range s.Tokens() {
		if err != nil {
			t.Error(err)
		}
		a.ids = append(a.ids, token.ID)
	}
	a.Result = s.Result()
	return a
}

// tower makes rows of images: an image is its number of rows.
type tower struct{ r *rig }

func (w tower) Info() model.TowerInfo { return model.TowerInfo{Output: w.r.Info().Width} }

func (w tower) Begin(images []*picture.Patches) (model.TowerPass, error) {
	return &towerPass{rig: w.r, images: images}, nil
}

// towerPass has all rows at the end of its only step.
type towerPass struct {
	*rig
	images []*picture.Patches
	rows   []backend.Tensor // without memory: taken
}

func (p *towerPass) Step() (bool, error) {
	for _, image := range p.images {
		rows, err := p.B.Alloc(dtype.F32, image.Grid.Width/2, p.Info().Width)
		if err != nil {
			return false, err
		}
		ids := make([]int32, rows.Rows)
		for i := range ids {
			ids[i] = (int32(i) + int32(image.Hash[0])) % int32(p.Info().Vocab)
		}
		embed, _ := p.Model.(model.Lender).Matrices()
		p.B.Embed(rows, embed, ids, 0)
		p.rows = append(p.rows, rows)
	}
	return true, nil
}

func (p *towerPass) Take(i int) backend.Tensor {
	rows := p.rows[i]
	p.rows[i] = backend.Tensor{}
	return rows
}

func (p *towerPass) Close() {
	for _, rows := range p.rows {
		if rows.Mem != nil {
			p.B.Free(rows)
		}
	}
}

// illustrate puts an image of two lines, whose positions are no text's, into a prompt.
func illustrate(q *engine.Request, at, rows int) {
	image := &picture.Patches{Grid: picture.Grid{Time: 1, Height: 2, Width: 2 * rows}, Hash: sha256.Sum256(fmt.Append(nil, rows))}
	in := engine.Input{Input: prefix.Input{At: at, N: rows, Hash: image.Hash}, Image: image}
	q.Prompt = slices.Clone(q.Prompt)
	for i := range rows {
		in.Positions = append(in.Positions, [3]int32{0, int32(2 * i / rows), int32(i % (rows / 2))})
		q.Prompt[at+i] = model.NoToken
	}
	q.Inputs = []engine.Input{in}
}

// requests have prefixes in common, are greedy or sampled, with filters and without. The last ones have an image.
func requests(vocab int) (list []engine.Request) {
	rng := rand.New(rand.NewPCG(3, 4))
	text := func(n int) (ids []int32) {
		for range n {
			ids = append(ids, rng.Int32N(int32(vocab)))
		}
		return ids
	}
	shared := text(70)
	for i := range 9 {
		q := engine.Request{
			Prompt: slices.Concat(shared[:[]int{0, 40, 70}[i%3]], text(1+rng.IntN(20))), MaxTokens: 16, IgnoreEnd: true, Hash: true,
			Sampling: sample.Options{Temperature: []float64{0, 0.8, 1}[(i+i/3)%3], Seed: uint64(i)}, Priority: i % 2,
		}
		if i%2 == 0 {
			q.Sampling.TopP, q.Sampling.TopK = 0.95, 20
		}
		if i > 6 {
			illustrate(&q, 20, 12)
		}
		q.Boundaries = []int{min(40, len(q.Prompt)-1), len(q.Prompt) - 1}
		list = append(list, q)
	}
	return list
}

// inTurns is a drafter that offers its drafts in every other stretch of a text.
type inTurns struct {
	spec.Drafter
	source spec.Source
}

func (d inTurns) Taps() []int { return spec.TapsOf(d.Drafter) }

func (d inTurns) Plan(batch []spec.Run) {
	for i := range batch {
		if batch[i].Sources = 0; len(batch[i].Text)/5%2 == int(d.source) {
			batch[i].Sources = batch[i].Sources.With(d.source)
		}
	}
}

// wrong is a drafter whose drafts are all wrong: the token after the one that it would draft.
type wrong struct {
	spec.Drafter
	vocab int32
}

// Taps implements spec.Tapper.
func (w wrong) Taps() []int { return spec.TapsOf(w.Drafter) }

// Draft implements spec.Drafter.
func (w wrong) Draft(batch []spec.Run) ([]spec.Draft, error) {
	drafts, err := w.Drafter.Draft(batch)
	for i := range drafts {
		for j := range drafts[i].Tokens {
			drafts[i].Tokens[j] = (drafts[i].Tokens[j] + 1) % w.vocab
		}
	}
	return drafts, err
}

// laws is how an engine is run.
type laws struct {
	drafter spec.Drafter
	cache   bool
	budget  int64
	tokens  int // of a round
}

// TestEngineChangesNothing has requests of all depths meet in an engine that drafts with a drafter, alone or beside the head and
// copies, with a prefix cache or without it, with memory for all or for a few, and with a drafter that is always wrong. Every request,
// with an image or without one, gives the tokens and the bits of logits that it gives alone without drafts.
func TestEngineChangesNothing(t *testing.T) {
	accepted := 0
	for _, f := range golden.Drafters(t, "") {
		t.Run(f.Name, func(t *testing.T) {
			r := open(t, "dense", f.Dir, backend.Options{})
			list := requests(r.Info().Vocab)
			alone := r.engine(t, 1<<26, engine.Options{Tower: tower{r}})
			want := make([]answer, len(list))
			for i, q := range list {
				want[i] = ask(t, alone, q)
			}
			alone.Close()
			lookup, err := ngram.New(ngram.Options{})
			if err != nil {
				t.Fatal(err)
			}
			need := spec.Needs(r.Layout(), r.drafts(-1), r.Info().Width)
			head := mtp.New(r.Head(), mtp.Options{Vocab: r.Info().Vocab})
			both := spec.Auto(inTurns{head, spec.Computed}, inTurns{r.drafts(-1), spec.Beside}, lookup)
			more := spec.Needs(r.Layout(), both, r.Info().Width)
			for _, c := range []laws{
				{r.drafts(-1), true, 1 << 26, 30},
				{r.drafts(64), false, 3 * need.Bytes(150), 7},
				{wrong{r.drafts(-1), int32(r.Info().Vocab)}, true, 1 << 26, 50},
				{spec.Auto(r.drafts(-1), head, lookup), true, 1 << 26, 100},
				{both, true, 1 << 26, 30},
				{both, false, 3 * more.Bytes(150), 9},
			} {
				accepted += c.compare(t, r, list, want)
			}
		})
	}
	if accepted == 0 {
		t.Error("no draft was accepted")
	}
}

// compare compares answers with those of plain decoding and returns how many drafts were accepted.
func (c *laws) compare(t *testing.T, r *rig, list []engine.Request, want []answer) (accepted int) {
	t.Helper()
	e := r.engine(t, c.budget, engine.Options{Drafter: c.drafter, Cache: c.cache, RoundTokens: c.tokens, Tower: tower{r}})
	defer e.Close()
	var all sync.WaitGroup
	var mu sync.Mutex
	drafted := 0
	for i, q := range list {
		q.Depth = spec.Depth(i % (1 + spec.MaxDepth)) // the first is chosen
		all.Go(func() {
			got := ask(t, e, q)
			if !slices.Equal(got.ids, want[i].ids) || got.LogitsHash != want[i].LogitsHash {
				t.Errorf("request %d: %v, %x; alone %v, %x", i, got.ids, got.LogitsHash, want[i].ids, want[i].LogitsHash)
			}
			mu.Lock()
			defer mu.Unlock()
			drafted += got.Speculation.Drafted
			accepted += got.Speculation.Accepted
		})
	}
	all.Wait()
	for _, i := range []int{5, 8} { // known to the cache, without an image and with one
		q := list[i]
		q.Depth = 4
		again := ask(t, e, q)
		if again.LogitsHash != want[i].LogitsHash || c.cache && again.Cached == 0 || drafted == 0 || again.Speculation.Drafted == 0 {
			t.Errorf("%d drafts; request %d asked again: %+v", drafted, i, again)
		}
	}
	return accepted
}

// untimed is a device with no pass of which the time is typical: it is not known when computing is faster than fetching.
type untimed struct {
	*backendtest.Opaque
	passes atomic.Int64
}

// Prepared implements backend.Preparer.
func (u *untimed) Prepared() int64 { return u.passes.Add(1) }

// stored starts an engine whose prefix cache has a folder of its own and one that is shared. end closes all of them.
func (r *rig) stored(t *testing.T, dir, shared string) (e *engine.Engine, end func()) {
	t.Helper()
	disk, err := store.OpenDisk(dir, store.DiskOptions{Bytes: 1 << 30, Fingerprint: "drafter"})
	if err != nil {
		t.Fatal(err)
	}
	files, err := store.OpenFolder(shared)
	if err != nil {
		t.Fatal(err)
	}
	s := store.NewShared(files, store.SharedOptions{Fingerprint: "drafter", Uses: 1})
	e = r.engine(t, 1<<28, engine.Options{Drafter: r.drafts(-1), Cache: true, Disk: disk, Shared: s})
	return e, func() {
		e.Close()
		disk.Close()
		s.Close()
	}
}

// TestPrefixHitsKeepDrafts asks for the same answers with the trained drafter without a prefix cache, then with prompts that the
// cache does not know, knows in part, and knows, and then with a new engine that has the files of another. The drafter's context is
// a function of the text, so all have the same drafts.
func TestPrefixHitsKeepDrafts(t *testing.T) {
	f := golden.TinyDrafter(t)
	r := openOn(t, f.Target, golden.Open(t, f.Dir), &untimed{Opaque: backendtest.NewOpaque(backendtest.Open(t, backend.Options{}))}, model.Options{Compute: backend.Float32})
	dir, files := t.TempDir(), t.TempDir()
	plain := r.engine(t, 1<<28, engine.Options{Drafter: r.drafts(-1)})
	cached, end := r.stored(t, dir, files)
	var prompt []int32
	var last engine.Request
	var asked answer
	drafted, accepted, hits := 0, 0, 0
	for i, c := range f.Cases[:3] {
		prompt = append(prompt, c.Tokens...)
		q := engine.Request{Prompt: slices.Clone(prompt), MaxTokens: 24, IgnoreEnd: true, Depth: 5, Sampling: sample.Options{Temperature: 0.4 * float64(i), Seed: 7}}
		q.Boundaries = []int{len(prompt) - 1}
		want := ask(t, plain, q)
		drafted, accepted = drafted+want.Speculation.Drafted, accepted+want.Speculation.Accepted
		for range 2 {
			got := ask(t, cached, q)
			if got.Speculation.Drafted != want.Speculation.Drafted || got.Speculation.AcceptedAt != want.Speculation.AcceptedAt {
				t.Errorf("%d of %d tokens from the cache: %d of %d drafts accepted, without it %d of %d",
					got.Cached, len(prompt), got.Speculation.Accepted, got.Speculation.Drafted, want.Speculation.Accepted, want.Speculation.Drafted)
			}
			if got.Cached > 0 {
				hits++
			}
		}
		last, asked = q, want
	}
	end()
	for _, tier := range [][2]string{{dir, t.TempDir()}, {t.TempDir(), files}} {
		e, end := r.stored(t, tier[0], tier[1])
		if got := ask(t, e, last); got.Cached != len(prompt)-1 || got.Speculation.AcceptedAt != asked.Speculation.AcceptedAt {
			t.Errorf("%d of %d tokens from files: %d of %d drafts accepted, want %d", got.Cached, len(prompt), got.Speculation.Accepted, got.Speculation.Drafted, asked.Speculation.Accepted)
		}
		end()
	}
	if 4*accepted < drafted || hits != 5 {
		t.Errorf("%d of %d drafts accepted, %d hits, want 5", accepted, drafted, hits)
	}
}
