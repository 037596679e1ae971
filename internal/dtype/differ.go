package dtype

import (
	"bytes"
	"encoding/binary"
)

// Differ is the first of two lists of float32 numbers, little-endian and of one length, whose bits differ, or -1. A NaN is as good as another.
func Differ(got, want []byte) int {
	if bytes.Equal(got, want) {
		return -1
	}
	nan := func(u uint32) bool { return u&0x7fffffff > 0x7f800000 }
	for i := range len(got) / 4 {
		g, w := binary.LittleEndian.Uint32(got[4*i:]), binary.LittleEndian.Uint32(want[4*i:])
		if g != w && (!nan(g) || !nan(w)) {
			return i
		}
	}
	return -1
}
