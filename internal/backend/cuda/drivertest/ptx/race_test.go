//go:build race

package ptx

import "testing"

// TestRace has the tests in which several goroutines meet: make race runs it.
func TestRace(t *testing.T) {
	t.Run("BlocksThatMeetAreFound", TestBlocksThatMeetAreFound)
}
