package main

import "fmt"

// packedRows is the maximum number of rows of kernels that read packed codes.
const packedRows = 4

// avx2Kernel unpacks codes.
type avx2Kernel struct {
	*source
	codes
	vnni bool // for the dot products of AVX-VNNI
	m    int  // rows; 0: codes become a panel
	half int  // 0, 1: of a tile
	at   int  // from Y12 to where codes are unpacked to
}

// setName is the name of the instruction set in those of kernels.
func setName(vnni bool) string {
	if vnni {
		return "VNNI"
	}
	return "AVX2"
}

func avx2(s *source) {
	constant := func(name string, words ...uint64) {
		for i := range 4 {
			s.line("DATA integer%s<>+%d(SB)/8, $0x%016x", name, 8*i, words[i%len(words)])
		}
		s.line("GLOBL integer%s<>(SB), RODATA|NOPTR, $32\n", name)
	}
	s.line("")
	constant("Low4", 0x0f0f0f0f0f0f0f0f)
	constant("Low2", 0x0303030303030303)
	constant("Bit2", 0x0404040404040404)
	constant("Bit4", 0x1010101010101010)
	constant("Bits45", 0x3030303030303030)
	constant("Each", 0x8040201008040201) // one bit of every byte, in turn
	constant("Spread", 0x0000000000000000, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303)
	constant("Values", 0x181412100f0e0d0c, 0x00040608090a0b0c) // of E2M1 codes in halves, raised by 12
	constant("Raised", 0x7a6e615343311c05, 0xf5ddc9b9aa9d9185) // the same, by 132
	constant("Nibble", 0x0000000f0000000f)
	constant("Pair", 0x0000003000000030)
	constant("Nibbles", 0x000f000f000f000f)
	constant("Pairs", 0x0030003000300030)
	constant("Signs", 0x8000000080000000)
	constant("Middle", 0x0000002000000020)
	constant("Raise6K", 0xffe0ffe0ffe0ffe0) // -32
	constant("Raise3K", 0xfffcfffcfffcfffc) // -4
	constant("RaiseXS", 0xff7cff7cff7cff7c) // -132
	for i := range 16 {
		s.line("DATA integerTimes<>+%d(SB)/8, $0x%016x", 8*i, []uint64{0x0001000100010001, 0x0010001000100010}[i/8])
	}
	s.line("GLOBL integerTimes<>(SB), RODATA|NOPTR, $128\n")
	factorsAVX2(s)
	for _, f := range supers {
		superAVX2(s, f)
	}
	for _, vnni := range []bool{false, true} {
		for _, f := range formats {
			for m := 1; m <= packedRows; m++ {
				packedKernel(s, f, vnni, m).write()
			}
		}
	}
	panels(s)
}

// code is the register that codes are unpacked to.
func (k *avx2Kernel) code(i int) string { return fmt.Sprintf("Y%d", 12+k.at+i) }

// unpack brings vectors v and v+1 of a half into two registers.
func (k *avx2Kernel) unpack(v int) {
	k.lowBits(v)
	k.highBits(v, k.code(0))
	k.highBits(v+1, k.code(1))
}

// lowBits brings the low plane of vectors v and v+1 into two registers.
func (k *avx2Kernel) lowBits(v int) {
	switch k.low() {
	case 8:
		for i := range 2 {
			k.op("VMOVDQU %d(SI), %s", 64*(v+i)+32*k.half, k.code(i))
			if k.half == 0 {
				k.prefetch(64*(v+i), "SI")
			}
		}
		return
	case 2:
		if k.half == 0 && v == 0 {
			k.prefetch(0, "SI")
		}
		k.op("VMOVDQU %d(SI), Y14", 32*k.half)
		k.op("VPSRLW $%d, Y14, %s", 2*v, k.code(0))
		k.op("VPSRLW $%d, Y14, %s", 2*v+2, k.code(1))
		for i := range 2 {
			k.op("VPAND integerLow2<>(SB), %[1]s, %[1]s", k.code(i))
		}
		return
	}
	k.op("VMOVDQU %d(SI), %s", 32*v+32*k.half, k.code(0))
	if k.half == 0 {
		k.prefetch(32*v, "SI")
	}
	k.op("VPSRLW $4, %s, %s", k.code(0), k.code(1))
	for i := range 2 {
		k.op("VPAND integerLow4<>(SB), %[1]s, %[1]s", k.code(i))
	}
	if k.fp4 {
		values := "Values"
		if k.levels {
			values = "Raised"
		}
		k.op("VMOVDQU integer%s<>(SB), Y14", values)
		for i := range 2 {
			k.op("VPSHUFB %[1]s, Y14, %[1]s", k.code(i))
		}
	}
}

// highBits adds the bits of the second plane to vector v.
func (k *avx2Kernel) highBits(v int, w string) {
	switch k.high() {
	case 1:
		k.op("VPBROADCASTD %d(DI), Y14", 8*v+4*k.half)
		k.ops("VPSHUFB integerSpread<>(SB), Y14, Y14", "VPAND integerEach<>(SB), Y14, Y14")
		k.op("VPCMPEQB integerEach<>(SB), Y14, Y14")
		k.op("VPAND integerBit%d<>(SB), Y14, Y14", k.low())
	case 2:
		k.op("VMOVDQU %d(DI), Y14", 32*k.half)
		switch v {
		case 0:
			k.op("VPSLLW $4, Y14, Y14")
		case 1:
			k.op("VPSLLW $2, Y14, Y14")
		case 3:
			k.op("VPSRLW $2, Y14, Y14")
		}
		k.op("VPAND integerBits45<>(SB), Y14, Y14")
	default:
		return
	}
	k.op("VPOR Y14, %s, %s", w, w)
}

func (k *avx2Kernel) prefetch(offset int, register string) {
	if k.m > 0 { // panels ask for lines apart
		k.op("PREFETCHT0 %d(%s)", offset+ahead, register)
	}
}

// loadBF16, loadF16 and loadF32 load 8 scales of these types.
func (k *avx2Kernel) loadBF16(at int, y string) {
	k.op("VPMOVZXWD %d(R13), %s", at, y)
	k.op("VPSLLD $16, %s, %s", y, y)
}
func (k *avx2Kernel) loadF16(at int, y string) { k.op("VCVTPH2PS %d(R13), %s", at, y) }
func (k *avx2Kernel) loadF32(at int, y string) { k.op("VMOVUPS %d(R13), %s", at, y) }
