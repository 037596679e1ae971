//go:build emulated

package kernel

import "testing"

// TestKernels has the tests that compare kernels with their twins, bit for bit. make test-arm64
// runs it: emulation is slow, and these are what differs between processors. They share nothing, so
// they run beside each other.
func TestKernels(t *testing.T) {
	run := func(name string, test func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
	run("BitsAreTheSameEverywhere", TestBitsAreTheSameEverywhere)
	run("CodedPagesEqualGeneric", TestCodedPagesEqualGeneric)
	run("PackedPagesEqualGeneric", TestPackedPagesEqualGeneric)
	run("BlocksEqualTheirTwin", TestBlocksEqualTheirTwin)
	run("GridStacksEqualTheirMatrices", TestGridStacksEqualTheirMatrices)
	run("BlocksOfExtremesEqualTheirTwin", TestBlocksOfExtremesEqualTheirTwin)
	run("BlockProductsInFloats", TestBlockProductsInFloats)
	run("BlocksEqualGoldens", TestBlocksEqualGoldens)
	run("FloatProductEqualsGeneric", TestFloatProductEqualsGeneric)
	run("FloatProductKeepsToItsBuffers", TestFloatProductKeepsToItsBuffers)
	run("IntegerProductEqualsGeneric", TestIntegerProductEqualsGeneric)
	run("IntegerProductKeepsToItsBuffers", TestIntegerProductKeepsToItsBuffers)
	run("QuantizeEqualsGeneric", TestQuantizeEqualsGeneric)
	run("RowFloatsEqualsBlocks", TestRowFloatsEqualsBlocks)
	run("ScatterKeepsToItsBuffers", TestScatterKeepsToItsBuffers)
	run("VectorRowsEqualGeneric", TestVectorRowsEqualGeneric)
	run("VectorFunctionsEqualGeneric", TestVectorFunctionsEqualGeneric)
	run("VectorPagesEqualGeneric", TestVectorPagesEqualGeneric)
	run("VectorMixEqualsGeneric", TestVectorMixEqualsGeneric)
	run("VectorNarrowEqualsGeneric", TestVectorNarrowEqualsGeneric)
	run("VectorDeltaEqualsGeneric", TestVectorDeltaEqualsGeneric)
	run("VectorDeltaStepsEqualGeneric", TestVectorDeltaStepsEqualGeneric)
	run("PromptEqualsPages", TestPromptEqualsPages)
	run("ZeroPointsOfExtremesEqualTheirTwin", TestZeroPointsOfExtremesEqualTheirTwin)
	run("TransformKeepsToItsDefinition", TestTransformKeepsToItsDefinition)
	run("TransformRowsEqualsEach", TestTransformRowsEqualsEach)
}
