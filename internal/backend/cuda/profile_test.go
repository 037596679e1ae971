package cuda

import (
	"errors"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
)

// A profile has every operation of the last pass, products with their sizes, and the device goes on after
// it.
func TestProfileHasEveryKernel(t *testing.T) {
	b := open(t, Options{})
	w := newTower(t, b)
	w.space(4)
	if _, err := b.Profile(1); !errors.Is(err, errNoPass) {
		t.Errorf("a profile of no pass: %v", err)
	}
	run := func() []float32 { return w.run([]int32{3, 5}, []int32{1}, nil) }
	want := run()
	for range 2 { // of a pass that was recorded, and of one that was replayed
		costs, err := b.Profile(3)
		if err != nil {
			t.Fatal(err)
		}
		count := 0
		for i, c := range costs {
			count += c.Count
			if c.Seconds < 0 || i > 0 && c.Seconds > costs[i-1].Seconds {
				t.Errorf("%d: %+v", i, costs)
			}
		}
		if count != len(b.passes.Last.ops) {
			t.Errorf("%d kernels, the pass has %d", count, len(b.passes.Last.ops))
		}
		for _, name := range []string{"rms_norm", "gather", "few_4_64_1 100×64"} {
			if !slices.ContainsFunc(costs, func(c backend.Cost) bool { return c.Kernel == name }) {
				t.Errorf("no %s in %+v", name, costs)
			}
		}
		if got := run(); !slices.Equal(got, want) {
			t.Error("other bits after a profile")
		}
	}
}
