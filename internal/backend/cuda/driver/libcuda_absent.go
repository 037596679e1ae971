//go:build cuda && !linux && !windows

package driver

import (
	"fmt"
	"runtime"
)

// Library returns an error: NVIDIA has no driver for this system.
func Library() (Driver, error) {
	return nil, fmt.Errorf("there is no NVIDIA driver for %s", runtime.GOOS)
}
