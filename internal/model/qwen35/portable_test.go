//go:build noasm

package qwen35

import "testing"

// TestPortable has the tests that compare the model computed by portable code with the
// reference, the recorded bits and itself: make test-noasm runs it.
func TestPortable(t *testing.T) {
	t.Run("ModelEqualsReference", TestModelEqualsReference)
	t.Run("NetworkBitsAreRecorded", TestNetworkBitsAreRecorded)
	t.Run("ForwardChunkInvariance", TestForwardChunkInvariance)
	t.Run("ForwardBatchInvariance", TestForwardBatchInvariance)
	t.Run("StateCommitEqualsReplay", TestStateCommitEqualsReplay)
}
