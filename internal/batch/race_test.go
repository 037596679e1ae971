//go:build race

package batch

import "testing"

// TestRace has the tests in which several goroutines meet: make race runs it.
func TestRace(t *testing.T) {
	t.Run("BatchRunsFromFileToOutput", TestBatchRunsFromFileToOutput)
	t.Run("BatchDeliversWhatIsDone", TestBatchDeliversWhatIsDone)
	t.Run("WorkerComputesPrefixesOnce", TestWorkerComputesPrefixesOnce)
	t.Run("FullDiskLosesNothing", TestFullDiskLosesNothing)
}
