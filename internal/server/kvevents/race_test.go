//go:build race

package kvevents

import "testing"

// TestRace has the tests in which several goroutines meet: make race runs it.
func TestRace(t *testing.T) {
	t.Run("SubscribersKnowTheBlocks", TestSubscribersKnowTheBlocks)
	t.Run("SlowSubscribersAreDisconnected", TestSlowSubscribersAreDisconnected)
	t.Run("CloseEndsEverything", TestCloseEndsEverything)
}
