package engine

import (
	"slices"
	"sort"

	"github.com/foretoken/foretoken/internal/cost"
	"github.com/foretoken/foretoken/internal/spec"
)

const (
	// offlineShare is what offline sequences may add to rounds of online ones: to each, unless a single
	// row adds more, and then on average. It is theirs however many others there are.
	offlineShare = 0.15
	// maxStreak is how many rounds they may be in before there is one without them, which shows what
	// such rounds take.
	maxStreak = 7
)

// share is what offline sequences get beside online ones.
type share struct {
	credit float64 // seconds that they may add
	streak int     // rounds since one without them
	list   []*sequence
	round  sharedRound
}

// sharedRound is the running round as it was planned.
type sharedRound struct {
	beside       bool // offline sequences get no more than their share of it
	rows, prompt int  // of those whose round it is: of texts that are generated, and of prompts
}

func isOffline(s *sequence) bool { return s.req.Offline }

// offline reports whether only offline sequences run.
func (e *Engine) offline() bool {
	return !slices.ContainsFunc(e.running, func(s *sequence) bool { return !s.req.Offline })
}

// feedBeside feeds offline sequences what their share allows in a round whose other sequences are
// chosen. The first in order comes first, and the next gets what it leaves: they end one after the
// other, and who is preempted has lost least.
func (e *Engine) feedBeside(order []*sequence) {
	x, r := &e.share, &e.share.round
	r.beside = true
	x.list = x.list[:0]
	for _, s := range order {
		if s.req.Offline && s.target != nil {
			x.list = append(x.list, s)
		}
	}
	if len(x.list) == 0 {
		x.credit = 0
		return
	}
	first := x.list[max(slices.IndexFunc(x.list, func(s *sequence) bool { return !s.blind }), 0)]
	if !e.cost().Known() {
		e.feed(first, 1)
		return
	}
	least := e.added(1, 0)
	switch {
	case first.prefilling():
		least = e.added(0, 1)
	case first.req.Rule == spec.Ratio: // its drafts must not be cut
		least = e.added(1+len(first.draft.Tokens), 0)
	}
	const rounding = 1 + 1e-6
	alone := offlineShare * (e.cost().Time(r.rows, r.prompt) + e.sight.spent.Seconds())
	x.credit = min(x.credit+alone, max(alone, least))
	if x.streak++; x.streak > maxStreak || least > x.credit*rounding {
		x.streak = 0
		return
	}
	var rows [2]int // of texts and of prompts
	for _, s := range x.list {
		kind := 0
		if s.target == nil { // it was preempted by one before it
			continue
		} else if s.prefilling() {
			kind = 1
		}
		rows[kind] += e.feed(s, sort.Search(e.left, func(n int) bool {
			more := rows
			more[kind] += n + 1
			return e.added(more[0], more[1]) > x.credit*rounding
		}))
	}
	x.credit -= e.added(rows[0], rows[1])
}

// added is the time that rows of texts and of prompts add to the round, in seconds.
func (e *Engine) added(texts, prompts int) float64 {
	r := &e.share.round
	return e.cost().Time(r.rows+texts, r.prompt+prompts) - e.cost().Time(r.rows, r.prompt)
}

// cost is what rounds take.
func (e *Engine) cost() *cost.Model { return &e.drafting.controller.Model }
