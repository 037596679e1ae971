//go:build race

package bench

import "testing"

// TestRace has the tests in which several goroutines meet: make race runs it.
func TestRace(t *testing.T) {
	t.Run("DecodeMeasuresTheEngine", TestDecodeMeasuresTheEngine)
	t.Run("ServeLoadsAServer", TestServeLoadsAServer)
	t.Run("ServeTellsFaults", TestServeTellsFaults)
	t.Run("StreamTimes", TestStreamTimes)
}
