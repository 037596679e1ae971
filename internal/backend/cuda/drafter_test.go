package cuda

import (
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/checkpoint"
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

// draftsOf are the drafts of the first rounds of a golden file.
func draftsOf(t *testing.T, b backend.Backend, f *golden.DrafterFixture) (ids []int32) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	o := model.Options{MaxDrafts: 8, Quantize: 8}
	target, err := checkpoint.Open(golden.Dir(t, f.Target))
	check(err)
	defer target.Close() //nolint:errcheck // read only
	m, err := model.Open(target, b, o)
	check(err)
	defer m.Close() //nolint:errcheck // what it does not free the device does
	files, err := checkpoint.Open(f.Dir)
	check(err)
	defer files.Close() //nolint:errcheck // read only
	d, err := drafter.Open(files, m.(model.Lender), b, o)
	check(err)
	defer d.Close() //nolint:errcheck // what it does not free the device does
	check(m.(model.Tappable).Tap(d.Taps...))
	var policy spec.Drafter
	if d.Head != nil {
		policy = mtp.New(d.Head, mtp.Options{Vocab: m.Info().Vocab, Taps: d.Taps, Tokens: d.Tokens, DraftVocab: -1})
	} else {
		policy = block.New(d.Block, block.Options{Vocab: m.Info().Vocab, Taps: d.Taps, Tokens: d.Tokens, DraftVocab: -1})
	}
	pool := state.NewPool(b, 1<<28)
	own, err := pool.Open(m.Layout())
	check(err)
	defer own.Close()
	context, err := pool.Open(policy.Layout())
	check(err)
	defer context.Close()
	c := &f.Cases[0]
	out, err := m.Forward([]model.Span{{State: own, Tokens: c.Tokens}})
	check(err)
	taps, err := b.Alloc(dtype.F32, out.Taps.Rows, out.Taps.Cols)
	check(err)
	b.Copy(taps, out.Taps)
	sampler, err := sampling.New(sample.Options{Temperature: 0.8}, nil)
	check(err)
	if device, ok := b.(backend.Rehearser); ok { // then every pass was prepared for
		for range 2 { // memory that grows drops what was prepared before
			check(device.Rehearse(func() error { return policy.(spec.Rehearser).Rehearse(pool, taps, taps.Rows, 1) }))
		}
		before := device.Prepared()
		defer func() {
			if n := device.Prepared() - before; n > 0 {
				t.Errorf("%d passes were not prepared for", n)
			}
		}()
	}
	var host any
	at := 0
	for _, x := range c.Rounds[:2] {
		drafts, err := policy.Draft([]spec.Run{{
			State: context, HostState: &host, Text: c.Tokens[:x.Start+1], Sampler: sampler, Hidden: taps.RowRange(at, x.Start), Depth: f.Drafts,
		}})
		check(err)
		ids, at = append(ids, drafts[0].Tokens...), x.Start
	}
	return ids
}
