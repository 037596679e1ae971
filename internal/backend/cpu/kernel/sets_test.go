package kernel

import (
	"testing"

	"golang.org/x/sys/cpu"
)

// TestSetsThatRun names the instruction sets that tests run on this machine, and those that they cannot: make test-sets
// shows it.
func TestSetsThatRun(t *testing.T) {
	seen := map[string]bool{}
	for _, set := range Sets() {
		if set.Name == "" || seen[set.Name] {
			t.Errorf("two sets are named %q", set.Name)
		}
		seen[set.Name] = true
		switch {
		case set.Missing == "":
			t.Logf("%s has been tested", set.Name)
		case set.Name == "avxvnni" && cpu.X86.HasAVXVNNI: // the tag evex has given it instructions that this processor lacks
			t.Logf("%s is tested by make test, without the tag evex", set.Name)
		default:
			t.Logf("%s has not been tested: %s", set.Name, set.Missing)
		}
	}
	if list := runnable(); len(list) == 0 || list[len(list)-1].Name != Generic.Name {
		t.Error("portable code does not run")
	}
}

// TestVariantsDifferInProducts compares instruction sets with those that they extend. Conformance checks no more of them: see
// variants of package backendtest.
func TestVariantsDifferInProducts(t *testing.T) {
	sets := map[string]Set{}
	for _, set := range Sets() {
		sets[set.Name] = set
	}
	for name, of := range map[string]string{"i8mm": "dotprod", "dotprod": "neon", "avxvnni": "avx2", "amx": "avx512"} {
		set, ok := sets[name]
		if !ok {
			continue // of another architecture
		}
		base := sets[of]
		set.Name, set.Missing, set.Integer, set.strips = base.Name, base.Missing, base.Integer, base.strips
		if name != "i8mm" {
			set.Vector.Coded = base.Vector.Coded
		}
		if words(&set) != words(&base) {
			t.Errorf("%s differs from %s in other kernels, too", name, of)
		}
	}
}
