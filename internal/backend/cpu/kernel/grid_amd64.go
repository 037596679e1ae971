//go:build !noasm

package kernel

import (
	"slices"

	"golang.org/x/sys/cpu"
)

//go:generate go run -C _gen ./grid

// expandersAVX2, expandersAVX512 and expandersVBMI are those of the sets, best512 that of this processor's AVX-512.
// Gathers of AVX-512 take 12 cycles for 16 rows, and several times as long on AMD and where Intel's microcode guards
// them against leaks, before Sapphire Rapids.
var (
	expandersAVX2   = gridExpanders(expandAVX2)
	expandersAVX512 = gridExpanders(expandAVX512)
	expandersVBMI   = vbmiExpanders()
	best512         = func() expanders {
		if cpu.X86.HasAVX512VBMI {
			return expandersVBMI
		}
		return expandersAVX512
	}()
)

// vbmiExpanders are those of AVX-512 with others for tables of up to 512 entries. Their tables have the first half of
// every entry, a byte each, and the second: numbers of levels of 2 bits, or of 3 where a half is two columns. Then for
// each field the levels that 6 bits have in it.
func vbmiExpanders() expanders {
	by := *gridExpanders(expandAVX512)
	for i, run := range expandVBMI {
		if run == nil {
			continue
		}
		table, size, width := by[i].table, gridPlaces[i].Entry, 3
		if size == 8 {
			width = 2
		}
		levels, count := slices.Compact(slices.Sorted(slices.Values(table))), len(table)/size
		packed := make([]byte, 2*count+64*(6/width))
		for i, c := range table {
			n, _ := slices.BinarySearch(levels, c)
			packed[i%size/(size/2)*count+i/size] |= byte(n << (i % (size / 2) * width))
		}
		for i := range 64 * (6 / width) {
			n := i % 64 >> (i / 64 * width) & (1<<width - 1)
			packed[2*count+i] = levels[min(n, len(levels)-1)]
		}
		by[i] = expander{run, packed}
	}
	return &by
}
