//go:build !noasm

package kernel

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"
)

// TestDotProductsAreEncoded compares the bytes of VPDPBUSD and VPDPWSSD, which are written by macros, with those of GNU as
// 2.42 ({vex} or {evex} vpdpbusd %ymm0,%ymm15,%ymm3 and so on).
func TestDotProductsAreEncoded(t *testing.T) {
	want := `c4e20550d8 c4620d50c1 c4621550ea c4e21d50d3 c4e22550fc c4622d50e5 c4e23550ce c4e23d50f7
		c4424550d8 c4c24d50c1 c4c25550ea c4425d50d3 c4426550fc c4c26d50e5 c4427550ce c4427d50f7
		c4e20552d8 c4620d52c1 c4621552ea c4e21d52d3 c4e22552fc c4622d52e5 c4e23552ce c4e23d52f7
		c4424552d8 c4c24d52c1 c4c25552ea c4425d52d3 c4426552fc c4c26d52e5 c4427552ce c4427d52f7`
	if evexDots {
		want = `62f2052850d8 62720d2850c1 6272152850ea 62f21d2850d3 62f2252850fc 62722d2850e5 62f2352850ce 62f23d2850f7
			6252452850d8 62d24d2850c1 62d2552850ea 62525d2850d3 6252652850fc 62d26d2850e5 6252752850ce 62527d2850f7
			62f2052852d8 62720d2852c1 6272152852ea 62f21d2852d3 62f2252852fc 62722d2852e5 62f2352852ce 62f23d2852f7
			6252452852d8 62d24d2852c1 62d2552852ea 62525d2852d3 6252652852fc 62d26d2852e5 6252752852ce 62527d2852f7`
	}
	list := strings.Fields(want)
	size := len(list[0]) / 2
	code := dotCode()
	var got []string
	for i := range list {
		got = append(got, hex.EncodeToString(code[i*size:][:size]))
	}
	if !slices.Equal(got, list) {
		t.Errorf("machine code is\n%s, want\n%s", got, list)
	}
}
