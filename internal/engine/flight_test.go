package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/split"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
)

// staged is a device of three, which compute layers in turn. The first also computes the end of a pass.
func staged(t *testing.T) (b backend.Backend, stages []*backendtest.Opaque) {
	t.Helper()
	var list []backend.Backend
	for range 3 {
		o := backendtest.NewOpaque(backendtest.CPU(t, backend.Options{Threads: 1}))
		stages, list = append(stages, o), append(list, o)
	}
	return inTurn(t, list...), stages
}

// inTurn is a device of several, which compute layers in turn.
func inTurn(t *testing.T, list ...backend.Backend) backend.Backend {
	t.Helper()
	b, err := split.New(func(p backend.Part) int {
		if p.Kind == backend.LayerPart || p.Kind == backend.ExpertsPart {
			return p.Layer % len(list)
		}
		return 0
	}, list...)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestRoundsInFlightChangeNothing runs workloads with one, two, three and four rounds in flight on three stages.
func TestRoundsInFlightChangeNothing(t *testing.T) {
	names := []string{"dense"}
	if long {
		names = append(names, "moe")
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			device, _ := staged(t)
			m, b := embeddingOn(t, name, device)
			workloadsChangeNothing(t, m, b, 7, func(i int, w *workload) {
				w.options.groups = 4 - i%4
				for j := range w.pieces { // beside offline requests there is one group
					w.pieces[j].Offline = w.pieces[j].Offline && i < 2
				}
			})
			if t.Logf("at most %d rounds were in flight", b.most); b.flying != 0 {
				t.Errorf("%d rounds are in flight", b.flying)
			}
		})
	}
}

// together has all requests run at once.
func (f *failing) together(t *testing.T, e *Engine) {
	t.Helper()
	streams, resume := f.meet(t, e)
	resume()
	f.read(t, streams, func(error) bool { return false })
}

// read checks that requests have their tokens, or end with an error that may be.
func (f *failing) read(t *testing.T, streams []*Stream, may func(error) bool) {
	t.Helper()
	for i, s := range streams {
		want := f.want[i]
		ids, err := read(s)
		if err != nil && may(err) && len(ids) <= len(want) {
			want = want[:len(ids)]
		}
		if err != nil && !may(err) || !slices.Equal(ids, want) {
			t.Errorf("request %d says %v, %v, want %v", i, ids, err, want)
		}
	}
}

// numbered is a model that knows the highest number of a group. Groups have the lowest numbers that are not in flight.
type numbered struct {
	*headed
	highest int
}

func (m *numbered) Group(i int) {
	m.highest = max(m.highest, i)
	m.headed.Group(i)
}

// TestThreeRoundsAreInFlight has three requests, each in a round of its own.
func TestThreeRoundsAreInFlight(t *testing.T) {
	device, stages := staged(t)
	f := newFailingOn(t, device, stages[0], 3)
	e := f.engine(t, nil)
	f.together(t, e)
	if f.close(t, e); f.model.highest != 2 {
		t.Errorf("the highest number of a group is %d", f.model.highest)
	}
}

// TestFailureInFlightEndsNoRequest has a stage fail once, at any of its calls after three requests have met, which are in rounds
// of their own: at the first calls two prompts come, later all generate, and in the end the cache has the prompts.
func TestFailureInFlightEndsNoRequest(t *testing.T) {
	step := 61
	if long {
		step = 3
	}
	device, stages := staged(t)
	for s, stage := range stages {
		f := newFailingOn(t, device, stage, 3)
		for at := 1 + s; ; at += step {
			e := f.engine(t, func(err error) { t.Errorf("stage %d, call %d: broken: %v", s, at, err) })
			f.model.highest = 0
			streams, resume := f.meet(t, e)
			f.device.BreakAt(at, errLaunch)
			resume()
			f.read(t, streams, func(error) bool { return false })
			f.together(t, e)
			happened := f.device.Broken()
			if f.close(t, e); f.model.highest != 2 {
				t.Errorf("stage %d, call %d: the highest number of a group is %d", s, at, f.model.highest)
			}
			if !happened {
				break
			}
		}
	}
}

// short is a device without memory for passes of a second group.
type short struct {
	*headed
	full  bool
	group int
}

func (s *short) Group(i int) {
	s.group = i
	s.headed.Group(i)
}

func (s *short) Forward(batch []model.Span) (model.Output, error) {
	if s.group > 0 {
		s.full = true
		return model.Output{}, errors.New("no memory")
	}
	return s.headed.Forward(batch)
}

// TestPassesWithoutMemoryAreNotLaunched has all requests end with one round at a time.
func TestPassesWithoutMemoryAreNotLaunched(t *testing.T) {
	device, stages := staged(t)
	f := newFailingOn(t, device, stages[0], 0)
	m := &short{headed: f.model.headed}
	e, err := New(m, f.pool, Options{Drafter: f.model.Drafter(), groups: 3, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	f.together(t, e)
	if f.close(t, e); !m.full || m.group != 0 {
		t.Errorf("a second group was tried: %t, and the last was %d", m.full, m.group)
	}
	m.full = false
	log := newJournal("")
	if e, err = New(m, f.pool, Options{Drafter: f.model.Drafter(), RoundTokens: 8, Log: slog.New(log)}); err != nil {
		t.Fatal(err)
	}
	if ids, _, err := collect(e, failingRequest(1)); err != nil || !slices.Equal(ids, f.want[1]) {
		t.Errorf("a prompt in chunks says %v, %v, want %v", ids, err, f.want[1])
	}
	if f.close(t, e); !m.full || m.group != 0 || log.stacks() > 0 {
		t.Errorf("a second chunk was tried: %t, the last group was %d, %s", m.full, m.group, log.text)
	}
}

// TestLostStageEndsEverything loses a stage while three rounds are in flight.
func TestLostStageEndsEverything(t *testing.T) {
	for i, at := range []int{60, 70, 99} {
		device, stages := staged(t)
		f := newFailingOn(t, device, stages[i], 3)
		told := 0
		e := f.engine(t, func(error) { told++ })
		streams, resume := f.meet(t, e)
		f.device.BreakAt(at, backendtest.LostError{})
		resume()
		f.read(t, streams, func(err error) bool { return errors.Is(err, ErrBroken) || backend.Lost(err) })
		if _, _, err := collect(e, failingRequest(0)); !backend.Lost(err) {
			t.Errorf("call %d: later: %v", at, err)
		}
		if err := e.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		if f.close(t, e); told != 1 || f.model.highest != 2 {
			t.Errorf("call %d: told %d times, the highest number of a group is %d", at, told, f.model.highest)
		}
	}
}

// stored is the chunk behind which the cache stores the state: no other follows before it has landed.
const stored = 3

// following is a stage whose passes begin when the next ones have begun on the stage before it, as far as those are launched before
// the engine waits for any.
type following struct {
	backend.Backend
	before *following // nil: they wait for nothing
	begun  []chan struct{}
	n      int
	alone  atomic.Int64 // passes that waited too long
}

func (f *following) Pass(p backend.Pass, queue func()) {
	if f.n < len(f.begun) {
		close(f.begun[f.n])
		if f.n++; f.before != nil && f.n < len(f.begun) && f.n%stored != 0 {
			select {
			case <-f.before.begun[f.n]:
			case <-time.After(patience):
				f.alone.Add(1)
			}
		}
	}
	f.Backend.Pass(p, queue)
}

// noting is a drafter that notes what it is fed.
type noting struct {
	spec.Drafter
	on    backend.Backend
	notes []string
}

func (d *noting) Draft(batch []spec.Run) ([]spec.Draft, error) {
	for _, r := range batch {
		rows, err := d.on.Host(r.Hidden)
		if err != nil {
			return nil, err
		}
		d.notes = append(d.notes, fmt.Sprintln(r.Text, r.State.Len(), rows))
	}
	return d.Drafter.Draft(batch)
}

// TestChunksOfAPromptFollowOneAnother has the third of three stages compute a chunk only when the second computes the next one.
// The head and the cache get the rows of all chunks, as they do of one at a time.
func TestChunksOfAPromptFollowOneAnother(t *testing.T) {
	const chunks = 7
	var results []Result
	var notes [][]string
	for _, c := range []struct{ groups, meets int }{{1, 0}, {0, 0}, {0, chunks}} {
		second := &following{Backend: backendtest.CPU(t, backend.Options{Threads: 1})}
		third := &following{Backend: backendtest.CPU(t, backend.Options{Threads: 1}), before: second}
		b := inTurn(t, backendtest.CPU(t, backend.Options{Threads: 1}), second, third)
		m := load(t, golden.Dir(t, "dense"), model.Options{Quantize: 8}, b)
		d := &noting{Drafter: m.Drafter(), on: b}
		o := Options{Drafter: d, Cache: true, RoundTokens: 8, groups: c.groups}
		if c.meets > 0 { // notes wait for all stages
			o.Drafter = d.Drafter
		}
		e, err := New(m, state.NewPool(b, 1<<30), o)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 { // the last is from the cache
			for i == 1 && len(second.begun) < c.meets { // the stages have all memory that they need
				second.begun, third.begun = append(second.begun, make(chan struct{})), append(third.begun, make(chan struct{}))
			}
			_, result, err := collect(e, Request{
				Prompt: prompt(8*chunks, min(i, 1)), Boundaries: []int{8 * stored}, MaxTokens: 8, IgnoreEnd: true, Hash: true, Depth: 2,
			})
			if err != nil {
				t.Fatal(err)
			}
			results = append(results, result)
		}
		if e.Close(); third.alone.Load() > 0 || third.n < c.meets {
			t.Errorf("%d of %d chunks were computed alone", third.alone.Load(), third.n)
		}
		notes = append(notes, d.notes)
	}
	if !slices.Equal(notes[0], notes[1]) {
		t.Errorf("with chunks in flight the head is fed %v, want %v", notes[1], notes[0])
	}
	for i, x := range results {
		if x.LogitsHash != results[i%3].LogitsHash || x.Cached != i%3/2*8*stored {
			t.Errorf("request %d: %+v, want %+v", i, x, results[i%3])
		}
	}
}

// TestCanceledPromptIsNotReadToItsEnd cancels a request when the first chunks of its prompt are in flight.
func TestCanceledPromptIsNotReadToItsEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	own, passes := backendtest.CPU(t, backend.Options{Threads: 1}), 0
	b := inTurn(t, own, &meeting{Backend: backendtest.CPU(t, backend.Options{Threads: 1}), pass: func() { passes++; cancel() }})
	m := load(t, golden.Dir(t, "dense"), model.Options{Quantize: 8}, b)
	e, err := New(m, state.NewPool(b, 1<<30), Options{RoundTokens: 8, groups: 3})
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.Generate(ctx, Request{Prompt: prompt(400, 1), MaxTokens: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := read(s); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if e.Close(); passes > 16 { // two layers on the stage
		t.Errorf("%d passes", passes)
	}
}

// meeting is a stage that calls a function before each pass.
type meeting struct {
	backend.Backend
	pass func()
}

func (m *meeting) Pass(p backend.Pass, queue func()) {
	m.pass()
	m.Backend.Pass(p, queue)
}

// TestPanicsInFlightEndOneRequest has the drafter or a stage panic once, at any call, while chunks of prompts are in flight. A
// sequence that was alone in its round ends.
func TestPanicsInFlightEndOneRequest(t *testing.T) {
	var fuses [2]*fuse // of the drafter and of a stage
	device, stages := staged(t)
	f := newFailingOn(t, device, stages[0], 0)
	device = inTurn(t, stages[0], stages[1], &meeting{stages[2], func() { fuses[1].burn() }})
	fuses[1] = &fuse{}
	f.model, f.pool = &numbered{headed: load(t, golden.Dir(t, "dense"), model.Options{Quantize: 8}, device)}, state.NewPool(device, 1<<30)
	for i := range fuses {
		for at := int64(1); ; at += 3 {
			d := &fusedDrafter{Drafter: f.model.Drafter()}
			fuses = [2]*fuse{&d.fuse, {}}
			log := newJournal("")
			e, err := New(f.model, f.pool, Options{Drafter: d, groups: 2, RoundTokens: 8, Log: slog.New(log)})
			if err != nil {
				t.Fatal(err)
			}
			streams, resume := f.meet(t, e)
			fuses[i].at = fuses[i].calls.Load() + at
			resume()
			faults := 0
			for j, s := range streams {
				ids, err := read(s)
				if err != nil {
					faults++
				}
				if err != nil && !isFault(err) || len(ids) > len(f.want[j]) || !slices.Equal(ids, f.want[j][:len(ids)]) || err == nil && len(ids) < len(f.want[j]) {
					t.Errorf("fuse %d, call %d: request %d says %v, %v, want %v", i, at, j, ids, err, f.want[j])
				}
			}
			if f.close(t, e); faults > 1 || log.stacks() > 1 {
				t.Errorf("fuse %d, call %d: %d requests end, %s", i, at, faults, log.text)
			}
			if !fuses[i].blown() {
				break
			}
		}
	}
}

// interrupted is a model that calls a function before one of its passes.
type interrupted struct {
	*headed
	passes int // until then
	f      func()
}

func (m *interrupted) Forward(batch []model.Span) (model.Output, error) {
	if m.passes--; m.passes == 0 {
		m.f()
	}
	return m.headed.Forward(batch)
}

// TestDraftsInFlightStay preempts a request, whose text is then read again in chunks. When the chunk before the last token lands, that
// token is in flight with its drafts, and gets no others.
func TestDraftsInFlightStay(t *testing.T) {
	device, _ := staged(t)
	m := &interrupted{headed: load(t, golden.Dir(t, "dense"), model.Options{Quantize: 8}, device)}
	for n := range 8 {
		r := Request{Prompt: prompt(9+n, 1), MaxTokens: 12, IgnoreEnd: true, Depth: 2}
		var want []int32
		for i := range 2 {
			calls := 0
			d := &oracle{answers: [][]int32{slices.Concat(r.Prompt, want)}, vocab: int32(m.Info().Vocab)}
			d.wrong = func(_, j int) bool { // each draft has one right token
				calls++
				return calls/2%2 == j
			}
			e, err := New(m, state.NewPool(device, 1<<30), Options{Drafter: d, RoundTokens: 8, MaxBatch: 1})
			if err != nil {
				t.Fatal(err)
			}
			var other *Stream
			if i == 1 {
				m.passes, m.f = 4, func() {
					if other, err = e.Generate(t.Context(), Request{Prompt: prompt(4, 2), MaxTokens: 1, Priority: 1}); err != nil {
						t.Error(err)
					}
				}
			}
			ids, result, err := collect(e, r)
			if err != nil {
				t.Fatal(err)
			}
			if want == nil {
				want = ids
			}
			if e.Close(); !slices.Equal(ids, want) || result.Preempted != i {
				t.Errorf("%d tokens: %v, want %v, preempted %d times", len(r.Prompt), ids, want, result.Preempted)
			}
			if other != nil {
				if _, err := read(other); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// sleeping is a device that sleeps in place of longer computing.
type sleeping struct {
	backend.Backend
	pass time.Duration
}

func (s *sleeping) Pass(p backend.Pass, queue func()) {
	s.Backend.Pass(p, queue)
	time.Sleep(s.pass)
}

// TestStagesAreBusy compares four rounds in flight with one where four stages sleep in place of computing, and chunks of a prompt with one
// at a time, in simulated time. Without any wait, answers of 8 and 32 tokens gain 3.66 and 3.91, and 8 and 32 chunks 2.91 and 3.66.
func TestStagesAreBusy(t *testing.T) {
	for _, c := range []struct {
		n                       int
		answers, queued, chunks float64
	}{{8, 3.5, 3.4, 2.9}, {32, 3.85, 3.8, 3.65}} {
		synctest.Test(t, func(t *testing.T) {
			list := []backend.Backend{&sleeping{backendtest.CPU(t, backend.Options{Threads: 1}), 15 * time.Millisecond}}
			for range 3 {
				list = append(list, &sleeping{backendtest.CPU(t, backend.Options{Threads: 1}), 30 * time.Millisecond})
			}
			dev, err := split.New(func(p backend.Part) int {
				if p.Kind == backend.LayerPart {
					return 1 + p.Layer*3/4 // of four
				}
				return 0
			}, list...)
			if err != nil {
				t.Fatal(err)
			}
			m := load(t, golden.Dir(t, "dense"), model.Options{Quantize: 8}, dev)
			one := throughput(t, m, dev, 1, 1, 1, c.n, 0)
			four, apart := throughput(t, m, dev, 4, 4, 4, c.n, 0)/one, throughput(t, m, dev, 4, 4, 4, c.n, time.Millisecond)/one
			queued := throughput(t, m, dev, 4, 4, 16, c.n, 0) / one // varies by 3 % with the order of the goroutines
			chunks := prefilled(t, m, dev, 4, 4*c.n, 4) / prefilled(t, m, dev, 1, 4*c.n, 4)
			t.Logf("%d tokens: four answers %.3f, a millisecond apart %.3f, 16 %.3f, chunks %.3f", c.n, four, apart, queued, chunks)
			if min(four, apart) < c.answers || queued < c.queued || chunks < c.chunks {
				t.Errorf("want at least %v, %v, %v and %v", c.answers, c.answers, c.queued, c.chunks)
			}
		})
	}
}
