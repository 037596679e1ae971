package schedule

import (
	"slices"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/cost"
)

// known is the costs of a machine on which a pass takes 10 ms and each row, of texts or of prompts, 0.1 ms more.
func known() *cost.Model {
	m := new(cost.Model)
	for range 40 {
		for _, rows := range []int{1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 64, 128, 256, 512} {
			m.ObservePass(rows, 0, 10*time.Millisecond+time.Duration(rows)*100*time.Microsecond)
		}
		m.ObservePrompt(1, 100, 20100*time.Microsecond)
		m.ObserveRest(0)
	}
	return m
}

// plan has a round planned and returns how many tokens each sequence is fed.
func plan(x *Scheduler[*asked], list []*asked) (fed []int) {
	x.Plan(list, 0, func(s *asked, most int) int {
		n := min(s.lacks+s.demand.Drafts, max(most, 0))
		if s.demand.WaitingForVision {
			n = 0
		}
		s.fed += n
		return n
	})
	for _, s := range list {
		fed = append(fed, s.fed)
		s.fed = 0
	}
	return fed
}

func generating(drafts int) *asked {
	return &asked{lacks: 1, demand: Demand{Open: true, Drafts: drafts}}
}

func prefilling(tokens int) *asked {
	return &asked{lacks: tokens, demand: Demand{Open: true, Prefilling: true}}
}

func offline(a *asked) *asked { a.Offline = true; return a }

func awaitingTower(a *asked) *asked { a.demand.WaitingForVision = true; return a }

func preempted() *asked { return &asked{lacks: 9} }

// TestPlanByTable lists rounds on a machine whose costs are known: 10 ms for a pass and 0.1 ms for a row.
func TestPlanByTable(t *testing.T) {
	for name, c := range map[string]struct {
		tokens int
		round  time.Duration
		list   []*asked
		want   []int // -1: at least one, as the costs say
		shared bool
	}{
		"no request":                       {512, 0, nil, nil, false},
		"texts":                            {512, 0, []*asked{generating(0), generating(3), preempted()}, []int{1, 4, 0}, true},
		"a prompt by itself":               {512, 0, []*asked{prefilling(2000)}, []int{512}, true},
		"two prompts":                      {512, 0, []*asked{prefilling(500), prefilling(500)}, []int{500, 12}, true},
		"a text before a prompt":           {8, 0, []*asked{prefilling(100), generating(4)}, []int{3, 5}, true},
		"no space for a prompt":            {4, 0, []*asked{generating(3), prefilling(100)}, []int{4, 0}, true},
		"no time for a prompt":             {512, time.Millisecond, []*asked{generating(0), prefilling(100)}, []int{1, minChunk}, true},
		"half as long again":               {512, 0, []*asked{generating(0), prefilling(1000)}, []int{1, -1}, true},
		"only offline":                     {512, 0, []*asked{offline(prefilling(300)), offline(generating(2))}, []int{-1, 3}, false},
		"offline beside a text":            {512, 0, []*asked{generating(0), offline(prefilling(300))}, []int{1, -1}, true},
		"offline beside a full round":      {64, 0, []*asked{prefilling(300), offline(prefilling(300))}, []int{56, -1}, true},
		"the round of one that waits":      {512, 0, []*asked{awaitingTower(prefilling(300)), offline(generating(0))}, []int{0, 0}, true},
		"the round of a text that waits":   {512, 0, []*asked{awaitingTower(generating(0)), offline(generating(0))}, []int{0, 0}, true},
		"offline: all wait":                {512, 0, []*asked{generating(0), offline(awaitingTower(generating(0)))}, []int{1, 0}, true},
		"offline: the first that can be":   {512, 0, []*asked{generating(0), offline(awaitingTower(generating(0))), offline(generating(0))}, []int{1, 0, 1}, true},
		"offline that has no memory":       {512, 0, []*asked{generating(0), offline(preempted())}, []int{1, 0}, true},
		"one of all that was just stopped": {512, 0, []*asked{preempted()}, []int{0}, false},
	} {
		x := &Scheduler[*asked]{RoundTokens: c.tokens, MaxRound: c.round, Cost: known()}
		got := plan(x, c.list)
		sum, same := 0, len(got) == len(c.want)
		for i, n := range got {
			sum += n
			same = same && (n == c.want[i] || c.want[i] < 0 && n > 0)
		}
		if !same || sum > c.tokens || x.Shared != c.shared {
			t.Errorf("%s: %v, want %v; shared %t", name, got, c.want, x.Shared)
		}
	}
}

// TestPlanWithoutCosts feeds little where nothing is known yet.
func TestPlanWithoutCosts(t *testing.T) {
	x := &Scheduler[*asked]{RoundTokens: 512, Cost: new(cost.Model)}
	if got := plan(x, []*asked{generating(1), prefilling(100), offline(prefilling(100))}); !slices.Equal(got, []int{2, minChunk, 1}) {
		t.Errorf("%v tokens when nothing is known", got)
	}
}

// TestChunkLeavesTimeForTokens follows a machine on which a plain round takes 10 ms and a
// prompt's token 0.1 ms.
func TestChunkLeavesTimeForTokens(t *testing.T) {
	m := new(cost.Model)
	x := &Scheduler[*asked]{Cost: m}
	if n := x.Chunk(1, 0); n != minChunk {
		t.Errorf("%d tokens when nothing is known", n)
	}
	for range 200 {
		m.ObservePass(1, 0, 9*time.Millisecond)
		m.ObserveRest(time.Millisecond)
		n := x.Chunk(1, 0)
		m.ObservePrompt(1, n, 9*time.Millisecond+time.Duration(n)*100*time.Microsecond)
	}
	for _, c := range []struct {
		round, tower time.Duration
		least, most  int
	}{
		{0, 0, 40, 60},
		{50 * time.Millisecond, 0, 350, 450},
		{50 * time.Millisecond, 20 * time.Millisecond, 150, 250},
		{time.Millisecond, 0, minChunk, minChunk},
		{0, time.Second, minChunk, minChunk},
	} {
		x.MaxRound = c.round
		if n := x.Chunk(1, c.tower); n < c.least || n > c.most {
			t.Errorf("rounds of %v, %v for the tower: %d tokens of 0.1 ms, want %d to %d", c.round, c.tower, n, c.least, c.most)
		}
	}
}

// TestOfflineShare has offline sequences beside a text for hundreds of rounds: on average they add their share, and some
// rounds are without them.
func TestOfflineShare(t *testing.T) {
	x := &Scheduler[*asked]{RoundTokens: 512, Cost: known()}
	list := []*asked{generating(0), offline(prefilling(300)), offline(prefilling(300))}
	alone, added, without := 0.0, 0.0, 0
	for range 400 {
		fed := plan(x, list)
		a := x.Cost.Time(fed[0], 0)
		alone, added = alone+a, added+x.Cost.Time(fed[0], fed[1]+fed[2])-a
		if fed[1] == 0 {
			without++
		}
	}
	if share := added / alone; share < 0.8*OfflineShare || share > 1.001*OfflineShare || without < 400/(maxStreak+2) {
		t.Errorf("they add %.3f of the time, want up to %v; %d rounds were without them", share, OfflineShare, without)
	}
}

// TestTowerByTable lists how long the tower may run before a round.
func TestTowerByTable(t *testing.T) {
	const last = 77 * time.Millisecond
	for name, c := range map[string]struct {
		credit float64
		list   []*asked
		ran    bool
		limit  func(spare time.Duration) time.Duration // nil: a step
	}{
		"no request waits for it":    {0, []*asked{generating(0), prefilling(9)}, false, nil},
		"offline that do not wait":   {1, []*asked{generating(0), offline(prefilling(9))}, false, nil},
		"all wait for it":            {0, []*asked{awaitingTower(prefilling(9)), preempted()}, true, nil},
		"beside a text":              {0, []*asked{generating(0), awaitingTower(prefilling(9))}, true, func(spare time.Duration) time.Duration { return spare }},
		"beside a text and a prompt": {0, []*asked{generating(0), prefilling(9), awaitingTower(prefilling(9))}, true, func(spare time.Duration) time.Duration { return spare / 2 }},
		"beside a prompt":            {0, []*asked{prefilling(9), awaitingTower(prefilling(9))}, true, func(time.Duration) time.Duration { return last }},
		"offline beside a text":      {1, []*asked{generating(0), offline(awaitingTower(prefilling(9)))}, true, nil},
		"offline without credit":     {0, []*asked{generating(0), offline(awaitingTower(prefilling(9)))}, false, nil},
		"only offline":               {0, []*asked{offline(generating(0)), offline(awaitingTower(prefilling(9)))}, true, func(spare time.Duration) time.Duration { return spare }},
	} {
		x := &Scheduler[*asked]{RoundTokens: 512, Cost: known(), Last: last, credit: c.credit}
		ran := false
		took := x.Tower(c.list, func(limit time.Duration) time.Duration {
			ran = true
			want := time.Duration(0)
			if c.limit != nil {
				want = c.limit(x.spare(1))
			}
			if limit != want {
				t.Errorf("%s: %v, want %v", name, limit, want)
			}
			return 3 * time.Millisecond
		})
		if ran != c.ran || ran != (took == 3*time.Millisecond) || c.credit > 0 && x.credit != c.credit-took.Seconds() {
			t.Errorf("%s: ran %t for %v, credit %v", name, ran, took, x.credit)
		}
	}
}

// TestClaimsAreOrdered lists claims to memory, the first first.
func TestClaimsAreOrdered(t *testing.T) {
	list := []Claim{
		{Priority: 1, Admitted: 9},
		{Priority: 1, Admitted: 10, Offline: true, Preempted: 1},
		{Priority: 1, Admitted: 2, Offline: true},
		{Admitted: 1},
		{Admitted: 3},
		{Admitted: 2, Offline: true},
	}
	for i := range list {
		for j := range list {
			if got, want := list[i].Compare(&list[j]), i-j; (got < 0) != (want < 0) || (got > 0) != (want > 0) {
				t.Errorf("claims %d and %d compare as %d", i, j, got)
			}
		}
	}
}
