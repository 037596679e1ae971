//go:build race

package foretoken

import "testing"

// TestRace has the tests in which several goroutines meet: make race runs it.
func TestRace(t *testing.T) {
	t.Run("AnswerCanBeCanceled", TestAnswerCanBeCanceled)
	t.Run("BackgroundPrefillLeavesTheQueueAlone", TestBackgroundPrefillLeavesTheQueueAlone)
	t.Run("NextTurnIsPreparedAfterTheLastEvent", TestNextTurnIsPreparedAfterTheLastEvent)
	t.Run("CloseDropsPreparation", TestCloseDropsPreparation)
	t.Run("GrammarsAreCompiledOnce", TestGrammarsAreCompiledOnce)
	t.Run("GrammarsDoNotWaitForHostileOnes", TestGrammarsDoNotWaitForHostileOnes)
	t.Run("PicturesAtOnce", TestPicturesAtOnce)
}
