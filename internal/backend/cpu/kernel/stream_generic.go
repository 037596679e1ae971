package kernel

import "encoding/binary"

// streamReadGeneric is Read in portable Go.
func streamReadGeneric(b []byte) (sum uint64) {
	for ; len(b) >= 512; b = b[512:] {
		for i := 0; i < 512; i += 32 {
			sum ^= binary.LittleEndian.Uint64(b[i:])
		}
	}
	return sum
}
