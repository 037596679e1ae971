package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// asked is a request, and a running sequence that wants some tokens.
type asked struct {
	Claim
	demand Demand
	lacks  int // tokens to be fed, drafts aside
	fed    int // of them, by the round
}

func (a *asked) Claims() *Claim { return &a.Claim }

func (a *asked) Demand() Demand { return a.demand }

// waits is a request that waits, of a flow and a priority.
func waits(flow string, priority int) *asked {
	return &asked{Claim: Claim{Flow: flow, Priority: priority}}
}

// TestQueueOrder lists the order of admission for flows of several lengths, priorities and
// preempted sequences.
func TestQueueOrder(t *testing.T) {
	var q Queue[*asked]
	names := map[*asked]string{}
	add := func(name, flow string, priority int, admitted uint64) *asked {
		s := waits(flow, priority)
		s.Admitted = admitted
		names[s] = name
		q.Add(s)
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
	q.Remove(func(s *asked) bool { return s == canceled })
	listed := func() (list []string) {
		for s := range q.All {
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
		for s := range q.All {
			taken = append(taken, names[s])
			q.Take(s)
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
	var q Queue[*asked]
	arrival, number := map[*asked]int{}, 0
	last := map[string]int{}    // arrival of the request that was taken last
	passed := map[string]int{}  // requests of other flows since then, while the flow waits
	waiting := map[string]int{} // requests
	add := func() {
		flow := fmt.Sprint(r.IntN(flows) * r.IntN(2)) // half of them are of flow 0
		s := waits(flow, 0)
		number++
		arrival[s] = number
		waiting[flow]++
		q.Add(s)
	}
	take := func() {
		for s := range q.All {
			q.Take(s)
			flow := s.Flow
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
		for s := range q.Each {
			if skip--; skip < 0 {
				if flow := s.Flow; waiting[flow] == 1 {
					delete(passed, flow)
				}
				waiting[s.Flow]--
				q.Remove(func(w *asked) bool { return w == s })
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
