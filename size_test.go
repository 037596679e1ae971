package foretoken

import (
	"path/filepath"
	"testing"
)

// TestSizeIsKnownBefore checks that the size of a model is known from its headers as closely as
// a library needs it.
func TestSizeIsKnownBefore(t *testing.T) {
	for _, quantize := range []int{0, 4} {
		o := Options{Threads: 1, Quantize: quantize, Log: silent}
		want := openTiny(t, o).Info().Bytes
		if got := Size(Tiny, o); got < want*4/5 || got > want*5/4 {
			t.Errorf("%d bits: %d bytes, and it took %d", quantize, got, want)
		}
	}
	if got := Size(filepath.Join(t.TempDir(), "none"), Options{}); got != 0 {
		t.Errorf("no model has %d bytes", got)
	}
}
