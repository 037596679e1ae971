//go:build emulated

package cpu_test

import (
	"testing"

	"github.com/foretoken/foretoken/internal/backend/cpu"
)

// TestKernels has the tests of operations that differ most between processors. make test-arm64
// runs it and the list of the same name in package kernel: emulation is slow.
func TestKernels(t *testing.T) {
	t.Run("MatMulEqualsFloat64", cpu.TestMatMulEqualsFloat64)
	t.Run("AttendOf8BitsIsClose", cpu.TestAttendOf8BitsIsClose)
	t.Run("InstructionSetsPass", TestInstructionSetsPass)
}
