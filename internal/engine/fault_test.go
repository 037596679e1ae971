package engine

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/sample"
)

// fuse panics at one of its calls, counted from 1; 0: never.
type fuse struct {
	at    int64
	calls atomic.Int64
}

func (f *fuse) burn() {
	if f.calls.Add(1) == f.at {
		panic("blown fuse")
	}
}

func (f *fuse) blown() bool { return f.at > 0 && f.calls.Load() >= f.at }

// fusedConstraint is a constraint with a fuse that allows everything.
type fusedConstraint struct{ allowed, accept *fuse }

func (c *fusedConstraint) Allowed([]int32) []uint64 {
	c.allowed.burn()
	return nil
}

func (c *fusedConstraint) Accept(int32) { c.accept.burn() }

// fusedDrafter is a drafter with a fuse.
type fusedDrafter struct {
	spec.Drafter
	fuse
}

func (d *fusedDrafter) Draft(batch []spec.Run) ([]spec.Draft, error) {
	d.burn()
	return d.Drafter.Draft(batch)
}

// fusedContext is a context with a fuse.
type fusedContext struct {
	context.Context
	*fuse
}

func (c fusedContext) Err() error {
	c.burn()
	return nil
}

// journal counts log lines, and panics at lines with a certain text.
type journal struct {
	slog.Handler
	bomb string

	mu   sync.Mutex // protects what follows
	text *bytes.Buffer
}

func newJournal(bomb string) *journal {
	text := new(bytes.Buffer)
	return &journal{Handler: slog.NewTextHandler(text, nil), bomb: bomb, text: text}
}

func (j *journal) Handle(ctx context.Context, r slog.Record) error {
	if j.bomb != "" && strings.Contains(r.Message, j.bomb) {
		panic("blown journal")
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.Handler.Handle(ctx, r)
}

// stacks is the number of lines with a stack.
func (j *journal) stacks() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.text.String(), "stack=\"goroutine")
}

// neighbors are requests in an engine with a failing one.
func neighbors(t *testing.T, e *Engine, n int, depth spec.Depth) (wait func(want func(int) []int32)) {
	t.Helper()
	var streams []*Stream
	for i := range n {
		s, err := e.Generate(t.Context(), Request{Prompt: prompt(40+i, i), MaxTokens: 12, IgnoreEnd: true, Depth: depth})
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	return func(want func(int) []int32) {
		t.Helper()
		for i, s := range streams {
			var ids []int32
			for token, err := range s.Tokens() {
				if err != nil {
					t.Errorf("neighbor %d: %v", i, err)
				}
				ids = append(ids, token.ID)
			}
			if !slices.Equal(ids, want(i)) {
				t.Errorf("neighbor %d says %v, want %v", i, ids, want(i))
			}
		}
	}
}

// faultModel is a real model, and the expected answers of neighbors.
func faultModel(t *testing.T) (*headed, *state.Pool, func(int) []int32) {
	t.Helper()
	m, pool := openModel(t, golden.Dir(t, "dense"), model.Options{Quantize: 8})
	plain, err := New(m, pool, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var answers [][]int32
	for i := range 3 {
		ids, _, err := collect(plain, Request{Prompt: prompt(40+i, i), MaxTokens: 12, IgnoreEnd: true})
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, ids)
	}
	plain.Close()
	return m, pool, func(i int) []int32 { return answers[i] }
}

// faultBench is an engine on that model.
func faultBench(t *testing.T, change func(*Options), log *journal) (*Engine, *state.Pool, func(int) []int32) {
	t.Helper()
	m, pool, want := faultModel(t)
	o := Options{Drafter: m.Drafter(), Log: slog.New(log)}
	change(&o)
	e, err := New(m, pool, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e, pool, want
}

// isFault reports whether an error is that of a panic, without its stack in the text.
func isFault(err error) bool {
	var f *Fault
	return errors.As(err, &f) && !strings.Contains(err.Error(), "goroutine")
}

// TestConstraintThatPanicsEndsItsRequest has Allowed or Accept panic, in verification and in drafting, early and late, in a
// batch: other requests are unchanged.
func TestConstraintThatPanicsEndsItsRequest(t *testing.T) {
	m, pool, want := faultModel(t)
	for _, asked := range []bool{true, false} {
		for _, depth := range []spec.Depth{spec.DepthOff, 3} {
			calls := []int64{1, 2, 3, 4, 7}
			if brief(t) {
				calls = []int64{1, 4}
			}
			for _, at := range calls {
				log := newJournal("")
				e, err := New(m, pool, Options{Drafter: m.Drafter(), Log: slog.New(log)})
				if err != nil {
					t.Fatal(err)
				}
				c := &fusedConstraint{&fuse{}, &fuse{}}
				if asked {
					c.allowed.at = at
				} else {
					c.accept.at = at
				}
				wait := neighbors(t, e, 3, depth)
				_, _, err = collect(e, Request{
					Prompt: prompt(30, 9), MaxTokens: 30, IgnoreEnd: true, Depth: depth,
					Sampling: sample.Options{Constraint: func() sample.Constraint { return c }},
				})
				if !isFault(err) || log.stacks() != 1 {
					t.Errorf("asked %v, depth %v, call %d: %v, %d stacks in the log", asked, depth, at, err, log.stacks())
				}
				wait(want)
				e.Close()
				if s := pool.Stats(); s.Used != 0 || s.States != 0 {
					t.Errorf("left behind %+v", s)
				}
			}
		}
	}
}

// fickle is a constraint that allows one id at the first call for a position, and another one later.
type fickle struct {
	said  int
	asked map[int]bool
}

func (c *fickle) Accept(int32) { c.said++ }

func (c *fickle) Allowed(ahead []int32) []uint64 {
	at := c.said + len(ahead)
	id := 5
	if c.asked[at] {
		id = 6
	}
	c.asked[at] = true
	return []uint64{1 << id}
}

// TestConstraintThatChangesEndsItsRequest has a forced token be disallowed: the state cannot be rolled back, so that request
// ends, and no other.
func TestConstraintThatChangesEndsItsRequest(t *testing.T) {
	for _, depth := range []spec.Depth{spec.DepthOff, 3} {
		log := newJournal("")
		e, pool, want := faultBench(t, func(*Options) {}, log)
		wait := neighbors(t, e, 3, depth)
		_, _, err := collect(e, Request{
			Prompt: prompt(30, 9), MaxTokens: 30, IgnoreEnd: true, Depth: depth,
			Sampling: sample.Options{Constraint: func() sample.Constraint { return &fickle{asked: map[int]bool{}} }},
		})
		if !errors.Is(err, errForced) {
			t.Errorf("depth %v: %v, want %v", depth, err, errForced)
		}
		wait(want)
		e.Close()
		if s := pool.Stats(); s.Used != 0 || s.States != 0 {
			t.Errorf("left behind %+v", s)
		}
	}
}

// TestDrafterThatPanicsCostsNoOtherRequest has a drafter panic once: in a round, after a cache hit, and in a background
// prefill.
func TestDrafterThatPanicsCostsNoOtherRequest(t *testing.T) {
	log := newJournal("")
	var d *fusedDrafter
	e, _, want := faultBench(t, func(o *Options) {
		d = &fusedDrafter{Drafter: o.Drafter}
		o.Drafter, o.Cache = d, true
	}, log)
	blow := func() { d.at = d.calls.Load() + 1 }
	request := Request{Prompt: prompt(150, 8), MaxTokens: 4, Depth: 2, IgnoreEnd: true}
	cold, _, err := collect(e, request)
	if err != nil {
		t.Fatal(err)
	}
	blow() // by what is taken from the cache
	if _, _, err := collect(e, request); !isFault(err) || !d.blown() {
		t.Errorf("from the cache: %v", err)
	}
	if ids, r, err := collect(e, request); err != nil || r.Cached != 128 || !slices.Equal(ids, cold) {
		t.Errorf("after it: %v %+v %v", ids, r, err)
	}
	blow() // in advance
	<-prefill(t, e, Prefill{Conversation: "a", Prompt: prompt(80, 7), Depth: 2})
	if s := e.Stats(); s.Background.Dropped != 1 || s.Background.Completed != 0 || s.Faults != 1 {
		t.Errorf("%+v, %d faults", s.Background, s.Faults)
	}
	prefillNow(t, e, Prefill{Conversation: "a", Prompt: prompt(80, 7), Depth: 2})
	blow() // in a round
	if _, _, err := collect(e, Request{Prompt: prompt(20, 6), MaxTokens: 4, Depth: 2, IgnoreEnd: true}); !isFault(err) {
		t.Errorf("in a round: %v", err)
	}
	if log.stacks() != 3 {
		t.Errorf("%d stacks in the log, want 3", log.stacks())
	}
	neighbors(t, e, 3, 2)(want)
}

// TestObserverThatPanicsIsLoggedOnce has every call of an observer fail.
func TestObserverThatPanicsIsLoggedOnce(t *testing.T) {
	log := newJournal("")
	calls := 0
	e, _, want := faultBench(t, func(o *Options) {
		o.Observe = func(Round) {
			calls++
			panic("blown observer")
		}
	}, log)
	neighbors(t, e, 3, 2)(want)
	e.Close()
	if calls < 2 || log.stacks() != 1 {
		t.Errorf("%d calls, %d stacks in the log", calls, log.stacks())
	}
}

// TestContextThatPanicsEndsItsRequest has the Err method of a context panic.
func TestContextThatPanicsEndsItsRequest(t *testing.T) {
	log := newJournal("")
	e, _, want := faultBench(t, func(*Options) {}, log)
	wait := neighbors(t, e, 3, 2)
	for _, at := range []int64{1, 3} {
		s, err := e.Generate(fusedContext{context.Background(), &fuse{at: at}}, Request{Prompt: prompt(30, 9), MaxTokens: 30, IgnoreEnd: true, Depth: spec.DepthOff})
		if err != nil {
			t.Fatal(err)
		}
		for _, err = range s.Tokens() {
		}
		if !isFault(err) {
			t.Errorf("call %d: %v", at, err)
		}
	}
	wait(want)
}

// TestFaultOfNoSequenceEndsWhatRuns has a panic outside of any sequence: running requests end with an error, waiting and
// later ones are served.
func TestFaultOfNoSequenceEndsWhatRuns(t *testing.T) {
	log := newJournal("its sequences are retried one by one") // which is said outside of all nets but the last
	var d *fusedDrafter
	e, pool, want := faultBench(t, func(o *Options) {
		d = &fusedDrafter{Drafter: o.Drafter, fuse: fuse{at: 1}}
		o.Drafter, o.Cache, o.MaxBatch = d, true, 2
	}, log)
	var list []*Stream
	e.locked(func() { // so that two begin together
		for i := range 2 {
			s, err := newSequence(Request{Prompt: prompt(20, i), MaxTokens: 8, Depth: 2, IgnoreEnd: true}, e.model.Info(), e.o.Context)
			if err != nil {
				t.Error(err)
				return
			}
			s.unwatch = func() bool { return true }
			e.waiting.Add(s)
			list = append(list, &s.stream)
		}
		e.signal()
	})
	for i, s := range list {
		var last error
		for _, last = range s.Tokens() {
		}
		if !isFault(last) {
			t.Errorf("request %d: %v", i, last)
		}
	}
	neighbors(t, e, 3, 2)(want)
	if s := e.Stats(); s.Faults != 2 || log.stacks() != 1 {
		t.Errorf("%d faults, %d stacks in the log", s.Faults, log.stacks())
	}
	e.Close()
	if s := pool.Stats(); s.Used != 0 || s.States != 0 {
		t.Errorf("left behind %+v", s)
	}
}

// fusedBackend panics while memory is handed out or copied.
type fusedBackend struct {
	backend.Backend
	fuse
}

func (b *fusedBackend) Copy(dst, src backend.Tensor) {
	b.burn()
	b.Backend.Copy(dst, src)
}

func (b *fusedBackend) Fill(t backend.Tensor, x float32) {
	b.burn()
	b.Backend.Fill(t, x)
}

// TestBrokenMemoryRefusesRequests has a panic in the memory accounting, when memory is taken and when it is shared with the
// cache: later requests are refused with the cause.
func TestBrokenMemoryRefusesRequests(t *testing.T) {
	for at := int64(1); at <= 4; at++ {
		m, b := openOn(t, golden.Dir(t, "dense"), model.Options{Quantize: 8})
		log := newJournal("")
		e, err := New(m, state.NewPool(&fusedBackend{Backend: b, fuse: fuse{at: at}}, 1<<30), Options{Drafter: m.Drafter(), Cache: true, Log: slog.New(log)})
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		var failed atomic.Int64
		for i := range 3 {
			all.Go(func() {
				_, _, err := collect(e, Request{Prompt: prompt(70, i), MaxTokens: 8, IgnoreEnd: true, Depth: spec.DepthOff})
				if isFault(err) || errors.Is(err, ErrBroken) {
					failed.Add(1)
				} else if err != nil {
					t.Errorf("call %d: %v", at, err)
				}
			})
		}
		all.Wait()
		if failed.Load() == 0 {
			t.Errorf("call %d: no request has failed", at)
		}
		if _, _, err := collect(e, Request{Prompt: prompt(5, 1), MaxTokens: 2}); !errors.Is(err, ErrBroken) {
			t.Errorf("call %d: later: %v", at, err)
		}
		if _, err := e.Prefill(Prefill{Conversation: "a", Prompt: prompt(5, 1)}); !errors.Is(err, ErrBroken) {
			t.Errorf("call %d: a later prefill: %v", at, err)
		}
		if err := e.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		e.Close()
	}
}
