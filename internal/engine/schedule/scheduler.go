package schedule

import (
	"math"
	"slices"
	"sort"
	"time"

	"github.com/foretoken/foretoken/internal/cost"
)

const (
	// minChunk is prefilled in any case, for a prompt must end.
	minChunk = 4
	// OfflineShare is the share by which offline sequences may extend rounds of online ones: each round, unless a single
	// row adds more, and then on average. It does not depend on the number of online sequences.
	OfflineShare = 0.15
	// maxStreak is the maximum number of consecutive rounds with them before there is one without, which measures
	// such rounds.
	maxStreak = 7
)

// Demand is the demand of a running sequence on a round.
type Demand struct {
	Open             bool // it has memory: a preempted one has none
	Prefilling       bool // it has more than one token to be fed, drafts aside
	WaitingForVision bool // the tower has not computed the rows that it is to be fed next
	Drafts           int  // that follow its next token
	Whole            bool // its drafts must not be cut
}

// Sequence is a running request.
type Sequence interface {
	Claimant
	// Demand is current: feeding one sequence may preempt another.
	Demand() Demand
}

// Scheduler plans rounds by their costs.
type Scheduler[S Sequence] struct {
	RoundTokens int           // maximum number of tokens of a round
	MaxRound    time.Duration // maximum time of a round while text is generated; 0: half as long again as without prompts
	Cost        *cost.Model
	Last        time.Duration // of the last round
	Beside      int           // rows of sequences that generate, in rounds in flight
	Rounds      int           // that may be in flight
	Shared      bool          // the round is of online sequences, and offline ones have a share of it

	credit float64 // seconds that offline sequences may add
	streak int     // rounds since one without them
}

// Offline reports whether all of the sequences are offline.
func Offline[S Sequence](list []S) bool {
	return !slices.ContainsFunc(list, func(s S) bool { return !s.Claims().Offline })
}

// spare is how much longer a round with rows of sequences that generate may take than without prompts: so long that it
// takes MaxRound, or, if that is 0, half as long again. It is 0 if that is not known.
func (x *Scheduler[S]) spare(rows int) time.Duration {
	pass := x.Cost.Time(max(rows, 1), 0)
	plain := time.Duration((pass + x.Cost.Rest()) * float64(time.Second))
	if x.MaxRound > 0 && pass > 0 {
		return max(x.MaxRound-plain, 0)
	}
	return plain / 2
}

// Chunk is how many prompt tokens a round may have beside rows of sequences that generate. The tower has taken some of the
// round's time.
func (x *Scheduler[S]) Chunk(rows int, tower time.Duration) int {
	row := x.Cost.PromptRow()
	if !x.Cost.Known() || row == 0 {
		return minChunk
	}
	return max(minChunk, int((x.spare(rows)-tower).Seconds()/row))
}

// pieced is the length of a prompt for which pieces are best. At multiples of it the next piece waits, since the prefix cache stores
// a state.
const pieced = 1024

// piece is how many prompt tokens a round may have. While n rounds are in flight, a prompt of P tokens in pieces of c takes the time
// of P/c+n-1 pieces on a stage. With a larger c there are fewer pieces, but stages are idle longer at both ends.
// The sum is least at the root of P·pass/(row·(n-1)). A power of two is the shape of many passes.
func (x *Scheduler[S]) piece() int {
	row := x.Cost.PromptRow()
	if x.Rounds < 2 || !x.Cost.Known() || row == 0 {
		return x.RoundTokens
	}
	best := math.Sqrt(pieced * x.Cost.Time(1, 0) / row / float64(x.Rounds-1))
	_, exponent := math.Frexp(max(best, 1)) // of a fraction of at least a half
	return max(minChunk, 1<<max(exponent-1, 0))
}

// Tower has the vision tower run before a round and returns how long it took. run runs it for about a time, and for a step
// of some milliseconds at least.
//
// Beside sequences that generate, the tower gets the time that the round has to spare; prompts get half of that. Beside
// prompts it gets as long as the last round took. If all sequences wait for it, it runs for a step. If none does, its work
// is for the background and can wait. Offline sequences do not count beside others: if only they wait for the tower, its
// steps are part of their share.
func (x *Scheduler[S]) Tower(running []S, run func(limit time.Duration) time.Duration) time.Duration {
	offline := Offline(running)
	waiting, generating, feeding, late := false, false, false, false
	rows := 0
	for _, s := range running {
		switch d := s.Demand(); {
		case s.Claims().Offline && !offline:
			late = late || d.WaitingForVision
		case d.Open:
			waiting = waiting || d.WaitingForVision
			if !d.Prefilling {
				generating, rows = true, rows+1+d.Drafts
			}
			feeding = feeding || d.Prefilling && !d.WaitingForVision
		}
	}
	switch {
	case !waiting && late && x.credit > 0:
		took := run(0)
		x.credit -= took.Seconds()
		return took
	case !waiting:
		return 0
	case generating && feeding:
		return run(x.spare(rows) / 2)
	case generating:
		return run(x.spare(rows))
	case feeding:
		return run(x.Last)
	default:
		return run(0)
	}
}

// Plan chooses what each sequence is fed in a round. order has the sequences that may be fed, in order of their claims. The
// tower has taken some of the round's time. feed makes at most most tokens of a sequence part of the round and returns how
// many; it may preempt others.
//
// The round is that of the online sequences, beside which offline ones get their share. If none of them is fed or waits for
// the tower, it is that of the offline ones.
func (x *Scheduler[S]) Plan(order []S, tower time.Duration, feed func(s S, most int) int) {
	r := round[S]{Scheduler: x, order: order, tower: tower, left: x.RoundTokens, feed: feed}
	if x.Shared = r.all(false); x.Shared {
		r.beside()
	} else {
		r.all(true)
	}
}

// round is a round that is being planned.
type round[S Sequence] struct {
	*Scheduler[S]
	order        []S
	tower        time.Duration
	feed         func(S, int) int
	left         int // tokens that it can still be fed
	rows, prompt int // of the sequences whose round it is: of texts that are generated, and of prompts
}

// give feeds a sequence at most most tokens.
func (r *round[S]) give(s S, most int) int {
	n := r.feed(s, min(most, r.left))
	r.left -= n
	return n
}

// all feeds all sequences that are offline, or all that are not. Those that generate come first, so that no prompt takes
// their place; the rest of the round's time is for prompts, in order of their claims. It reports whether a sequence is fed
// or waits for the tower.
func (r *round[S]) all(offline bool) (any bool) {
	r.rows, r.prompt = 0, 0
	generating := false
	for _, s := range r.order {
		if d := s.Demand(); d.Open && !d.Prefilling && s.Claims().Offline == offline {
			r.rows += r.give(s, r.left)
			any, generating = any || s.Demand().WaitingForVision, true
		}
	}
	most := min(r.left, r.piece())
	if generating || r.Beside > 0 {
		most = min(most, r.Chunk(r.rows+r.Beside, r.tower))
	}
	if !offline && slices.ContainsFunc(r.order, func(s S) bool { return s.Claims().Offline }) {
		most = min(most, max(r.left-r.RoundTokens/8, minChunk)) // no prompt takes the share of generating sequences
	}
	for _, s := range r.order {
		if d := s.Demand(); d.Open && d.Prefilling && s.Claims().Offline == offline {
			r.prompt += r.give(s, most-r.prompt)
			any = any || s.Demand().WaitingForVision
		}
	}
	return any || r.rows+r.prompt > 0
}

// beside feeds offline sequences their share in a round whose other sequences are
// chosen. The first in order comes first, and the next gets the rest: they end one after the
// other, and preemption wastes the least work.
func (r *round[S]) beside() {
	var list []S
	for _, s := range r.order {
		if s.Claims().Offline && s.Demand().Open {
			list = append(list, s)
		}
	}
	if len(list) == 0 {
		r.credit = 0
		return
	}
	first := list[max(slices.IndexFunc(list, func(s S) bool { return !s.Demand().WaitingForVision }), 0)]
	if !r.Cost.Known() {
		r.give(first, 1)
		return
	}
	least := r.added(1, 0)
	switch d := first.Demand(); {
	case d.Prefilling:
		least = r.added(0, 1)
	case d.Whole:
		least = r.added(1+d.Drafts, 0)
	}
	const rounding = 1 + 1e-6
	share := OfflineShare * (r.Cost.Time(r.rows, r.prompt) + r.tower.Seconds())
	r.credit = min(r.credit+share, max(share, least))
	if r.streak++; r.streak > maxStreak || least > r.credit*rounding {
		r.streak = 0
		return
	}
	var rows [2]int // of texts and of prompts
	for _, s := range list {
		d, kind := s.Demand(), 0
		if !d.Open { // it was preempted by one before it
			continue
		} else if d.Prefilling {
			kind = 1
		}
		rows[kind] += r.give(s, sort.Search(r.left, func(n int) bool {
			more := rows
			more[kind] += n + 1
			return r.added(more[0], more[1]) > r.credit*rounding
		}))
	}
	r.credit -= r.added(rows[0], rows[1])
}

// added is the time that rows of texts and of prompts add to the round, in seconds.
func (r *round[S]) added(texts, prompts int) float64 {
	return r.Cost.Time(r.rows+texts, r.prompt+prompts) - r.Cost.Time(r.rows, r.prompt)
}
