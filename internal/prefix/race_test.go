//go:build race

package prefix

import "testing"

// TestRace runs tests with several goroutines; make race runs it.
func TestRace(t *testing.T) {
	t.Run("DiskOutlivesTheProcess", TestDiskOutlivesTheProcess)
	t.Run("DiskIgnoresWhatItCannotUse", TestDiskIgnoresWhatItCannotUse)
	t.Run("DiskStaysWithinItsBound", TestDiskStaysWithinItsBound)
	t.Run("DiskDropsWhatItsQueueCannotTake", TestDiskDropsWhatItsQueueCannotTake)
	t.Run("DiskFetchSurvivesPressure", TestDiskFetchSurvivesPressure)
	t.Run("DiskSurvivesPanics", TestDiskSurvivesPanics)
	t.Run("SharedServesOtherProcesses", TestSharedServesOtherProcesses)
	t.Run("SharedDegrades", TestSharedDegrades)
	t.Run("SharedFetchesOnceForMany", TestSharedFetchesOnceForMany)
	t.Run("SharedFillsTheFolder", TestSharedFillsTheFolder)
	t.Run("PoolTakesFromTheCache", TestPoolTakesFromTheCache)
	t.Run("ObserverHearsWhatCanBeResumed", TestObserverHearsWhatCanBeResumed)
}
