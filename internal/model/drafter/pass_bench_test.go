package drafter_test

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/drafter"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/state"
)

var passShapes = flag.String("shapes", "0.8b", "shapes of the models of BenchmarkBlockPass, with commas")

// BenchmarkBlockPass is a pass of a generated block drafter of the published shape over blocks of 8 and 16 rows, with a draft vocabulary
// of 32,768 tokens, as a share of a pass of its model over one token, alternating.
func BenchmarkBlockPass(b *testing.B) {
	dev := backendtest.Open(b, backend.Options{})
	for shape := range strings.SplitSeq(*passShapes, ",") {
		m, err := model.Generate(shape, weights.BitsForm(4), dev, model.Options{MaxDrafts: 8})
		if err != nil {
			b.Fatal(err)
		}
		defer m.Close() //nolint:errcheck // frees memory only
		for _, rows := range []int{8, 16} {
			b.Run(fmt.Sprintf("%s/rows=%d", shape, rows), func(b *testing.B) { blockPass(b, m.(model.Lender), dev, rows) })
		}
	}
}

func blockPass(b *testing.B, m model.Lender, dev backend.Backend, rows int) {
	wide := map[int]int{4096: 12_288, 5120: 17_408}[m.Info().Width]
	if wide == 0 {
		wide = 3 * m.Info().Width
	}
	d, err := drafter.Generate(m, rows, wide, weights.BitsForm(4), dev, model.Options{MaxDrafts: 8})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close() //nolint:errcheck // frees memory only
	if err := m.Tap(d.Taps...); err != nil {
		b.Fatal(err)
	}
	pool := state.NewPool(dev, 1<<34)
	own, err := pool.Open(m.Layout())
	if err != nil {
		b.Fatal(err)
	}
	context, err := pool.Open(d.Block.Layout())
	if err != nil {
		b.Fatal(err)
	}
	defer own.Close()
	defer context.Close()
	only := make([]int32, 32_768/backend.RowBlock)
	for i := range only {
		only[i] = int32(i)
	}
	var took [2][]float64
	for range 2 + b.N {
		start := time.Now()
		out, err := m.Forward([]model.Span{{State: own, Tokens: []int32{1}, Want: 1}})
		if err == nil {
			_, err = dev.Top(out.Logits, []backend.Ask{{K: 1}})
		}
		target := time.Since(start)
		if err == nil {
			err = d.Block.Append([]model.Span{{State: context, Hidden: out.Taps}})
		}
		start = time.Now()
		if err == nil {
			out, err = d.Block.Forward([]model.Span{{State: context, Tokens: []int32{1}, Want: d.Block.Drafts()}}, only)
		}
		if err == nil {
			_, err = dev.Top(out.Logits, slices.Repeat([]backend.Ask{{K: 1}}, out.Logits.Rows))
		}
		if err != nil {
			b.Fatal(err)
		}
		took[0], took[1] = append(took[0], target.Seconds()), append(took[1], time.Since(start).Seconds())
	}
	for i := range took {
		took[i] = took[i][2:]
		slices.Sort(took[i])
	}
	n := b.N / 2
	b.ReportMetric(took[0][n]*1e3, "target-ms")
	b.ReportMetric(took[1][n]*1e3, "block-ms")
	b.ReportMetric(took[1][n]/took[0][n], "of-target")
}
