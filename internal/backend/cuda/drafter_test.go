package cuda

import (
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/drafter"
	"github.com/foretoken/foretoken/internal/sampling"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/spec/block"
	"github.com/foretoken/foretoken/internal/spec/mtp"
	"github.com/foretoken/foretoken/internal/state"
	"github.com/foretoken/foretoken/sample"
)

// TestDraftersHaveTheDraftsOfTheCPU has the drafters of the golden files draft on both devices, over the same text.
func TestDraftersHaveTheDraftsOfTheCPU(t *testing.T) {
	for _, f := range golden.Drafters(t, "") {
		t.Run(f.Name, func(t *testing.T) {
			want := draftsOf(t, backendtest.CPU(t, backend.Options{Threads: 1}), f)
			got := draftsOf(t, open(t, Options{}), f)
			if len(want) == 0 || !slices.Equal(got, want) {
				t.Errorf("drafts %v, want %v", got, want)
			}
		})
	}
}

// TestBlocksOfABatchAreRehearsed has five runs draft blocks of two sizes, in mixtures for which a pass was prepared. The drafts of a
// run are those that it has alone.
func TestBlocksOfABatchAreRehearsed(t *testing.T) {
	const runs = 5
	f := golden.Drafters(t, "")[0]
	x := openDrafter(t, open(t, Options{}), f)
	check := x.check
	device := x.b.(backend.Rehearser)
	for range 2 {
		check(device.Rehearse(func() error { return x.policy.(spec.Rehearser).Rehearse(x.pool, x.taps.RowRange(0, runs), 1, runs) }))
	}
	host := make([]any, runs)
	draft := func(depths ...int) (tokens [][]int32) {
		var batch []spec.Run
		for i, depth := range depths {
			s, err := x.pool.Open(x.policy.Layout())
			check(err)
			defer s.Close()
			batch = append(batch, spec.Run{State: s, HostState: &host[i], Text: f.Cases[0].Tokens[:2], Sampler: x.sampler, Hidden: x.taps.RowRange(0, 1), Depth: depth})
		}
		drafts, err := x.policy.Draft(batch)
		check(err)
		for i := range drafts {
			tokens = append(tokens, slices.Clone(drafts[i].Tokens))
		}
		return tokens
	}
	alone := map[int][]int32{1: draft(1)[0], f.Drafts: draft(f.Drafts)[0]}
	before := device.Prepared()
	for _, deep := range []int{2} {
		var depths []int
		for i := range runs {
			depths = append(depths, map[bool]int{true: f.Drafts, false: 1}[i >= runs-deep])
		}
		for i, tokens := range draft(depths...) {
			if len(tokens) == 0 || !slices.Equal(tokens, alone[depths[i]]) {
				t.Errorf("%d deep runs: run %d drafts %v, alone %v", deep, i, tokens, alone[depths[i]])
			}
		}
	}
	if n := device.Prepared() - before; n > 0 {
		t.Errorf("%d passes were not prepared for", n)
	}
}

// drafting is a drafter of a golden file on a device, with rows of the file's first text.
type drafting struct {
	b       backend.Backend
	policy  spec.Drafter
	pool    *state.Pool
	taps    backend.Tensor
	sampler *sampling.Sampler
	check   func(error)
}

// openDrafter opens a drafter and its model.
func openDrafter(t *testing.T, b backend.Backend, f *golden.DrafterFixture) *drafting {
	t.Helper()
	x := &drafting{b: b, pool: state.NewPool(b, 1<<28), check: func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}}
	o := model.Options{MaxDrafts: 8, Quantize: 8}
	target := golden.Open(t, golden.Dir(t, f.Target))
	m, err := model.Open(target, b, o)
	x.check(err)
	t.Cleanup(func() { m.Close() }) //nolint:errcheck // what it does not free the device does
	d, err := drafter.Open(golden.Open(t, f.Dir), m.(model.Lender), b, o)
	x.check(err)
	t.Cleanup(func() { d.Close() }) //nolint:errcheck // the same
	x.check(m.(model.Tappable).Tap(d.Taps...))
	if d.Head != nil {
		x.policy = mtp.New(d.Head, mtp.Options{Vocab: m.Info().Vocab, Taps: d.Taps, Tokens: d.Tokens, DraftVocab: -1})
	} else {
		x.policy = block.New(d.Block, block.Options{Vocab: m.Info().Vocab, Taps: d.Taps, Tokens: d.Tokens, DraftVocab: -1})
	}
	own, err := x.pool.Open(m.Layout())
	x.check(err)
	t.Cleanup(own.Close)
	c := &f.Cases[0]
	out, err := m.Forward([]model.Span{{State: own, Tokens: c.Tokens[:c.Rounds[1].Start]}})
	x.check(err)
	x.taps, err = b.Alloc(dtype.F32, out.Taps.Rows, out.Taps.Cols)
	x.check(err)
	b.Copy(x.taps, out.Taps)
	x.sampler, err = sampling.New(sample.Options{Temperature: 0.8}, nil)
	x.check(err)
	return x
}

// draftsOf are the drafts of the first rounds of a golden file.
func draftsOf(t *testing.T, b backend.Backend, f *golden.DrafterFixture) (ids []int32) {
	t.Helper()
	x := openDrafter(t, b, f)
	context, err := x.pool.Open(x.policy.Layout())
	x.check(err)
	defer context.Close()
	if device, ok := b.(backend.Rehearser); ok { // then every pass was prepared for
		for range 2 { // memory that grows drops what was prepared before
			x.check(device.Rehearse(func() error { return x.policy.(spec.Rehearser).Rehearse(x.pool, x.taps, x.taps.Rows, 1) }))
		}
		before := device.Prepared()
		defer func() {
			if n := device.Prepared() - before; n > 0 {
				t.Errorf("%d passes were not prepared for", n)
			}
		}()
	}
	var host any
	at, c := 0, &f.Cases[0]
	for _, round := range c.Rounds[:2] {
		drafts, err := x.policy.Draft([]spec.Run{{
			State: context, HostState: &host, Text: c.Tokens[:round.Start+1], Sampler: x.sampler, Hidden: x.taps.RowRange(at, round.Start), Depth: f.Drafts,
		}})
		x.check(err)
		ids, at = append(ids, drafts[0].Tokens...), round.Start
	}
	return ids
}
