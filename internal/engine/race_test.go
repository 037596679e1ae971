//go:build race

package engine

import "testing"

// TestRace runs tests with several goroutines; make race runs it.
func TestRace(t *testing.T) {
	t.Run("GenerateIsIndependentOfTheBatch", TestGenerateIsIndependentOfTheBatch)
	t.Run("GenerateContainsFaults", TestGenerateContainsFaults)
	t.Run("CloseEndsEverything", TestCloseEndsEverything)
	t.Run("FaultsEndOnlyTheirSequence", TestFaultsEndOnlyTheirSequence)
	t.Run("QueueServesByPriority", TestQueueServesByPriority)
	t.Run("FlowsAreAdmittedInTurn", TestFlowsAreAdmittedInTurn)
	t.Run("FullQueueLeavesShares", TestFullQueueLeavesShares)
	t.Run("ContextsMayCallTheEngine", TestContextsMayCallTheEngine)
	t.Run("TokensDoNotWaitWithTheirSequence", TestTokensDoNotWaitWithTheirSequence)
	t.Run("QueueDropsCanceled", TestQueueDropsCanceled)
	t.Run("DrainLetsRequestsEnd", TestDrainLetsRequestsEnd)
	t.Run("StreamWakesTheReaderOfTokens", TestStreamWakesTheReaderOfTokens)
	t.Run("PrefillIsNoRequest", TestPrefillIsNoRequest)
	t.Run("PrefillIsInNoRoundOfOthers", TestPrefillIsInNoRoundOfOthers)
	t.Run("PrefillGivesWay", TestPrefillGivesWay)
	t.Run("PrefillIsReplacedByTheNextTurn", TestPrefillIsReplacedByTheNextTurn)
	t.Run("DrainDropsPrefill", TestDrainDropsPrefill)
	t.Run("ConstraintThatPanicsEndsItsRequest", TestConstraintThatPanicsEndsItsRequest)
	t.Run("DrafterThatPanicsCostsNoOtherRequest", TestDrafterThatPanicsCostsNoOtherRequest)
	t.Run("FaultOfNoSequenceEndsWhatRuns", TestFaultOfNoSequenceEndsWhatRuns)
	t.Run("BrokenMemoryRefusesRequests", TestBrokenMemoryRefusesRequests)
	t.Run("DiskOutlivesTheEngine", TestDiskOutlivesTheEngine)
	t.Run("TowerDelaysNoText", TestTowerDelaysNoText)
	t.Run("CanceledImagesAreNotComputed", TestCanceledImagesAreNotComputed)
	t.Run("LostStageEndsEverything", TestLostStageEndsEverything)
	t.Run("RequestThatEndsTheNodeEnds", TestRequestThatEndsTheNodeEnds)
	t.Run("IdleEngineRenewsItsDevice", TestIdleEngineRenewsItsDevice)
	t.Run("WorkloadsChangeNothing", TestWorkloadsChangeNothing)
}
