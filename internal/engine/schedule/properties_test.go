package schedule

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/cost"
)

// slowQueue is a queue as it is specified: a list that is searched for the next request each time.
type slowQueue struct {
	list []*asked
	turn map[string]int // of a priority and flow: its place among the turns of all
	next int
}

func (q *slowQueue) key(a *asked) string { return fmt.Sprint(a.Priority, a.Flow) }

// waits is the requests of a flow and priority that were not preempted, in order of arrival.
func (q *slowQueue) waits(key string) (list []*asked) {
	for _, a := range q.list {
		if a.Admitted == 0 && q.key(a) == key {
			list = append(list, a)
		}
	}
	return list
}

// endTurn puts a flow behind all others.
func (q *slowQueue) endTurn(key string) { q.next++; q.turn[key] = q.next }

func (q *slowQueue) add(a *asked) {
	if key := q.key(a); a.Admitted == 0 && len(q.waits(key)) == 0 {
		q.endTurn(key)
	}
	q.list = append(q.list, a)
}

// order is the requests in the order of their admission.
func (q *slowQueue) order() []*asked {
	ahead := func(a *asked) int { return slices.Index(q.waits(q.key(a)), a) }
	return slices.SortedFunc(slices.Values(q.list), func(a, b *asked) int {
		switch {
		case a.Priority != b.Priority:
			return b.Priority - a.Priority
		case a.Admitted > 0 && b.Admitted > 0:
			return int(a.Admitted) - int(b.Admitted)
		case a.Admitted > 0:
			return -1
		case b.Admitted > 0:
			return 1
		case ahead(a) != ahead(b):
			return ahead(a) - ahead(b)
		default:
			return q.turn[q.key(a)] - q.turn[q.key(b)]
		}
	})
}

func (q *slowQueue) remove(a *asked) {
	q.list = slices.DeleteFunc(q.list, func(b *asked) bool { return a == b })
}

// TestQueueEqualsItsSpecification adds, takes and cancels requests at random, in a queue and in a slow one.
func TestQueueEqualsItsSpecification(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 7))
		var q Queue[*asked]
		slow := slowQueue{turn: map[string]int{}}
		admitted := uint64(0)
		for step := range 300 {
			switch n := rng.IntN(10); {
			case n < 5 || len(slow.list) == 0:
				a := waits(fmt.Sprint(rng.IntN(4)), rng.IntN(3))
				if rng.IntN(4) == 0 {
					admitted += 1 + uint64(rng.IntN(3))
					a.Admitted = admitted ^ 1 + 1 // they do not come in order
				}
				q.Add(a)
				slow.add(a)
			case n < 8: // any request may be taken: the first may have no memory
				a := slow.order()[rng.IntN(min(3, len(slow.list)))]
				q.Take(a)
				if slow.remove(a); a.Admitted == 0 {
					slow.endTurn(slow.key(a))
				}
			default:
				a, b := slow.list[rng.IntN(len(slow.list))], slow.list[rng.IntN(len(slow.list))]
				q.Remove(func(c *asked) bool { return c == a || c == b })
				slow.remove(a)
				slow.remove(b)
			}
			want := slow.order()
			if got := slices.Collect(q.All); !slices.Equal(got, want) || q.Len() != len(want) {
				t.Fatalf("seed %d, step %d: %d requests, %d by their count, want %d; or their order is another", seed, step, len(got), q.Len(), len(want))
			}
			each := slices.Collect(q.Each)
			if len(each) != len(want) || slices.ContainsFunc(want, func(a *asked) bool { return !slices.Contains(each, a) }) {
				t.Fatalf("seed %d, step %d: Each has %d other requests than All, which has %d", seed, step, len(each), len(want))
			}
			for _, list := range []func(func(*asked) bool){q.All, q.Each} {
				n, stop := 0, rng.IntN(len(want)+1)
				list(func(*asked) bool { n++; return n <= stop })
				if n != min(stop+1, len(want)) {
					t.Fatalf("seed %d, step %d: %d of %d requests were listed, want %d", seed, step, n, len(want), stop+1)
				}
			}
		}
	}
}

// TestFullLeavesEveryFlowItsShare fills queues at random: a queue that is not full takes any request, one that is takes
// those of flows below their share, and what waits is limited.
func TestFullLeavesEveryFlowItsShare(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 8))
		most, flows := 1+rng.IntN(20), 1+rng.IntN(9)
		var q Queue[*asked]
		count := map[string]int{}
		for range 40 * flows {
			name := fmt.Sprint(rng.IntN(flows) * rng.IntN(2))
			kinds := len(count)
			if count[name] == 0 {
				delete(count, name)
				kinds = len(count) + 1
			}
			// A flow has its share if it waits with as many requests as each of all flows may.
			want := q.Len() >= most && count[name] > 0 && count[name] >= most/kinds
			if got := q.Full(name, most); got != want {
				t.Fatalf("seed %d: a flow with %d of %d requests, %d flows, maximum %d: refused %t", seed, count[name], q.Len(), kinds, most, got)
			}
			if q.Full(name, 0) {
				t.Fatalf("seed %d: refused without a maximum", seed)
			}
			if !want {
				q.Add(waits(name, rng.IntN(2)))
				count[name]++
			}
		}
		if limit := float64(most)*(1+math.Log(float64(flows))) + float64(flows); float64(q.Len()) > limit {
			t.Errorf("seed %d: %d requests of %d flows wait, at most %.0f may", seed, q.Len(), flows, limit)
		}
	}
}

// TestChunkIsTheLargestThatFits compares chunks with the time that a round has left for them.
func TestChunkIsTheLargestThatFits(t *testing.T) {
	m := known()
	m.ObserveRest(3 * time.Millisecond)
	for _, round := range []time.Duration{0, 12 * time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond} {
		for _, tower := range []time.Duration{0, 2 * time.Millisecond} {
			for rows := range 12 {
				x := &Scheduler[*asked]{Cost: m, MaxRound: round}
				n := x.Chunk(rows, tower)
				plain := m.Time(max(rows, 1), 0) + m.Rest()
				limit := round.Seconds()
				if round == 0 {
					limit = 1.5 * plain
				}
				left := limit - plain - tower.Seconds()
				if n < minChunk || n > minChunk && float64(n)*m.PromptRow() > left+1e-8 || float64(n+1)*m.PromptRow() < left-1e-8 {
					t.Errorf("rounds of %v, %v for the tower, %d rows: %d tokens of %.3g s, %.3g s are left", round, tower, rows, n, m.PromptRow(), left)
				}
			}
		}
	}
}

// TestPiecesAreNearlyTheBest compares the time of a prompt in pieces with that in pieces of all sizes, for passes that take between
// the time of one row of a prompt and that of a thousand.
func TestPiecesAreNearlyTheBest(t *testing.T) {
	for _, row := range []time.Duration{10 * time.Microsecond, 100 * time.Microsecond, time.Millisecond, 5 * time.Millisecond} {
		m := new(cost.Model)
		for range 40 {
			m.ObservePass(1, 0, 10*time.Millisecond)
			m.ObservePrompt(1, 100, 10*time.Millisecond+100*row)
			m.ObserveRest(0)
		}
		for rounds := 2; rounds <= 8; rounds++ {
			x := &Scheduler[*asked]{RoundTokens: 1 << 20, Rounds: rounds, Cost: m}
			took := func(n int) float64 {
				return (math.Ceil(pieced/float64(n)) + float64(rounds-1)) * (m.Time(1, 0) + float64(n)*m.PromptRow())
			}
			best := math.Inf(1)
			for n := minChunk; n <= pieced; n++ {
				best = min(best, took(n))
			}
			if got := took(x.piece()); got > 1.15*best {
				t.Errorf("rows of %v, %d rounds: pieces of %d take %.4g s, others %.4g s", row, rounds, x.piece(), got, best)
			}
			if x.Rounds = 1; x.piece() != x.RoundTokens {
				t.Errorf("one round has pieces of %d", x.piece())
			}
		}
	}
}

// TestTowerGetsTheTimeOfAllRows has the tower run beside texts with drafts: it gets half as long as their round takes.
func TestTowerGetsTheTimeOfAllRows(t *testing.T) {
	m := known()
	m.ObserveRest(3 * time.Millisecond)
	limit := func(list ...*asked) (given time.Duration) {
		x := &Scheduler[*asked]{Cost: m}
		x.Tower(list, func(most time.Duration) time.Duration { given = most; return 0 })
		return given
	}
	for _, drafts := range []int{0, 1, 7} {
		rows := 2 + 2*drafts
		want := (m.Time(rows, 0) + m.Rest()) / 2
		got := limit(generating(drafts), awaitingTower(prefilling(9)), generating(drafts)).Seconds()
		half := limit(generating(drafts), awaitingTower(prefilling(9)), generating(drafts), prefilling(9)).Seconds()
		if math.Abs(got-want) > 1e-7 || math.Abs(half-want/2) > 1e-7 {
			t.Errorf("%d rows: %v s, and %v beside a prompt, want %v and half of it", rows, got, half, want)
		}
		// Offline sequences are not part of that round, and those without memory of none.
		if n := limit(offline(generating(5)), preempted(), generating(drafts), generating(drafts), awaitingTower(prefilling(9))).Seconds(); math.Abs(n-want) > 1e-7 {
			t.Errorf("%d rows: %v s beside offline texts, want %v", rows, n, want)
		}
	}
}

// TestOfflineRowsAreAllThatFit plans many rounds with random demands: in none do offline sequences add more than
// their credit, nor so little that a further row would have fitted, and credit that is not used is limited.
func TestOfflineRowsAreAllThatFit(t *testing.T) {
	kinds := map[string]int{}
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 9))
		x := &Scheduler[*asked]{RoundTokens: []int{16, 512}[rng.IntN(2)], Cost: known()}
		list := []*asked{generating(rng.IntN(4))}
		for range 1 + rng.IntN(3) {
			a := offline(prefilling(2 + rng.IntN(40)))
			if rng.IntN(2) == 0 {
				a = offline(generating(rng.IntN(6)))
				a.demand.Whole = rng.IntN(2) == 0
			}
			list = append(list, a)
		}
		if rng.IntN(2) == 0 {
			list = append(list, prefilling(60))
		}
		for range 12 {
			kinds[checkShare(t, x, list)]++
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	for _, kind := range []string{"none", "all", "credit", "round"} {
		if kinds[kind] == 0 {
			t.Errorf("no round was limited by %s: %v", kind, kinds)
		}
	}
}

// checkShare plans a round, checks what offline sequences add to it, and tells what limits them.
func checkShare(t *testing.T, x *Scheduler[*asked], list []*asked) (by string) {
	t.Helper()
	before := x.credit
	fed := plan(x, list)
	var rows, more [2]int // of texts and of prompts, online and with offline ones
	wanted, total := 0, 0
	next := -1 // kind of the first offline row that was not fed
	for i, s := range list {
		kind := 0
		if s.demand.Prefilling {
			kind = 1
		}
		total += fed[i]
		if more[kind] += fed[i]; !s.Offline {
			rows[kind] += fed[i]
			continue
		}
		if left := s.lacks + s.demand.Drafts - fed[i]; left > 0 {
			if wanted += left; next < 0 {
				next = kind
			}
		}
	}
	alone := x.Cost.Time(rows[0], rows[1])
	added := x.Cost.Time(more[0], more[1]) - alone
	share := OfflineShare * alone
	row := x.Cost.Time(rows[0]+8, rows[1]) - alone // more than any single step
	switch {
	case x.credit < -1e-8 || x.credit > max(share, row)+1e-8:
		t.Errorf("a credit of %v, the share is %v", x.credit, share)
	case added > before+share+1e-8:
		t.Errorf("%v is added: there was a credit of %v, and a share of %v", added, before, share)
	case added == 0:
		return "none"
	case wanted == 0:
		return "all"
	case total >= x.RoundTokens:
		return "round"
	}
	if more[next]++; x.Cost.Time(more[0], more[1])-alone-added <= x.credit-1e-8 {
		t.Errorf("%v of the credit is left, and a row would fit: %v of %v rows", x.credit, fed, more)
	}
	return "credit"
}

// TestExpensiveOfflineRowsComeOneByOne has rows that cost more than the share of a round, of texts more than of prompts.
// Each round with offline rows has as few as there can be, and all together add no more than their share, and most of it.
func TestExpensiveOfflineRowsComeOneByOne(t *testing.T) {
	m := new(cost.Model)
	for range 40 {
		for _, rows := range []int{1, 2, 3, 4, 5, 6, 7, 8} {
			m.ObservePass(rows, 0, time.Duration(4+4*rows)*time.Millisecond)
		}
		m.ObservePrompt(1, 10, 28*time.Millisecond) // 2 ms a row
		m.ObserveRest(0)
	}
	whole := offline(generating(3))
	whole.demand.Whole = true
	for name, c := range map[string]struct {
		list  []*asked
		least int
	}{
		"prompts":      {[]*asked{generating(0), offline(prefilling(300)), offline(prefilling(300))}, 1},
		"texts":        {[]*asked{generating(0), offline(generating(0)), offline(generating(0))}, 1},
		"drafts":       {[]*asked{generating(0), offline(generating(3))}, 1},
		"whole drafts": {[]*asked{generating(0), whole}, 4},
	} {
		x := &Scheduler[*asked]{RoundTokens: 512, Cost: m}
		alone, added, shared := 0.0, 0.0, 0
		for range 400 {
			fed := plan(x, c.list)
			rows, prompt := fed[1], 0
			if len(fed) > 2 {
				rows += fed[2]
			}
			if rows > 0 {
				if shared++; rows != c.least {
					t.Fatalf("%s: %v tokens, want %d", name, fed, c.least)
				}
			}
			if c.list[1].demand.Prefilling {
				rows, prompt = 0, rows
			}
			a := m.Time(1, 0)
			alone, added = alone+a, added+m.Time(1+rows, prompt)-a
		}
		if share := added / alone; shared == 0 || share < 0.8*OfflineShare || share > 1.001*OfflineShare {
			t.Errorf("%s: %d rounds are shared, %.3f of the time is added, want %v", name, shared, share, OfflineShare)
		}
	}
}
