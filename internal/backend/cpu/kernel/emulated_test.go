//go:build emulated

package kernel

import "testing"

// TestKernels has the tests that compare kernels with their twins, bit for bit. make test-arm64
// runs it: emulation is slow, and these are what differs between processors.
func TestKernels(t *testing.T) {
	t.Run("BitsAreTheSameEverywhere", TestBitsAreTheSameEverywhere)
	t.Run("CodedPagesEqualGeneric", TestCodedPagesEqualGeneric)
	t.Run("BlocksEqualWidened", TestBlocksEqualWidened)
	t.Run("BlockProductsInFloats", TestBlockProductsInFloats)
	t.Run("FloatProductEqualsGeneric", TestFloatProductEqualsGeneric)
	t.Run("FloatProductKeepsToItsBuffers", TestFloatProductKeepsToItsBuffers)
	t.Run("IntegerProductEqualsGeneric", TestIntegerProductEqualsGeneric)
	t.Run("IntegerProductKeepsToItsBuffers", TestIntegerProductKeepsToItsBuffers)
	t.Run("QuantizeEqualsGeneric", TestQuantizeEqualsGeneric)
	t.Run("RowFloatsEqualsBlocks", TestRowFloatsEqualsBlocks)
	t.Run("ScatterKeepsToItsBuffers", TestScatterKeepsToItsBuffers)
	t.Run("VectorRowsEqualGeneric", TestVectorRowsEqualGeneric)
	t.Run("VectorFunctionsEqualGeneric", TestVectorFunctionsEqualGeneric)
	t.Run("VectorPagesEqualGeneric", TestVectorPagesEqualGeneric)
	t.Run("VectorMixEqualsGeneric", TestVectorMixEqualsGeneric)
	t.Run("VectorNarrowEqualsGeneric", TestVectorNarrowEqualsGeneric)
	t.Run("VectorDeltaEqualsGeneric", TestVectorDeltaEqualsGeneric)
	t.Run("VectorDeltaStepsEqualGeneric", TestVectorDeltaStepsEqualGeneric)
}
