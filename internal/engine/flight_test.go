package engine

import (
	"errors"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/split"
	"github.com/foretoken/foretoken/internal/model"
)

// staged is a device of three, which compute layers in turn. The first also computes the end of a pass.
func staged(t *testing.T) (b backend.Backend, stages []*backendtest.Opaque) {
	t.Helper()
	var list []backend.Backend
	for range 3 {
		o := backendtest.NewOpaque(backendtest.CPU(t, backend.Options{Threads: 1}))
		stages, list = append(stages, o), append(list, o)
	}
	b, err := split.New(func(p backend.Part) int {
		if p.Kind == backend.LayerPart || p.Kind == backend.ExpertsPart {
			return p.Layer % 3
		}
		return 0
	}, list...)
	if err != nil {
		t.Fatal(err)
	}
	return b, stages
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
			workloadsChangeNothing(t, m, b, 5, func(i int, w *workload) {
				w.options.Groups = 4 - i%4
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
	e, err := New(m, f.pool, Options{Drafter: f.model.Drafter(), Groups: 3, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	f.together(t, e)
	if f.close(t, e); !m.full || m.group != 0 {
		t.Errorf("a second group was tried: %t, and the last was %d", m.full, m.group)
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
