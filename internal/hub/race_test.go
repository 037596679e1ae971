//go:build race

package hub

import "testing"

// TestRace has the tests in which several goroutines meet: make race runs it.
func TestRace(t *testing.T) {
	t.Run("FetchLaysOutTheCacheAsTheHubsOwnClient", TestFetchLaysOutTheCacheAsTheHubsOwnClient)
	t.Run("FetchSurvivesCutConnections", TestFetchSurvivesCutConnections)
	t.Run("FetchInterruptedLeavesAPrefix", TestFetchInterruptedLeavesAPrefix)
	t.Run("FetchRefusesLies", TestFetchRefusesLies)
	t.Run("FetchAsksAgainWhenAnAddressExpires", TestFetchAsksAgainWhenAnAddressExpires)
	t.Run("FetchGivesUpAStalledConnection", TestFetchGivesUpAStalledConnection)
	t.Run("FetchOfManyFetchesOnce", TestFetchOfManyFetchesOnce)
	t.Run("FetchWaitsForAnotherProgram", TestFetchWaitsForAnotherProgram)
	t.Run("ComposeGoesOnFromWhatIsThere", TestComposeGoesOnFromWhatIsThere)
	t.Run("ListReadsAllPages", TestListReadsAllPages)
}
