//go:build noasm

package cpu

import "testing"

// TestPortable has the tests that hold operations to float64 and to the recorded bits: make
// test-noasm runs it.
func TestPortable(t *testing.T) {
	t.Run("MatMulEqualsFloat64", TestMatMulEqualsFloat64)
	t.Run("AttendOptionsEqualFloat64", TestAttendOptionsEqualFloat64)
	t.Run("MixEqualsFloat64", TestMixEqualsFloat64)
	t.Run("TowerRowsEqualFloat64", TestTowerRowsEqualFloat64)
}
