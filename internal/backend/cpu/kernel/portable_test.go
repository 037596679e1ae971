//go:build noasm

package kernel

import "testing"

// TestPortable has the tests that hold the portable kernels to the recorded bits and to float64.
// make test-noasm runs it; what compares kernels with their portable twins is done with assembly.
func TestPortable(t *testing.T) {
	t.Run("BitsAreTheSameEverywhere", TestBitsAreTheSameEverywhere)
	t.Run("FloatProductIsRowExact", TestFloatProductIsRowExact)
	t.Run("IntegerProductIsRowExact", TestIntegerProductIsRowExact)
	t.Run("ZeroPointProductsKeepTheLaw", TestZeroPointProductsKeepTheLaw)
}
