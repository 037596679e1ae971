//go:build noasm

package qwen35

import (
	"testing"

	"github.com/foretoken/foretoken/internal/model/modeltest"
)

// TestPortable has the tests that compare the model computed by portable code with the
// reference, the recorded bits and, after a rollback, itself: make test-noasm runs it. That rows
// depend neither on their batch nor on chunks is tested operation by operation in backendtest.
func TestPortable(t *testing.T) {
	t.Run("ModelEqualsReference", TestModelEqualsReference)
	t.Run("TowerEqualsReference", TestTowerEqualsReference)
	t.Run("NetworkBitsAreRecorded", TestNetworkBitsAreRecorded)
	t.Run("CommitEqualsReplay", func(t *testing.T) { modeltest.CommitEqualsReplay(t, subjects(t)) })
}
