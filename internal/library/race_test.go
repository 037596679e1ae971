//go:build race

package library

import "testing"

// TestRace has the tests in which several goroutines meet: make race runs it.
func TestRace(t *testing.T) {
	t.Run("LibraryFreesMemoryBeforeItLoads", TestLibraryFreesMemoryBeforeItLoads)
	t.Run("LibrarySurvivesPanics", TestLibrarySurvivesPanics)
	t.Run("LibraryLoadsAndUnloads", TestLibraryLoadsAndUnloads)
	t.Run("LibraryLetsModelsExpire", TestLibraryLetsModelsExpire)
}
