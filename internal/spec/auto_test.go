package spec

import "testing"

// named is a drafter that does nothing.
type named struct{ Drafter }

func (named) Name() string { return "named" }

// TestPlanOffersComputedDrafts has drafters that are no planners offer the source of their number.
func TestPlanOffersComputedDrafts(t *testing.T) {
	d := Auto(named{}, named{}, named{})
	if d.Name() != "auto" || len(Parts(d)) != 3 || len(Parts(named{})) != 1 || Parts(nil) != nil {
		t.Errorf("%s has %d parts, a single drafter %d, none %d", d.Name(), len(Parts(d)), len(Parts(named{})), len(Parts(nil)))
	}
	for i, want := range []Source{Computed, Beside} {
		batch := make([]Run, 2)
		Plan(i, Parts(d)[i], batch)
		for j, r := range batch {
			if r.Sources != want.only() || PartOf(want, 3) != i {
				t.Errorf("part %d offers %b for run %d, and part %d makes its drafts", i, r.Sources, j, PartOf(want, 3))
			}
		}
	}
	if PartOf(CopyOf8, 3) != 2 || PartOf(CopyOf2, 1) != 0 || PartOf(Beside, 1) != 0 {
		t.Error("copies are made by the last part")
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
