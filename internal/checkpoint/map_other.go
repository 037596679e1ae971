//go:build !linux && !darwin && !windows

package checkpoint

import (
	"io"
	"os"
)

// mapFile reads the file, on systems where we do not map.
func mapFile(f *os.File, size int) ([]byte, error) {
	b := make([]byte, size)
	_, err := io.ReadFull(io.NewSectionReader(f, 0, int64(size)), b)
	return b, err
}

func unmapFile([]byte) error { return nil }
func adviseNeed([]byte)      {}
func adviseDrop([]byte)      {}
func inProgram([]byte) bool  { return false }
