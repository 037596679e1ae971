//go:build race

package state

import "testing"

// TestRace has the tests in which several goroutines meet: make race runs it.
func TestRace(t *testing.T) {
	t.Run("SharedMemoryEqualsDeepCopies", TestSharedMemoryEqualsDeepCopies)
	t.Run("OnFullMakesSpace", TestOnFullMakesSpace)
}
