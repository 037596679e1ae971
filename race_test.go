//go:build race

package foretoken

import "testing"

// TestRace has the tests in which several goroutines meet: make race runs it.
func TestRace(t *testing.T) {
	t.Run("AnswerIsWhatItsPiecesSay", TestAnswerIsWhatItsPiecesSay)
	t.Run("AnswerCanBeCancelled", TestAnswerCanBeCancelled)
	t.Run("ThinkingIsClosed", TestThinkingIsClosed)
	t.Run("ConversationHitsTheCache", TestConversationHitsTheCache)
	t.Run("LibraryLoadsAndUnloads", TestLibraryLoadsAndUnloads)
	t.Run("LibraryLetsModelsExpire", TestLibraryLetsModelsExpire)
}
