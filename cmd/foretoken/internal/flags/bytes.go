package flags

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// byteUnits are the units that sizes are given in, the longer before those they end with.
var byteUnits = []struct {
	name  string
	bytes int64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"TiB", 1 << 40},
	{"kB", 1e3},
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"TB", 1e12},
	{"B", 1},
	{"", 1},
}

// ByteCount is a setting for a size of files: a number with a unit.
func ByteCount() Setting[int64] {
	const least = 1 << 10
	want := errors.New("want a size of at least 1KiB, such as 500MB, 5GB or 2GiB")
	return Setting[int64]{
		Kind: "SIZE",
		Parse: func(text string) (int64, error) {
			for _, u := range byteUnits {
				if digits, ok := strings.CutSuffix(text, u.name); ok {
					n, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
					if err != nil || !(n*float64(u.bytes) < math.MaxInt64) {
						return 0, want
					}
					return int64(n * float64(u.bytes)), nil
				}
			}
			return 0, want
		},
		Check: func(n int64) error {
			if n < least {
				return want
			}
			return nil
		},
	}
}
