package ptx

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/exactmath"
)

// instruction is a case of TestInstructions: text that computes register 9 of a kind from registers
// 1, 2 and 3, and the same in Go, from memory.
type instruction struct {
	text string
	kind string // r, rd, f, fd, rs or p
	want func(a, b, c uint64) uint64
}

func lo(f func(a, b, c uint32) uint32) func(a, b, c uint64) uint64 {
	return func(a, b, c uint64) uint64 { return uint64(f(uint32(a), uint32(b), uint32(c))) }
}

func single(f func(a, b, c float32) float32) func(a, b, c uint64) uint64 {
	return lo(func(a, b, c uint32) uint32 { return bits32(f(f32(a), f32(b), f32(c))) })
}

func double(f func(a, b, c float64) float64) func(a, b, c uint64) uint64 {
	return func(a, b, c uint64) uint64 { return f64Or(f(f64(a), f64(b), f64(c))) }
}

// extremeNumber is f of two numbers, or the one that is a number.
func extremeNumber(a, b float64, f func(a, b float64) float64) float64 {
	switch {
	case a != a:
		return b
	case b != b:
		return a
	}
	return f(a, b)
}

// nearest is the integer of a width nearest to x, which is whole.
func nearest(width int, signed bool, none uint64, x float64) uint64 {
	if x != x {
		return none
	}
	low, high := new(big.Int), new(big.Int).Lsh(big.NewInt(1), uint(width))
	if signed {
		high.Rsh(high, 1)
		low.Neg(high)
	}
	high.Sub(high, big.NewInt(1))
	v := new(big.Int)
	switch {
	case math.IsInf(x, 1):
		v = high
	case math.IsInf(x, -1):
		v = low
	default:
		new(big.Float).SetFloat64(x).Int(v)
	}
	if v.Cmp(low) < 0 {
		v = low
	}
	if v.Cmp(high) > 0 {
		v = high
	}
	return new(big.Int).And(v, new(big.Int).SetUint64(math.MaxUint64>>(64-width))).Uint64()
}

func whole(width int, signed bool, none uint64, round func(float64) float64) func(a, b, c uint64) uint64 {
	return func(a, _, _ uint64) uint64 { return nearest(width, signed, none, round(float64(f32(uint32(a))))) }
}

func wholeDouble(width int, signed bool, none uint64, round func(float64) float64) func(a, b, c uint64) uint64 {
	return func(a, _, _ uint64) uint64 { return nearest(width, signed, none, round(f64(a))) }
}

// f64Or is the bits of a number. TestInstructionsEqualHardware checks NaN.
func f64Or(x float64) uint64 {
	if x != x {
		return anyNone
	}
	return math.Float64bits(x)
}

const anyNone = 0x7ff8_dead_beef_0000

func truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

var instructions = []instruction{
	{"add.s32 %r9, %r1, %r2;", "r", lo(func(a, b, _ uint32) uint32 { return a + b })},
	{"sub.s32 %r9, %r1, %r2;", "r", lo(func(a, b, _ uint32) uint32 { return a - b })},
	{"mul.lo.s32 %r9, %r1, %r2;", "r", lo(func(a, b, _ uint32) uint32 { return a * b })},
	{"mad.lo.s32 %r9, %r1, %r2, %r3;", "r", lo(func(a, b, c uint32) uint32 { return a*b + c })},
	{"mul.hi.u32 %r9, %r1, %r2;", "r", lo(func(a, b, _ uint32) uint32 { h, _ := bits.Mul32(a, b); return h })},
	{"mul.hi.s32 %r9, %r1, %r2;", "r", lo(func(a, b, _ uint32) uint32 { return uint32(int64(int32(a)) * int64(int32(b)) >> 32) })},
	{"mul.hi.u64 %rd9, %rd1, %rd2;", "rd", func(a, b, _ uint64) uint64 { h, _ := bits.Mul64(a, b); return h }},
	{"mul.hi.s64 %rd9, %rd1, %rd2;", "rd", func(a, b, _ uint64) uint64 {
		x := new(big.Int).Mul(big.NewInt(int64(a)), big.NewInt(int64(b)))
		x.Rsh(x, 64)
		return uint64(x.Int64())
	}},
	{"mul.wide.s32 %rd9, %r1, %r2;", "rd", func(a, b, _ uint64) uint64 { return uint64(int64(int32(a)) * int64(int32(b))) }},
	{"mul.wide.u32 %rd9, %r1, %r2;", "rd", func(a, b, _ uint64) uint64 { return a & math.MaxUint32 * (b & math.MaxUint32) }},
	{"mul.wide.u16 %r9, %rs1, %rs2;", "r", lo(func(a, b, _ uint32) uint32 { return a & 0xffff * (b & 0xffff) })},
	{"add.s64 %rd9, %rd1, %rd2;", "rd", func(a, b, _ uint64) uint64 { return a + b }},
	{"mul.lo.s64 %rd9, %rd1, %rd2;", "rd", func(a, b, _ uint64) uint64 { return a * b }},
	{"and.b32 %r9, %r1, %r2;", "r", lo(func(a, b, _ uint32) uint32 { return a & b })},
	{"xor.b64 %rd9, %rd1, %rd2;", "rd", func(a, b, _ uint64) uint64 { return a ^ b }},
	{"not.b32 %r9, %r1;", "r", lo(func(a, _, _ uint32) uint32 { return ^a })},
	{"and.b16 %rs9, %rs1, %rs2;", "rs", lo(func(a, b, _ uint32) uint32 { return a & b & 0xffff })},
	{"add.s16 %rs9, %rs1, %rs2;", "rs", lo(func(a, b, _ uint32) uint32 { return (a + b) & 0xffff })},
	{"shl.b32 %r9, %r1, %r2;", "r", lo(func(a, b, _ uint32) uint32 { return a << b })},
	{"shr.u32 %r9, %r1, %r2;", "r", lo(func(a, b, _ uint32) uint32 { return a >> b })},
	{"shr.s32 %r9, %r1, %r2;", "r", lo(func(a, b, _ uint32) uint32 { return uint32(int32(a) >> b) })},
	{"shl.b64 %rd9, %rd1, %r2;", "rd", func(a, b, _ uint64) uint64 { return a << uint32(b) }},
	{"shr.u64 %rd9, %rd1, %r2;", "rd", func(a, b, _ uint64) uint64 { return a >> uint32(b) }},
	{"shr.s64 %rd9, %rd1, %r2;", "rd", func(a, b, _ uint64) uint64 { return uint64(int64(a) >> uint32(b)) }},
	{"min.s32 %r9, %r1, %r2;", "r", lo(func(a, b, _ uint32) uint32 { return uint32(min(int32(a), int32(b))) })},
	{"max.u32 %r9, %r1, %r2;", "r", lo(func(a, b, _ uint32) uint32 { return max(a, b) })},
	{"max.s32 %r9, %r1, %r2;", "r", lo(func(a, b, _ uint32) uint32 { return uint32(max(int32(a), int32(b))) })},
	{"or.b32 %r8, %r2, 1; div.s32 %r9, %r1, %r8;", "r", lo(func(a, b, _ uint32) uint32 { return uint32(int32(a) / int32(b|1)) })},
	{"or.b32 %r8, %r2, 1; rem.s32 %r9, %r1, %r8;", "r", lo(func(a, b, _ uint32) uint32 { return uint32(int32(a) % int32(b|1)) })},
	{"or.b32 %r8, %r2, 1; div.u32 %r9, %r1, %r8;", "r", lo(func(a, b, _ uint32) uint32 { return a / (b | 1) })},
	{"neg.s32 %r9, %r1;", "r", lo(func(a, _, _ uint32) uint32 { return -a })},
	{"bfi.b32 %r9, %r1, %r2, 4, 28;", "r", lo(func(a, b, _ uint32) uint32 { return b&15 | a<<4 })},
	{"bfi.b32 %r9, %r1, %r2, 4, 1;", "r", lo(func(a, b, _ uint32) uint32 { return b&^16 | a&1<<4 })},
	{"bfi.b32 %r9, %r1, %r2, %r3, %r2;", "r", lo(func(a, b, c uint32) uint32 {
		f := b
		for i := range b & 255 {
			if at := c&255 + i; at < 32 && i < 32 {
				f = f&^(1<<at) | a>>i&1<<at
			}
		}
		return f
	})},
	{"prmt.b32 %r9, %r1, %r2, %r3;", "r", lo(func(a, b, c uint32) uint32 {
		var out uint32
		all := [8]byte{byte(a), byte(a >> 8), byte(a >> 16), byte(a >> 24), byte(b), byte(b >> 8), byte(b >> 16), byte(b >> 24)}
		for i := range 4 {
			v := uint32(all[c>>(4*i)&7])
			if c>>(4*i)&8 != 0 {
				v = 255 * (v >> 7)
			}
			out |= v << (8 * i)
		}
		return out
	})},
	{"prmt.b32 %r9, %r1, %r2, 8452;", "r", lo(func(a, b, _ uint32) uint32 { return b&0xff | a<<8 })},
	{"popc.b32 %r9, %r1;", "r", lo(func(a, _, _ uint32) uint32 { return uint32(bits.OnesCount32(a)) })},
	{"clz.b32 %r9, %r1;", "r", lo(func(a, _, _ uint32) uint32 { return uint32(bits.LeadingZeros32(a)) })},
	{"dp4a.u32.s32 %r9, %r1, %r2, %r3;", "r", lo(func(a, b, c uint32) uint32 {
		for i := range 4 {
			c += uint32(int32(a>>(8*i)&255) * int32(int8(b>>(8*i))))
		}
		return c
	})},
	{"add.rn.f32 %f9, %f1, %f2;", "f", single(func(a, b, _ float32) float32 { return a + b })},
	{"sub.rn.f32 %f9, %f1, %f2;", "f", single(func(a, b, _ float32) float32 { return a - b })},
	{"mul.rn.f32 %f9, %f1, %f2;", "f", single(func(a, b, _ float32) float32 { return a * b })},
	{"fma.rn.f32 %f9, %f1, %f2, %f3;", "f", single(exactmath.FMA32)},
	{"div.rn.f32 %f9, %f1, %f2;", "f", single(func(a, b, _ float32) float32 { return a / b })},
	{"sqrt.rn.f32 %f9, %f1;", "f", single(func(a, _, _ float32) float32 { return float32(math.Sqrt(float64(a))) })},
	{"neg.f32 %f9, %f1;", "f", single(func(a, _, _ float32) float32 { return -a })},
	{"abs.f32 %f9, %f1;", "f", single(func(a, _, _ float32) float32 { return float32(math.Abs(float64(a))) })},
	{"max.f32 %f9, %f1, %f2;", "f", single(func(a, b, _ float32) float32 { return float32(extremeNumber(float64(a), float64(b), math.Max)) })},
	{"min.f32 %f9, %f1, %f2;", "f", single(func(a, b, _ float32) float32 { return float32(extremeNumber(float64(a), float64(b), math.Min)) })},
	{"add.rn.f64 %fd9, %fd1, %fd2;", "fd", double(func(a, b, _ float64) float64 { return a + b })},
	{"sub.rn.f64 %fd9, %fd1, %fd2;", "fd", double(func(a, b, _ float64) float64 { return a - b })},
	{"mul.rn.f64 %fd9, %fd1, %fd2;", "fd", double(func(a, b, _ float64) float64 { return a * b })},
	{"div.rn.f64 %fd9, %fd1, %fd2;", "fd", double(func(a, b, _ float64) float64 { return a / b })},
	{"fma.rn.f64 %fd9, %fd1, %fd2, %fd3;", "fd", double(math.FMA)},
	{"sqrt.rn.f64 %fd9, %fd1;", "fd", double(func(a, _, _ float64) float64 { return math.Sqrt(a) })},
	{"neg.f64 %fd9, %fd1;", "fd", double(func(a, _, _ float64) float64 { return -a })},
	{"abs.f64 %fd9, %fd1;", "fd", double(func(a, _, _ float64) float64 { return math.Abs(a) })},
	{"cvt.rn.f32.s32 %f9, %r1;", "f", lo(func(a, _, _ uint32) uint32 { return math.Float32bits(float32(int32(a))) })},
	{"cvt.rn.f32.u32 %f9, %r1;", "f", lo(func(a, _, _ uint32) uint32 { return math.Float32bits(float32(a)) })},
	{"cvt.rn.f32.s64 %f9, %rd1;", "f", func(a, _, _ uint64) uint64 { return uint64(math.Float32bits(float32(int64(a)))) }},
	{"cvt.rn.f64.s32 %fd9, %r1;", "fd", func(a, _, _ uint64) uint64 { return math.Float64bits(float64(int32(a))) }},
	{"cvt.rn.f64.u32 %fd9, %r1;", "fd", func(a, _, _ uint64) uint64 { return math.Float64bits(float64(uint32(a))) }},
	{"cvt.rn.f64.u64 %fd9, %rd1;", "fd", func(a, _, _ uint64) uint64 { return math.Float64bits(float64(a)) }},
	{"cvt.rzi.s32.f32 %r9, %f1;", "r", whole(32, true, 0, math.Trunc)},
	{"cvt.rni.s32.f32 %r9, %f1;", "r", whole(32, true, 0, math.RoundToEven)},
	{"cvt.rmi.u32.f32 %r9, %f1;", "r", whole(32, false, 0, math.Floor)},
	{"cvt.rzi.s64.f64 %rd9, %fd1;", "rd", wholeDouble(64, true, 1<<63, math.Trunc)},
	{"cvt.rzi.u64.f32 %rd9, %f1;", "rd", whole(64, false, 1<<63, math.Trunc)},
	{"cvt.rzi.s32.f64 %r9, %fd1;", "r", wholeDouble(32, true, 1<<31, math.Trunc)},
	{"cvt.rzi.s16.f32 %rs9, %f1;", "rs", whole(16, true, 0, math.Trunc)},
	{"cvt.rmi.f64.f64 %fd9, %fd1;", "fd", double(func(a, _, _ float64) float64 { return math.Floor(a) })},
	{"cvt.rni.f32.f32 %f9, %f1;", "f", single(func(a, _, _ float32) float32 { return float32(math.RoundToEven(float64(a))) })},
	{"cvt.rn.f32.f64 %f9, %fd1;", "f", func(a, _, _ uint64) uint64 {
		if v := f64(a); v != v {
			return a>>63<<31 | 0x7fc00000 | a>>29&0x7fffff
		}
		return uint64(bits32(float32(f64(a))))
	}},
	{"cvt.f64.f32 %fd9, %f1;", "fd", func(a, _, _ uint64) uint64 { return f64Or(float64(f32(uint32(a)))) }},
	{"cvt.rn.f16.f32 %rs9, %f1;", "rs", lo(func(a, _, _ uint32) uint32 {
		if x := f32(a); x != x {
			return nan16
		}
		return uint32(dtype.ToF16(f32(a)))
	})},
	{"cvt.f32.f16 %f9, %rs1;", "f", lo(func(a, _, _ uint32) uint32 { return bits32(dtype.FromF16(uint16(a))) })},
	{"cvt.s64.s32 %rd9, %r1;", "rd", func(a, _, _ uint64) uint64 { return uint64(int64(int32(a))) }},
	{"cvt.u16.u64 %rs9, %rd1;", "rs", func(a, _, _ uint64) uint64 { return a & 0xffff }},
	{"cvt.s32.s8 %r9, %r1;", "r", func(a, _, _ uint64) uint64 { return uint64(uint32(int8(a))) }},
	{"mov.pred %p9, -1;", "p", func(_, _, _ uint64) uint64 { return 1 }},
	{"mov.pred %p9, 0;", "p", func(_, _, _ uint64) uint64 { return 0 }},
	{"setp.lt.s32 %p9, %r1, %r2;", "p", func(a, b, _ uint64) uint64 { return truth(int32(a) < int32(b)) }},
	{"setp.ge.s32 %p9, %r1, %r2;", "p", func(a, b, _ uint64) uint64 { return truth(int32(a) >= int32(b)) }},
	{"setp.le.s32 %p9, %r1, %r2;", "p", func(a, b, _ uint64) uint64 { return truth(int32(a) <= int32(b)) }},
	{"setp.gt.u32 %p9, %r1, %r2;", "p", func(a, b, _ uint64) uint64 { return truth(uint32(a) > uint32(b)) }},
	{"setp.lt.u64 %p9, %rd1, %rd2;", "p", func(a, b, _ uint64) uint64 { return truth(a < b) }},
	{"setp.ne.s16 %p9, %rs1, %rs2;", "p", func(a, b, _ uint64) uint64 { return truth(uint16(a) != uint16(b)) }},
	{"setp.lt.s16 %p9, %rs1, %rs2;", "p", func(a, b, _ uint64) uint64 { return truth(int16(a) < int16(b)) }},
	{"setp.eq.f32 %p9, %f1, %f2;", "p", func(a, b, _ uint64) uint64 { return truth(f32(uint32(a)) == f32(uint32(b))) }},
	{"setp.ne.f32 %p9, %f1, %f2;", "p", func(a, b, _ uint64) uint64 { x, y := f32(uint32(a)), f32(uint32(b)); return truth(x < y || x > y) }},
	{"setp.neu.f32 %p9, %f1, %f2;", "p", func(a, b, _ uint64) uint64 { return truth(f32(uint32(a)) != f32(uint32(b))) }},
	{"setp.lt.f32 %p9, %f1, %f2;", "p", func(a, b, _ uint64) uint64 { return truth(f32(uint32(a)) < f32(uint32(b))) }},
	{"setp.gtu.f32 %p9, %f1, %f2;", "p", func(a, b, _ uint64) uint64 { return truth(!(f32(uint32(a)) <= f32(uint32(b)))) }},
	{"setp.nan.f32 %p9, %f1, %f2;", "p", func(a, b, _ uint64) uint64 { x, y := f32(uint32(a)), f32(uint32(b)); return truth(x != x || y != y) }},
	{"setp.num.f64 %p9, %fd1, %fd2;", "p", func(a, b, _ uint64) uint64 { x, y := f64(a), f64(b); return truth(x == x && y == y) }},
	{"setp.lt.s32 %p8, %r1, %r2; selp.b32 %r9, %r1, %r3, %p8;", "r", lo(func(a, b, c uint32) uint32 {
		if int32(a) < int32(b) {
			return a
		}
		return c
	})},
	{"setp.lt.s32 %p8, %r1, %r2; setp.eq.f32 %p7, %f1, %f3; xor.pred %p9, %p8, %p7;", "p", func(a, b, c uint64) uint64 { return truth((int32(a) < int32(b)) != (f32(uint32(a)) == f32(uint32(c)))) }},
	{"mov.b64 {%r8, %r7}, %rd1; xor.b32 %r9, %r8, %r7;", "r", func(a, _, _ uint64) uint64 { return uint64(uint32(a) ^ uint32(a>>32)) }},
	{"mov.b32 {%rs8, %rs7}, %r1; mov.b32 %r9, {%rs7, %rs8};", "r", lo(func(a, _, _ uint32) uint32 { return bits.RotateLeft32(a, 16) })},
}

// edges are patterns at which floats, halves and integers change their behavior.
var edges = []uint64{
	0, 1, 2, 3, 31, 32, 33, 63, 64, 127, 128, 255, 256, 0x3ff, 0x400, 0x7bff, 0x7c00, 0x7c01, 0x7fff, 0x8000, 0x8001, 0xfc00, 0xffff,
	0x33000000, 0x33000001, 0x33800000, 0x38800000, 0x387fffff, 0x477fefff, 0x477ff000, 0x3f000000, 0x3f800000, 0x3f800001, 0x3fc00000, 0x40200000,
	0x4b400000, 0x4effffff, 0x4f000000, 0x4f800000, 0x5f000000, 0x5f800000, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff,
	0x80000000, 0x80000001, 0x807fffff, 0x80800000, 0xbf000000, 0xbf800000, 0xcf000000, 0xff7fffff, 0xff800000, 0xffc00001, 0xffffffff, 0x007fffff, 0x00800000,
	0x3ff0000000000000, 0x3ff8000000000000, 0xbfe0000000000000, 0x43e0000000000000, 0x41dfffffffc00000, 0x7fefffffffffffff, 0x7ff0000000000000,
	0x7ff8000000000001, 0xfff0000000000000, 0xfff8000000000000, 0x000fffffffffffff, 0x8000000000000000, 0x36a0000000000000, 0x47efffffefffffff, 0xffffffffffffffff,
}

const instructionCases = 2048

// instructionInputs are three columns: edges in pairs, then numbers at random.
func instructionInputs() (columns [3][]uint64) {
	for i := range instructionCases {
		for j := range columns {
			v := uint64(hash32(uint64(3*i+j)))<<32 | uint64(hash32(uint64(3*i+j+99999)))
			switch k := i*7 + j*i*j*13 + j*i/3 + i*i*j; {
			case i%4 != 3:
				v = edges[k%len(edges)]
			case i%8 == 7: // floats near one another
				v = uint64(0x3f000000+hash32(uint64(i*3+j))%0x2000000) | 0x3ff00000<<32
			}
			columns[j] = append(columns[j], v)
		}
	}
	return columns
}

// instructionText is a module with a kernel for each instruction.
func instructionText() string {
	var s strings.Builder
	s.WriteString(".version 7.8\n.target sm_90\n.address_size 64\n")
	out := map[string]string{
		"r": "cvt.u64.u32 %rd9, %r9;", "rd": "", "f": "mov.b32 %r9, %f9; cvt.u64.u32 %rd9, %r9;", "fd": "mov.b64 %rd9, %fd9;",
		"rs": "cvt.u64.u16 %rd9, %rs9;", "p": "selp.b64 %rd9, 1, 0, %p9;",
	}
	for i, in := range instructions {
		fmt.Fprintf(&s, `
.visible .entry i%d(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)
{
	.reg .pred %%p<10>;
	.reg .b16 %%rs<10>;
	.reg .b32 %%r<20>;
	.reg .f32 %%f<10>;
	.reg .f64 %%fd<10>;
	.reg .b64 %%rd<20>;
	mov.u32 %%r10, %%ctaid.x; mov.u32 %%r11, %%ntid.x; mov.u32 %%r12, %%tid.x;
	mad.lo.s32 %%r13, %%r10, %%r11, %%r12;
	mul.wide.u32 %%rd10, %%r13, 8;
`, i)
		for j, name := range []string{"a", "b", "c"} {
			n := j + 1
			fmt.Fprintf(&s, "\tld.param.u64 %%rd11, [%s]; add.s64 %%rd11, %%rd11, %%rd10; ld.global.u64 %%rd%d, [%%rd11]; cvt.u32.u64 %%r%d, %%rd%d; cvt.u16.u64 %%rs%d, %%rd%d; mov.b32 %%f%d, %%r%d; mov.b64 %%fd%d, %%rd%d;\n",
				name, n, n, n, n, n, n, n, n, n)
		}
		fmt.Fprintf(&s, "\t%s\n\t%s\n\tld.param.u64 %%rd11, [d]; add.s64 %%rd11, %%rd11, %%rd10; st.global.u64 [%%rd11], %%rd9;\n\tret;\n}\n", in.text, out[in.kind])
	}
	return s.String()
}

func columnBytes(v []uint64) []byte {
	var out []byte
	for _, x := range v {
		out = binary.LittleEndian.AppendUint64(out, x)
	}
	return out
}

// Instructions agree with Go's arithmetic, for edge cases and random numbers.
func TestInstructions(t *testing.T) {
	columns := instructionInputs()
	text := instructionText()
	r := newRig(t, Options{}, text)
	a, b, c, d := r.bytes(columnBytes(columns[0])), r.bytes(columnBytes(columns[1])), r.bytes(columnBytes(columns[2])), r.alloc(8*instructionCases)
	for i, in := range instructions {
		if err := r.try(fmt.Sprintf("i%d", i), instructionCases/128, 128, false, a, b, c, d); err != nil {
			t.Fatal(err)
		}
		data := make([]byte, 8*instructionCases)
		if err := r.m.Read(data, d); err != nil {
			t.Fatal(err)
		}
		for j := range instructionCases {
			got := binary.LittleEndian.Uint64(data[8*j:])
			x, y, z := columns[0][j], columns[1][j], columns[2][j]
			if want := in.want(x, y, z); got != want && (want != anyNone || f64(got) == f64(got)) {
				t.Errorf("%s of %#x, %#x, %#x: %#x, want %#x", in.text, x, y, z, got, want)
				break
			}
		}
	}
}
