package engine

import (
	"context"
	"errors"
	"slices"
	"testing"
)

// TestFlowsAreAdmittedInTurn fills the only place and has 300 requests of one flow wait before one
// of another: the latter is the second to be admitted, not the last.
func TestFlowsAreAdmittedInTurn(t *testing.T) {
	const many = 300
	gate := newGated()
	e := start(t, gate, Options{MaxBatch: 1})
	request := func(first int32, flow string) *Stream {
		t.Helper()
		s, err := e.Generate(t.Context(), Request{Prompt: []int32{first}, MaxTokens: 1, Flow: flow})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	streams := []*Stream{request(1, "many")}
	<-gate.begun
	for range many {
		streams = append(streams, request(2, "many"))
	}
	streams = append(streams, request(3, "one"), request(4, "one"))
	gate.let <- struct{}{}
	var order []int32
	for range many + 2 {
		order = append(order, gate.pass())
	}
	one, other := slices.Index(order, 3)+1, slices.Index(order, 4)+1
	if one > 2 || other > 4 {
		t.Errorf("the two requests of a flow beside one with %d waiting requests were admitted as numbers %d and %d, want 2 and 4 at the latest", many, one, other)
	}
	for i, s := range streams {
		if r := s.Result(); r.Finish != FinishLength {
			t.Errorf("request %d: %+v", i, r)
		}
	}
}

// TestFullQueueLeavesShares has one flow fill the queue. Another is still accepted up to its share,
// a third up to a smaller one, and the first is refused.
func TestFullQueueLeavesShares(t *testing.T) {
	const most = 12
	gate := newGated()
	e := start(t, gate, Options{MaxBatch: 1, MaxQueue: most})
	ctx, cancel := context.WithCancel(t.Context())
	accepted := func(flow string) (n int) {
		for ; n <= 3*most; n++ {
			if _, err := e.Generate(ctx, Request{Prompt: []int32{1}, MaxTokens: 1, Flow: flow}); errors.Is(err, ErrBusy) {
				return n
			} else if err != nil {
				t.Fatal(err)
			}
		}
		return n
	}
	if _, err := e.Generate(ctx, Request{Prompt: []int32{1}, MaxTokens: 1}); err != nil {
		t.Fatal(err)
	}
	<-gate.begun
	got := []int{accepted("a"), accepted("b"), accepted("a"), accepted("c"), accepted("b")}
	if want := []int{most, most / 2, 0, most / 3, 0}; !slices.Equal(got, want) {
		t.Errorf("requests that were accepted of flows a, b, a, c, b: %v, want %v", got, want)
	}
	cancel()
	gate.let <- struct{}{}
	if e.Drain(t.Context()) != nil || e.Stats().Waiting != 0 {
		t.Error("requests wait that were canceled")
	}
}

// callsBack is a context that calls the engine from each of its methods, as one with a cause that
// logs the engine's state may.
type callsBack struct {
	context.Context
	e *Engine
}

func (c callsBack) Err() error {
	c.e.Stats()
	return c.Context.Err()
}

func (c callsBack) Done() <-chan struct{} {
	c.e.Stats()
	return c.Context.Done()
}

func (c callsBack) AfterFunc(f func()) (stop func() bool) {
	c.e.Stats()
	return context.AfterFunc(c.Context, f)
}

// TestContextsMayCallTheEngine runs, cancels and refuses requests whose contexts call the engine.
func TestContextsMayCallTheEngine(t *testing.T) {
	gate := newGated()
	e := start(t, gate, Options{MaxBatch: 1, MaxQueue: 1})
	inner, cancel := context.WithCancel(t.Context())
	ctx := callsBack{inner, e}
	running, err := e.Generate(callsBack{t.Context(), e}, Request{Prompt: []int32{1}, MaxTokens: 2})
	if err != nil {
		t.Fatal(err)
	}
	<-gate.begun
	waiting, err := e.Generate(ctx, Request{Prompt: []int32{2}, MaxTokens: 2})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Generate(ctx, Request{Prompt: []int32{3}, MaxTokens: 2}); !errors.Is(err, ErrBusy) {
		t.Errorf("beyond the queue: %v", err)
	}
	cancel()
	gate.let <- struct{}{}
	gate.pass()
	if r := running.Result(); r.Finish != FinishLength {
		t.Errorf("the running request: %+v", r)
	}
	if r := waiting.Result(); r.Finish != "" {
		t.Errorf("the canceled request: %+v", r)
	}
}
