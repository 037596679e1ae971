package ptx

import (
	"strings"
	"testing"
)

// Vector functions have the bits of the portable ones, whose results the other tests know: for random words, edges of floats and
// integers, and shifts by more than the width.
func TestVectorsHaveThePortableBits(t *testing.T) {
	fast, fastChoose, fastDot := vectors, choose32, dot
	defer func() { vectors, choose32, dot = fast, fastChoose, fastDot }()
	edges := []uint32{0, 1 << 31, 0x7f800000, 0xff800000, 0x7fa00001, 0xffc12345, 1, 0x80000001, 0x7f7fffff, 0x33800000, 0x3f800000, 0x3f800001, 0xbf800000, 31, 32, 40, 0x7fffffff, 0xffffffff}
	texts := []string{
		"mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%r4, %r5, %r6, %r7}, {%r1, %r2, %r3, %r1}, {%r2, %r3}, {%r1, %r2, %r3, %r1}; add.u32 %r8, %r4, %r5; mad.lo.u32 %r9, %r6, 5, %r7;",
		"mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%r4, %r5, %r6, %r7}, {%r1, %r2}, {%r3}, {%r1, %r2, %r3, %r1}; add.u32 %r8, %r4, %r5; mad.lo.u32 %r9, %r6, 5, %r7;",
	}
	for op, f := range fast {
		first, _, _ := strings.Cut(op, ".")
		_, longs := f.(func(d, a, b, c *v64))
		_, wide := f.(func(d *v64, a, b *v32, c *v64))
		const halves = " cvt.u32.u64 %r9, %rd8; shr.u64 %rd8, %rd8, 32; cvt.u32.u64 %r8, %rd8;"
		switch {
		case first == "setp":
			texts = append(texts, op+" %p1, %r1, %r2; selp.b32 %r9, %r1, %r3, %p1;")
		case first == "cvt":
			texts = append(texts, op+" %rd8, %r1;"+halves)
		case wide:
			texts = append(texts, op+" %rd8, %r1, %r2;"+halves)
		case longs && first[0:2] == "sh":
			texts = append(texts, "mul.wide.u32 %rd6, %r1, %r3; "+op+" %rd8, %rd6, %r2;"+halves)
		case longs:
			texts = append(texts, "mul.wide.u32 %rd6, %r1, %r3; mul.wide.u32 %rd7, %r2, %r1; "+op+" %rd8, %rd6, %rd7;"+halves)
		case first == "mad" || first == "fma":
			texts = append(texts, op+" %r9, %r1, %r2, %r3;")
		default:
			texts = append(texts, op+" %r9, %r1, %r2;")
		}
	}
	for _, text := range texts {
		for round := range uint64(12) {
			a, b, c := randomWarp(3*round), randomWarp(3*round+1), randomWarp(3*round+2)
			for i := range b {
				if x := edges[b[i]%uint32(len(edges))]; round%4 > 0 {
					b[i] = x
				}
				if x := edges[a[i]%uint32(len(edges))]; round%4 > 1 {
					a[i] = x
				}
				if x := edges[c[i]%uint32(len(edges))]; round%4 > 2 {
					c[i] = x
				}
			}
			vectors, choose32, dot = fast, fastChoose, fastDot
			low, high, err := runWarp(t, text, a, b, c)
			if err != nil {
				t.Fatal(err)
			}
			vectors, choose32, dot = nil, choose[uint32], dotPortable
			if x, y, err := runWarp(t, text, a, b, c); err != nil || low != x || high != y {
				t.Fatalf("%s: %x, %x; portable %x, %x: %v", text, low, high, x, y, err)
			}
		}
	}
}
