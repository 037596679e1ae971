package engine

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/prefix/store"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/sample"
)

// quiet is for engines that are to meet with faults.
var quiet = slog.New(slog.DiscardHandler)

// gated is a model whose rounds wait for the test.
type gated struct {
	model.Model
	begun chan int32 // the first token of each round
	let   chan struct{}
}

func newGated() *gated { return &gated{newScripted(), make(chan int32), make(chan struct{})} }

func (m *gated) Forward(batch []model.Span) (model.Output, error) {
	m.begun <- batch[0].Tokens[0]
	<-m.let
	return m.Model.Forward(batch)
}

// pass starts a round and returns its first token.
func (m *gated) pass() int32 {
	id := <-m.begun
	m.let <- struct{}{}
	return id
}

// passUntil starts rounds until done is closed.
func (m *gated) passUntil(done <-chan struct{}) {
	for {
		select {
		case <-m.begun:
			m.let <- struct{}{}
		case <-done:
			return
		}
	}
}

// TestFaultsEndOnlyTheirSequence runs requests with one that makes the model fail at any time: the others are restarted and
// have the same answers.
func TestFaultsEndOnlyTheirSequence(t *testing.T) {
	for id, want := range map[int32]string{faulty: "scripted fault", broken: "scripted error", unclear: "not a number"} {
		gate := newGated()
		e := start(t, gate, Options{Log: quiet})
		var all sync.WaitGroup
		begin := func(prompt []int32, check func([]int32, error)) {
			s, err := e.Generate(t.Context(), Request{Prompt: prompt, MaxTokens: 12})
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				var ids []int32
				for token, err := range s.Tokens() {
					if err != nil {
						check(ids, err)
						return
					}
					ids = append(ids, token.ID)
				}
				check(ids, nil)
			})
		}
		for i := range 3 {
			begin(prompt(4, i), func(ids []int32, err error) {
				if err != nil || !slices.Equal(ids, expected(prompt(4, i), 12)) {
					t.Errorf("beside id %d: request %d: %v %v", id, i, ids, err)
				}
			})
		}
		for range 3 {
			gate.pass()
		}
		begin([]int32{1, id}, func(_ []int32, err error) {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("id %d: error %v, want %q", id, err, want)
			}
		})
		ended := make(chan struct{})
		go func() {
			all.Wait()
			close(ended)
		}()
		gate.passUntil(ended)
	}
}

// TestQueueServesByPriority fills the only place and checks the order of the waiting requests.
func TestQueueServesByPriority(t *testing.T) {
	gate := newGated()
	e := start(t, gate, Options{MaxBatch: 1, MaxQueue: 3, Log: quiet})
	request := func(first int32, priority int) *Stream {
		t.Helper()
		s, err := e.Generate(t.Context(), Request{Prompt: []int32{first}, MaxTokens: 2, Priority: priority})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	streams := []*Stream{request(1, 0)}
	order := []int32{<-gate.begun}
	streams = append(streams, request(2, 0), request(3, 0), request(4, 1))
	if _, err := e.Generate(t.Context(), Request{Prompt: []int32{5}}); !errors.Is(err, ErrBusy) {
		t.Errorf("a fourth that waits: %v", err)
	}
	// The first has drawn a token when the fourth takes its place, and reads it again after.
	gate.let <- struct{}{}
	for len(order) < 8 {
		order = append(order, gate.pass())
	}
	firsts := slices.DeleteFunc(order, func(id int32) bool { return id > 4 })
	if want := []int32{1, 4, 1, 2, 3}; !slices.Equal(firsts, want) {
		t.Errorf("prompts were read in the order %v, want %v", firsts, want)
	}
	for i, s := range streams {
		if r := s.Result(); r.Finish != FinishLength || (r.Preempted > 0) != (i == 0) {
			t.Errorf("request %d: %+v", i, r)
		}
	}
}

// TestTokensDoNotWaitWithTheirSequence preempts a sequence whose reader was not yet woken for its last tokens: the reader
// gets them while another sequence runs. The clock stands still.
func TestTokensDoNotWaitWithTheirSequence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := newGated()
		e := start(t, gate, Options{MaxBatch: 1, Log: quiet})
		first, err := e.Generate(t.Context(), Request{Prompt: []int32{1}, MaxTokens: 20})
		if err != nil {
			t.Fatal(err)
		}
		read := make(chan int32, 20)
		go func() {
			defer close(read)
			for token := range first.Tokens() { //nolint:errcheck // how it ends is seen below
				read <- token.ID
			}
		}()
		const drawn = 4
		gate.pass()
		synctest.Wait() // the reader has the first
		for range drawn - 2 {
			gate.pass()
		}
		<-gate.begun
		if synctest.Wait(); len(read) != 1 {
			t.Errorf("%d tokens were announced, want the first only", len(read))
		}
		second, err := e.Generate(t.Context(), Request{Prompt: []int32{2}, MaxTokens: 2, Priority: 1})
		if err != nil {
			t.Fatal(err)
		}
		gate.let <- struct{}{}
		<-gate.begun // the second's first round
		if synctest.Wait(); len(read) != drawn {
			t.Errorf("%d of %d tokens", len(read), drawn)
		}
		gate.let <- struct{}{}
		ended, tokens := make(chan struct{}), 0
		go func() {
			defer close(ended)
			for range read {
				tokens++
			}
		}()
		gate.passUntil(ended)
		if a, b := first.Result(), second.Result(); a.Preempted != 1 || a.Tokens != tokens || b.Finish != FinishLength {
			t.Errorf("%d tokens read; %+v, %+v", tokens, a, b)
		}
	})
}

// TestQueueDropsCanceled cancels a request that has not begun.
func TestQueueDropsCanceled(t *testing.T) {
	gate := newGated()
	e := start(t, gate, Options{MaxBatch: 1})
	first, err := e.Generate(t.Context(), Request{Prompt: []int32{1}, MaxTokens: 2})
	if err != nil {
		t.Fatal(err)
	}
	<-gate.begun
	ctx, cancel := context.WithCancel(t.Context())
	second, err := e.Generate(ctx, Request{Prompt: []int32{2}, MaxTokens: 2})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	gate.let <- struct{}{}
	gate.pass()
	if r := second.Result(); r.Finish != "" || r.Tokens != 0 {
		t.Errorf("canceled: %+v", r)
	}
	if r := first.Result(); r.Finish != FinishLength {
		t.Errorf("the other: %+v", r)
	}
}

// TestDrainLetsRequestsEnd checks that running and waiting requests end, and later ones are refused.
func TestDrainLetsRequestsEnd(t *testing.T) {
	e := start(t, newScripted(), Options{MaxBatch: 1})
	var streams []*Stream
	for i := range 4 {
		s, err := e.Generate(t.Context(), Request{Prompt: prompt(3, i), MaxTokens: 30, IgnoreEnd: true})
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	if err := e.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, s := range streams {
		if r := s.Result(); r.Finish != FinishLength || r.Tokens != 30 {
			t.Errorf("request %d: %+v", i, r)
		}
	}
	if _, err := e.Generate(t.Context(), Request{Prompt: []int32{1}}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Drain: %v", err)
	}
	gate := newGated()
	slow := start(t, gate, Options{})
	s, err := slow.Generate(t.Context(), Request{Prompt: []int32{1}, MaxTokens: 3})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := slow.Drain(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("with a deadline: %v", err)
	}
	closed := make(chan struct{})
	go func() {
		slow.Close()
		close(closed)
	}()
	gate.passUntil(closed)
	if s.Result().Finish == FinishStop {
		t.Error("the request ended by itself")
	}
}

// TestTooLargeRequestsAreRefused gives an engine memory for few tokens.
func TestTooLargeRequestsAreRefused(t *testing.T) {
	m, b := openOn(t, golden.Dir(t, "dense"), model.Options{})
	probe := &Engine{model: m, o: Options{Drafter: m.Drafter()}}
	e, err := New(m, state.NewPool(b, probe.bytes(128)), Options{Drafter: m.Drafter()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	_, err = e.Generate(t.Context(), Request{Prompt: prompt(100, 1), MaxTokens: 100})
	if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "200 tokens") {
		t.Errorf("200 tokens in memory for 128: %v", err)
	}
	ids, r, err := collect(e, Request{Prompt: prompt(100, 1), IgnoreEnd: true, Depth: spec.DepthOff})
	if err != nil || r.Finish != FinishLength || len(ids) < 1 || len(ids) > 28 {
		t.Errorf("as many as there is memory for: %d tokens, %+v, %v", len(ids), r, err)
	}
}

// TestPrefillIsForOthers prefills a prompt without an answer, which is the prefix of a later one.
func TestPrefillIsForOthers(t *testing.T) {
	m, pool := openModel(t, golden.Dir(t, "dense"), model.Options{})
	other := append(prompt(90, 3), 5)
	turn := Request{Prompt: slices.Concat(other, []int32{6, 7}), MaxTokens: 8, Depth: 3, Hash: true, IgnoreEnd: true}
	plain, err := New(m, pool, Options{})
	if err != nil {
		t.Fatal(err)
	}
	miss, missed, err := collect(plain, turn)
	if err != nil {
		t.Fatal(err)
	}
	plain.Close()
	e, err := New(m, pool, Options{Drafter: m.Drafter(), Cache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	text := prompt(150, 2)
	cold, r, err := collect(e, Request{Prompt: text, MaxTokens: 8, Depth: 3, Hash: true, Sampling: sample.Options{Seed: 1, Temperature: 1}})
	if err != nil || r.Cached != 0 {
		t.Fatal(r, err)
	}
	prefillNow(t, e, Prefill{Conversation: "a", Prompt: other, Depth: 3})
	hit, w, err := collect(e, turn)
	if err != nil || w.Cached != len(other) || !slices.Equal(hit, miss) || w.LogitsHash != missed.LogitsHash {
		t.Errorf("%v with %d tokens known of %d that were read before and hash %x, %v; want %v with hash %x",
			hit, w.Cached, len(other), w.LogitsHash, err, miss, missed.LogitsHash)
	}
	again, a, err := collect(e, Request{Prompt: text, MaxTokens: 8, Depth: 3, Hash: true, Sampling: sample.Options{Seed: 1, Temperature: 1}})
	if err != nil || a.Cached != 128 || !slices.Equal(again, cold) || a.LogitsHash != r.LogitsHash {
		t.Errorf("from the cache: %v %+v %v, want %v %+v", again, a, err, cold, r)
	}
	// The next turn begins with the answer, all but its last token.
	next := slices.Concat(text, cold, []int32{9, 9})
	_, n, err := collect(e, Request{Prompt: next, MaxTokens: 2, Depth: 3})
	if err != nil || n.Cached != len(text)+len(cold)-1 {
		t.Errorf("%d tokens known of %d, %v", n.Cached, len(text)+len(cold), err)
	}
}

// TestDiskOutlivesTheEngine has a second engine resume the prefix of the first.
func TestDiskOutlivesTheEngine(t *testing.T) {
	m, pool := openModel(t, golden.Dir(t, "dense"), model.Options{})
	dir := t.TempDir()
	request := Request{Prompt: prompt(150, 2), MaxTokens: 8, Depth: 2, Hash: true}
	run := func() ([]int32, Result) {
		t.Helper()
		disk, err := store.OpenDisk(dir, store.DiskOptions{Bytes: 1 << 30, Fingerprint: "dense"})
		if err != nil {
			t.Fatal(err)
		}
		defer disk.Close()
		e, err := New(m, pool, Options{Drafter: m.Drafter(), Cache: true, Disk: disk})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		ids, r, err := collect(e, request)
		if err != nil {
			t.Fatal(err)
		}
		return ids, r
	}
	cold, first := run()
	warm, second := run()
	if first.Cached != 0 || second.Cached != 128 {
		t.Errorf("%d, then %d tokens known", first.Cached, second.Cached)
	}
	if !slices.Equal(cold, warm) || first.LogitsHash != second.LogitsHash {
		t.Errorf("%v with hash %x, then %v with %x", cold, first.LogitsHash, warm, second.LogitsHash)
	}
}

// TestWaitingPrefixesStayOnDisk checks that only prefixes of requests that can start are read from disk: the first one, if
// there is one place.
func TestWaitingPrefixesStayOnDisk(t *testing.T) {
	m, pool := openModel(t, golden.Dir(t, "dense"), model.Options{})
	dir := t.TempDir()
	open := func(m model.Model) (*Engine, *store.Disk) {
		disk, err := store.OpenDisk(dir, store.DiskOptions{Bytes: 1 << 30, Fingerprint: "dense"})
		if err != nil {
			t.Fatal(err)
		}
		e, err := New(m, pool, Options{Cache: true, Disk: disk, MaxBatch: 1})
		if err != nil {
			t.Fatal(err)
		}
		return e, disk
	}
	e, disk := open(m)
	for i := range 5 {
		if _, _, err := collect(e, Request{Prompt: prompt(80, i), MaxTokens: 1}); err != nil {
			t.Fatal(err)
		}
	}
	e.Close()
	disk.Close()
	gate := &gated{m, make(chan int32), make(chan struct{})}
	e, disk = open(gate)
	running := begin(t, e, Request{Prompt: prompt(5, 9), MaxTokens: 3, IgnoreEnd: true})
	<-gate.begun
	ctx, cancel := context.WithCancel(t.Context())
	for i := range 5 {
		if _, err := e.Generate(ctx, Request{Prompt: prompt(80, i), MaxTokens: 1}); err != nil {
			t.Fatal(err)
		}
	}
	gate.let <- struct{}{}
	<-gate.begun // the first lookup has begun
	cancel()
	gate.let <- struct{}{}
	gate.passUntil(ended(running))
	e.Close()
	disk.Close() // which ends what was begun
	if n := disk.Stats().Read; n != 1 {
		t.Errorf("%d files were read, want 1", n)
	}
}
