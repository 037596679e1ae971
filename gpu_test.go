//go:build cuda

package foretoken

import "testing"

// TestDeviceCUDAEqualsCPU has the embedded model answer on the machine's GPU as on its processor.
func TestDeviceCUDAEqualsCPU(t *testing.T) {
	compareSessions(t, session(t, on{device: "cuda"}), onCPU(t))
}

// TestDeviceCUDAAndCPUEqualCPU has some layers on each device, and uses prefixes that the other one computed.
func TestDeviceCUDAAndCPUEqualCPU(t *testing.T) {
	compareSessions(t, session(t, on{device: "cuda", layers: 2}, on{device: "cpu"}), onCPU(t))
	compareSessions(t, session(t, on{device: "cuda", layers: 3}, on{device: "cuda", layers: 1}), onCPU(t))
}

// TestDeviceCUDATwiceEqualsCPU has two devices on one GPU, and the CPU beside them.
func TestDeviceCUDATwiceEqualsCPU(t *testing.T) {
	compareSessions(t, session(t, on{device: "cuda:0,cuda:0"}, on{device: "cuda:0,cpu,cuda:0"}), onCPU(t))
}
