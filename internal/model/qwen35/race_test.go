//go:build race

package qwen35

import "testing"

// TestRace has the tests in which several goroutines meet: make race runs it.
func TestRace(t *testing.T) {
	t.Run("OpenMixedEncodings", TestOpenMixedEncodings)
	t.Run("ForwardThreadInvariance", TestForwardThreadInvariance)
}
