//go:build cuda

package foretoken

import "testing"

// TestDeviceCUDAEqualsCPU has the embedded model answer on the machine's GPU as on its processor.
func TestDeviceCUDAEqualsCPU(t *testing.T) {
	compareSessions(t, session(t, on{device: "cuda"}), onCPU(t))
}

// TestDeviceCUDAAndCPUEqualCPU has some layers on each device, and uses prefixes that the other one computed.
func TestDeviceCUDAAndCPUEqualCPU(t *testing.T) {
	compareSessions(t, session(t, on{"cuda", 2}, on{"cpu", 0}), onCPU(t))
	compareSessions(t, session(t, on{"cuda", 3}, on{"cuda", 1}), onCPU(t))
}
