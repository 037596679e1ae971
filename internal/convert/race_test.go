//go:build race

package convert

import "testing"

// TestRace has the tests in which several goroutines meet: make race runs it.
func TestRace(t *testing.T) {
	t.Run("ConvertKeepsTheModel", TestConvertKeepsTheModel)
	t.Run("ConvertInterruptedLeavesNothing", TestConvertInterruptedLeavesNothing)
	t.Run("ConvertFailedLeavesNothing", TestConvertFailedLeavesNothing)
}
