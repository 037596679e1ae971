//go:build race

package state

import "testing"

// TestRace runs tests with several goroutines; make race runs it.
func TestRace(t *testing.T) {
	t.Run("SharedMemoryEqualsDeepCopies", TestSharedMemoryEqualsDeepCopies)
	t.Run("OnFullMakesSpace", TestOnFullMakesSpace)
}
