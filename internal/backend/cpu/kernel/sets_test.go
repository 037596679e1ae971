package kernel

import "testing"

// TestSetsThatRun names the instruction sets that tests run on this machine, and those that they cannot: make test-sets
// shows it.
func TestSetsThatRun(t *testing.T) {
	seen := map[string]bool{}
	for _, set := range Sets() {
		if set.Name == "" || seen[set.Name] {
			t.Errorf("two sets are named %q", set.Name)
		}
		seen[set.Name] = true
		if set.Missing != "" {
			t.Logf("%s has not been tested: %s", set.Name, set.Missing)
		} else {
			t.Logf("%s has been tested", set.Name)
		}
	}
	if list := runnable(); len(list) == 0 || list[len(list)-1].Name != Generic.Name {
		t.Error("portable code does not run")
	}
}
