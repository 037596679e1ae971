//go:build race

package cpu_test

import (
	"testing"

	"github.com/foretoken/foretoken/internal/backend/cpu"
)

// TestRace has the tests in which several goroutines meet: make race runs it.
func TestRace(t *testing.T) {
	t.Run("PoolRunsEveryPartOnce", cpu.TestPoolRunsEveryPartOnce)
	t.Run("PoolSleeps", cpu.TestPoolSleeps)
	t.Run("PoolRaisesPanics", cpu.TestPoolRaisesPanics)
	t.Run("PoolFaultFreesThePool", cpu.TestPoolFaultFreesThePool)
	t.Run("PoolUserKeepsToItsThreads", cpu.TestPoolUserKeepsToItsThreads)
	t.Run("PoolUserWakesItsThreads", cpu.TestPoolUserWakesItsThreads)
	t.Run("BackendsComputeAtOnce", cpu.TestBackendsComputeAtOnce)
	t.Run("SpreadCallsEachOnce", cpu.TestSpreadCallsEachOnce)
	t.Run("ThreadsPass", TestThreadsPass)
}
