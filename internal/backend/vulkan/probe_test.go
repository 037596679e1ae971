//go:build vulkan

package vulkan

import (
	"slices"
	"strings"
	"testing"
)

// probeLevels are the levels that are probed one by one; all in the long version.
var probeLevels = []Level{Instructions, FewGuards, Integers}

// TestProbe looks for the level of the machine's device, and checks that a list of levels without it is refused with the operation
// that is wrong, or that its levels are exact too.
func TestProbe(t *testing.T) {
	b, err := Open(Options{Staging: 1 << 20, Slab: 16 << 20}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s, driver %s, keeps %+v", b.Name(), b.info.Driver, b.info.Keeps)
	found := b.opts.Level
	for _, level := range probeLevels {
		err := b.Probe([]Level{level})
		t.Logf("level %d: %v", level, err)
		cheaper := slices.Index(cheapest, level) < slices.Index(cheapest, found)
		if cheaper && err == nil || level == found && err != nil || level == Integers && err != nil {
			t.Errorf("level %d was found, level %d has error %v", found, level, err)
		}
		if err != nil && !strings.Contains(err.Error(), " of 0x") && !strings.Contains(err.Error(), "no float64") {
			t.Errorf("level %d: no operands in %v", level, err)
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
