package engine

import (
	"slices"

	"github.com/foretoken/foretoken/internal/spec"
)

const (
	// offlineShare is what offline sequences may add to rounds of online ones: to each, unless a single
	// row adds more, and then on average. It is theirs however many others there are.
	offlineShare = 0.15
	// maxStreak is how many rounds they may be in before there is one without them, which shows what
	// such rounds take.
	maxStreak = 7
	loneRate  = 0.01
	shareRate = 0.005
	// dearRow is what a row of theirs is taken to add at least until it is measured, as a multiple of a
	// pass over one row.
	dearRow = 0.1
)

// share is what offline sequences get beside online ones.
//
// What a row adds to a pass is measured as a whole, by rounds with such rows and without them. The
// times that the controller has of passes by rows would not do: of all numbers of rows the one that
// seems cheap by chance would be fed.
type share struct {
	credit float64 // seconds that they may add
	streak int     // rounds since one without them
	lone   float64 // what rounds without them take, as a multiple of what is expected; 0: not known
	row    float64 // what a row of theirs adds, as a multiple of a pass over one row; 0: not known
	added  float64 // passes over one row that theirs have added, lately
	rows   float64 // likewise, of how many rows
	list   []*sequence
	round  sharedRound
}

// sharedRound is the running round as it was planned.
type sharedRound struct {
	beside       bool    // offline sequences get no more than their share of it
	rows, prompt int     // of those whose round it is: of texts that are generated, and of prompts
	alone        float64 // seconds of a pass over those
	single       float64 // seconds of a pass over one row
	others       int     // rows of offline sequences beside them
	added        float64 // seconds that they add
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
	r.single, r.alone = e.passTime(1), e.alone(r.rows, r.prompt)
	if x.row == 0 && r.single > 0 {
		const some = 4
		x.row = max(e.passTime(max(r.rows, 1)+some)/e.passTime(max(r.rows, 1))-1, 0) / some
		x.row = max(x.row, dearRow)
	}
	row := x.row * r.single
	if row == 0 { // nothing is known
		r.others = e.feed(first, 1)
		return
	}
	alone := r.alone + e.sight.spent.Seconds()
	least := row
	if first.req.Rule == spec.Ratio && !first.prefilling() { // its drafts must not be cut
		least *= float64(1 + len(first.draft.Tokens))
	}
	x.credit = min(x.credit+offlineShare*alone, max(offlineShare*alone, least))
	if x.streak++; x.streak > maxStreak || x.credit < least {
		x.streak = 0
		return
	}
	n := int(x.credit/row + 1e-6)
	for _, s := range x.list {
		if n > r.others && s.target != nil { // or it was preempted by one before it
			r.others += e.feed(s, n-r.others)
		}
	}
	r.added = row * float64(r.others)
	x.credit -= r.added
}

// alone is the expected time of a pass over a number of rows of texts and of prompts, in seconds.
func (e *Engine) alone(rows, prompt int) float64 {
	if rows+prompt == 0 {
		return 0
	}
	token := e.pace.token
	if token == 0 {
		token = max(e.passTime(2)-e.passTime(1), 0)
	}
	n := max(rows, 1)
	return e.passTime(n) + float64(rows+prompt-n)*token
}

// passTime is the time of a pass without prompts, in seconds; 0: not known.
func (e *Engine) passTime(rows int) float64 { return e.drafting.controller.PassTime(rows) }

// learn takes in the pass of the round.
func (x *share) learn(pass float64) {
	r := &x.round
	if !r.beside || r.alone <= 0 || r.prompt > 0 || x.row == 0 {
		return
	}
	if r.others == 0 {
		if x.lone == 0 {
			x.lone = 1
		}
		x.lone += loneRate * (min(pass/r.alone, 2*x.lone) - x.lone)
		return
	}
	if x.rows == 0 { // what was expected counts like the rows of some rounds
		x.rows = float64(r.others) / shareRate / 4
		x.added = x.row * x.rows
	}
	usual := r.alone
	if x.lone > 0 {
		usual *= x.lone
	}
	pass = min(pass, 2*(usual+r.added)) // more is the doing of something else
	x.added += (pass-usual)/r.single - shareRate*x.added
	x.rows += float64(r.others) - shareRate*x.rows
	x.row = max(x.added/x.rows, 0.001)
}
