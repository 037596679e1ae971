package main

import "fmt"

// decoder writes the float32 values of a quantized block, 16 lanes at once (wide) or 8.
//
// Columns come four by four: a vector of 64 bytes has a row per 32 bits, a column per byte.
// A step takes four of these vectors, which is one of a plane of two bits.
type decoder struct {
	*source
	format string // affine, fp4, levels or e4m3
	bits   int
	wide   bool
}

const decoderComment = `// func %s(a *decodeArgs)
//
// The twin is Weight.floats, for whole blocks. Nothing need be aligned.
//
//	DI dst    R10 block    R11 blocks left    DX stride    BX scales   R13 columns    R15 their step
//	SI first plane    R12 second plane    AX scales    R9 their type
//	R8 columns, later steps left`

func decoders(s *source) {
	for i, c := range constants {
		for at, v := range c.words {
			s.line("DATA decode%s<>+%d(SB)/8, $0x%016x", c.name, 8*at, v)
		}
		s.line("GLOBL decode%s<>(SB), RODATA|NOPTR, $%d\n", constants[i].name, 8*len(c.words))
	}
	for _, wide := range []bool{true, false} {
		for _, bits := range []int{2, 3, 4, 5, 6, 8} {
			decoder{s, "affine", bits, wide}.function()
		}
		decoder{s, "fp4", 4, wide}.function()
		decoder{s, "levels", 4, wide}.function()
		decoder{s, "e4m3", 8, wide}.bytes()
	}
}

// constants are vectors of 32 bytes; wide code repeats them.
var constants = []struct {
	name  string
	words []uint64
}{
	{"Nibble", []uint64{0x0f0f0f0f0f0f0f0f}},
	{"Two", []uint64{0x0303030303030303}},
	{"Upper", []uint64{0x3030303030303030}},
	{"Byte", []uint64{0x000000ff000000ff}},
	{"Bit2", []uint64{0x0404040404040404}},
	{"Bit4", []uint64{0x1010101010101010}},
	{"Bits", []uint64{0x8040201008040201}},
	{"Spread", []uint64{0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303}},
	{"Halves", []uint64{0x0c08060403020100, 0xf4f8fafcfdfeff00}},
	{"Levels", []uint64{0xf6eaddcfbfad9881, 0x7159453526190d01}},
	{"Half", []uint64{0xbf80bf80bf80bf80}},
	{"Sign", []uint64{0x8000800080008000}},
	{"SignByte", []uint64{0x8080808080808080}},
	{"256", []uint64{0x4380000043800000}},
}

// Registers of constants and temporaries. Scales and biases are two registers when narrow.
const (
	regMask  = 6 // of the codes of the first plane
	regMask2 = 7 // of the second plane, shifted into place
	regBit   = 8 // what a single bit is worth
	regPlace = 9 // spreads 4 bytes over 32
	regBits  = 10
	regByte  = 11 // the mask of a byte, or the values of codes
)

func (d decoder) v(i int) string {
	if d.wide {
		return fmt.Sprintf("Z%d", i)
	}
	return fmt.Sprintf("Y%d", i)
}

// signed reports whether codes are places in a table of signed bytes.
func (d decoder) signed() bool { return d.format == "fp4" || d.format == "levels" }

// halves is how many registers a tile takes.
func (d decoder) halves() int {
	if d.wide {
		return 1
	}
	return 2
}

func (d decoder) scale(half int) string { return d.v(12 + half) }
func (d decoder) bias(half int) string  { return d.v(14 + half) }

// broadcast repeats a constant.
func (d decoder) broadcast(name string, i int) {
	switch name {
	case "Halves", "Levels":
		if d.wide {
			d.op("VBROADCASTI32X4 decode%s<>(SB), %s", name, d.v(i))
		} else {
			d.op("VBROADCASTI128 decode%s<>(SB), %s", name, d.v(i))
		}
	case "Spread":
		d.op("VMOVDQU decode%s<>(SB), %s", name, d.v(i))
	default:
		d.op("VPBROADCASTQ decode%s<>(SB), %s", name, d.v(i))
	}
}

func (d decoder) name() string {
	set, format := "AVX2", map[string]string{"affine": fmt.Sprintf("Affine%d", d.bits), "fp4": "FP4", "levels": "Levels", "e4m3": "E4M3"}[d.format]
	if d.wide {
		set = "AVX512"
	}
	return "decode" + format + set
}

func (d decoder) begin() {
	d.line(decoderComment, d.name())
	if d.wide {
		d.line("//\tZ0-Z5 temporaries  Z6-Z11 constants  Z12 scales  Z14 biases")
	} else {
		d.line("//\tY0-Y5 temporaries  Y6-Y11 constants  Y12, Y13 scales  Y14, Y15 biases")
	}
	d.line("TEXT ·%s(SB), NOSPLIT, $0-8", d.name())
	d.op("MOVQ a+0(FP), AX")
	for _, f := range []struct{ field, reg string }{
		{"dst", "DI"},
		{"block", "R10"},
		{"blocks", "R11"},
		{"stride", "DX"},
		{"scales", "BX"},
		{"columns", "R13"},
		{"scale", "R9"},
		{"step", "R15"},
	} {
		d.op("MOVQ decodeArgs_%s(AX), %s", f.field, f.reg)
	}
	d.constants()
	d.line("block:")
	d.ops("MOVQ R10, SI", "MOVQ BX, AX", "MOVQ R13, R8")
	d.scales()
}

// end goes on with the next block, if there is one.
func (d decoder) end() {
	d.ops("ADDQ DX, R10", "ADDQ R15, BX", "DECQ R11", "JNE block", "VZEROUPPER", "RET")
	d.implied()
	if d.format == "affine" {
		d.pointed()
	}
	d.line("")
}

// scales loads the scales and biases; R9 is 0 for bf16, 1 for f16 and 2 for f32, 3 and 4 for
// f16 and f32 that imply the biases, decodePoints more than the first three where codes have zero points.
func (d decoder) scales() {
	d.ops("CMPQ R9, $1", "JEQ half", "JGT full")
	for h := range d.halves() {
		d.both(h, 2, "VPMOVZXWD")
		d.op("VPSLLD $16, %s, %s", d.scale(h), d.scale(h))
		if d.format == "affine" {
			d.op("VPSLLD $16, %s, %s", d.bias(h), d.bias(h))
		}
	}
	d.op("JMP scaled")
	d.line("half:")
	for h := range d.halves() {
		d.both(h, 2, "VCVTPH2PS")
	}
	d.op("JMP scaled")
	d.line("full:")
	if d.format == "affine" {
		d.ops("CMPQ R9, $const_decodePoints", "JGE pointed", "CMPQ R9, $3", "JGE implied")
	}
	for h := range d.halves() {
		d.both(h, 4, "VMOVUPS")
	}
	d.line("scaled:")
}

// implied is what scales does where biases are a multiple of the scales.
func (d decoder) implied() {
	if d.format != "affine" {
		return
	}
	d.line("implied:")
	d.op("JGT impliedFull")
	for h := range d.halves() {
		d.op("VCVTPH2PS %d(AX), %s", 16*h, d.scale(h))
	}
	d.op("JMP multiple")
	d.line("impliedFull:")
	for h := range d.halves() {
		d.op("VMOVUPS %d(AX), %s", 32*h, d.scale(h))
	}
	d.line("multiple:")
	d.op("MOVQ a+0(FP), CX")
	d.op("VBROADCASTSS decodeArgs_zero(CX), %s", d.v(0))
	for h := range d.halves() {
		d.op("VMULPS %s, %s, %s", d.scale(h), d.v(0), d.bias(h))
	}
	d.op("JMP scaled")
}

// pointed is what scales does where codes have zero points: these, negative, are the biases. The loop for
// them follows.
func (d decoder) pointed() {
	d.line("pointed:")
	load := func(size int, load string) {
		for h := range d.halves() {
			d.op("%s %d(AX), %s", load, 8*size*h, d.scale(h))
		}
	}
	d.ops("TESTQ $1, R9", "JNZ pointedHalf", "TESTQ $2, R9", "JNZ pointedFull")
	load(2, "VPMOVZXWD")
	for h := range d.halves() {
		d.op("VPSLLD $16, %s, %s", d.scale(h), d.scale(h))
	}
	d.op("JMP points")
	d.line("pointedHalf:")
	load(2, "VCVTPH2PS")
	d.op("JMP points")
	d.line("pointedFull:")
	load(4, "VMOVUPS")
	d.line("points:")
	d.ops("MOVQ a+0(FP), CX", "ADDQ decodeArgs_zeros(CX), AX")
	for h := range d.halves() {
		d.op("VBROADCASTSS decodeArgs_zero(CX), %s", d.bias(h))
	}
	d.ops("CMPQ AX, BX", "JEQ scaled")
	for h := range d.halves() {
		d.op("VPMOVZXBD %d(AX), %s", 8*h, d.v(0))
		d.op("VCVTDQ2PS %s, %s", d.v(0), d.v(0))
		d.op("VSUBPS %s, %s, %s", d.v(0), d.bias(h), d.bias(h))
	}
	d.op("JMP scaled")
	d.steps("pointedStep", true)
	d.op("JMP decoded")
}

// both loads the scales of a half, and the biases if the format has them.
func (d decoder) both(half, size int, load string) {
	at := 8 * size * half
	d.op("%s %d(AX), %s", load, at, d.scale(half))
	if d.format == "affine" {
		d.op("%s %d(AX), %s", load, 16*size+at, d.bias(half))
	}
}

func (d decoder) function() {
	d.begin()
	switch d.bits {
	case 3:
		d.op("LEAQ (SI)(R8*4), R12")
	case 5, 6:
		d.op("LEAQ (SI)(R8*8), R12")
	}
	d.op("SHRQ $4, R8")
	if d.format == "affine" {
		d.ops("CMPQ R9, $const_decodePoints", "JGE pointedStep")
	}
	d.steps("step", false)
	d.line("decoded:")
	d.end()
}

// steps is the loop over the columns, of codes with zero points or others.
func (d decoder) steps(label string, pointed bool) {
	d.line("%s:", label)
	for c := range 4 {
		for h := range d.halves() {
			d.codes(c, h)
			d.columns(c, h, pointed)
		}
	}
	first, second := d.strides()
	d.op("ADDQ $%d, SI", first)
	if second > 0 {
		d.op("ADDQ $%d, R12", second)
	}
	d.ops("ADDQ $1024, DI", "DECQ R8")
	d.op("JNE %s", label)
}

// strides are the bytes of a step in each plane.
func (d decoder) strides() (first, second int) {
	switch d.bits {
	case 2:
		return 64, 0
	case 3:
		return 64, 32
	case 4:
		return 128, 0
	case 5:
		return 128, 32
	case 6:
		return 128, 64
	default:
		return 256, 0
	}
}

// constants loads what the format needs.
func (d decoder) constants() {
	if d.format == "e4m3" {
		for i, name := range []string{"Half", "Sign", "256"} {
			d.broadcast(name, 6+i)
		}
		if d.wide {
			d.broadcast("SignByte", 9)
			d.op("VPTERNLOGD $255, Z10, Z10, Z10")
		}
		return
	}
	switch d.bits {
	case 2, 3:
		d.broadcast("Two", regMask)
	case 4, 5, 6:
		d.broadcast("Nibble", regMask)
	}
	switch d.bits {
	case 3:
		d.broadcast("Bit2", regBit)
	case 5:
		d.broadcast("Bit4", regBit)
	case 6:
		d.broadcast("Upper", regMask2)
	}
	if !d.wide && d.bits&1 == 1 {
		d.broadcast("Spread", regPlace)
		d.broadcast("Bits", regBits)
	}
	switch d.format {
	case "fp4":
		d.broadcast("Halves", regByte)
	case "levels":
		d.broadcast("Levels", regByte)
	default:
		d.broadcast("Byte", regByte)
	}
}

func (d decoder) move() string {
	if d.wide {
		return "VMOVDQU32"
	}
	return "VMOVDQU"
}

// bitwise is the name of VPAND or VPOR in this width.
func (d decoder) bitwise(op string) string {
	if d.wide {
		return op + "D"
	}
	return op
}

// shift moves register i right, or left if n is negative.
func (d decoder) shift(n, i int) {
	switch {
	case n > 0:
		d.op("VPSRLD $%d, %s, %s", n, d.v(i), d.v(i))
	case n < 0:
		d.op("VPSLLD $%d, %s, %s", -n, d.v(i), d.v(i))
	}
}

// codes puts vector c of a step, a code per byte, into register 0.
func (d decoder) codes(c, half int) {
	and, or := d.bitwise("VPAND"), d.bitwise("VPOR")
	at, shift := 64*c, 0
	switch d.bits {
	case 2, 3:
		at, shift = 0, 2*c
	case 4, 5, 6:
		at, shift = 64*(c/2), 4*(c%2)
	}
	d.op("%s %d(SI), %s", d.move(), at+32*half, d.v(0))
	d.shift(shift, 0)
	if d.bits < 8 {
		d.op("%s %s, %s, %s", and, d.v(regMask), d.v(0), d.v(0))
	}
	switch {
	case d.bits == 6:
		d.op("%s %d(R12), %s", d.move(), 32*half, d.v(1))
		d.shift(2*c-4, 1)
		d.op("%s %s, %s, %s", and, d.v(regMask2), d.v(1), d.v(1))
		d.op("%s %s, %s, %s", or, d.v(1), d.v(0), d.v(0))
	case d.bits&1 == 1 && d.wide:
		d.op("KMOVQ %d(R12), K1", 8*c)
		d.op("VMOVDQU8.Z %s, K1, %s", d.v(regBit), d.v(1))
		d.op("%s %s, %s, %s", or, d.v(1), d.v(0), d.v(0))
	case d.bits&1 == 1:
		d.op("VPBROADCASTD %d(R12), %s", 8*c+4*half, d.v(1))
		d.op("VPSHUFB %s, %s, %s", d.v(regPlace), d.v(1), d.v(1))
		d.op("VPAND %s, %s, %s", d.v(regBits), d.v(1), d.v(1))
		d.op("VPCMPEQB %s, %s, %s", d.v(regBits), d.v(1), d.v(1))
		d.op("VPAND %s, %s, %s", d.v(regBit), d.v(1), d.v(1))
		d.op("VPOR %s, %s, %s", d.v(1), d.v(0), d.v(0))
	}
	if d.signed() {
		d.op("VPSHUFB %s, %s, %s", d.v(0), d.v(regByte), d.v(0))
	}
}

// columns writes the four columns of vector c of a step from the codes in register 0.
func (d decoder) columns(c, half int, pointed bool) {
	for i := range 4 {
		x := d.v(2 + i)
		switch {
		case d.signed() && i < 3:
			d.op("VPSLLD $%d, %s, %s", 24-8*i, d.v(0), x)
			d.op("VPSRAD $24, %s, %s", x, x)
		case d.signed():
			d.op("VPSRAD $24, %s, %s", d.v(0), x)
		case i == 0:
			d.op("%s %s, %s, %s", d.bitwise("VPAND"), d.v(regByte), d.v(0), x)
		case i == 3:
			d.op("VPSRLD $24, %s, %s", d.v(0), x)
		default:
			d.op("VPSRLD $%d, %s, %s", 8*i, d.v(0), x)
			d.op("%s %s, %s, %s", d.bitwise("VPAND"), d.v(regByte), x, x)
		}
		d.op("VCVTDQ2PS %s, %s", x, x)
		if pointed {
			d.op("VADDPS %s, %s, %s", d.bias(half), x, x)
		}
		d.op("VMULPS %s, %s, %s", d.scale(half), x, x)
		if d.format == "affine" && !pointed {
			d.op("VADDPS %s, %s, %s", d.bias(half), x, x)
		}
		d.op("VMOVUPS %s, %d(DI)", x, 256*c+64*i+32*half)
	}
}

// bytes decodes E4M3: sign-extended and shifted it is a half, 256 times too small.
func (d decoder) bytes() {
	d.begin()
	if d.wide {
		d.ordinary()
	}
	d.line("column:")
	d.ops("VPMOVSXBW (SI), Y0", "VPSLLW $7, Y0, Y0", "VPAND Y6, Y0, Y0", "VPOR Y7, Y0, Y1", "VPCMPEQW Y6, Y1, Y1")
	d.op("VPOR Y1, Y0, Y0")
	if d.wide {
		d.op("VCVTPH2PS Y0, Z2")
	} else {
		d.ops("VEXTRACTI128 $1, Y0, X3", "VCVTPH2PS X0, Y2", "VCVTPH2PS X3, Y3")
	}
	for h := range d.halves() {
		d.op("VMULPS %s, %s, %s", d.v(8), d.v(2+h), d.v(2+h))
		d.op("VMULPS %s, %s, %s", d.scale(h), d.v(2+h), d.v(2+h))
		d.op("VMOVUPS %s, %d(DI)", d.v(2+h), 32*h)
	}
	d.ops("ADDQ $16, SI", "ADDQ $64, DI", "DECQ R8", "JNE column")
	d.line("done:")
	d.end()
}

// ordinary decodes a block without NaN whose scales, times 256, are finite, two columns at
// once; then one multiplication is as good as two. Others are left to the loop after it.
func (d decoder) ordinary() {
	d.ops("TESTQ $3, R8", "JNE column", "VMULPS Z8, Z12, Z13")
	d.op("VFPCLASSPSZ $0x99, Z13, K1") // infinite or NaN
	d.ops("MOVQ SI, CX", "SHRQ $2, R8")
	d.line("check:")
	d.ops("VPORD (CX), Z9, Z0", "VPCMPEQB Z10, Z0, K2", "KORQ K2, K1, K1", "ADDQ $64, CX", "DECQ R8", "JNE check")
	d.ops("MOVQ R13, R8", "KORTESTQ K1, K1", "JNE column", "SHRQ $1, R8")
	d.line("pair:")
	d.ops("VPMOVSXBW (SI), Z0", "VPSLLW $7, Z0, Z0", "VPANDD Z6, Z0, Z0", "VEXTRACTI64X4 $1, Z0, Y1", "VCVTPH2PS Y0, Z2")
	d.ops("VCVTPH2PS Y1, Z3", "VMULPS Z13, Z2, Z2", "VMULPS Z13, Z3, Z3", "VMOVUPS Z2, (DI)", "VMOVUPS Z3, 64(DI)")
	d.ops("ADDQ $32, SI", "ADDQ $128, DI", "DECQ R8", "JNE pair", "JMP done")
}
