//go:build race

package vulkan

import "testing"

// TestRace has the tests in which several goroutines meet: make race runs it.
func TestRace(t *testing.T) {
	t.Run("BackendsShareAProof", TestBackendsShareAProof)
}
