package engine

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/foretoken/foretoken/internal/engine/schedule"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/spec"
)

// priced is the scripted model on a machine on which a pass takes a time for itself and one for
// each row. In a bubble nothing else takes any.
type priced struct {
	*scripted
	pass, row time.Duration
}

func (m *priced) cost(rows int) time.Duration { return m.pass + time.Duration(rows)*m.row }

func (m *priced) Forward(batch []model.Span) (model.Output, error) {
	rows := 0
	for _, s := range batch {
		rows += len(s.Tokens)
	}
	time.Sleep(m.cost(rows))
	return m.scripted.Forward(batch)
}

// priceList is a controller that knows the prices.
func (m *priced) priceList() *spec.Controller {
	c := spec.NewController()
	for range 60 { // the first passes of a size count little
		for rows := 1; rows <= 160; rows++ {
			c.ObservePass(rows, m.cost(rows))
		}
	}
	return c
}

// mixed is a random load of users who ask again and again, and of offline requests.
type mixed struct {
	model   *priced
	options Options
	users   int
	endless bool // users go on until all offline requests have ended
	offline []Request
}

func newMixed(rng *rand.Rand) *mixed {
	pass := time.Duration(1+rng.IntN(5000)) * time.Microsecond
	x := &mixed{
		model:   &priced{newScripted(), pass, pass * time.Duration(1+rng.IntN(100)) / time.Duration(1+rng.IntN(300))},
		options: Options{MaxBatch: 5 + rng.IntN(12), RoundTokens: []int{24, 64, 512}[rng.IntN(3)], Log: quiet},
		users:   1 + rng.IntN(4), endless: rng.IntN(2) == 0,
	}
	truth := &oracle{vocab: vocab, wrong: func(p, j int) bool { return (p*7+j*3)%5 < 2 }}
	for i := range 60 { // what questions and lines begin with
		truth.answers = append(truth.answers, slices.Concat(prompt(1+i, i), expected(prompt(1+i, i), 60)))
	}
	x.options.Controller = x.model.priceList()
	if rng.IntN(3) > 0 {
		x.options.Drafter = truth
	}
	for range 1 + rng.IntN(12) {
		x.offline = append(x.offline, x.request(rng, true))
	}
	return x
}

func (x *mixed) request(rng *rand.Rand, offline bool) Request {
	n := rng.IntN(60)
	r := Request{Prompt: prompt(1+n, n), MaxTokens: 1 + rng.IntN(40), Offline: offline, Depth: spec.Depth(rng.IntN(6) - 1), Priority: rng.IntN(2)}
	if offline {
		r.Priority = -rng.IntN(2)
	}
	if rng.IntN(6) == 0 { // greedy texts are the same by either rule
		r.Rule = spec.Ratio
	}
	return r
}

func (x *mixed) String() string {
	return fmt.Sprintf("a pass of %v and %v a row, %d users, %d offline, batch of %d, %d tokens a round", x.model.pass, x.model.row, x.users, len(x.offline), x.options.MaxBatch, x.options.RoundTokens)
}

// run plays the load and returns its rounds.
func (x *mixed) run(t *testing.T, seed uint64) (rounds []Round) {
	x.options.Observe = func(r Round) { rounds = append(rounds, r) }
	e := start(t, x.model, x.options)
	ask := func(ctx context.Context, r Request) {
		s, err := e.Generate(ctx, r)
		if err != nil {
			t.Errorf("%v: %v", x, err)
			return
		}
		var ids []int32
		for token, err := range s.Tokens() {
			if err != nil {
				return // canceled
			}
			ids = append(ids, token.ID)
		}
		if want := expected(r.Prompt, r.MaxTokens); !slices.Equal(ids, want) {
			t.Errorf("%v: %+v gives %v, want %v", x, r, ids, want)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	var users, lines sync.WaitGroup
	for i := range x.users {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		users.Go(func() {
			for n := 0; over.Err() == nil && (x.endless || n < 8); n++ {
				time.Sleep(time.Duration(rng.IntN(20)) * x.model.pass)
				ask(over, x.request(rng, false))
			}
		})
	}
	rng := rand.New(rand.NewPCG(seed, 99))
	for _, r := range x.offline {
		lines.Go(func() { ask(t.Context(), r) })
		time.Sleep(time.Duration(rng.IntN(3)) * x.model.pass)
	}
	lines.Wait() // whatever users do
	if x.endless {
		cancel()
	}
	users.Wait()
	cancel()
	e.Close()
	return rounds
}

// TestOfflineRequestsKeepToTheirShare plays random loads on machines with random costs. No round
// with rows of an online request is longer by more than the share, nor is their sum;
// all offline requests end, even if online requests never stop; every text is as it is alone.
func TestOfflineRequestsKeepToTheirShare(t *testing.T) {
	loads := 40
	if long {
		loads = 2000
	}
	shared, longer := 0, 0
	for seed := range uint64(loads) {
		synctest.Test(t, func(t *testing.T) {
			x := newMixed(rand.New(rand.NewPCG(seed, 3)))
			cost := func(rows int) float64 { return x.model.cost(rows).Seconds() }
			single := cost(1+ratioDepth) - cost(0) // a token, and drafts that must not be cut
			for _, r := range x.offline {
				if n, ok := r.Depth.Fixed(); ok && r.Rule == spec.Ratio {
					single = max(single, cost(1+n)-cost(0))
				}
			}
			alone, added := 0.0, 0.0
			for i, r := range x.run(t, seed) {
				online := r.Rows - r.Offline
				if online == 0 {
					continue
				}
				a, b := cost(online), cost(r.Rows)-cost(online)
				if b > max(schedule.OfflineShare*a, single)*1.001 {
					t.Errorf("%v: round %d takes %v longer than %v: %+v", x, i, b, a, r)
				}
				alone, added = alone+a, added+b
				if b > 0 {
					shared++
				}
				if b > schedule.OfflineShare*a*1.001 {
					longer++
				}
			}
			if most := schedule.OfflineShare * alone * 1.001; added > most {
				t.Errorf("%v: %v of %v are added, at most %v", x, added, alone, most)
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d rounds were shared, in %d of them a row alone was more than may be added", shared, longer)
	if shared == 0 || longer == 0 {
		t.Error("one kind of rounds was never seen")
	}
}

// uneven is the scripted model on a machine that other programs use too: the time of a pass is that
// of its shape, times what the others take of the machine for a while, times luck.
type uneven struct {
	*scripted
	shape  func(rows int) float64 // milliseconds
	rng    *rand.Rand
	noise  float64
	factor float64
	until  time.Time
}

func (m *uneven) Forward(batch []model.Span) (model.Output, error) {
	rows := 0
	for _, s := range batch {
		rows += len(s.Tokens)
	}
	if now := time.Now(); now.After(m.until) {
		m.factor, m.until = math.Exp(3*m.noise*m.rng.Float64()), now.Add(time.Duration(m.rng.IntN(400))*time.Millisecond)
	}
	ms := m.shape(rows) * m.factor * math.Exp(m.noise*m.rng.NormFloat64())
	if m.rng.Float64() < m.noise/10 {
		ms *= 3 + 7*m.rng.Float64()
	}
	time.Sleep(time.Duration(ms * float64(time.Millisecond)))
	return m.scripted.Forward(batch)
}

// TestOfflineShareIsLearned has two users beside sixteen offline requests on uneven machines of
// which nothing is known at first. What their rounds are longer by, counted without luck, is within
// the share on average, and few of them by more than twice of it. The share is used.
func TestOfflineShareIsLearned(t *testing.T) {
	for name, shape := range map[string]func(rows int) float64{
		"every row costs":        func(rows int) float64 { return 1.1 + 0.2*float64(rows) + 0.1*float64(rows/4) },
		"some rows cost nothing": func(rows int) float64 { return 40 + 0.6*float64(rows) + 3*max(0, float64(rows-8)) },
		"rows cost very little":  func(rows int) float64 { return 10 + 0.02*float64(rows) },
	} {
		for noise, few := range map[float64]int{0: 33, 0.1: 10, 0.2: 5} {
			synctest.Test(t, func(t *testing.T) {
				m := &uneven{scripted: newScripted(), shape: shape, rng: rand.New(rand.NewPCG(1, 2)), noise: noise}
				rounds := beside(t, m)
				alone, added, beyond := 0.0, 0.0, 0
				for _, r := range rounds {
					a := shape(r.Rows - r.Offline)
					b := shape(r.Rows) - a
					if alone, added = alone+a, added+b; b > 2*schedule.OfflineShare*a {
						beyond++
					}
				}
				t.Logf("%s, noise %v: %.3f are added, %d of %d rounds are beyond", name, noise, added/alone, beyond, len(rounds))
				if x := added / alone; x < schedule.OfflineShare/10 || x > 1.3*schedule.OfflineShare || beyond > len(rounds)/few {
					t.Errorf("%s, noise %v: %.3f are added, want %v; %d of %d rounds are beyond twice of it", name, noise, x, schedule.OfflineShare, beyond, len(rounds))
				}
			})
		}
	}
}

// beside has two users ask a dozen times each beside offline requests, and returns the rounds with
// them. No two requests come at the same time: their order is not left to luck.
func beside(t *testing.T, m model.Model) (rounds []Round) {
	e := start(t, m, Options{Log: quiet, Observe: func(r Round) {
		if r.Rows > r.Offline {
			rounds = append(rounds, r)
		}
	}})
	ctx, cancel := context.WithCancel(t.Context())
	var users, lines sync.WaitGroup
	ask := func(r Request) {
		s, err := e.Generate(ctx, r)
		if err != nil {
			t.Error(err)
			return
		}
		s.Result()
	}
	for i := range 16 {
		lines.Go(func() {
			for n := i; ctx.Err() == nil; n += 16 {
				time.Sleep(time.Duration(1+i) * time.Microsecond)
				ask(Request{Prompt: prompt(40+n%7*10, n), MaxTokens: 48, IgnoreEnd: true, Offline: true, Priority: -1})
			}
		})
	}
	for i := range 2 {
		users.Go(func() {
			for n := range 12 {
				time.Sleep(time.Duration(100_020+50_001*i) * time.Microsecond)
				ask(Request{Prompt: prompt(30, n), MaxTokens: 160, IgnoreEnd: true})
			}
		})
	}
	users.Wait()
	cancel()
	lines.Wait()
	e.Close()
	return rounds
}

// TestFullRoundBesideOffline checks that a prompt waits where texts that are generated leave no space in
// rounds of which offline requests have a share.
func TestFullRoundBesideOffline(t *testing.T) {
	gate := newGated()
	e := start(t, gate, Options{RoundTokens: 8, Log: quiet})
	var requests []Request
	for i := range 8 {
		requests = append(requests, Request{Prompt: prompt(1, i), MaxTokens: 40})
	}
	requests = append(requests, Request{Prompt: prompt(30, 8), MaxTokens: 5}, Request{Prompt: prompt(1, 9), MaxTokens: 40, Offline: true})
	together(t, e, gate, requests, func(i int, s *Stream) {
		ids, err := read(s)
		if want := expected(requests[i].Prompt, requests[i].MaxTokens); err != nil || !slices.Equal(ids, want) {
			t.Errorf("request %d: %v, %v; want %v", i, ids, err, want)
		}
	})
}
