//go:build !noasm

package kernel

import "testing"

// TestStripsHaveKernels looks up the kernel of AVX-512 for each strip of 1 to 100 rows, in pieces as large as products have, with AMX
// and without: there are none of five and seven rows. It runs on every processor.
func TestStripsHaveKernels(t *testing.T) {
	for _, set := range []func(int, rounding) strips{stripsAVX512, stripsAMX} {
		for _, how := range []rounding{{group: 64}, {group: 96}, {group: 256, part: 32}, {group: 256, part: 16}} {
			for rows := 1; rows <= 100; rows++ {
				a := &Activations{}
				a.lay(rows, 64, how, set(rows, how))
				if a.byRow {
					continue
				}
				n := a.AtOnce()
				for from := 0; from < rows; from += n {
					to := min(from+n, rows)
					part := a.Range(from, to)
					if got := part.OutRows(); got < to-from || got > to-from+1 || len(part.data) < part.at(got) {
						t.Fatalf("%d rows are %d in memory of %d bytes", to-from, got, len(part.data))
					}
					for r := 0; r < part.OutRows(); r += part.height {
						m := part.inStrip(r)
						if gridAVX512[m-1] == nil {
							t.Fatalf("no grid kernel of %d rows, for rows %d to %d of %d", m, from, to, rows)
						}
						for format := range integerGrid {
							if integerAVX512[format][m-1] == nil {
								t.Fatalf("no kernel of %d rows for format %d, for rows %d to %d of %d", m, format, from, to, rows)
							}
						}
					}
				}
			}
		}
	}
}
