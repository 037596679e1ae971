//go:build race

package remote_test

import "testing"

// TestRace has the tests in which several goroutines meet: make race runs it.
func TestRace(t *testing.T) {
	t.Run("SecondLeaderIsRefused", TestSecondLeaderIsRefused)
	t.Run("LeaderWaitsForNode", TestLeaderWaitsForNode)
	t.Run("SessionsLeaveNothing", TestSessionsLeaveNothing)
	t.Run("GarbageIsRefused", TestGarbageIsRefused)
	t.Run("NodeWithoutWeightsIsLost", TestNodeWithoutWeightsIsLost)
	t.Run("LyingNode", TestLyingNode)
	t.Run("ErrorsOfNodeAreReported", TestErrorsOfNodeAreReported)
}
