//go:build race

package cpu

import "testing"

// TestRace has the tests in which several goroutines meet: make race runs it.
func TestRace(t *testing.T) {
	t.Run("PoolRunsEveryPartOnce", TestPoolRunsEveryPartOnce)
	t.Run("PoolSleeps", TestPoolSleeps)
	t.Run("PoolRaisesPanics", TestPoolRaisesPanics)
	t.Run("PoolFaultFreesThePool", TestPoolFaultFreesThePool)
	t.Run("PoolUserKeepsToItsThreads", TestPoolUserKeepsToItsThreads)
	t.Run("PoolUserWakesItsThreads", TestPoolUserWakesItsThreads)
	t.Run("BackendsComputeAtOnce", TestBackendsComputeAtOnce)
	t.Run("SpreadCallsEachOnce", TestSpreadCallsEachOnce)
}
