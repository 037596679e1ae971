package engine

import (
	"context"
	"crypto/sha256"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/picture"
	"github.com/foretoken/foretoken/internal/prefix"
	"github.com/foretoken/foretoken/internal/state"
)

// embedding is a device that records the embedding table of a model, and a tower. The rows of its images are rows of the
// table for known ids.
type embedding struct {
	backend.Backend
	table backend.Weight

	mu           sync.Mutex // protects what follows
	ids          map[[32]byte][]int32
	alive        map[backend.Memory]bool // rows of the tower that were not given back
	made         int                     // images
	open         int                     // passes
	sizes        []int                   // of all passes
	steps        int                     // of all passes
	extra        int                     // steps of a pass beside those that make rows
	flying, most int                     // flights that were not waited for, and the maximum of that
	// flaw is the fault of an image, by operation.
	flaw func(act string, p *picture.Patches) error
}

func (e *embedding) Embed(dst backend.Tensor, table backend.Weight, ids []int32, factor float32) {
	e.table = table
	e.Backend.Embed(dst, table, ids, factor)
}

func (e *embedding) Free(t backend.Tensor) {
	e.locked(func() { delete(e.alive, t.Mem) })
	e.Backend.Free(t)
}

// At implements backend.Parted, as its device does, and what follows backend.Pipeline.
func (e *embedding) At(p backend.Part) backend.Backend { return backend.At(e.Backend, p) }

func (e *embedding) AllocParts(t dtype.Type, parts []backend.Part, cols []int) (backend.Tensor, error) {
	return backend.AllocParts(e.Backend, t, parts, cols)
}

func (e *embedding) FreeParts(parts []backend.Part, cols []int) int64 {
	return backend.FreeParts(e.Backend, parts, cols)
}

func (e *embedding) Stages() int {
	if p, ok := e.Backend.(backend.Pipeline); ok {
		return p.Stages()
	}
	return 1
}

func (e *embedding) Launch(f func()) backend.Flight {
	e.locked(func() { e.flying++; e.most = max(e.most, e.flying) })
	return &counted{e.Backend.(backend.Pipeline).Launch(f), e}
}

// counted is a flight of an embedding.
type counted struct {
	backend.Flight
	of *embedding
}

func (c *counted) Wait() (backend.Trip, error) {
	c.of.locked(func() { c.of.flying-- })
	return c.Flight.Wait()
}

func (e *embedding) locked(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}

// counts are the numbers of computed images, of rows that were not released, and of open passes.
func (e *embedding) counts() (made, alive, open int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.made, len(e.alive), e.open
}

// openEmbedding loads a model on such a device.
func openEmbedding(t *testing.T, name string, o backend.Options, opaque bool) (*headed, *embedding) {
	t.Helper()
	b := backendtest.Open(t, o)
	if opaque {
		b = backendtest.NewOpaque(b)
	}
	return embeddingOn(t, name, b)
}

func embeddingOn(t *testing.T, name string, b backend.Backend) (*headed, *embedding) {
	t.Helper()
	e := &embedding{Backend: b, ids: map[[32]byte][]int32{}, alive: map[backend.Memory]bool{}}
	return load(t, golden.Dir(t, name), model.Options{Quantize: 8}, e), e
}

// image is an image of ids. Other salts make others of the same rows.
func (e *embedding) image(ids []int32, salt byte) *picture.Patches {
	p := &picture.Patches{Grid: picture.Grid{Time: 1, Height: 2, Width: 2 * len(ids)}, Hash: sha256.Sum256(fmt.Append(nil, salt, ids))}
	e.locked(func() { e.ids[p.Hash] = slices.Clone(ids) })
	return p
}

// asImage makes the ids of a prompt at [at, at+n) an image. With cols, its positions are those
// of an image of that many columns.
func (e *embedding) asImage(r Request, at, n int, cols int32) Request {
	p := e.image(r.Prompt[at:at+n], 0)
	in := Input{Input: prefix.Input{At: at, N: n, Hash: p.Hash}, Image: p}
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

func (e *embedding) Info() model.TowerInfo { return model.TowerInfo{Output: e.table.Cols()} }

func (e *embedding) fails(act string, list []*picture.Patches) error {
	for _, p := range list {
		if e.flaw == nil {
			break
		}
		if err := e.flaw(act, p); err != nil {
			return err
		}
	}
	return nil
}

func (e *embedding) Begin(list []*picture.Patches) (model.TowerPass, error) {
	e.locked(func() { e.sizes = append(e.sizes, len(list)) })
	if err := e.fails("begin", list); err != nil {
		return nil, err
	}
	e.locked(func() { e.open++ })
	return &embeddingPass{e: e, pictures: list, extra: e.extra}, nil
}

// embeddingPass has a step for each image, and one more.
type embeddingPass struct {
	e        *embedding
	pictures []*picture.Patches
	rows     []backend.Tensor // zero: taken
	extra    int
	closed   bool
}

func (p *embeddingPass) Step() (bool, error) {
	p.e.locked(func() { p.e.steps++ })
	if p.extra > 0 {
		p.extra--
		return false, nil
	}
	if len(p.rows) == len(p.pictures) {
		return true, nil
	}
	x := p.pictures[len(p.rows)]
	if err := p.e.fails("step", []*picture.Patches{x}); err != nil {
		return false, err
	}
	var ids []int32
	p.e.locked(func() { ids = p.e.ids[x.Hash] })
	rows, err := p.e.Alloc(dtype.F32, len(ids), p.e.table.Cols())
	if err == nil {
		p.e.Backend.Embed(rows, p.e.table, ids, 0)
		p.rows = append(p.rows, rows)
		p.e.locked(func() { p.e.alive[rows.Mem] = true })
	}
	return false, err
}

func (p *embeddingPass) Take(i int) backend.Tensor {
	if err := p.e.fails("take", p.pictures[i:i+1]); err != nil {
		panic(err)
	}
	rows := p.rows[i]
	p.rows[i] = backend.Tensor{}
	p.e.locked(func() { p.e.made++ })
	return rows
}

func (p *embeddingPass) Close() {
	if p.closed {
		return
	}
	p.closed = true
	p.e.locked(func() { p.e.open-- })
	for _, rows := range p.rows {
		if rows.Mem != nil {
			p.e.Free(rows)
		}
	}
	if err := p.e.fails("close", p.pictures); err != nil {
		panic(err)
	}
}

// TestTowerDelaysNoText generates a text while the tower runs on an image: if rounds have no time to
// spare, there is one step before each of them; without other sequences all steps run at once.
func TestTowerDelaysNoText(t *testing.T) {
	m, b := openEmbedding(t, "dense", backend.Options{Threads: 1}, false)
	var steps []int // after each round
	gate := &gated{m, make(chan int32), make(chan struct{})}
	e, err := New(gate, state.NewPool(b, 1<<30), Options{
		RoundTokens: 24, MaxRound: 1, Log: quiet, Tower: b, Observe: func(Round) { steps = append(steps, b.steps) },
	})
	if err != nil {
		t.Fatal(err)
	}
	text := Request{Prompt: prompt(40, 2), MaxTokens: 5, IgnoreEnd: true, Hash: true}
	var p piece
	record := func(_ int, s *Stream) {
		for token, err := range s.Tokens() {
			if err != nil {
				t.Error(err)
			}
			p.ids, p.hashes = append(p.ids, token.ID), append(p.hashes, token.Hash)
		}
	}
	together(t, e, gate, []Request{text}, record)
	b.extra = 40
	want := p
	p, steps = piece{}, nil
	together(t, e, gate, []Request{b.asImage(text, 10, 20, 0), {Prompt: prompt(5, 1), MaxTokens: 60, IgnoreEnd: true}}, func(i int, s *Stream) {
		if s.Result(); i == 0 {
			record(i, s)
		}
	})
	e.Close()
	if err := want.check(p.ids, p.hashes, true); err != nil {
		t.Error(err)
	}
	for i := 1; i < len(steps); i++ {
		if n := steps[i] - steps[i-1]; n > 1 || steps[i] > 0 && n == 0 && steps[i] < 42 {
			t.Fatalf("%d steps before round %d: after each %d", n, i, steps)
		}
	}
	if len(steps) < 60 || steps[0] != 0 || steps[59] != 42 {
		t.Errorf("after each round there were %d steps", steps)
	}
}

// TestBackgroundImagesWait checks that the tower runs on the image of a background prefill only while no request runs.
func TestBackgroundImagesWait(t *testing.T) {
	m, b := openEmbedding(t, "dense", backend.Options{Threads: 1}, false)
	var steps []int // after each round
	e, err := New(m, state.NewPool(b, 1<<30), Options{
		Drafter: m.Drafter(), Cache: true, Log: quiet, Tower: b, Observe: func(Round) { steps = append(steps, b.steps) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	talk := Request{Prompt: prompt(9, 1), MaxTokens: 20, IgnoreEnd: true}
	said(t, e, talk)
	b.extra = 1 << 40
	r := b.asImage(Request{Prompt: prompt(30, 2)}, 10, 9, 0)
	done, err := e.Prefill(Prefill{Conversation: "a", Prompt: r.Prompt, Inputs: r.Inputs})
	if err != nil {
		t.Fatal(err)
	}
	for open := 0; open == 0; runtime.Gosched() {
		_, _, open = b.counts()
	}
	steps = nil
	said(t, e, talk)
	for _, n := range steps {
		if n != steps[0] || n == 0 {
			t.Fatalf("steps of the tower after each round: %d", steps)
		}
	}
	talk.Conversation = "a" // its next turn: what was to be prepared for it is dropped
	said(t, e, talk)
	<-done
	if _, _, open := b.counts(); open > 0 {
		t.Errorf("%d passes without a request", open)
	}
}

// TestImagesSharePasses checks that the images of a prompt share a pass, unless they have too many patches, or one is
// cached.
func TestImagesSharePasses(t *testing.T) {
	m, b := openEmbedding(t, "dense", backend.Options{Threads: 1}, false)
	e, err := New(m, state.NewPool(b, 1<<30), Options{Drafter: m.Drafter(), Log: quiet, Tower: b})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	text := prompt(90, 2)
	want, hashes := said(t, e, Request{Prompt: text, MaxTokens: 5, IgnoreEnd: true, Hash: true})
	p := piece{ids: want, hashes: hashes}
	ask := func(r Request, sizes ...int) {
		t.Helper()
		b.locked(func() { b.sizes = nil })
		ids, got := said(t, e, r)
		if err := p.check(ids, got, true); err != nil {
			t.Error(err)
		}
		if b.locked(func() {
			if !slices.Equal(b.sizes, sizes) {
				t.Errorf("passes of %d images, want %d", b.sizes, sizes)
			}
		}); t.Failed() {
			t.FailNow()
		}
	}
	r := Request{Prompt: text, MaxTokens: 5, IgnoreEnd: true, Hash: true}
	three := b.asImage(b.asImage(b.asImage(r, 10, 9, 0), 30, 5, 0), 50, 12, 0)
	ask(three, 3)
	ask(three)
	ask(b.asImage(three, 70, 4, 0), 1)
	large := b.asImage(b.asImage(b.asImage(r, 11, 9, 0), 31, 5, 0), 51, 12, 0)
	large.Inputs[1].Image.Grid.Width = passPatches // twice as many
	ask(large, 2, 1)
}

// TestImagesAreComputedByPriority checks that waiting images are computed by priority, like requests.
func TestImagesAreComputedByPriority(t *testing.T) {
	m, b := openEmbedding(t, "dense", backend.Options{Threads: 1}, false)
	e, err := New(m, state.NewPool(b, 1<<30), Options{})
	if err != nil {
		t.Fatal(err)
	}
	said(t, e, Request{Prompt: prompt(4, 0), MaxTokens: 1}) // the device records the table
	e.Close()
	s := newVisionQueue(b, b, 0)
	defer s.close()
	var jobs []*visionJob
	for i, priority := range []int{0, 1, 0, 2} {
		p := b.image([]int32{1, 2, 3}, byte(i))
		p.Grid.Width = passPatches
		jobs = append(jobs, s.add(prefix.Salt{}, priority, p))
	}
	if again := s.add(prefix.Salt{}, 1, jobs[2].image); again != jobs[2] {
		t.Error("another job for the same image")
	}
	var order []int
	for s.busy() {
		if err := s.step(); err != nil {
			t.Fatal(err)
		}
		for i, v := range jobs {
			if v.done && !slices.Contains(order, i) {
				order = append(order, i)
			}
		}
	}
	if !slices.Equal(order, []int{3, 1, 2, 0}) {
		t.Errorf("order %d", order)
	}
}

// TestCanceledImagesAreNotComputed cancels requests whose image is in a pass: the last one ends the pass.
func TestCanceledImagesAreNotComputed(t *testing.T) {
	m, b := openEmbedding(t, "dense", backend.Options{Threads: 1}, false)
	e, err := New(m, state.NewPool(b, 1<<30), Options{Drafter: m.Drafter(), Log: quiet, Tower: b})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	said(t, e, Request{Prompt: prompt(4, 0), MaxTokens: 1}) // the device records the table
	b.extra = 1 << 40
	r := b.asImage(Request{Prompt: prompt(30, 2), MaxTokens: 5}, 10, 9, 0)
	for range 2 { // a canceled image is begun again
		var streams []*Stream
		var cancels []context.CancelFunc
		for range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			s, err := e.Generate(ctx, r)
			if err != nil {
				t.Fatal(err)
			}
			streams, cancels = append(streams, s), append(cancels, cancel)
		}
		for open := 0; open == 0 || e.Stats().Running < len(streams); runtime.Gosched() { // the waiting request needs no image yet
			_, _, open = b.counts()
		}
		cancels[0]()
		streams[0].Result()
		if _, _, open := b.counts(); open != 1 {
			t.Fatalf("%d passes while one waits", open)
		}
		cancels[1]()
		streams[1].Result()
		if made, alive, open := b.counts(); made+alive+open > 0 {
			t.Fatalf("%d images made, rows of %d and %d passes left", made, alive, open)
		}
	}
}
