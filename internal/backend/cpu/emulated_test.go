//go:build emulated

package cpu

import "testing"

// TestKernels has the tests of operations that differ most between processors. make test-arm64
// runs it and the lists of the same name in packages kernel and backendtest: emulation is slow.
func TestKernels(t *testing.T) {
	t.Run("MatMulEqualsFloat64", TestMatMulEqualsFloat64)
	t.Run("AttendOfCodesIsClose", TestAttendOfCodesIsClose)
}
