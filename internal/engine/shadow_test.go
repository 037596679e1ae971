package engine

import (
	"errors"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/state"
)

// erring is a device that computes one number of every row wrong from one of its passes on.
type erring struct {
	*backendtest.Opaque
	passes, at int // 0: never
}

func (e *erring) errs() bool { return e.at > 0 && e.passes >= e.at }

func (e *erring) Pass(p backend.Pass, queue func()) {
	if e.passes++; e.errs() {
		queue()
		return
	}
	e.Opaque.Pass(p, queue)
}

func (e *erring) RMSNorm(dst, x, gain backend.Tensor, eps float32) {
	e.Opaque.RMSNorm(dst, x, gain, eps)
	if e.errs() {
		e.Fill(dst.ColRange(1, 2), 0.25)
	}
}

// withShadow is an engine that has the CPU compute passes again. Its function ends it, and checks that nothing is left.
func (f *failing) withShadow(t *testing.T, m model.Model, every int, ended func(error)) (*Engine, func()) {
	t.Helper()
	host := backendtest.CPU(t, backend.Options{Threads: 1})
	s := Shadow{load(t, golden.Dir(t, "dense"), model.Options{Quantize: 8, NoHead: true}, host), state.NewPool(host, math.MaxInt64), every}
	o := Options{Drafter: f.model.Drafter(), Cache: true, groups: f.groups, Log: slog.New(slog.DiscardHandler), Broken: ended, Shadow: s}
	if f.groups > 1 {
		o.RoundTokens = 16
	}
	e, err := New(m, f.pool, o)
	if err != nil {
		t.Fatal(err)
	}
	return e, func() {
		f.close(t, e)
		if x := s.Pool.Stats(); x.Used != 0 || x.States != 0 {
			t.Errorf("left in the shadow %+v", x)
		}
	}
}

// TestPassesComputedAgainChangeNothing has the CPU compute all passes again, or some, with drafts, preparing chunks of prompts, a prefix
// cache, and several rounds in flight.
func TestPassesComputedAgainChangeNothing(t *testing.T) {
	split, _ := staged(t)
	for what, f := range map[string]*failing{"one device": newFailing(t), "three stages": newFailingOn(t, split, nil, 3)} {
		for _, every := range []int{1, 3} {
			e, end := f.withShadow(t, f.model, every, func(err error) { t.Errorf("%s, every %d: broken: %v", what, every, err) })
			for range 2 { // the second time the cache has the prompts
				for i, err := range f.all(t, e) {
					if err != nil {
						t.Errorf("%s, every %d, request %d: %v", what, every, i, err)
					}
				}
			}
			if end(); e.Stats().Drafted[0] == 0 {
				t.Errorf("%s, every %d: nothing was drafted", what, every)
			}
		}
	}
}

// TestWrongDevicesAreFound has a device err from one of its passes on. If all passes are computed again, no token is wrong. If some
// are, everything ends with the next of those.
func TestWrongDevicesAreFound(t *testing.T) {
	for _, every := range []int{1, 4} {
		for _, at := range []int{1, 2, 7, 12} {
			b := &erring{Opaque: backendtest.NewOpaque(backendtest.CPU(t, backend.Options{Threads: 1}))}
			device := backend.Backend(b)
			if at == 7 { // of the middle one of three stages
				_, others := staged(t)
				device = inTurn(t, others[0], b, others[1])
			}
			f := newFailingOn(t, device, b.Opaque, 0)
			var told error
			e, end := f.withShadow(t, f.model, every, func(err error) { told = err })
			b.passes, b.at = 0, at
			for i := range f.want {
				ids, _, err := collect(e, failingRequest(i))
				if every == 1 && !slices.Equal(ids, f.want[i][:len(ids)]) {
					t.Errorf("from pass %d on, request %d says %v, want %v", at, i, ids, f.want[i])
				}
				if err != nil && !errors.Is(err, ErrBroken) {
					t.Errorf("from pass %d on, request %d: %v", at, i, err)
				}
			}
			end()
			if !errors.Is(told, ErrBroken) || !backend.Lost(told) {
				t.Fatalf("every %d, from pass %d on: told of %v", every, at, told)
			}
			for _, part := range []string{"the device computes wrong results: logit ", " of row ", " is 0x", " on opaque cpu", "and 0x", "use --device cpu"} {
				if !strings.Contains(told.Error(), part) {
					t.Errorf("%q is missing in %v", part, told)
				}
			}
		}
	}
}

// panicking is a model of which one pass panics.
type panicking struct {
	*numbered
	left int // passes until it does
}

func (m *panicking) Forward(batch []model.Span) (model.Output, error) {
	if m.left--; m.left == 0 {
		panic("a mistake")
	}
	return m.numbered.Forward(batch)
}

// TestFailedPassesAreNotCompared has a pass panic whose states were copied. Its request ends, and the next one is not compared with it.
func TestFailedPassesAreNotCompared(t *testing.T) {
	f := newFailing(t)
	for _, every := range []int{1, 2} {
		e, end := f.withShadow(t, &panicking{f.model, every}, every, func(err error) { t.Errorf("every %d: broken: %v", every, err) })
		if _, _, err := collect(e, failingRequest(0)); err == nil {
			t.Errorf("every %d: no error of a pass that panicked", every)
		}
		if ids, _, err := collect(e, failingRequest(2)); err != nil || !slices.Equal(ids, f.want[2]) {
			t.Errorf("every %d: %v, %v, want %v", every, ids, err, f.want[2])
		}
		end()
	}
}
