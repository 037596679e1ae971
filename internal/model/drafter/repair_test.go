package drafter_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/sample"
)

// TestRepairsLeaveTheDrafter runs the drafters of all kinds in all other ways, which draft something else, and then as before.
func TestRepairsLeaveTheDrafter(t *testing.T) {
	text := texts(t)[0]
	for _, f := range golden.Drafters(t, "") {
		t.Run(f.Name, func(t *testing.T) {
			r := open(t, "dense", f.Dir, backend.Options{})
			probs := func(x *rig) []float32 {
				if err := r.Model.(model.Lender).Tap(x.d.Taps...); err != nil {
					t.Fatal(err)
				}
				d := x.drafts(-1)
				return draft(t, d, x.start(t, d, text).run(t, 60, min(3, f.Drafts), sample.Options{Temperature: 1}))[0].Probs
			}
			want := probs(r)
			kinds := map[string]bool{}
			for _, repair := range r.d.Repairs() {
				d, err := repair.Open()
				if err != nil {
					t.Fatal(err)
				}
				if got := probs(&rig{Rig: r.Rig, d: d}); len(got) == 0 || slices.Equal(got, want) {
					t.Errorf("%s: drafts with %v", repair.Name, got)
				}
				if err := d.Close(); err != nil {
					t.Error(err)
				}
				kinds[repair.Kind] = true
			}
			if got := probs(r); !slices.Equal(got, want) {
				t.Errorf("after the repairs drafts with %v, before %v", got, want)
			}
			where := map[string][]string{"dflash_swa": {"kind", "norms", "taps", "window"}, "dflash2": {"norms", "taps", "window"}, "dspark_nested": {"kind", "norms", "taps"}}[f.Name]
			if where == nil { // EAGLE-3
				where = []string{"norms", "taps"}
			}
			if got := slices.Sorted(maps.Keys(kinds)); !slices.Equal(got, where) {
				t.Errorf("repairs of %v, want %v", got, where)
			}
		})
	}
}
