package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
)

// queue holds the requests that wait. A request of a higher priority comes first. Within a
// priority, preempted requests come first, in the order of their first admission. The others are
// admitted round-robin between flows, and in order of arrival within a flow. The engine's mutex
// protects it.
type queue struct {
	lanes []*lane        // of the priorities that wait, the highest first
	flows map[string]int // requests by flow, without the preempted ones
	n     int            // requests
}

// lane is the requests of one priority.
type lane struct {
	priority  int
	preempted []*sequence
	flows     []*flow // in the order of their turns, none of them empty
	named     map[string]*flow
}

// flow is the requests of a lane that have the same Request.Flow, in order of arrival.
type flow struct {
	name    string
	waiting []*sequence
}

// full reports whether a further request of a flow is refused. Once max requests wait, a flow is
// still accepted while it has less than its share: max divided by the number of flows that wait,
// and at least one. A flow that fills the queue therefore does not lock out another one. With k
// flows at most max·(1 + ln k) + k requests wait.
func (q *queue) full(flow string, max int) bool {
	if max == 0 || q.n < max {
		return false
	}
	flows, own := len(q.flows), q.flows[flow]
	if own == 0 {
		flows++
	}
	return own > 0 && own >= max/flows
}

// add has a sequence wait.
func (q *queue) add(s *sequence) {
	at, found := slices.BinarySearchFunc(q.lanes, s.req.Priority, func(l *lane, priority int) int { return cmp.Compare(priority, l.priority) })
	if !found {
		q.lanes = slices.Insert(q.lanes, at, &lane{priority: s.req.Priority, named: map[string]*flow{}})
	}
	q.n++
	l := q.lanes[at]
	if s.admitted > 0 {
		at, _ := slices.BinarySearchFunc(l.preempted, s, func(a, b *sequence) int { return cmp.Compare(a.admitted, b.admitted) })
		l.preempted = slices.Insert(l.preempted, at, s)
		return
	}
	if q.flows == nil {
		q.flows = map[string]int{}
	}
	q.flows[s.req.Flow]++
	f := l.named[s.req.Flow]
	if f == nil {
		f = &flow{name: s.req.Flow}
		l.named[f.name] = f
		l.flows = append(l.flows, f)
	}
	f.waiting = append(f.waiting, s)
}

// all yields the sequences in the order in which they are to be admitted.
func (q *queue) all(yield func(*sequence) bool) {
	for _, l := range q.lanes {
		for _, s := range l.preempted {
			if !yield(s) {
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

// each yields the sequences in any order, in time that depends on their number only.
func (q *queue) each(yield func(*sequence) bool) {
	for _, l := range q.lanes {
		for _, s := range l.preempted {
			if !yield(s) {
				return
			}
		}
		for _, f := range l.flows {
			for _, s := range f.waiting {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// take removes a sequence that is admitted. The next turn of its flow comes after those of all
// other flows. The cost grows with the number of flows, not with that of the requests, apart from
// one move of memory.
func (q *queue) take(s *sequence) {
	at := slices.IndexFunc(q.lanes, func(l *lane) bool { return l.priority == s.req.Priority })
	l := q.lanes[at]
	if s.admitted > 0 {
		i := slices.Index(l.preempted, s)
		l.preempted = slices.Delete(l.preempted, i, i+1)
	} else {
		f := l.named[s.req.Flow]
		i := slices.Index(f.waiting, s)
		f.waiting = slices.Delete(f.waiting, i, i+1)
		i = slices.Index(l.flows, f)
		if l.flows = slices.Delete(l.flows, i, i+1); len(f.waiting) > 0 {
			l.flows = append(l.flows, f)
		} else {
			delete(l.named, f.name)
		}
	}
	q.uncount(s)
	if l.empty() {
		q.lanes = slices.Delete(q.lanes, at, at+1)
	}
}

func (l *lane) empty() bool { return len(l.preempted)+len(l.flows) == 0 }

// remove drops the sequences that are to end. The other flows keep their turns.
func (q *queue) remove(ends func(*sequence) bool) {
	drop := func(s *sequence) bool {
		if !ends(s) {
			return false
		}
		q.uncount(s)
		return true
	}
	for _, l := range q.lanes {
		l.preempted = slices.DeleteFunc(l.preempted, drop)
		l.flows = slices.DeleteFunc(l.flows, func(f *flow) bool {
			if f.waiting = slices.DeleteFunc(f.waiting, drop); len(f.waiting) > 0 {
				return false
			}
			delete(l.named, f.name)
			return true
		})
	}
	q.lanes = slices.DeleteFunc(q.lanes, (*lane).empty)
}

// uncount is called for each sequence that leaves the queue.
func (q *queue) uncount(s *sequence) {
	q.n--
	if s.admitted > 0 {
		return
	}
	if q.flows[s.req.Flow]--; q.flows[s.req.Flow] == 0 {
		delete(q.flows, s.req.Flow)
	}
}

// byUse orders running sequences by their claim to memory: the higher priority, then the earlier
// admission. Offline sequences come after others of their priority, unless they were preempted
// before: otherwise they might never end.
func byUse(a, b *sequence) int {
	yields := func(s *sequence) int {
		if s.req.Offline && s.preempted == 0 {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(b.req.Priority, a.req.Priority), cmp.Compare(yields(a), yields(b)), cmp.Compare(a.admitted, b.admitted))
}

// admit drops canceled sequences and takes in waiting ones. It reports false when the
// engine is to end, and has ended all sequences then.
func (e *Engine) admit() bool {
	for _, s := range e.leaving() {
		e.end(s)
	}
	e.tidyBackground()
	for e.admitNext() {
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Running, e.stats.Tower = len(e.running), e.sight.stats
	return !e.draining || len(e.running)+e.waiting.n > 0
}

// leaving takes the sequences that are to end out of the lists. Contexts are code of the caller:
// they are asked without the mutex, so that they may call the engine.
func (e *Engine) leaving() (ended []*sequence) {
	var over error
	e.locked(func() {
		e.asked = append(e.asked[:0], e.running...)
		e.asked = slices.AppendSeq(e.asked, e.waiting.each)
		if over = e.broken; e.closed {
			over = ErrClosed
		}
	})
	for _, s := range e.asked {
		if err := s.canceled(); err != nil {
			s.fault = err
		} else if over != nil {
			s.fault = over
		}
		if s.fault != nil {
			ended = append(ended, s)
		}
	}
	clear(e.asked)
	if len(ended) > 0 {
		ends := func(s *sequence) bool { return s.fault != nil }
		e.running = slices.DeleteFunc(e.running, ends)
		e.locked(func() { e.waiting.remove(ends) })
	}
	return ended
}

// canceled is the error of the request's context, which is not ours: it may panic.
func (s *sequence) canceled() (err error) {
	defer caught(&err)
	return s.ctx.Err()
}

// admitNext starts the first of those that wait, if there is capacity for it, and reports
// whether to look for another. One of higher priority may preempt a running one.
func (e *Engine) admitNext() bool {
	s := e.first()
	if s == nil {
		return false
	}
	e.candidate = s
	again := e.place(s)
	e.candidate = nil
	return again && (!s.req.Offline || e.offline()) // one at a time beside others: to open a state takes time
}

// place is admitNext for s, the first of those that wait.
func (e *Engine) place(s *sequence) bool {
	if e.fetch(s) {
		return true
	}
	for len(e.running) >= e.o.MaxBatch || !e.free(e.bytes(min(s.limit, len(s.tokens)+spec.MaxDepth+1))) {
		if len(e.running) == 0 {
			break // nothing more can be freed, and it was found to fit
		}
		last := e.running[len(e.running)-1]
		if last.req.Priority >= s.req.Priority {
			return false
		}
		e.preempt(last)
	}
	err := e.open(s)
	switch {
	case errors.Is(err, state.ErrFull) && len(e.running) > 0: // it will fit when others have ended
		s.release()
		return false
	case errors.Is(err, state.ErrFailed) && !s.isolated:
		s.release()
		s.isolated = true
		e.o.Log.Warn("the device failed; all sequences are restarted, one by one", "error", err)
		e.restartAll(true)
		return true
	}
	e.locked(func() { e.waiting.take(s) })
	if err != nil {
		s.fault = err
		e.blame(err)
		e.end(s)
		return true
	}
	if s.admitted == 0 {
		e.admissions++
		s.admitted = e.admissions
	}
	at, _ := slices.BinarySearchFunc(e.running, s, byUse)
	e.running = slices.Insert(e.running, at, s)
	return true
}

// first is the first of those that wait and whose prefix is not being fetched, nil if there
// is none. One that will wait longer, for those before it take all places, is not looked at: its
// prefix would lie in memory meanwhile.
func (e *Engine) first() *sequence {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := 0
	for s := range e.waiting.all {
		switch {
		case s.fetching.Load():
			before++
		case before > 0 && !s.looked && before+len(e.running) >= e.o.MaxBatch:
			return nil
		default:
			return s
		}
	}
	return nil
}

// bytes is the memory of a sequence of n tokens.
func (e *Engine) bytes(n int) int64 {
	need := e.need()
	return need.Bytes(n)
}

// need is the maximum memory of a sequence. It does not depend on the draft depth, for the limit
// of an answer that is as long as there is memory for must not.
func (e *Engine) need() state.Need {
	var draft state.Layout
	if e.o.Drafter != nil {
		draft = e.o.Drafter.Layout()
	}
	return spec.Need(e.model.Layout(), draft, e.model.Info().Width)
}

// fit refuses a request that could not be served even alone. One without MaxTokens gets as
// many as there is memory for.
func (e *Engine) fit(s *sequence) error {
	need, budget := e.need(), e.pool.Budget()
	wanted := min(s.limit, len(s.tokens)+1)
	if s.req.MaxTokens > 0 {
		wanted = s.limit
	}
	limit := need.Tokens(budget, s.limit)
	if limit < wanted {
		return fmt.Errorf("%w: %d tokens of prompt and answer need %d bytes of memory, but all sequences together have %d", ErrTooLarge, wanted, need.Bytes(wanted), budget)
	}
	s.limit = limit
	return nil
}

// free reports whether bytes are free, once the background and the cache have given up what they must.
// The cache keeps what it has if all of it would not be enough: whoever waits may begin with it.
func (e *Engine) free(bytes int64) bool {
	missing := func() int64 { return bytes - (e.pool.Budget() - e.pool.Used()) }
	if s := e.background.current; s != nil && missing() > 0 {
		s.release() // it restarts behind what the cache has
	}
	if n := missing(); n > 0 && e.cache != nil && e.cache.CanShrink(n) {
		e.cache.Shrink(n)
	}
	return missing() <= 0
}

// affords reports whether a sequence fits into the memory up to its end if its state is deepened.
func (e *Engine) affords(s *sequence) bool {
	need := e.need()
	return need.Budget(1, s.limit) <= e.pool.Budget()
}

// deepen makes space for a long copy if there is memory for it. Otherwise the copy is cut. A device that has failed
// is noticed by the pass.
func (e *Engine) deepen(s *sequence) {
	if e.affords(s) && e.free(e.model.Layout().DeepBytes()) {
		s.target.Deepen() //nolint:errcheck // see above
	}
}

// open gives a sequence its memory, and the longest prefix of its tokens that the cache has.
func (e *Engine) open(s *sequence) error {
	if s.started.IsZero() {
		s.started = time.Now()
	}
	if err := e.allot(s); err != nil || e.cache == nil {
		return err
	}
	s.boundaries = boundaries(s)
	err := e.restore(s)
	if errors.Is(err, state.ErrFull) {
		// The entry stays in the cache while it is copied, and there is no memory for both.
		s.release()
		s.cached = 0
		return e.allot(s)
	}
	return err
}

// allot gives a sequence empty states.
func (e *Engine) allot(s *sequence) error {
	var err error
	if s.target, err = e.pool.Open(e.model.Layout()); err != nil {
		return err
	}
	backlog := 0
	if d := e.o.Drafter; d != nil && s.req.Depth != spec.DepthOff {
		s.record.Drafter, s.record.Rule = d.Name(), s.req.Rule
		if s.draftState, err = e.pool.Open(d.Layout()); err != nil {
			return err
		}
		if !d.Layout().Empty() && s.background == nil { // it has a KV cache to fill
			backlog = spec.Backlog
		}
	}
	s.backlog = e.pool.Rows(backlog)
	return nil
}

// release gives a sequence's memory back to the pool.
func (s *sequence) release() {
	for _, m := range []*state.State{s.target, s.draftState} {
		if m != nil {
			m.Close()
		}
	}
	if s.backlog != nil {
		s.backlog.Close()
	}
	s.joint.Release()
	for i := range s.inputs.parts {
		s.inputs.parts[i].close()
	}
	s.joint, s.blind = nil, false
	s.target, s.draftState, s.backlog, s.hostState, s.span = nil, nil, nil, nil, model.Span{}
}

// preempt takes a running sequence's memory away and has it wait. Once it is admitted again its
// prompt and its answer so far are prefilled: the same tokens give the same state, and its
// drafts are still its drafts.
func (e *Engine) preempt(s *sequence) {
	e.running = slices.DeleteFunc(e.running, func(r *sequence) bool { return r == s })
	s.release()
	s.stream.wake()
	s.preempted++
	e.locked(func() {
		e.stats.Preemptions++
		e.waiting.add(s)
	})
}

// reserve makes space for n more tokens of s, if need be by preempting those of lower
// priority. It reports false if s has to wait itself, or cannot go on at all.
func (e *Engine) reserve(s *sequence, n int) bool {
	for {
		err := s.grow(n)
		switch {
		case err == nil:
			return true
		case !errors.Is(err, state.ErrFull) || len(e.running) == 1:
			s.fault = err
			return false
		}
		last := e.running[len(e.running)-1]
		e.preempt(last)
		if last == s {
			return false
		}
	}
}

// grow makes space for n more tokens in the sequence's states.
func (s *sequence) grow(n int) error {
	if err := s.target.Reserve(n); err != nil || s.draftState == nil {
		return err
	}
	return s.draftState.Reserve(n + s.backlog.Len() + spec.MaxDepth) // drafts are fed to the drafter too
}

// end releases a sequence's memory and closes its stream with its fault, if it has one.
// Whatever goes wrong meanwhile, its reader is told, and only once.
func (e *Engine) end(s *sequence) {
	if s.ended {
		return
	}
	s.ended = true
	err := errors.Join(
		try(s.release), // memory that is not given back is not used again
		try(func() { s.unwatch() }),
		try(func() { e.drafting.controller.Settle(&s.record.Stats) }),
	)
	e.blame(err)
	e.locked(func() {
		e.stats.count(s)
		if key := s.req.Conversation; key != "" {
			if e.conversations[key]--; e.conversations[key] == 0 {
				delete(e.conversations, key)
			}
		}
	})
	s.stream.close(s.result(), s.fault)
}
