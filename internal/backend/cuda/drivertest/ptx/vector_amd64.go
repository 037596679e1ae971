//go:build !noasm

package ptx

import "golang.org/x/sys/cpu"

func addWords(d, a, b, c *v32)
func subWords(d, a, b, c *v32)
func mulWords(d, a, b, c *v32)
func madWords(d, a, b, c *v32)
func andWords(d, a, b, c *v32)
func orWords(d, a, b, c *v32)
func xorWords(d, a, b, c *v32)
func shlWords(d, a, b, c *v32)
func shrWords(d, a, b, c *v32)
func sarWords(d, a, b, c *v32)
func minSigned(d, a, b, c *v32)
func maxSigned(d, a, b, c *v32)
func addFloats(d, a, b, c *v32)
func subFloats(d, a, b, c *v32)
func mulFloats(d, a, b, c *v32)
func fmaFloats(d, a, b, c *v32)
func addLongs(d, a, b, c *v64)
func shlLongs(d, a, b, c *v64)
func extendUnsigned(d *v64, a, b *v32, c *v64)
func extendSigned(d *v64, a, b *v32, c *v64)
func productUnsigned(d *v64, a, b *v32, c *v64)
func productSigned(d *v64, a, b *v32, c *v64)
func equalWords(a, b *v32) uint32
func leastSigned(a, b *v32) uint32
func leastUnsigned(a, b *v32) uint32
func chooseWords(d, a, b *v32, p uint32)

//go:noescape
func dotBytes(sums, a *[4]v32, b *[16][4]uint32, deep int, flipA, flipB uint32)

func init() {
	if !cpu.X86.HasAVX2 || !cpu.X86.HasFMA {
		return
	}
	choose32, dot = chooseWords, dotBytes
	vectors = map[string]any{
		"min.s32": minSigned, "max.s32": maxSigned, "shr.s32": sarWords,
		"add.rn.f32": addFloats, "sub.rn.f32": subFloats, "mul.rn.f32": mulFloats, "fma.rn.f32": fmaFloats,
		"cvt.u64.u32": extendUnsigned, "cvt.s64.s32": extendSigned, "mul.wide.u32": productUnsigned, "mul.wide.s32": productSigned,
		"shl.b32": shlWords, "shr.b32": shrWords, "shr.u32": shrWords, "shl.b64": shlLongs,
		"and.b32": andWords, "or.b32": orWords, "xor.b32": xorWords,
		"add.s64": addLongs, "add.u64": addLongs,
		"setp.eq.b32": equalWords, "setp.ne.b32": negate(equalWords),
	}
	for t, least := range map[string]func(a, b *v32) uint32{".s32": leastSigned, ".u32": leastUnsigned} {
		most := func(a, b *v32) uint32 { return least(b, a) }
		vectors["add"+t], vectors["sub"+t], vectors["mul.lo"+t], vectors["mad.lo"+t] = addWords, subWords, mulWords, madWords
		vectors["setp.eq"+t], vectors["setp.ne"+t] = equalWords, negate(equalWords)
		vectors["setp.ge"+t], vectors["setp.lt"+t] = least, negate(least)
		vectors["setp.le"+t], vectors["setp.gt"+t] = most, negate(most)
	}
}

func negate(f func(a, b *v32) uint32) func(a, b *v32) uint32 {
	return func(a, b *v32) uint32 { return ^f(a, b) }
}
