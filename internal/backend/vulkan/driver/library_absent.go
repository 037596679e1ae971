//go:build vulkan && !linux && !windows

package driver

import (
	"fmt"
	"runtime"
)

// Library returns an error: no driver of this system was shown to compute the bits of the CPU.
func Library() (Driver, error) {
	return nil, fmt.Errorf("no Vulkan driver for %s computes the same results as the CPU: use the CPU", runtime.GOOS)
}
