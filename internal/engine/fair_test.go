package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// waits is a sequence that waits, of a flow and a priority.
func waits(flow string, priority int) *sequence {
	return &sequence{req: Request{Flow: flow, Priority: priority}}
}

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

// TestQueueOrder lists the order of admission for flows of several lengths, priorities and
// preempted sequences.
func TestQueueOrder(t *testing.T) {
	var q queue
	names := map[*sequence]string{}
	add := func(name, flow string, priority int, admitted uint64) *sequence {
		s := waits(flow, priority)
		s.admitted = admitted
		names[s] = name
		q.add(s)
		return s
	}
	for i := range 3 {
		add(fmt.Sprint("a", i), "a", 0, 0)
	}
	add("b0", "b", 0, 0)
	for i := range 2 {
		add(fmt.Sprint("c", i), "c", 0, 0)
	}
	add("low", "d", -1, 0)
	add("high", "a", 1, 0)
	add("second", "a", 0, 9) // preempted
	add("first", "z", 0, 4)
	canceled := add("canceled", "b", 0, 0)
	q.remove(func(s *sequence) bool { return s == canceled })
	listed := func() (list []string) {
		for s := range q.all {
			list = append(list, names[s])
		}
		return list
	}
	want := []string{"high", "first", "second", "a0", "b0", "c0", "a1", "c1", "a2", "low"}
	if got := listed(); !slices.Equal(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
	var taken []string
	for q.n > 0 {
		for s := range q.all {
			taken = append(taken, names[s])
			q.take(s)
			break
		}
		if names := taken[len(taken)-1]; names == "a0" { // the flow's turn is over: what comes later waits for the next
			add("a3", "a", 0, 0)
			add("b1", "b", 0, 0)
			add("n0", "new", 0, 0)
		}
	}
	want = []string{"high", "first", "second", "a0", "b0", "c0", "a1", "n0", "b1", "c1", "a2", "a3", "low"}
	if !slices.Equal(taken, want) || len(q.lanes) != 0 || len(q.flows) != 0 {
		t.Errorf("taken in the order %v, want %v; %d lanes and %d flows are left", taken, want, len(q.lanes), len(q.flows))
	}
}

// TestFlowsDoNotStarve adds, takes and cancels at random, with thousands of waiting requests.
// Within a flow requests are taken in order of arrival. A request that is the first of its flow is
// taken after at most one request of each other flow.
func TestFlowsDoNotStarve(t *testing.T) {
	const flows = 40
	r := rand.New(rand.NewPCG(1, 2))
	var q queue
	arrival, number := map[*sequence]int{}, 0
	last := map[string]int{}    // arrival of the request that was taken last
	passed := map[string]int{}  // requests of other flows since then, while the flow waits
	waiting := map[string]int{} // requests
	add := func() {
		flow := fmt.Sprint(r.IntN(flows) * r.IntN(2)) // half of them are of flow 0
		s := waits(flow, 0)
		number++
		arrival[s] = number
		waiting[flow]++
		q.add(s)
	}
	take := func() {
		for s := range q.all {
			q.take(s)
			flow := s.req.Flow
			if arrival[s] < last[flow] {
				t.Fatalf("flow %s: request %d was taken after %d", flow, arrival[s], last[flow])
			}
			last[flow], passed[flow] = arrival[s], 0
			for other := range waiting {
				if other == flow || waiting[other] == 0 {
					continue
				}
				if passed[other]++; passed[other] > flows-1 {
					t.Fatalf("flow %s waits while %d requests of at most %d other flows are taken", other, passed[other], flows-1)
				}
			}
			if waiting[flow]--; waiting[flow] == 0 {
				delete(passed, flow)
			}
			break
		}
	}
	cancel := func() {
		skip := r.IntN(max(q.n, 1))
		for s := range q.each {
			if skip--; skip < 0 {
				if flow := s.req.Flow; waiting[flow] == 1 {
					delete(passed, flow)
				}
				waiting[s.req.Flow]--
				q.remove(func(w *sequence) bool { return w == s })
				break
			}
		}
	}
	for range 4000 {
		add()
	}
	for range 6000 {
		switch n := r.IntN(20); {
		case n == 0:
			cancel()
		case n < 10:
			add()
		default:
			take()
		}
	}
	sum := 0
	for flow, n := range waiting {
		if sum += n; q.flows[flow] != n {
			t.Errorf("flow %s: %d requests are counted, want %d", flow, q.flows[flow], n)
		}
	}
	if q.n != sum {
		t.Errorf("%d requests are counted, want %d", q.n, sum)
	}
	for range sum {
		take()
	}
	if q.n != 0 || len(q.lanes) != 0 || len(q.flows) != 0 {
		t.Errorf("%d requests, %d lanes and %d flows are left", q.n, len(q.lanes), len(q.flows))
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
