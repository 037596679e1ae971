package engine

import (
	"cmp"
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

// groups is the number of groups that sequences are in, and of rounds that are to be in flight. With g groups, all sequences have
// advanced when every stage has computed g passes of a g-th of the rows. That takes as long as one such pass, or g times as long as
// its longest stage if that is more. A pass of fewer rows takes less time, but not in proportion. There is a round for each group,
// and one for each stage while there are prompts, whose chunks follow one another.
//
// There is one group if a sequence is isolated or the next pass with logits is to be computed again. There is also one if offline
// sequences run beside online ones: their share is one of a round.
func (e *Engine) groups() (groups, rounds int) {
	p := &e.pipeline
	if p.Pipeline == nil || e.shadow.due() || slices.ContainsFunc(e.running, func(s *sequence) bool {
		return s.isolated || s.req.Offline != e.running[0].req.Offline
	}) {
		return 1, 1
	}
	texts, rows, prompts := 0, 0, false
	for _, s := range e.running {
		if len(s.tokens)-s.landed() == 1 {
			texts, rows = texts+1, rows+1+len(s.draft.Tokens)
		}
		prompts = prompts || s.prefilling()
	}
	stages := cmp.Or(e.o.groups, p.Stages())
	if e.o.groups > 0 {
		groups = min(stages, len(e.running))
	} else {
		groups = e.bestGroups(texts, rows, stages)
	}
	if prompts {
		return groups, stages
	}
	return groups, groups
}

// bestGroups is the number of groups by which sequences that generate advance fastest.
func (e *Engine) bestGroups(texts, rows, stages int) int {
	longest := cmp.Or(e.pipeline.longest, 1/float64(stages))
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

// launch begins a round of one of several groups. It reports false if there is no sequence to feed.
func (e *Engine) launch(groups, rounds int) bool {
	start := time.Now()
	e.next()
	if e.gather(groups, rounds); len(e.batch) == 0 {
		return false
	}
	e.spent = time.Since(start)
	e.begin(rounds > 1)
	return true
}

// begin has the current group in flight.
func (e *Engine) begin(ahead bool) {
	e.pipeline.flying = append(e.pipeline.flying, e.group)
	e.err = e.forward(ahead)
	e.count(1)
}

// count adds the current group to the rounds in flight of its sequences, or subtracts it. A pass that was not begun has fed nothing.
func (e *Engine) count(n int) {
	for i, s := range e.batch {
		if s.flying += n; e.err == nil {
			s.ahead += n * (len(e.spans[i].Tokens) - e.spans[i].Drafts)
		}
	}
}

// forward has the model compute the pass of the current group, maybe in the background. A panic of the model becomes an error.
func (e *Engine) forward(ahead bool) (err error) {
	defer caught(&err)
	if err := e.copyPass(); err != nil {
		return err
	}
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
		p.longest = cmp.Or(p.longest, now)
		p.longest += 0.05 * (now - p.longest)
	}
	return !trip.Prepared, err
}

// called waits for the first round in flight, unless all stages have one, and reports whether the loop was woken before its end: a
// request that has come can be launched at once.
func (e *Engine) called() bool {
	p := &e.pipeline
	if p.Pipeline == nil || len(p.flying) == 0 || p.flying[0].flight == nil || p.settling || len(p.flying) >= p.Stages() {
		return false
	}
	select {
	case <-p.flying[0].flight.Ended():
		return false
	case <-e.wake:
		return true
	}
}

// land ends the first round in flight.
func (e *Engine) land() {
	p := &e.pipeline
	e.group = p.flying[0]
	p.flying = slices.Delete(p.flying, 0, 1)
	p.settling = p.settling && len(p.flying) > 0
	e.count(-1)
	for i, s := range e.batch {
		s.land(e.spans[i])
	}
}
