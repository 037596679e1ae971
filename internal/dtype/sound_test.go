package dtype

import (
	"math"
	"strings"
	"testing"
)

// TestSoundFindsEveryNumberThatIsNone has each code of 8 and 16 bits, and some of 32, at each place of a word.
func TestSoundFindsEveryNumberThatIsNone(t *testing.T) {
	for _, typ := range []Type{F8E4M3, F8E8M0, F16, BF16, F32} {
		codes := 1 << min(16, 8*typ.Size())
		for code := range codes {
			one := make([]byte, 4)
			for i := range min(2, typ.Size()) {
				one[typ.Size()-1-i] = byte(code << max(0, 16-8*typ.Size()) >> (8 - 8*i))
			}
			v := float64(number(typ, one, 0))
			at := code % 7
			b := make([]byte, 9*typ.Size())
			copy(b[at*typ.Size():], one[:typ.Size()])
			want := -1
			if math.IsNaN(v) || math.IsInf(v, 0) {
				want = at
			}
			if got := notFinite(typ, b); got != want {
				t.Fatalf("%v: code %#x, which is %g, at %d: found at %d", typ, code, v, at, got)
			}
		}
	}
}

func TestSoundNamesTheRow(t *testing.T) {
	m := Matrix{Rows: 3, Cols: 32, Format: ZeroPoint, Bits: 4, Group: 16, ScaleType: BF16, Data: make([]byte, 48), Scales: make([]byte, 12)}
	if err := m.Sound(0, 3); err != nil {
		t.Fatal(err)
	}
	m.Scales[9], m.Scales[8] = 0x7f, 0xc0
	if err := m.Sound(1, 3); err == nil || !strings.HasPrefix(err.Error(), "row 2: a group has the scale NaN") {
		t.Errorf("%v", err)
	}
	if err := m.Sound(0, 2); err != nil {
		t.Error(err)
	}
}
