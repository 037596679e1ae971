//go:build race

package jetstream_test

import "testing"

// TestRace has the tests in which several goroutines meet: make race runs it.
func TestRace(t *testing.T) {
	t.Run("EmbeddedIsAQueue", TestEmbeddedIsAQueue)
	t.Run("RemoteIsAStore", TestRemoteIsAStore)
	t.Run("StartHandsOutWhatWasFetched", TestStartHandsOutWhatWasFetched)
}
