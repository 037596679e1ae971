package spec

import (
	"fmt"
	"testing"
)

func TestDepthTextIsReadBack(t *testing.T) {
	for d := DepthOff; d <= MaxDepth; d++ {
		if got, err := ParseDepth(d.String()); err != nil || got != d {
			t.Errorf("%v is read as %v, %v", d, got, err)
		}
		if n, ok := d.Fixed(); ok != (d != DepthAuto) || ok && FixedDepth(n) != d {
			t.Errorf("%v is fixed at %d, %v", d, n, ok)
		}
	}
	for n := range MaxDepth + 1 {
		if d, err := ParseDepth(fmt.Sprint(n)); err != nil || d != FixedDepth(n) {
			t.Errorf("%d is read as %v, %v", n, d, err)
		}
	}
	for _, text := range []string{"", "-1", "9", "1.5", "Auto", "99999999999999999999"} {
		if d, err := ParseDepth(text); err == nil {
			t.Errorf("%q is read as %v", text, d)
		}
	}
	for _, n := range []int{-1, MaxDepth + 1} {
		if FixedDepth(n).Valid() {
			t.Errorf("%d tokens are a valid depth", n)
		}
	}
}
