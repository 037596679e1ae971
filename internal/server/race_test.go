//go:build race

package server

import "testing"

// TestRace has the tests in which several goroutines meet: make race runs it.
func TestRace(t *testing.T) {
	t.Run("Keys", TestKeys)
	t.Run("PerKeyLimit", TestPerKeyLimit)
	t.Run("BodiesOverTheLimit", TestBodiesOverTheLimit)
	t.Run("SlowClientsAreCutOff", TestSlowClientsAreCutOff)
	t.Run("ConnectionsOverTheLimitWait", TestConnectionsOverTheLimitWait)
	t.Run("Flood", TestFlood)
	t.Run("DisconnectFreesTheSequenceWithinARound", TestDisconnectFreesTheSequenceWithinARound)
	t.Run("DrainLetsStreamsEnd", TestDrainLetsStreamsEnd)
	t.Run("DrainEndsAtItsDeadline", TestDrainEndsAtItsDeadline)
	t.Run("MetricsAgreeWithAnswers", TestMetricsAgreeWithAnswers)
	t.Run("StatusShowsWhatRuns", TestStatusShowsWhatRuns)
	t.Run("RateIsOfTheLastSeconds", TestRateIsOfTheLastSeconds)
	t.Run("Health", TestHealth)
	t.Run("ReadyShowsProgress", TestReadyShowsProgress)
	t.Run("ServeEndsWithTheErrorOfLoading", TestServeEndsWithTheErrorOfLoading)
	t.Run("PanicsAreAnswered", TestPanicsAreAnswered)
	t.Run("PanicsOfAnswersAreErrors", TestPanicsOfAnswersAreErrors)
}
