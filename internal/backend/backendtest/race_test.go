//go:build race

package backendtest

import "testing"

// TestRace has the tests in which several goroutines meet: make race runs it.
func TestRace(t *testing.T) {
	t.Run("LateConnDelays", TestLateConnDelays)
	t.Run("ThreadsPass", TestThreadsPass)
}
