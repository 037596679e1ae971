package spec

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/state"
)

// counter is a drafter that says its number, and remembers the text it has seen in its host state.
type counter struct {
	id    int32
	match int // 0: it has none
	fail  bool
	seen  int // runs with a depth
	out   []Draft
}

func (c *counter) Name() string { return fmt.Sprint(c.id) }
func (c *counter) Layout() state.Layout {
	return state.Layout{Layers: []state.Layer{state.KV{Heads: int(c.id)}}}
}

func (c *counter) Plan(batch []Run) {
	for i := range batch {
		c.catchUp(&batch[i])
		batch[i].Sources = 0
		if c.match > 0 {
			batch[i].Sources = Copy(c.match).only()
		}
	}
}

func (c *counter) Draft(batch []Run) ([]Draft, error) {
	if c.fail {
		return nil, errors.New("scripted")
	}
	c.out = c.out[:0]
	for i := range batch {
		c.catchUp(&batch[i])
		c.out = append(c.out, Draft{Tokens: slices.Repeat([]int32{c.id}, batch[i].Depth)})
		if batch[i].Depth > 0 {
			c.seen++
		}
	}
	return c.out, nil
}

// catchUp checks that no other drafter writes its host state.
func (c *counter) catchUp(r *Run) {
	length, ok := (*r.HostState).([2]int)
	if ok && length[0] != int(c.id) {
		panic(fmt.Sprintf("host state of %d given to %d", length[0], c.id))
	}
	*r.HostState = [2]int{int(c.id), len(r.Text)}
}

func TestAutoTakesTheSourceChosen(t *testing.T) {
	head, lookup := &counter{id: 1}, &counter{id: 2, match: 5}
	a := Auto(head, lookup)
	if a.Name() != "auto" || !a.Layout().Equal(head.Layout()) {
		t.Errorf("name %q, layout %+v", a.Name(), a.Layout())
	}
	batch := []Run{{HostState: new(any), Depth: 3}, {HostState: new(any), Depth: 2}, {HostState: new(any), Text: []int32{1}}}
	a.Plan(batch)
	for i, r := range batch {
		if want := Computed.only().With(CopyOf4); r.Sources != want {
			t.Errorf("run %d offers %b, want %b", i, r.Sources, want)
		}
	}
	batch[0].Source, batch[1].Source = CopyOf4, Computed
	out, err := a.Draft(batch)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]int32{{2, 2, 2}, {1, 1}, {}} {
		if !slices.Equal(out[i].Tokens, want) {
			t.Errorf("run %d: %v, want %v", i, out[i].Tokens, want)
		}
	}
	// The head has caught up with every run, drafted for or not.
	for i := range batch {
		if n := (*batch[i].HostState).(*hostStates); n.head != [2]int{1, len(batch[i].Text)} {
			t.Errorf("run %d: the host state of the head is %v", i, n.head)
		}
	}
	if head.seen != 1 || lookup.seen != 1 {
		t.Errorf("the head drafted for %d runs, the lookup for %d", head.seen, lookup.seen)
	}
	// Where no copy is wanted the lookup is not asked.
	lookup.fail = true
	if _, err := a.Draft([]Run{{HostState: new(any), Source: CopyOf4}, {HostState: new(any), Depth: 1}}); err != nil {
		t.Errorf("the lookup was asked for nothing: %v", err)
	}
	lookup.match = 0
	if a.Plan(batch); batch[0].Sources != Computed.only() {
		t.Errorf("offers %b without a match", batch[0].Sources)
	}
}

func TestAutoReportsErrors(t *testing.T) {
	for _, c := range []struct{ head, lookup bool }{{head: true}, {lookup: true}} {
		a := Auto(&counter{id: 1, fail: c.head}, &counter{id: 2, fail: c.lookup})
		if _, err := a.Draft([]Run{{HostState: new(any), Depth: 1, Source: CopyOf2}}); err == nil {
			t.Errorf("%+v: no error", c)
		}
	}
}

func TestPlanOffersComputedDrafts(t *testing.T) {
	plain := struct{ Drafter }{&counter{id: 1}} // hides Plan
	batch := make([]Run, 2)
	Plan(plain, batch)
	for i, r := range batch {
		if r.Sources != Computed.only() {
			t.Errorf("run %d offers %b", i, r.Sources)
		}
	}
}

// TestSourceWithoutMeasurements checks that neither costs nor counts choose the source of drafts at a fixed depth, where
// equal requests have equal drafts, and under the ratio rule, where drafts shape the text.
func TestSourceWithoutMeasurements(t *testing.T) {
	learned := informed(linear(0.01), func(depth, _ int) float64 { return float64(depth) })
	for range 100 { // heads are useless, and copies are always right
		learned.Report(&Record{}, Outcome{Drafted: 2, Tokens: 1})
		learned.Report(&Record{source: CopyOf2}, Outcome{Drafted: 2, Accepted: 2, Tokens: 3})
	}
	for _, c := range []*Controller{NewController(), learned} {
		for copied, want := range map[Source]Source{CopyOf2: Computed, CopyOf4: Computed, CopyOf8: CopyOf8} {
			for _, x := range []struct {
				depth Depth
				ratio bool
			}{{2, false}, {2, true}, {DepthAuto, true}} {
				batch := []Run{{Depth: 2, Sources: Computed.only().With(copied), Dists: x.ratio}}
				c.Choose(batch, []*Record{{Fixed: x.depth}})
				if r := &batch[0]; r.Source != want || x.depth != DepthAuto && r.Depth != 2 {
					t.Errorf("%+v: %d drafts of source %d, want %d", x, r.Depth, r.Source, want)
				}
			}
		}
	}
}
