//go:build unix

package kernel

import (
	"math/rand/v2"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// guarded returns n zeroed bytes that end where memory ends: what lies behind cannot be
// read or written.
func guarded(tb testing.TB, n int) []byte {
	tb.Helper()
	page := os.Getpagesize()
	size := (n + page - 1) / page * page
	b, err := unix.Mmap(-1, 0, size+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := unix.Munmap(b); err != nil {
			tb.Error(err)
		}
	})
	if err := unix.Mprotect(b[size:], unix.PROT_NONE); err != nil {
		tb.Fatal(err)
	}
	return b[size-n : size : size]
}

// floatsOf is the same memory as numbers; b is a whole number of them.
func floatsOf(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

// TestFloatProductKeepsToItsBuffers puts weights, input and output right before memory that
// cannot be touched.
func TestFloatProductKeepsToItsBuffers(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 3))
	for _, set := range accelerated(distinct(floatPart)) {
		for i := range 120 {
			m := oddMatrix(rng, 1+rng.IntN(40), false)
			w := packed(t, floats, func(n int) []byte { return guarded(t, n) }, m)
			rows := 1 + i%12
			x := Rows{Data: floatsOf(guarded(t, 4*rows*m.Cols)), N: rows, Cols: m.Cols, Stride: m.Cols}
			out := floatsOf(guarded(t, 4*w.tiles*rows*Tile))
			// Enough for the larger of what the kernels and portable Go want.
			s := Scratch{floats: floatsOf(guarded(t, 4*(2*max(panelBytes/4, w.group*Tile)+w.tiles*rows*Tile)))}
			set.Float(out, w, 0, 0, w.tiles, x, &s)
			for _, y := range out {
				if y != 0 && y == y {
					t.Fatalf("isa=%s %s: zero times weights is %g", set.Name, describe(w), y)
				}
			}
		}
	}
}
