package main

import "fmt"

// superFormats are the codes of formats with superblocks: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_XS, and grid formats.
var superFormats = []codes{
	{bits: 2},
	{bits: 3},
	{bits: 4},
	{bits: 5},
	{bits: 6},
	{bits: 4, fp4: true, levels: true},
	{bits: 8, grid: true},
}

// super is a kernel for superblocks. With three rows and more it goes through one twice, for half a
// tile each time, so that both the sums of a group and those of the superblock are in registers.
type super struct{ integer }

func (k super) name() string {
	return fmt.Sprintf("super%s%sRows%d", k.best(), k.format(), k.rows)
}

// best is the set whose kernel the set uses. Matrices gain where a group has two steps and codes are short to unpack:
// docs/benchmarks.md has the counts.
func (k super) best() string {
	if k.set == setI8MM && (k.rows < 4 || k.bits != 4) {
		return setDot
	}
	return k.set
}

// span is how many quarters of a tile are multiplied at a time.
func (k super) span() int {
	if k.rows > 2 {
		return 2
	}
	return 4
}

// wide reports whether sums of a group are of 16 bits. They take twice the registers, and those of
// the superblock are in memory.
func (k super) wide() bool { return k.set == setNEON }

// Where sums of a superblock are: in registers from superSums on, or after decoded factors.
const (
	superSums = 8
	atSums    = 512
)

const superComment = `// func %s(a *integerArgs)
//
// The twin is superTile. Nothing need be aligned. Sums of a tile are kept in its output.
//
//	R0 a    R1 superblock    R22 block    R8, R7 its planes    R12 tail    R13 bytes of a vector before this half
//	R2 tiles, R3 groups of the tile, R11 of the superblock, R4 steps left    R21 groups of a superblock
//	R9 the superblock's rows    R5 numbers of them    R14 bytes after these    R6 output
//	R10 factors of the group    R19 second plane    R20 bytes of a block    R23 decoded factors    R15 scratch
//	V0-%s
//	V16-V19 codes    V20-V23 scratch    V24-V31 constants    at the end V16-V23 biases`

func (k super) function() {
	sums := "V7 sums of a group    V8-V15 of the superblock"
	if k.wide() {
		sums = "V15 sums of a group    V8-V15 of the superblock, at its end"
	}
	k.line(superComment, k.name(), sums)
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
	k.op("MOVD $0, R13")
	k.prepare()
	k.line("tile:")
	k.ops("MOVD integerArgs_acts(R0), R9", "MOVD integerArgs_groups(R0), R3")
	if k.grid { // the sums may go on
		k.ops("MOVD integerArgs_more(R0), R15", "CBNZ R15, super")
	}
	k.zero(0)
	for q := range 4 * k.rows {
		k.store(0, 16*q, "R6")
	}
	k.line("super:")
	k.ops("MUL R21, R20, R12", "ADD R1, R12")
	if f := k.factors(); f != "6K" && f != "Grid" {
		k.op("CALL superFactors%s<>(SB)", f)
	}
	if k.span() == 2 {
		k.line("half:")
		k.pass()
		k.ops("EOR $32, R13", "CBNZ R13, half")
	} else {
		k.pass()
	}
	k.ops("ADD R14, R5, R9", "MOVD integerArgs_tail(R0), R15", "ADD R15, R12, R1", "SUBS R21, R3", "BNE super")
	k.ops("MOVD integerArgs_outTile(R0), R15", "ADD R15, R6", "SUBS $1, R2", "BNE tile")
	k.op("RET\n")
}

// Registers of constants.
const (
	regHigh    = 25 // where the high bits of a code go
	regShifts  = 26 // of bytes, which bring the bits of Bits there; or 32
	regSpreads = 27 // as many as quarters
	regMiddle  = 31 // what codes of 3 bits are lower by
)

// prepare loads the constants.
func (k super) prepare() {
	if k.bits < 4 {
		k.constant(k.prefix, "Two", regMask)
	} else {
		k.constant(k.prefix, "Nibble", regMask)
	}
	switch {
	case k.levels:
		k.constant(k.prefix, "Levels", regTable)
	case k.bits == 3 || k.bits == 5:
		k.op("VMOVI $%d, V%d.B16", 1<<(k.bits-1), regHigh)
		if k.bits == 3 {
			k.constant(k.prefix, "Shifts2", regShifts)
			k.op("VMOVI $4, V%d.B16", regMiddle)
		} else {
			k.constant(k.prefix, "Shifts", regShifts)
		}
		for h := range k.span() {
			k.constant(k.prefix, fmt.Sprintf("Spread%d", h), regSpreads+h)
		}
		if k.span() == 2 {
			k.op("VMOVI $4, V%d.B16", regSpreads+2)
		}
	case k.grid:
		k.op("VMOVI $64, V%d.B16", regShifts)
	case k.fourfold():
		k.op("VMOVI $170, V%d.B16", regHigh)
		k.op("VMOVI $252, V%d.B16", regShifts)
	case k.bits == 6:
		k.op("VMOVI $48, V%d.B16", regHigh)
		k.op("VMOVI $32, V%d.B16", regShifts)
	}
}

// fourfold reports whether codes are multiplied by four: the two high bits of 6 are then those of a byte, which makes it signed if the
// first of them is flipped. Sums are exact, and divided as they become floats.
func (k super) fourfold() bool { return k.bits == 6 && !k.wide() }

// steps is how many steps a group has.
func (k super) steps() int {
	if f := k.factors(); f == "6K" || f == "2K" || f == "Grid" {
		return 1
	}
	return 2
}

// pass multiplies a superblock with as much of a tile as goes at a time.
func (k super) pass() {
	k.ops("MOVD R9, R5", "MOVD R1, R22", "MOVD R21, R11")
	if f := k.factors(); f == "6K" || f == "Grid" { // factors are bytes in the tail
		k.op("ADD R13>>2, R12, R10")
		if k.grid {
			k.op("ADD $64, R10")
		} else {
			k.op("ADD $32, R10")
		}
	} else {
		k.op("ADD R13>>2, R23, R10")
	}
	k.eachSum(func(i int) { k.zero(superSums + i) })
	if k.wide() {
		k.sums("FSTPQ (F%[1]d, F%[2]d), %[3]d(R23)")
	}
	k.line("group:")
	k.op("ADD R13, R22, R8")
	switch k.bits {
	case 3, 5:
		k.op("ADD R19, R22, R7")
	case 6:
		k.op("ADD R19, R8, R7")
	}
	k.eachSum(func(i int) {
		k.zero(i)
		if k.wide() {
			k.zero(k.span()*k.rows + i)
		}
	})
	if k.steps() > 1 {
		k.op("MOVD $%d, R4", k.steps())
		k.line("step:")
	}
	first, _ := k.strides()
	for at := 0; at < first && !k.grid; at += 64 {
		k.op("PRFM %d(R8), PLDL1KEEP", 3072+at)
	}
	for p := range 2 {
		for h := 0; h < k.span(); h += 2 {
			k.unpack(p, h)
			k.multiply(p, h)
		}
	}
	k.op("ADD $%d, R5", 16*k.rows)
	if k.steps() > 1 {
		k.advance()
		k.ops("SUBS $1, R4", "BNE step")
	}
	k.op("ADD R20, R22")
	k.scaleGroup()
	k.ops("ADD $16, R10", "SUBS $1, R11", "BNE group")
	if (k.bits == 3 || k.bits == 5) && k.span() == 2 { // the other half's bytes are four further, or before
		for q := range 2 {
			k.op("VEOR V%d.B16, V%d.B16, V%d.B16", regSpreads+2, regSpreads+q, regSpreads+q)
		}
	}
	if k.integer.least() {
		k.least()
	}
	for h := 0; h < k.span(); h += 2 {
		k.finish(h)
	}
}

// eachSum counts the sums: those of the rows' quarters.
func (k super) eachSum(f func(i int)) {
	for i := range k.span() * k.rows {
		f(i)
	}
}

// sums loads or stores the sums of the superblock, two by two.
func (k super) sums(format string) {
	for i := 0; i < k.span()*k.rows; i += 2 {
		k.op(format, superSums+i, superSums+i+1, atSums+16*i)
	}
}

// multiply multiplies these, four numbers of each row meeting a vector.
func (k super) multiply(p, h int) {
	at := 8 * k.rows * p
	second, index := 20, k.rows // where the second four of row 0 are
	if k.rows > 2 {
		second, index = 21, 0
	}
	switch {
	case h > 0 && (k.bits == 4 || k.grid || k.fourfold()): // unpacking has left them
	case k.rows == 1:
		k.op("FMOVD %d(R5), F20", at)
	case k.rows == 2:
		k.load(20, at, "R5")
	case k.rows == 3: // four bytes of what follows are read too
		k.load(20, at, "R5")
		k.load(21, at+12, "R5")
	default:
		k.load2(20, at, "R5")
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
		d := k.span()*r + h
		if k.wide() {
			k.dotWide(2*d, 16)
			k.dotWide(2*d+2, 17)
			continue
		}
		dot := k.knownElement(0x4f80e000, "sdot.4s")
		k.macro("pair."+dot, "d, i, m, j", fmt.Sprintf("%[1]s(d, 16, 20, i); %[1]s((d+1), 17, 20, i); %[1]s(d, 18, m, j); %[1]s((d+1), 19, m, j)", dot),
			d, r, second, index+r)
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

// scaleGroup adds a group, times its factors, to the superblock. Factors go to V20 and on.
func (k super) scaleGroup() {
	if k.span() == 4 {
		k.load(20, 0, "R10")
		k.two(0x4f08a400, "sshll2.8h #0", 22, 20)
		k.two(0x0f08a400, "sshll.8h #0", 20, 20)
	} else {
		k.op("FMOVD (R10), F20")
		k.two(0x0f08a400, "sshll.8h #0", 20, 20)
	}
	for h := 0; h < k.span(); h += 2 {
		k.two(0x4f10a400, "sshll2.4s #0", 21+h, 20+h)
		k.two(0x0f10a400, "sshll.4s #0", 20+h, 20+h)
	}
	switch {
	case k.matrix():
		for q := range 2 {
			k.three(0x4e803800, "zip1.4s", 16+2*q, 20+q, 20+q)
			k.three(0x4e807800, "zip2.4s", 17+2*q, 20+q, 20+q)
		}
		k.eachSum(func(i int) { k.mla(superSums+i, i, 16+i/2) })
	case k.wide():
		k.eachSum(func(i int) {
			if at := atSums + 16*i; i%2 == 0 {
				k.load2(16, at, "R23")
			}
			if !k.levels {
				k.two(0x4e602800, "saddlp.4s", 2*i, 2*i)
				k.two(0x4e602800, "saddlp.4s", 2*i+1, 2*i+1)
			}
			k.three(0x4ea0bc00, "addp.4s", 2*i, 2*i, 2*i+1)
			k.mla(16+i%2, 2*i, 20+i%k.span())
			if i%2 == 1 {
				k.op("FSTPQ (F16, F17), %d(R23)", atSums+16*(i-1))
			}
		})
	default:
		k.eachSum(func(i int) { k.mla(superSums+i, i, 20+i%k.span()) })
	}
}

func (k super) mla(d, n, m int) { k.three(0x4ea09400, "mla.4s", d, n, m) }

// least sums the factors of the biases times the sums of the rows, into V16 and on.
func (k super) least() {
	biases := 128 // after the factors of the scales
	if k.factors() == "2K" {
		biases = 256
	}
	k.op("ADD $%d, R5, R22", 4*k.rows)
	k.ops("ADD R13>>2, R23, R10", "MOVD R21, R11")
	k.eachSum(func(i int) { k.zero(16 + i) })
	k.line("least:")
	switch k.rows {
	case 1:
		k.op("FMOVS (R22), F0")
	case 2:
		k.op("FMOVD (R22), F0")
	case 3:
		k.ops("FMOVD (R22), F0", "ADD $8, R22, R15", "VLD1 (R15), V0.S[2]")
	default:
		k.load(0, 0, "R22")
	}
	for g := range 2 {
		if k.span() == 4 {
			k.load(1, biases+16*g, "R10")
			k.two(0x6f08a400, "ushll2.8h #0", 2, 1)
		} else {
			k.op("FMOVD %d(R10), F1", biases+16*g)
		}
		k.two(0x2f08a400, "ushll.8h #0", 1, 1)
		k.eachSum(func(i int) {
			const operands, bits = "d, n, m, i", "(i&1)<<20|(i>>1&1)<<21|(i>>2)<<11|m<<16|n<<5|d"
			r, h := i/k.span(), i%k.span()
			if h%2 == 0 {
				k.word(0x0f402000, "smlal.4s.at", operands, bits, 16+i, 1+h/2, 0, 2*r+g)
			} else {
				k.word(0x4f402000, "smlal2.4s.at", operands, bits, 16+i, 1+h/2, 0, 2*r+g)
			}
		})
	}
	k.op("ADD $%d, R22", 4*k.rows)
	k.ops("ADD $32, R10", "SUBS $2, R11", "BNE least")
}

// finish adds quarters h and h+1 of what was multiplied to the output.
func (k super) finish(h int) {
	if k.wide() && h == 0 {
		k.sums("FLDPQ %[3]d(R23), (F%[1]d, F%[2]d)")
	}
	if k.grid {
		k.op("ADD R13, R12, R15")
		k.load2(0, 16*h, "R15")
	} else {
		k.op("ADD R13>>1, R12, R15")
		k.load(0, 8*h, "R15")
		k.fcvtl2(1, 0)
		k.fcvtl(0, 0)
	}
	if k.integer.least() {
		k.load(2, 32+8*h, "R15")
		k.fcvtl2(3, 2)
		k.fcvtl(2, 2)
	}
	k.op("ADD R13, R6, R15")
	for r := range k.rows {
		k.op("FMOVS %d(R5), F4", 4*r)
		k.load2(6, 64*r+16*h, "R15")
		for q := range 2 {
			i := k.span()*r + h + q
			sum := superSums + i
			if k.matrix() {
				a := superSums + 4*q + r/2
				sum = 5
				if r%2 == 0 {
					k.three(0x4e801800, "uzp1.4s", sum, a, a+2)
				} else {
					k.three(0x4e805800, "uzp2.4s", sum, a, a+2)
				}
			}
			if k.fourfold() {
				k.two(0x4f3ee400, "scvtf.4s #2", sum, sum)
			} else {
				k.scvtf(sum, sum)
			}
			k.fmul(sum, sum, q)
			if k.integer.least() {
				k.scvtf(16+i, 16+i)
				k.op("VFMLS V%d.S4, V%d.S4, V%d.S4", 2+q, 16+i, sum)
			}
			k.fmlaAt(6+q, sum, 4, 0)
		}
		k.op("FSTPQ (F6, F7), %d(R15)", 64*r+16*h)
	}
}
