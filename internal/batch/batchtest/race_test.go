//go:build race

package batchtest_test

import "testing"

// TestRace has the tests in which several goroutines meet: make race runs it.
func TestRace(t *testing.T) {
	t.Run("FolderIsAStore", TestFolderIsAStore)
	t.Run("MemoryIsAQueue", TestMemoryIsAQueue)
}
