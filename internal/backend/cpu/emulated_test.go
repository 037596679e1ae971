//go:build emulated

package cpu

import "testing"

// TestKernels has the tests of operations that differ most between processors. make test-arm64
// runs it and the list of the same name in package kernel: emulation is slow.
func TestKernels(t *testing.T) {
	t.Run("PackKeepsValues", TestPackKeepsValues)
	t.Run("MatMulEqualsFloat64", TestMatMulEqualsFloat64)
	t.Run("AttendOf8BitsIsClose", TestAttendOf8BitsIsClose)
	t.Run("AttendBatchEqualsAlone", TestAttendBatchEqualsAlone)
	t.Run("AttendOptionsEqualFloat64", TestAttendOptionsEqualFloat64)
}
