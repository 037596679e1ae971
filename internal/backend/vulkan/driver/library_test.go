//go:build vulkan && (linux || windows)

package driver

import (
	"encoding/binary"
	"strings"
	"testing"
)

// TestDevicesWithSmallLimitsAreRefused lowers each limit that kernels rely on below what they need.
func TestDevicesWithSmallLimitsAreRefused(t *testing.T) {
	var limits [504]byte
	set := func(shared, threads, first uint32) {
		binary.LittleEndian.PutUint32(limits[216:], shared)
		binary.LittleEndian.PutUint32(limits[232:], threads)
		binary.LittleEndian.PutUint32(limits[236:], first)
	}
	if set(32<<10, 256, 256); lacking(&limits) != "" {
		t.Error(lacking(&limits))
	}
	for want, c := range map[string][3]uint32{
		"has 16384 bytes of shared memory, the kernels need 32768":                    {16 << 10, 256, 256},
		"has 128 threads in a workgroup, the kernels need 256":                        {32 << 10, 128, 256},
		"has 128 threads in the first dimension of a workgroup, the kernels need 256": {32 << 10, 256, 128},
	} {
		if set(c[0], c[1], c[2]); !strings.Contains(lacking(&limits), want) {
			t.Errorf("%q, want %q", lacking(&limits), want)
		}
	}
}

// TestClocksNeedTimestamps asks for a clock where the queue has no timestamps.
func TestClocksNeedTimestamps(t *testing.T) {
	if _, err := new(device).Clock(2); err == nil || !strings.Contains(err.Error(), "no timestamps") {
		t.Errorf("error %v", err)
	}
}
