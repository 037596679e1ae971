//go:build race

package ptx

import "testing"

// TestRace runs blocks on several threads that share an atomic counter and write to separate words: make race runs it.
func TestRace(t *testing.T) {
	const blocks = 16
	body := "atom.global.add.u32 %r9, [%rd4], 1; mul.wide.u32 %rd6, %r11, 256; add.s64 %rd5, %rd5, %rd6; add.s64 %rd5, %rd5, 256;"
	for seed := range uint64(8) {
		r := newRig(t, Options{Seed: seed, Threads: int(seed) + 1}, warpText(body))
		if err := r.try("k", blocks, 32, false, r.zeros(96), r.zeros((1+blocks)*64)); err != nil {
			t.Error(err)
		}
	}
}
