//go:build race

package link

import "testing"

// TestRace has the tests in which several goroutines meet: make race runs it.
func TestRace(t *testing.T) {
	t.Run("OnlyKnownSidesConnect", TestOnlyKnownSidesConnect)
	t.Run("SilentConnectionsKeepNobodyOut", TestSilentConnectionsKeepNobodyOut)
	t.Run("KeyIsMadeOnce", TestKeyIsMadeOnce)
}
