package main

import "fmt"

// superFormats are the codes of formats with superblocks: Q4_K, Q5_K, Q6_K and IQ4_XS.
var superFormats = []codes{
	{bits: 4},
	{bits: 5},
	{bits: 6},
	{bits: 4, fp4: true, levels: true},
}

// super is a kernel for superblocks. It goes through one twice, for half a tile each time, so that
// the sums of a group and those of the superblock are in registers both.
type super struct{ integer }

func (k super) name() string {
	return fmt.Sprintf("super%s%sRows%d", k.best(), k.format(), k.rows)
}

const superComment = `// func %s(a *integerArgs)
//
// The twin is superTile. Nothing need be aligned. Sums of a tile are kept in its output.
//
//	R0 a    R1 superblock    R22 block    R8, R7 its planes    R12 tail    R13 bytes of a vector before this half
//	R2 tiles, R3 groups of the tile, R11 of the superblock, R4 steps left    R21 groups of a superblock
//	R9 the superblock's rows    R5 numbers of them    R14 bytes after these    R6 output
//	R10 factors of the group    R19 second plane    R20 bytes of a block    R23 decoded factors    R15 scratch
//	V0-V7 sums of a group    V8-V15 of the superblock; %s
//	V16-V19 codes    V20-V23 scratch    V24-V28, V31 constants`

// sums of NEON are of 16 bits and take twice the registers; those of the superblock are in memory then.
func (k super) wide() bool { return k.set == setNEON }

// registers of the sums of a superblock, and where NEON has them after the decoded factors.
const (
	superSums = 8
	atSums    = 256
)

func (k super) function() {
	where := "at the end its biases are in V16-V23"
	if k.wide() {
		where = "before its end both are sums of a group"
	}
	k.line(superComment, k.name(), where)
	k.line("TEXT ·%s(SB), NOSPLIT, $0-8", k.name())
	k.op("MOVD a+0(FP), R0")
	for _, f := range []struct{ field, reg string }{
		{"weights", "R1"},
		{"out", "R6"},
		{"tiles", "R2"},
		{"block", "R20"},
		{"per", "R21"},
		{"plane", "R19"},
		{"decoded", "R23"},
	} {
		k.op("MOVD integerArgs_%s(R0), %s", f.field, f.reg)
	}
	k.op("MOVD $%d, R15", 2*k.rows)
	k.op("MUL R21, R15, R14")
	k.op("ADD $%d, R14", 4*k.rows)
	k.prepare()
	k.line("tile:")
	k.op("MOVD integerArgs_acts(R0), R9")
	k.op("MOVD integerArgs_groups(R0), R3")
	k.zero(0)
	for q := range 4 * k.rows {
		k.store(0, 16*q, "R6")
	}
	k.line("super:")
	k.op("MUL R21, R20, R12")
	k.op("ADD R1, R12")
	if f := k.factors(); f != "6K" {
		k.op("CALL superFactors%s<>(SB)", f)
	}
	k.op("MOVD $0, R13")
	k.line("half:")
	k.half()
	k.op("ADD $32, R13")
	k.op("CMP $64, R13")
	k.op("BNE half")
	k.op("ADD R14, R5, R9")
	k.op("MOVD integerArgs_tail(R0), R15")
	k.op("ADD R15, R12, R1")
	k.op("SUBS R21, R3")
	k.op("BNE super")
	k.op("MOVD integerArgs_outTile(R0), R15")
	k.op("ADD R15, R6")
	k.op("SUBS $1, R2")
	k.op("BNE tile")
	k.op("RET\n")
}

// Registers of constants.
const (
	regHigh     = 25 // where the high bits of a code go
	regShifts   = 26 // of bytes, which bring the bits of Bits there; or 32
	regSpreads  = 27 // two of them, of this half
	regQuarters = 29 // from those of one half to those of the next
)

// prepare loads the constants.
func (k super) prepare() {
	k.constant(k.prefix, "Nibble", regMask)
	switch {
	case k.levels:
		k.constant(k.prefix, "Levels", regTable)
	case k.bits == 5:
		k.op("VMOVI $16, V%d.B16", regHigh)
		k.constant(k.prefix, "Shifts", regShifts)
		k.op("VMOVI $4, V%d.B16", regQuarters)
	case k.bits == 6:
		k.op("VMOVI $48, V%d.B16", regHigh)
		k.op("VMOVI $32, V%d.B16", regShifts)
	}
}

// steps is how many steps a group has.
func (k super) steps() int {
	if k.bits == 6 {
		return 1
	}
	return 2
}

// half multiplies a superblock with half a tile.
func (k super) half() {
	k.op("MOVD R9, R5")
	k.op("MOVD R1, R22")
	k.op("MOVD R21, R11")
	if k.bits == 6 { // factors are bytes in the tail
		k.op("ADD R13>>2, R12, R10")
		k.op("ADD $32, R10")
	} else {
		k.op("ADD R13>>2, R23, R10")
	}
	if k.bits == 5 {
		k.spreads()
	}
	k.eachTotal(func(i int) { k.zero(superSums + i) })
	if k.wide() {
		k.totals("FSTPQ (F%[1]d, F%[2]d), %[3]d(R23)")
	}
	k.line("group:")
	k.op("ADD R13, R22, R8")
	switch k.bits {
	case 5:
		k.op("ADD R19, R22, R7")
	case 6:
		k.op("ADD R19, R8, R7")
	}
	for i := range k.sumRegs() {
		k.zero(i)
	}
	if k.steps() > 1 {
		k.op("MOVD $%d, R4", k.steps())
		k.line("step:")
	}
	first, _ := k.strides()
	for at := 0; at < first; at += 64 {
		k.op("PRFM %d(R8), PLDL1KEEP", 3072+at)
	}
	for p := range 2 {
		k.unpack(p)
		k.multiply(p)
	}
	k.op("ADD $%d, R5", 16*k.rows)
	if k.steps() > 1 {
		k.advance()
		k.op("SUBS $1, R4")
		k.op("BNE step")
	}
	k.op("ADD R20, R22")
	k.scaleGroup()
	k.op("ADD $16, R10")
	k.op("SUBS $1, R11")
	k.op("BNE group")
	if k.factors() == "K" {
		k.least()
	}
	k.finish()
}

// spreads loads those of this half: of the first and, a quarter further each, of the second.
func (k super) spreads() {
	for q := range 2 {
		k.constant(k.prefix, fmt.Sprintf("Spread%d", q), regSpreads+q)
	}
	k.op("CBZ R13, spread")
	for q := range 2 {
		k.op("VADD V%d.B16, V%d.B16, V%d.B16", regQuarters, regSpreads+q, regSpreads+q)
	}
	k.line("spread:")
}

// sumRegs is how many registers the sums of a group take.
func (k super) sumRegs() int {
	if k.wide() {
		return 4 * k.rows
	}
	return 2 * k.rows
}

func (k super) eachTotal(f func(i int)) {
	for i := range 2 * k.rows {
		f(i)
	}
}

// totals loads or stores the sums of the superblock, two by two.
func (k super) totals(format string) {
	for i := 0; i < 2*k.rows; i += 2 {
		k.op(format, superSums+i, superSums+i+1, atSums+16*i)
	}
}

// unpack puts vectors 2p and 2p+1 of a step, two quarters each, into V16 to V19.
func (k super) unpack(p int) {
	k.load2(16, 64*p, "R8")
	for q := range 2 {
		k.op("VUSHR $4, V%d.B16, V%d.B16", 16+q, 18+q)
		k.and(16+q, 16+q, regMask)
	}
	switch {
	case k.levels:
		for c := 16; c < 20; c++ {
			k.op("VTBL V%d.B16, [V%d.B16], V%d.B16", c, regTable, c)
		}
	case k.bits == 5:
		for v := range 2 {
			k.op("FMOVD %d(R7), F20", 16*p+8*v)
			for q := range 2 {
				k.op("VTBL V%d.B16, [V20.B16], V%d.B16", regSpreads+q, 21+q)
				k.three(0x6e204400, "ushl.16b", 21+q, 21+q, regShifts)
				k.insert(16+2*v+q, 21+q)
			}
		}
	case k.bits == 6:
		k.load2(20, 0, "R7")
		for v := range 2 {
			for q := range 2 {
				high := 22 + q
				switch shift := 4 - 4*p - 2*v; {
				case shift > 0:
					k.op("VSHL $%d, V%d.B16, V%d.B16", shift, 20+q, high)
				case shift == 0:
					high = 20 + q
				default:
					k.op("VUSHR $%d, V%d.B16, V%d.B16", -shift, 20+q, high)
				}
				k.insert(16+2*v+q, high)
			}
		}
		for c := 16; c < 20; c++ {
			k.op("VSUB V%d.B16, V%d.B16, V%d.B16", regShifts, c, c)
		}
	}
}

// insert puts the high bits of n into d.
func (k super) insert(d, n int) { k.three(0x6ea01c00, "bit.16b", d, n, regHigh) }

// multiply multiplies vectors 2p and 2p+1 of a step, each of which four numbers of each row meet.
func (k super) multiply(p int) {
	at := 8 * k.rows * p
	second, index := 20, 0 // where the second four of row 0 are
	switch k.rows {
	case 1:
		k.op("FMOVD %d(R5), F20", at)
		index = 1
	case 2:
		k.load(20, at, "R5")
		index = 2
	case 3: // four bytes of what follows are read too
		k.load(20, at, "R5")
		k.load(21, at+12, "R5")
		second = 21
	default:
		k.load2(20, at, "R5")
		second = 21
	}
	if k.matrix() {
		k.multiplyPairs()
		return
	}
	for r := range k.rows {
		if k.wide() {
			k.op("VDUP V20.S[%d], V22.S4", r)
			k.op("VDUP V%d.S[%d], V23.S4", second, index+r)
		}
		for q := range 2 {
			if k.wide() {
				k.dotWide(4*r+2*q, 16+q)
				continue
			}
			k.element(0x4f80e000, "sdot.4s", 2*r+q, 16+q, 20, r)
			k.element(0x4f80e000, "sdot.4s", 2*r+q, 18+q, second, index+r)
		}
	}
}

// dotWide multiplies codes n and n+2 with V22 and V23, and adds to d and d+1: to sums of 16 bits,
// which have room for the products of a group, but for those of levels only for two.
func (k super) dotWide(d, n int) {
	add, add2 := k.knownThree(0x0e208000, "smlal.8h"), k.knownThree(0x4e208000, "smlal2.8h")
	if !k.levels {
		k.macro("dot.pair.8h", "d, e, n, m", add+"(d, n, 22); "+add2+"(e, n, 22); "+add+"(d, m, 23); "+add2+"(e, m, 23)", d, d+1, n, n+2)
		return
	}
	first, first2 := k.knownThree(0x0e20c000, "smull.8h"), k.knownThree(0x4e20c000, "smull2.8h")
	sum := k.knownTwo(0x4e606800, "sadalp.4s")
	k.macro("dot.pair.4s", "d, e, n, m", first+"(29, n, 22); "+first2+"(30, n, 22); "+add+"(29, m, 23); "+add2+"(30, m, 23); "+
		sum+"(d, 29); "+sum+"(e, 30)", d, d+1, n, n+2)
}

// multiplyPairs does it for four rows two by two, as integer.multiplyPair. Sums 4q+2i and 4q+2i+1 are
// outputs 4q+2i and the next one with rows 0, 1 and 2, 3.
func (k super) multiplyPairs() {
	k.three(0x4e803800, "zip1.4s", 22, 20, 21)
	k.three(0x4e807800, "zip2.4s", 23, 20, 21)
	for q := range 2 {
		k.three(0x4e803800, "zip1.4s", 20, 16+q, 18+q)
		k.three(0x4e807800, "zip2.4s", 21, 16+q, 18+q)
		for i := range 4 {
			k.three(0x4e80a400, "smmla.4s", 4*q+i, 20+i/2, 22+i%2)
		}
	}
}

// scaleGroup adds a group, times its factors, to the superblock.
func (k super) scaleGroup() {
	k.op("FMOVD (R10), F20")
	k.two(0x0f08a400, "sshll.8h #0", 20, 20)
	k.two(0x0f10a400, "sshll.4s #0", 22, 20)
	k.two(0x4f10a400, "sshll2.4s #0", 23, 20)
	switch {
	case k.matrix():
		for q := range 2 {
			k.three(0x4e803800, "zip1.4s", 16+2*q, 22+q, 22+q)
			k.three(0x4e807800, "zip2.4s", 17+2*q, 22+q, 22+q)
		}
		k.eachTotal(func(i int) { k.mla(superSums+i, i, 16+i/2) })
	case k.wide():
		for r := range k.rows {
			k.op("FLDPQ %d(R23), (F20, F21)", atSums+32*r)
			for q := range 2 {
				low := 4*r + 2*q
				if !k.levels {
					k.two(0x4e602800, "saddlp.4s", low, low)
					k.two(0x4e602800, "saddlp.4s", low+1, low+1)
				}
				k.three(0x4ea0bc00, "addp.4s", low, low, low+1)
				k.mla(20+q, low, 22+q)
			}
			k.op("FSTPQ (F20, F21), %d(R23)", atSums+32*r)
		}
	default:
		k.eachTotal(func(i int) { k.mla(superSums+i, i, 22+i%2) })
	}
}

func (k super) mla(d, n, m int) { k.three(0x4ea09400, "mla.4s", d, n, m) }

// least sums the factors of the biases times the sums of the rows, into V16 and on.
func (k super) least() {
	k.op("ADD $%d, R5, R22", 4*k.rows)
	k.op("ADD R13>>2, R23, R10")
	k.op("MOVD R21, R11")
	k.eachTotal(func(i int) { k.zero(16 + i) })
	k.line("least:")
	switch k.rows {
	case 1:
		k.op("FMOVS (R22), F0")
	case 2:
		k.op("FMOVD (R22), F0")
	case 3:
		k.op("FMOVD (R22), F0")
		k.op("ADD $8, R22, R15")
		k.op("VLD1 (R15), V0.S[2]")
	default:
		k.load(0, 0, "R22")
	}
	for g := range 2 {
		k.op("FMOVD %d(R10), F1", 128+16*g)
		k.two(0x2f08a400, "ushll.8h #0", 1, 1)
		for r := range k.rows {
			const operands, bits = "d, n, m, i", "(i&1)<<20|(i>>1&1)<<21|(i>>2)<<11|m<<16|n<<5|d"
			k.word(0x0f402000, "smlal.4s.at", operands, bits, 16+2*r, 1, 0, 2*r+g)
			k.word(0x4f402000, "smlal2.4s.at", operands, bits, 17+2*r, 1, 0, 2*r+g)
		}
	}
	k.op("ADD $%d, R22", 4*k.rows)
	k.op("ADD $32, R10")
	k.op("SUBS $2, R11")
	k.op("BNE least")
}

// finish adds half a superblock to the output.
func (k super) finish() {
	if k.wide() {
		k.totals("FLDPQ %[3]d(R23), (F%[1]d, F%[2]d)")
	}
	k.op("ADD R13>>1, R12, R15")
	k.load(0, 0, "R15")
	k.fcvtl2(1, 0)
	k.fcvtl(0, 0)
	if k.factors() == "K" {
		k.load(2, 32, "R15")
		k.fcvtl2(3, 2)
		k.fcvtl(2, 2)
	}
	k.op("ADD R13, R6, R15")
	for r := range k.rows {
		k.op("FMOVS %d(R5), F4", 4*r)
		k.load2(6, 64*r, "R15")
		for q := range 2 {
			sum := superSums + 2*r + q
			if k.matrix() {
				a := superSums + 4*q + r/2
				sum = 5
				if r%2 == 0 {
					k.three(0x4e801800, "uzp1.4s", sum, a, a+2)
				} else {
					k.three(0x4e805800, "uzp2.4s", sum, a, a+2)
				}
			}
			k.scvtf(sum, sum)
			k.fmul(sum, sum, q)
			if k.factors() == "K" {
				k.scvtf(16+2*r+q, 16+2*r+q)
				k.op("VFMLS V%d.S4, V%d.S4, V%d.S4", 2+q, 16+2*r+q, sum)
			}
			k.fmlaAt(6+q, sum, 4, 0)
		}
		k.op("FSTPQ (F6, F7), %d(R15)", 64*r)
	}
}

// superFactors decodes the factors of a superblock to bytes: 16 of each group, and of Q4_K and Q5_K
// the biases' after those of eight groups.
func superFactors(s *source, kind string) {
	s.line(`// superFactors%s decodes the factors in the tail at R12 to R23: 16 bytes for each of eight groups,
// and if there are biases as many for these. The twin is Weight.smallFactors.
//
//	V0-V3 low bits    V4-V7 high bits    V20-V23, R15 scratch    V24 mask of four bits
TEXT superFactors%s<>(SB), NOSPLIT|NOFRAME, $0`, kind, kind)
	const four = "[V%d.B16, V%d.B16, V%d.B16, V%d.B16]"
	s.op("VMOVI $48, V22.B16")
	if kind == "XS" {
		s.op("ADD $%d, R12, R15", atNibblesXS)
		s.op("VLD4 (R15), "+four, 0, 1, 2, 3)
		s.op("ADD $%d, R12, R15", atPairsXS)
		s.op("VLD2 (R15), [V4.B16, V5.B16]")
		s.op("VMOVI $32, V23.B16")
		s.smallFactors(4, 0, true)
	} else {
		s.op("ADD $%d, R12, R15", atPairsK)
		s.op("VLD4 (R15), "+four, 4, 5, 6, 7)
		for i, at := range []int{atNibblesK, atBiasesK} {
			s.op("ADD $%d, R12, R15", at)
			s.op("VLD4 (R15), "+four, 0, 1, 2, 3)
			s.smallFactors(4+2*i, 128*i, false)
		}
	}
	s.op("RET\n")
}

// smallFactors decodes factors of eight groups: byte i of a row's low bits, in register i, has those
// of groups 2i and 2i+1, that of its high bits, from register high on, those of groups 4i to 4i+3.
func (s *source) smallFactors(high, at int, signed bool) {
	for g := range 8 {
		if g%2 == 0 {
			s.and(20, g/2, regMask)
		} else {
			s.op("VUSHR $4, V%d.B16, V20.B16", g/2)
		}
		from := high + g/4
		switch shift := 4 - 2*(g%4); {
		case shift > 0:
			s.op("VSHL $%d, V%d.B16, V21.B16", shift, from)
			from = 21
		case shift < 0:
			s.op("VUSHR $%d, V%d.B16, V21.B16", -shift, from)
			from = 21
		}
		s.three(0x6ea01c00, "bit.16b", 20, from, 22)
		if signed {
			s.op("VSUB V23.B16, V20.B16, V20.B16")
		}
		s.store(20, at+16*g, "R23")
	}
}
