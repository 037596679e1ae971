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

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/split"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/sample"
)

// errLaunch is an error after which a device works again.
var errLaunch = errors.New("a launch has failed")

// failing is requests of an engine on a device with one failing call.
type failing struct {
	device *backendtest.Opaque
	model  *numbered
	pool   *state.Pool
	want   [][]int32
	groups int // rounds in flight
}

// failingRequest is request i. Every second one is longer than a page, which the cache keeps.
func failingRequest(i int) Request {
	return Request{Prompt: prompt(20+50*(i%2), i), MaxTokens: 6, IgnoreEnd: true, Depth: 2}
}

func newFailing(t *testing.T) *failing {
	t.Helper()
	b := backendtest.NewOpaque(backendtest.CPU(t, backend.Options{Threads: 1}))
	return newFailingOn(t, b, b, 0)
}

// newFailingOn is newFailing on a device, one of whose devices fails.
func newFailingOn(t *testing.T, b backend.Backend, fails *backendtest.Opaque, groups int) *failing {
	t.Helper()
	f := &failing{device: fails, groups: groups, model: &numbered{headed: load(t, golden.Dir(t, "dense"), model.Options{Quantize: 8}, b)}, pool: state.NewPool(b, 1<<30)}
	e := f.engine(t, nil)
	for i := range 3 {
		ids, _, err := collect(e, failingRequest(i))
		if err != nil {
			t.Fatal(err)
		}
		f.want = append(f.want, ids)
	}
	e.Close()
	return f
}

func (f *failing) engine(t *testing.T, ended func(error)) *Engine {
	t.Helper()
	o := Options{Drafter: f.model.Drafter(), Cache: true, groups: f.groups, Log: slog.New(slog.DiscardHandler), Broken: ended}
	if f.groups > 1 {
		o.RoundTokens = 16 // chunks of prompts
	}
	e, err := New(f.model, f.pool, o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// all runs all requests at once and returns their errors. Tokens before an error must be right.
func (f *failing) all(t *testing.T, e *Engine) []error {
	t.Helper()
	errs := make([]error, len(f.want))
	var wait sync.WaitGroup
	for i, want := range f.want {
		wait.Go(func() {
			ids, _, err := collect(e, failingRequest(i))
			if errs[i] = err; len(ids) > len(want) || !slices.Equal(ids, want[:len(ids)]) || err == nil && len(ids) < len(want) {
				t.Errorf("request %d says %v, %v, want %v", i, ids, err, want)
			}
		})
	}
	wait.Wait()
	return errs
}

// close ends an engine and checks that all memory was released.
func (f *failing) close(t *testing.T, e *Engine) {
	t.Helper()
	e.Close()
	if s := f.pool.Stats(); s.Used != 0 || s.States != 0 {
		t.Errorf("left behind %+v", s)
	}
}

// TestFailureOfTheDeviceEndsNoRequest has a device fail once, at any of its calls: in a prompt, a round with drafts, the
// drafter, a copy for the cache, queued work of an ended sequence. All answers are right, also later ones from the cache.
func TestFailureOfTheDeviceEndsNoRequest(t *testing.T) {
	step := 97 // of some 1,500 calls
	if long {
		step = 3
	}
	f := newFailing(t)
	for at := 1; ; at += step {
		e := f.engine(t, func(err error) { t.Errorf("call %d: broken: %v", at, err) })
		f.device.BreakAt(at, errLaunch)
		for range 2 { // the second time the cache has the prompts
			for i, err := range f.all(t, e) {
				if err != nil {
					t.Errorf("call %d, request %d: %v", at, i, err)
				}
			}
		}
		happened := f.device.Broken()
		f.close(t, e)
		if !happened {
			break // there are fewer calls
		}
	}
}

// gate is a constraint that allows everything and stops the engine at the first token.
type gate struct {
	once          sync.Once
	reached, open chan struct{}
}

func newGate() *gate { return &gate{reached: make(chan struct{}), open: make(chan struct{})} }

func (g *gate) Allowed([]int32) []uint64 { return nil }

func (g *gate) Accept(int32) {
	g.once.Do(func() {
		close(g.reached)
		<-g.open
	})
}

// meet starts all requests at once. The engine stops at the first token of request 0 until resume is called, and then admits the
// others in its next step.
func (f *failing) meet(t *testing.T, e *Engine) (streams []*Stream, resume func()) {
	t.Helper()
	g := newGate()
	streams = make([]*Stream, len(f.want))
	for _, i := range []int{0, 2, 1} {
		r := failingRequest(i)
		if i == 0 {
			r.Sampling.Constraint = func() sample.Constraint { return g }
		}
		var err error
		if streams[i], err = e.Generate(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			<-g.reached
		}
	}
	return streams, func() { close(g.open) }
}

// TestFailureRestartsWaitingSequences has a device fail once, at every fifth call of the rounds in which two prompts arrive while a
// text is generated. The first prompt takes all prompt tokens of the round. The other waits, with a state that is being
// copied from the cache: it is not part of the failed round.
func TestFailureRestartsWaitingSequences(t *testing.T) {
	step := 5 // layers repeat their calls
	if long {
		step = 1
	}
	f := newFailing(t)
	for at := 1; at < 120; at += step {
		e := f.engine(t, func(err error) { t.Errorf("call %d: broken: %v", at, err) })
		if _, _, err := collect(e, failingRequest(1)); err != nil {
			t.Fatal(err)
		}
		streams, resume := f.meet(t, e)
		f.device.BreakAt(at, errLaunch)
		resume()
		for i, s := range streams {
			if ids, err := read(s); err != nil || !slices.Equal(ids, f.want[i]) {
				t.Errorf("call %d: request %d says %v, %v, want %v", at, i, ids, err, f.want[i])
			}
		}
		f.close(t, e)
	}
}

// TestPersistentFailureEndsItsRequest has every call fail that one request needs: it ends with the error of the device, and
// the engine continues.
func TestPersistentFailureEndsItsRequest(t *testing.T) {
	f := newFailing(t)
	e := f.engine(t, func(err error) { t.Errorf("broken: %v", err) })
	for k := range 3 {
		f.device.BreakEvery(4+k, errLaunch) // a prompt takes more
		if _, _, err := collect(e, Request{Prompt: prompt(30, 5), MaxTokens: 20, IgnoreEnd: true, Depth: spec.DepthOff}); !errors.Is(err, errLaunch) {
			t.Errorf("every %d: %v", 4+k, err)
		}
		f.device.BreakAt(0, nil)
		for i, err := range f.all(t, e) {
			if err != nil {
				t.Errorf("after it, request %d: %v", i, err)
			}
		}
	}
	f.close(t, e)
}

// TestLostDeviceEndsEverything loses a device at some of its calls: running and waiting requests end, later ones are
// refused, Broken is called once, and all memory is released.
func TestLostDeviceEndsEverything(t *testing.T) {
	calls := []int{1, 2, 60, 333, 700}
	if long {
		calls = nil
		for at := 1; at < 900; at += 31 {
			calls = append(calls, at)
		}
	}
	for _, at := range calls {
		f := newFailing(t)
		told := 0
		e := f.engine(t, func(err error) {
			if told++; !errors.Is(err, ErrBroken) || !backend.Lost(err) {
				t.Errorf("call %d: told of %v", at, err)
			}
		})
		f.device.BreakAt(at, backendtest.LostError{})
		for i, err := range f.all(t, e) {
			if err != nil && !errors.Is(err, ErrBroken) && !backend.Lost(err) {
				t.Errorf("call %d, request %d: %v", at, i, err)
			}
		}
		_, _, err := collect(e, failingRequest(0))
		if !backend.Lost(err) {
			t.Errorf("call %d: later: %v", at, err)
		}
		if _, err = e.Generate(t.Context(), failingRequest(0)); !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), "the device is lost") {
			t.Errorf("call %d: refused with %v", at, err)
		}
		if err := e.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		f.close(t, e)
		if told != 1 {
			t.Errorf("call %d: told %d times", at, told)
		}
	}
}

// forgetful is a device that loses its memory when lose is called, and comes back unless it stays away.
type forgetful struct {
	backend.Backend
	ctx      context.Context
	lose     context.CancelFunc
	restored int
	away     error
}

func (d *forgetful) Restore() (lost bool, err error) {
	if lost = d.ctx.Err() != nil; lost && d.away == nil {
		d.ctx, d.lose = context.WithCancel(context.Background())
		d.restored++
	}
	return lost, d.away
}

func (d *forgetful) WhenLost(ctx context.Context, f func()) {
	stop := context.AfterFunc(d.ctx, f)
	context.AfterFunc(ctx, func() { stop() })
}

// TestIdleEngineRenewsItsDevice has a device lose its memory while nothing runs: without a request, it is restored and the cache is
// emptied, or the engine ends if the device stays away.
func TestIdleEngineRenewsItsDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &forgetful{Backend: backendtest.CPU(t, backend.Options{Threads: 1})}
		d.ctx, d.lose = context.WithCancel(t.Context())
		b, err := split.New(func(backend.Part) int { return 0 }, d)
		if err != nil {
			t.Fatal(err)
		}
		f := newFailingOn(t, b, nil, 0)
		var broken error
		e := f.engine(t, func(err error) { broken = err })
		for i := range 2 {
			if ids, r, err := collect(e, failingRequest(1)); err != nil || r.Cached > 0 || !slices.Equal(ids, f.want[1]) {
				t.Errorf("%d tokens were cached; says %v, %v, want %v", r.Cached, ids, err, f.want[1])
			}
			synctest.Wait() // it is idle
			d.lose()
			if synctest.Wait(); d.restored != i+1 {
				t.Errorf("restored %d times after %d losses", d.restored, i+1)
			}
		}
		d.away = backendtest.LostError{}
		d.lose()
		if synctest.Wait(); !errors.Is(broken, ErrBroken) || !errors.Is(broken, d.away) {
			t.Errorf("broken by %v", broken)
		}
		f.close(t, e)
	})
}

// The first pass of a shape is recorded: its time does not predict later ones.
func TestRecordedPassIsNotMeasured(t *testing.T) {
	for tokens, known := range map[int]bool{2: false, 3: true} { // one pass of a row, two of them
		b := backendtest.NewOpaque(backendtest.CPU(t, backend.Options{Threads: 1}))
		m := load(t, golden.Dir(t, "dense"), model.Options{Quantize: 8}, b)
		e, err := New(m, state.NewPool(b, 1<<30), Options{Drafter: m.Drafter()})
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = collect(e, Request{Prompt: prompt(20, 1), MaxTokens: tokens, IgnoreEnd: true, Depth: spec.DepthOff})
		if e.Close(); err != nil {
			t.Fatal(err)
		}
		if got := e.cost().Time(1, 0); (got > 0) != known {
			t.Errorf("after %d tokens a pass takes %v s", tokens, got)
		}
	}
}
