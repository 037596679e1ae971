// Package schedule decides what an engine computes next: which request is admitted, which one is preempted, and how
// many tokens each is fed in a round. It knows counts and times, but no tensors, tokens or memory: those are the
// engine's.
package schedule

import (
	"cmp"
	"slices"
)

// Claim is the scheduler's data of a request.
type Claim struct {
	Priority  int    // the higher is served first
	Flow      string // within a priority, flows are admitted in turn
	Offline   bool   // beside others it gets a share of the time
	Admitted  uint64 // order of the first admission, from 1; 0: it was not admitted yet
	Preempted int    // times
}

// Claimant is a request that waits.
type Claimant interface {
	comparable
	Claims() *Claim
}

// Queue holds the waiting requests. A request of a higher priority comes first. Within a
// priority, preempted requests come first, in the order of their first admission. The others are
// admitted round-robin between flows, and in order of arrival within a flow.
type Queue[R Claimant] struct {
	lanes []*lane[R]     // of the priorities that wait, the highest first
	flows map[string]int // requests by flow, without the preempted ones
	n     int            // requests
}

// lane is the requests of one priority.
type lane[R Claimant] struct {
	priority  int
	preempted []R
	flows     []*flow[R] // in the order of their turns, none of them empty
	named     map[string]*flow[R]
}

// flow is the requests of a lane that have the same Flow, in order of arrival.
type flow[R Claimant] struct {
	name    string
	waiting []R
}

// Len is the number of requests.
func (q *Queue[R]) Len() int { return q.n }

// Full reports whether a further request of a flow is refused. Once max requests wait, a flow is
// still accepted while it has less than its share: max divided by the number of flows that wait,
// and at least one. A flow that fills the queue therefore does not lock out another one. With k
// flows at most max·(1 + ln k) + k requests wait. If max is 0 no request is refused.
func (q *Queue[R]) Full(flow string, max int) bool {
	if max == 0 || q.n < max {
		return false
	}
	own := q.flows[flow]
	return own > 0 && own >= max/len(q.flows)
}

// Add has a request wait.
func (q *Queue[R]) Add(r R) {
	c := r.Claims()
	at, found := slices.BinarySearchFunc(q.lanes, c.Priority, func(l *lane[R], priority int) int { return cmp.Compare(priority, l.priority) })
	if !found {
		q.lanes = slices.Insert(q.lanes, at, &lane[R]{priority: c.Priority, named: map[string]*flow[R]{}})
	}
	q.n++
	l := q.lanes[at]
	if c.Admitted > 0 {
		at, _ := slices.BinarySearchFunc(l.preempted, c.Admitted, func(a R, admitted uint64) int { return cmp.Compare(a.Claims().Admitted, admitted) })
		l.preempted = slices.Insert(l.preempted, at, r)
		return
	}
	if q.flows == nil {
		q.flows = map[string]int{}
	}
	q.flows[c.Flow]++
	f := l.named[c.Flow]
	if f == nil {
		f = &flow[R]{name: c.Flow}
		l.named[f.name] = f
		l.flows = append(l.flows, f)
	}
	f.waiting = append(f.waiting, r)
}

// All yields the requests in the order in which they are to be admitted.
func (q *Queue[R]) All(yield func(R) bool) {
	for _, l := range q.lanes {
		for _, r := range l.preempted {
			if !yield(r) {
				return
			}
		}
		for turn, more := 0, true; more; turn++ {
			more = false
			for _, f := range l.flows {
				if turn >= len(f.waiting) {
					continue
				}
				if more = true; !yield(f.waiting[turn]) {
					return
				}
			}
		}
	}
}

// Each yields the requests in any order, in time that depends on their number only.
func (q *Queue[R]) Each(yield func(R) bool) {
	for _, l := range q.lanes {
		for _, r := range l.preempted {
			if !yield(r) {
				return
			}
		}
		for _, f := range l.flows {
			for _, r := range f.waiting {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// Take removes a request that is admitted. The next turn of its flow comes after those of all
// other flows. The cost grows with the number of flows, not with that of the requests, apart from
// one move of memory.
func (q *Queue[R]) Take(r R) {
	c := r.Claims()
	at := slices.IndexFunc(q.lanes, func(l *lane[R]) bool { return l.priority == c.Priority })
	l := q.lanes[at]
	if c.Admitted > 0 {
		i := slices.Index(l.preempted, r)
		l.preempted = slices.Delete(l.preempted, i, i+1)
	} else {
		f := l.named[c.Flow]
		i := slices.Index(f.waiting, r)
		f.waiting = slices.Delete(f.waiting, i, i+1)
		i = slices.Index(l.flows, f)
		if l.flows = slices.Delete(l.flows, i, i+1); len(f.waiting) > 0 {
			l.flows = append(l.flows, f)
		} else {
			delete(l.named, f.name)
		}
	}
	q.uncount(c)
	if l.empty() {
		q.lanes = slices.Delete(q.lanes, at, at+1)
	}
}

func (l *lane[R]) empty() bool { return len(l.preempted)+len(l.flows) == 0 }

// Remove drops the requests that are to end. The other flows keep their turns.
func (q *Queue[R]) Remove(ends func(R) bool) {
	drop := func(r R) bool {
		if !ends(r) {
			return false
		}
		q.uncount(r.Claims())
		return true
	}
	for _, l := range q.lanes {
		l.preempted = slices.DeleteFunc(l.preempted, drop)
		l.flows = slices.DeleteFunc(l.flows, func(f *flow[R]) bool {
			if f.waiting = slices.DeleteFunc(f.waiting, drop); len(f.waiting) > 0 {
				return false
			}
			delete(l.named, f.name)
			return true
		})
	}
	q.lanes = slices.DeleteFunc(q.lanes, (*lane[R]).empty)
}

// uncount is called for each request that leaves the queue.
func (q *Queue[R]) uncount(c *Claim) {
	q.n--
	if c.Admitted > 0 {
		return
	}
	if q.flows[c.Flow]--; q.flows[c.Flow] == 0 {
		delete(q.flows, c.Flow)
	}
}

// Compare orders running requests by their claim to memory: the higher priority, then the earlier
// admission. Offline requests come after others of their priority, unless they were preempted
// before: otherwise they might never end.
func (c *Claim) Compare(o *Claim) int {
	yields := func(c *Claim) int {
		if c.Offline && c.Preempted == 0 {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(o.Priority, c.Priority), cmp.Compare(yields(c), yields(o)), cmp.Compare(c.Admitted, o.Admitted))
}
