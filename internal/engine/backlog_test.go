package engine

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/prefix/store"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/sample"
)

// pausing drafts with a head in every other stretch of a text, and in between has nothing to
// draft from. It counts the rows that it is fed, those at another position than their own, the calls, and the runs that
// go on behind rows that were never fed.
type pausing struct {
	spec.Drafter
	source                       spec.Source
	stretch, phase               int
	inputs                       map[int]inputs // by length of the prompt; none: it is text
	rows, misplaced, calls, gaps int
}

func (d *pausing) Plan(batch []spec.Run) {
	for i := range batch {
		batch[i].Sources = 0
		if (len(batch[i].Text)/d.stretch+d.phase)%2 == 1 {
			batch[i].Sources = spec.Sources(0).With(d.source)
		}
	}
}

func (d *pausing) Draft(batch []spec.Run) ([]spec.Draft, error) {
	for _, r := range batch {
		n := r.Hidden.Rows
		if n == 0 {
			continue
		}
		d.rows, d.calls = d.rows+n, d.calls+1
		x := d.inputs[r.Prompt]
		first := len(r.Text) - n - 1 // slot of the first row
		if r.State.Len() != first {
			d.gaps++
		}
		for i := range n {
			at := flat(r.State.Next() + i)
			if r.Positions != nil {
				at = r.Positions[i]
			}
			if at != x.position(first+i) {
				d.misplaced++
			}
		}
	}
	return d.Drafter.Draft(batch)
}

// TestHeadBeginsAgain has stretches without drafts that are longer than the backlog. The head is then not fed all rows, but
// each that it is fed is at its own position, and its drafts are accepted again. Under the ratio rule it is fed every row.
// The text is that of plain decoding.
func TestHeadBeginsAgain(t *testing.T) {
	m, pool := openModel(t, golden.Dir(t, "tiny"), model.Options{})
	const tokens, stretch = 240, 80
	for _, rule := range []spec.Rule{spec.Exact, spec.Ratio} {
		d := &pausing{Drafter: m.Drafter(), stretch: stretch}
		e, err := New(m, pool, Options{Drafter: d})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		r := Request{
			Prompt: golden.Load(t, "tiny").Cases[0].Prompt, MaxTokens: tokens, IgnoreEnd: true, Hash: true,
			Sampling: sample.Options{Temperature: 0.7, Seed: 5}, Rule: rule, Depth: spec.FixedDepth(2),
		}
		ids, res, err := collect(e, r)
		if err != nil {
			t.Fatal(err)
		}
		fed := len(r.Prompt) + tokens
		t.Logf("%v: %d of %d rows fed in %d calls, %d gaps, %d of %d drafts accepted", rule, d.rows, fed, d.calls, d.gaps, res.Speculation.Accepted, res.Speculation.Drafted)
		if forgets := rule == spec.Exact; d.misplaced > 0 || d.rows > fed || (d.rows < fed-3) != forgets || (d.gaps > 0) != forgets {
			t.Errorf("%v: %d of %d rows fed, %d of them misplaced, %d gaps", rule, d.rows, fed, d.misplaced, d.gaps)
		}
		if res.Speculation.Accepted*4 < res.Speculation.Drafted {
			t.Errorf("%v: %d of %d drafts accepted", rule, res.Speculation.Accepted, res.Speculation.Drafted)
		}
		if rule == spec.Ratio {
			continue
		}
		r.Depth = spec.DepthOff
		want, plain, err := collect(e, r)
		if err != nil || !slices.Equal(ids, want) || res.LogitsHash != plain.LogitsHash {
			t.Errorf("the text is not that of plain decoding, %v", err)
		}
	}
}

// costly has drafts cost far too much, until a text has a length, and hardly anything from there on.
type costly struct {
	pausing
	c     *spec.Controller
	pass  time.Duration // of each pass, as the controller is told
	cheap int           // length
	early int           // rows that it was fed before
	plans int
}

func (d *costly) Plan(batch []spec.Run) {
	d.plans++
	price := 1e6 * time.Hour
	if len(batch[0].Text) >= d.cheap {
		price = 1
	} else {
		d.early = d.rows
	}
	tell(d.c, d.pass, price)
	for i := range batch {
		batch[i].Sources = spec.Sources(0).With(spec.Computed)
	}
}

// untimed is a device with no pass of which the time is typical: the costs are only what a test says.
type untimed struct {
	backend.Backend
	passes int64
}

// Prepared implements backend.Preparer.
func (u *untimed) Prepared() int64 {
	u.passes++
	return u.passes
}

func openUntimed(t *testing.T) (*headed, *state.Pool) {
	t.Helper()
	u := &untimed{Backend: backendtest.Open(t, backend.Options{})}
	return load(t, golden.Dir(t, "tiny"), model.Options{}, u), state.NewPool(u, 1<<30)
}

// tell has a controller know the time of passes, whatever their rows, and of a computed draft.
func tell(c *spec.Controller, pass, draft time.Duration) {
	for rows := range 200 {
		c.ObservePass(1+rows%10, pass)
		c.ObserveDraft(spec.Computed, []int{1}, 0, draft)
	}
}

// TestIdleHeadIsNotFedPrompts has a prompt after a text for which drafts did not pay: the head is fed none of it. When
// drafts pay again, the head begins with the last rows, each at its own position.
func TestIdleHeadIsNotFedPrompts(t *testing.T) {
	m, pool := openUntimed(t)
	for _, more := range []int{10, 30} { // tokens of the text until drafts pay
		d := &costly{pausing: pausing{Drafter: m.Drafter()}, pass: time.Hour, cheap: math.MaxInt}
		e, err := New(m, pool, Options{Drafter: d, RoundTokens: 48})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		d.c = &e.drafting.controller
		r := Request{Prompt: golden.Load(t, "tiny").Cases[0].Prompt, MaxTokens: 40, IgnoreEnd: true, Hash: true}
		if _, _, err := collect(e, r); err != nil {
			t.Fatal(err)
		}
		r.Prompt = slices.Repeat(r.Prompt, 1+100/len(r.Prompt))
		d.cheap, d.rows, d.gaps = len(r.Prompt)+more, 0, 0
		ids, res, err := collect(e, r)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d of %d rows fed, %d gaps, %d drafts", d.rows, len(r.Prompt)+40, d.gaps, res.Speculation.Drafted)
		if least := 40 - more; d.early > 0 || d.misplaced > 0 || d.gaps == 0 || d.rows < least || d.rows > least+spec.Backlog || res.Speculation.Drafted == 0 {
			t.Errorf("%d rows fed, %d too early, %d misplaced, %d gaps, %d drafts", d.rows, d.early, d.misplaced, d.gaps, res.Speculation.Drafted)
		}
		r.Depth = spec.DepthOff
		want, plain, err := collect(e, r)
		if err != nil || !slices.Equal(ids, want) || res.LogitsHash != plain.LogitsHash {
			t.Errorf("the text is not that of plain decoding, %v", err)
		}
	}
}

// TestChoicesRest has drafts that do not pay on a machine on which a choice takes long: there is none in most rounds,
// and no rows are kept, until drafts pay again. They begin at most 16 rounds later. A fixed depth beside the text has
// a choice in every round. Texts are those of plain decoding.
func TestChoicesRest(t *testing.T) {
	m, pool := openUntimed(t)
	r := Request{
		Prompt: golden.Load(t, "tiny").Cases[0].Prompt, MaxTokens: 84, IgnoreEnd: true, Hash: true,
		Sampling: sample.Options{Temperature: 0.7, Seed: 3},
	}
	for _, x := range []struct {
		cheap, beside int // tokens until drafts pay, and of a second text
		least, most   int // choices
	}{{1000, 0, 8, 12}, {60, 0, 14, 24}, {1000, 160, 80, 170}} {
		d := &costly{pausing: pausing{Drafter: m.Drafter()}, pass: time.Microsecond, cheap: len(r.Prompt) + x.cheap}
		e, err := New(m, pool, Options{Drafter: d})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		d.c = &e.drafting.controller
		var other *Stream
		if x.beside > 0 {
			second := r
			second.MaxTokens, second.Depth = x.beside, spec.FixedDepth(1)
			if other, err = e.Generate(t.Context(), second); err != nil {
				t.Fatal(err)
			}
		}
		ids, res, err := collect(e, r)
		if err != nil {
			t.Fatal(err)
		}
		if other != nil {
			for _, err := range other.Tokens() {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		t.Logf("%d choices, %d drafts, %d rows fed, %d gaps", d.plans, res.Speculation.Drafted, d.rows, d.gaps)
		if d.plans < x.least || d.plans > x.most || d.misplaced > 0 || x.beside == 0 && (res.Speculation.Drafted > 0) != (x.cheap < 84) {
			t.Errorf("%+v: %d choices, %d rows misplaced, %d drafts", x, d.plans, d.misplaced, res.Speculation.Drafted)
		}
		r.Depth = spec.DepthOff
		want, plain, err := collect(e, r)
		if r.Depth = spec.DepthAuto; err != nil || !slices.Equal(ids, want) || res.LogitsHash != plain.LogitsHash {
			t.Errorf("the text is not that of plain decoding, %v", err)
		}
	}
}

// TestHeadBeginsAgainAnywhere does that with two drafters that alternate, after prompts with images, with preemption, and behind prefixes
// that memory or the disk has without the state of one or of both.
func TestHeadBeginsAgainAnywhere(t *testing.T) {
	const tokens, stretch = 100, 45
	m, b := openEmbedding(t, "dense", backend.Options{Threads: 1}, false)
	plain, err := New(m, state.NewPool(b, 1<<30), Options{Tower: b})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	seen := map[int]inputs{}
	var requests []Request
	var want []piece
	for i, temperature := range []float64{0, 0.7, 1.5} {
		r := Request{
			Prompt: prompt(50+i, i), MaxTokens: tokens + i, IgnoreEnd: true, Hash: true, Depth: spec.FixedDepth(1 + i),
			Sampling: sample.Options{Temperature: temperature, Seed: uint64(i)},
		}
		p := piece{Request: r}
		if i > 0 {
			p.Request = b.asImage(r, 20, 24, 6) // its positions are no text's
		}
		p.ids, p.hashes = said(t, plain, p.Request)
		// The next turn goes on behind the answer.
		next := p.Request
		next.Prompt = slices.Concat(p.Prompt, p.ids, prompt(9, i))
		turn := piece{Request: next}
		turn.ids, turn.hashes = said(t, plain, next)
		for _, x := range []piece{p, turn} {
			if seen[len(x.Prompt)], err = newInputs(x.Prompt, x.Inputs, m.Info()); err != nil {
				t.Fatal(err)
			}
			requests, want = append(requests, x.Request), append(want, x)
		}
	}
	probe := &Engine{model: m, o: Options{Drafter: spec.Auto(m.Drafter(), m.Drafter())}}
	dir := t.TempDir()
	for i, budget := range []int64{1 << 30, 1 << 30, probe.bytes(280+spec.MaxDepth) * 5 / 4} {
		disk, err := store.OpenDisk(dir, store.DiskOptions{Bytes: 1 << 28, Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		d := &pausing{Drafter: m.Drafter(), stretch: stretch, inputs: seen}
		other := &pausing{Drafter: m.Drafter(), stretch: stretch, phase: 1, source: spec.Beside, inputs: seen}
		pool := state.NewPool(b, budget)
		gate := &gated{m, make(chan int32), make(chan struct{})}
		e, err := New(gate, pool, Options{Drafter: spec.Auto(d, other), Cache: true, Disk: disk, Log: quiet, Tower: b})
		if err != nil {
			t.Fatal(err)
		}
		together(t, e, gate, requests, func(j int, s *Stream) {
			var p piece
			for token, err := range s.Tokens() {
				if err != nil {
					t.Errorf("engine %d, request %d: %v", i, j, err)
				}
				p.ids, p.hashes = append(p.ids, token.ID), append(p.hashes, token.Hash)
			}
			if err := want[j].check(p.ids, p.hashes, true); err != nil {
				t.Errorf("engine %d, request %d: %v", i, j, err)
			}
		})
		x := e.Stats()
		e.Close()
		disk.Close()
		for _, d := range []*pausing{d, other} {
			t.Logf("engine %d: %d rows in %d calls, %d gaps, %d tokens cached, %d files read, %d preemptions", i, d.rows, d.calls, d.gaps, x.CachedTokens, disk.Stats().Read, x.Preemptions)
			if d.misplaced > 0 || d.gaps == 0 || (x.Preemptions > 0) != (i == 2) || (disk.Stats().Read > 0) != (i > 0) {
				t.Errorf("engine %d: %d rows misplaced, %d gaps, %d preemptions, %d files read", i, d.misplaced, d.gaps, x.Preemptions, disk.Stats().Read)
			}
		}
		if s := pool.Stats(); s.Used != 0 || s.States != 0 {
			t.Errorf("engine %d: left behind %+v", i, s)
		}
	}
}
