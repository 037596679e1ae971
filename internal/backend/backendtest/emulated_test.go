//go:build emulated

package backendtest

import "testing"

// TestKernels has the tests that make test-arm64 runs: emulation is slow.
func TestKernels(t *testing.T) { t.Run("InstructionSetsPass", TestInstructionSetsPass) }
