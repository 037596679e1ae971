//go:build race

package split

import "testing"

// TestRace has the tests in which several goroutines meet: make race runs it.
func TestRace(t *testing.T) {
	t.Run("StagesComputeAtTheSameTime", TestStagesComputeAtTheSameTime)
	t.Run("LaunchedPassesHaveTheBitsOfOthers", TestLaunchedPassesHaveTheBitsOfOthers)
	t.Run("FailureOfAFlightIsItsOwn", TestFailureOfAFlightIsItsOwn)
}
