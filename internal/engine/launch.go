package engine

import (
	"slices"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
)

// openPipeline finds out whether rounds can be in flight.
func (e *Engine) openPipeline() {
	e.next()
	p, ok := e.pool.Device().(backend.Pipeline)
	m, grouped := e.model.(model.Grouped)
	if ok && grouped && p.Stages() > 1 {
		e.pipeline.Pipeline, e.pipeline.model = p, m
	}
}

// leastGain is what further groups must save of the time to advance all sequences.
const leastGain = 0.03

// groups is how many rounds are to be in flight. With g groups, all sequences have advanced when every stage has computed g passes
// of a g-th of the rows. That takes as long as one such pass, or g times as long as its longest stage if that is more. A pass of
// fewer rows takes less time, but not in proportion.
//
// There is one group if a sequence is isolated. There is also one if offline sequences run beside online ones: their share is
// one of a round.
func (e *Engine) groups() int {
	p := &e.pipeline
	if p.Pipeline == nil || len(e.running) < 2 || slices.ContainsFunc(e.running, func(s *sequence) bool {
		return s.isolated || s.req.Offline != e.running[0].req.Offline
	}) {
		return 1
	}
	if e.o.Groups > 0 {
		return min(e.o.Groups, len(e.running))
	}
	texts, rows := 0, 0
	for _, s := range e.running {
		if s.flying && !s.outcome.Prefill || !s.flying && s.target != nil && !s.prefilling() {
			texts, rows = texts+1, rows+1+len(s.draft.Tokens)
		}
	}
	stages := p.Stages()
	longest := p.longest
	if longest == 0 {
		longest = 1 / float64(stages)
	}
	best, least := 1, e.cost().Time(rows, 0)*(1-leastGain)
	for g := 2; g <= min(stages, texts); g++ {
		if t := e.cost().Time((rows+g-1)/g, 0) * max(1, float64(g)*longest); t < least {
			best, least = g, t
		}
	}
	return best
}

// next makes a group without sequences the current one, with the first memory that is not in use.
func (e *Engine) next() {
	p, i := &e.pipeline, 0
	for i < len(p.groups) && slices.Contains(p.flying, p.groups[i]) {
		i++
	}
	if i == len(p.groups) {
		p.groups = append(p.groups, &group{number: i})
	}
	e.group = p.groups[i]
	e.batch, e.spans, e.err, e.flight = e.batch[:0], e.spans[:0], nil, nil
}

// launch begins a round of one of n groups. It reports false if there is no sequence to feed.
func (e *Engine) launch(n int) bool {
	start := time.Now()
	e.next()
	if e.gather(n); len(e.batch) == 0 {
		return false
	}
	e.spent = time.Since(start)
	for _, s := range e.batch {
		s.flying = true
	}
	e.pipeline.flying = append(e.pipeline.flying, e.group)
	e.err = e.forward(n > 1)
	return true
}

// forward has the model compute the pass of the current group, maybe in the background. A panic of the model becomes an error.
func (e *Engine) forward(ahead bool) (err error) {
	defer caught(&err)
	start := time.Now()
	e.before = e.prepared()
	if e.pipeline.Pipeline != nil {
		e.pipeline.model.Group(e.number)
	}
	if !ahead {
		e.out, err = e.model.Forward(e.spans)
	} else {
		e.flight = e.pipeline.Launch(func() { e.out, err = e.model.Forward(e.spans) })
	}
	e.queued = time.Since(start)
	return err
}

// landed waits for the pass of the current group, if it was launched, and returns whether its time is typical.
func (e *Engine) landed() (typical bool, err error) {
	if e.flight == nil {
		return e.prepared() == e.before, nil
	}
	trip, err := e.flight.Wait()
	e.queued = trip.Took
	if p := &e.pipeline; err == nil && trip.Took > 0 {
		now := trip.Longest.Seconds() / trip.Took.Seconds()
		if p.longest == 0 {
			p.longest = now
		}
		p.longest += 0.05 * (now - p.longest)
	}
	return !trip.Prepared, err
}

// land ends the first round in flight.
func (e *Engine) land() {
	p := &e.pipeline
	e.group = p.flying[0]
	p.flying = slices.Delete(p.flying, 0, 1)
	p.settling = p.settling && len(p.flying) > 0
	for _, s := range e.batch {
		s.flying = false
	}
}
