//go:build race

package checkpoint

import "testing"

// TestRace has the tests in which several goroutines meet: make race runs it.
func TestRace(t *testing.T) {
	t.Run("SumCrossesSegments", TestSumCrossesSegments)
	t.Run("SumIsPaidOnce", TestSumIsPaidOnce)
	t.Run("RepackOddSizes", TestRepackOddSizes)
	t.Run("OrderIsShared", TestOrderIsShared)
}
