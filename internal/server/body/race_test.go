//go:build race

package body

import "testing"

// TestRace has the tests in which several goroutines meet: make race runs it.
func TestRace(t *testing.T) {
	t.Run("KeepAliveBeatsUntilItIsStopped", TestKeepAliveBeatsUntilItIsStopped)
	t.Run("SilentStreamIsKeptAlive", TestSilentStreamIsKeptAlive)
	t.Run("StreamStopsWritingToAClientThatHasLeft", TestStreamStopsWritingToAClientThatHasLeft)
}
