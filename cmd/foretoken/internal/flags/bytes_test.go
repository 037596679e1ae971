package flags

import (
	"testing"
)

func TestByteCountReadsUnits(t *testing.T) {
	for text, want := range map[string]int64{"5GB": 5e9, "2GiB": 2 << 30, "1.5MB": 15e5, "4096": 4096, "2 KiB": 2048, "1kB": 0, "1e30GB": 0, "-5GB": 0, "GB": 0, "NaNGB": 0} {
		s := ByteCount()
		if err := s.Set(text); (err == nil) != (want > 0) || err == nil && s.Value != want {
			t.Errorf("%q: %d, %v, want %d", text, s.Value, err, want)
		}
	}
}
