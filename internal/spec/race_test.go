//go:build race

package spec

import "testing"

// TestRace has the tests in which several goroutines meet: make race runs it.
func TestRace(t *testing.T) {
	t.Run("LogitsStayWhereTheyAre", TestLogitsStayWhereTheyAre)
	t.Run("GroupsAreSpread", TestGroupsAreSpread)
}
