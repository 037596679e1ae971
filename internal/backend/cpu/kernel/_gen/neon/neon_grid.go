package main

// grid is a grid format: see kernel.GridPlaces.
type grid struct {
	*source
	name                  string
	entry, high, signs    int
	seven                 bool
	factors, halves, size int
	bits                  int // of an index above the low eight, with the delta of IQ1_M
	per                   int // indices that share a number of high bits
	mask                  int // of high bits
	scale                 int // bits of a float32 that scales are multiplied by
	groups                int // of factors
}

var grids = []grid{
	{name: "IQ1S", entry: 8, high: 512, halves: 768, size: 800, bits: 3, per: 4, mask: 7, scale: 0x3e000000},
	{name: "IQ1M", entry: 8, high: 512, factors: 768, size: 896, bits: 4, per: 4, mask: 7, scale: 0x3e000000},
	{name: "IQ2XXS", entry: 8, signs: 512, seven: true, factors: 960, halves: 1024, size: 1056, scale: 0x3e000000, groups: 8},
	{name: "IQ2XS", entry: 8, high: 1088, signs: 512, seven: true, factors: 960, halves: 1152, size: 1184, bits: 1, per: 8, mask: 1, scale: 0x3e000000, groups: 16},
	{name: "IQ2S", entry: 8, high: 1152, signs: 512, factors: 1024, halves: 1280, size: 1312, bits: 2, per: 4, mask: 3, scale: 0x3e000000, groups: 16},
	{name: "IQ3XXS", entry: 4, signs: 1024, seven: true, factors: 1472, halves: 1536, size: 1568, scale: 0x3e800000, groups: 8},
	{name: "IQ3S", entry: 4, high: 1600, signs: 1024, factors: 1536, halves: 1728, size: 1760, bits: 1, per: 8, mask: 1, scale: 0x3f800000, groups: 8},
}

// Of an expanded superblock.
const (
	gridCodes     = 4096
	atGridFactors = gridCodes + 64
	expandedSize  = atGridFactors + 256
)

const gridComment = `// func expand%sNEON(a *expandArgs)
//
// The twin is Weight.expandSuper. Entries of the table are copied one by one, and signs applied afterwards.
//
//	R0 a    R1 expanded superblock    R2 superblock    R3 table    R4 superblocks left
//	R5 to R14, R19 to R22: scratch    V24 on: constants`

func gridFile(s *source) {
	s.define("grid", "Nibble", "Bits", "Spread0", "Spread1", "Spread2", "Spread3", "Sign8", "One8")
	for _, g := range grids {
		g.source = s
		g.function()
	}
}

// ones reports whether the format has deltas instead of signs.
func (k grid) ones() bool { return k.signs == 0 }

func (k grid) function() {
	k.line(gridComment, k.name)
	k.line("TEXT ·expand%sNEON(SB), NOSPLIT, $0-8", k.name)
	k.op("MOVD a+0(FP), R0")
	for i, f := range []string{"dst", "src", "table", "count"} {
		k.op("MOVD expandArgs_%s(R0), R%d", f, 1+i)
	}
	for i, c := range []string{"Nibble", "Bits", "Spread0", "Spread1", "Spread2", "Spread3", "Sign8", "One8"} {
		k.constant("grid", c, 24+i)
	}
	k.line("super:")
	if k.high > 0 {
		k.indices()
	}
	k.copyEntries()
	k.factorBytes()
	k.scales()
	if k.ones() {
		k.deltas()
	} else {
		if k.seven {
			k.evenSigns()
		} else {
			k.op("ADD $%d, R2, R5", k.signs)
		}
		k.applySigns()
	}
	k.op("ADD $%d, R2", k.size)
	k.op("ADD $%d, R1", expandedSize)
	k.ops("SUBS $1, R4", "BNE super")
	k.op("RET\n")
}

// words sets a register to a number in all words of 16 bits.
func (k grid) words(x, d int) {
	k.op("MOVD $%d, R15", x)
	k.op("VDUP R15, V%d.H8", d)
}

// indices writes whole indices to the arguments, 16 bits each.
func (k grid) indices() {
	k.words(k.mask<<8, 8)
	k.op("ADD $%d, R2, R5", k.high)
	k.ops("MOVD R2, R6", "MOVD $expandArgs_indices, R7", "ADD R0, R7")
	k.op("MOVD $%d, R8", 256/k.entry/k.per)
	k.line("indices:")
	if k.ones() {
		k.load2(0, 0, "R5")
		k.op("ADD $32, R5")
	} else {
		k.load(1, 0, "R5")
		k.ops("VUXTL V1.B8, V0.H8", "VUXTL2 V1.B16, V1.H8", "ADD $16, R5")
	}
	for i := range k.per {
		k.load(3, 16*i, "R6")
		k.ops("VUXTL V3.B8, V2.H8", "VUXTL2 V3.B16, V3.H8")
		for h := range 2 {
			from := 4 + h
			switch left := 8 - k.bits*i; {
			case left > 0:
				k.op("VSHL $%d, V%d.H8, V%d.H8", left, h, from)
			case left < 0:
				k.op("VUSHR $%d, V%d.H8, V%d.H8", -left, h, from)
			default:
				from = h
			}
			k.and(4+h, from, 8)
			k.or(2+h, 2+h, 4+h)
			k.store(2+h, 32*i+16*h, "R7")
		}
	}
	k.op("ADD $%d, R6", 16*k.per)
	k.op("ADD $%d, R7", 32*k.per)
	k.ops("SUBS $1, R8", "BNE indices")
}

// copyEntries copies the entries of 16 rows, index after index.
func (k grid) copyEntries() {
	size, load := 1, "MOVBU"
	k.op("MOVD R2, R6")
	if k.high > 0 {
		size, load = 2, "MOVHU"
		k.ops("MOVD $expandArgs_indices, R6", "ADD R0, R6")
	}
	k.op("MOVD R1, R7")
	k.op("MOVD $%d, R8", 256/k.entry)
	k.line("entries:")
	for r := range 16 {
		x := []string{"R9", "R10", "R11", "R12"}[r%4]
		k.op("%s %d(R6), %s", load, size*r, x)
		if k.entry == 4 {
			k.op("MOVWU (R3)(%s<<2), %s", x, x)
			k.op("MOVW %s, %d(R7)", x, 4*r)
			continue
		}
		k.op("MOVD (R3)(%s<<3), %s", x, x)
		k.op("MOVW %s, %d(R7)", x, 4*r)
		k.op("LSR $32, %s", x)
		k.op("MOVW %s, %d(R7)", x, 64+4*r)
	}
	k.op("ADD $%d, R6", 16*size)
	k.op("ADD $%d, R7", 16*k.entry)
	k.ops("SUBS $1, R8", "BNE entries")
}

// factorBytes writes the factors, 2f+1.
func (k grid) factorBytes() {
	odd := func(g, groups int) {
		k.op("VADD V0.B16, V0.B16, V0.B16")
		k.or(0, 0, 31)
		for i := range groups {
			k.store(0, atGridFactors+16*(g+i), "R1")
		}
	}
	words := func(at, right, g, groups int) {
		k.load2(0, at, "R2")
		for h := range 2 {
			if right > 0 {
				k.op("VUSHR $%d, V%d.H8, V%d.H8", right, h, h)
			}
			k.and(h, h, 8)
		}
		k.op("VUZP1 V1.B16, V0.B16, V0.B16")
		odd(g, groups)
	}
	switch k.name {
	case "IQ1S":
		k.words(7, 8)
		for h := range 8 {
			words(k.high+32*h, 12, 2*h, 2)
		}
	case "IQ1M":
		k.words(7, 8)
		for g := range 16 {
			words(k.factors+32*(g/4), 3*(g%4), g, 1)
		}
	default:
		for g := range k.groups {
			k.op("FMOVD %d(R2), F0", k.factors+8*g)
			k.op("VUSHR $4, V0.B16, V1.B16")
			k.and(0, 0, 24)
			k.op("VZIP1 V1.B16, V0.B16, V0.B16")
			odd(g*16/k.groups, 16/k.groups)
		}
	}
}

// scales writes the scales.
func (k grid) scales() {
	if k.name == "IQ1M" {
		for i := range 4 {
			k.load2(2, k.factors+32*i, "R2")
			for h := range 2 {
				k.op("VUSHR $12, V%d.H8, V%d.H8", 2+h, 2+h)
				if i == 0 {
					k.or(h, 2+h, 2+h)
					continue
				}
				k.op("VSHL $%d, V%d.H8, V%d.H8", 4*i, 2+h, 2+h)
				k.or(h, h, 2+h)
			}
		}
	} else {
		k.load2(0, k.halves, "R2")
	}
	k.op("MOVD $%d, R15", k.scale)
	k.op("VDUP R15, V4.S4")
	for h := range 2 {
		k.fcvtl(2, h)
		k.fcvtl2(3, h)
		for i := range 2 {
			k.fmul(2+i, 2+i, 4)
			k.store(2+i, gridCodes+32*h+16*i, "R1")
		}
	}
}

// deltas subtracts two where there is one.
func (k grid) deltas() {
	k.op("VADD V31.B16, V31.B16, V9.B16")
	k.op("ADD $%d, R2, R5", k.high)
	k.ops("MOVD R1, R7", "MOVD $8, R8")
	k.line("deltas:")
	for q := range 4 { // four rows
		k.op("FMOVD %d(R5), F0", 8*q)
		k.op("VUXTL V0.H4, V0.S4")
		for n := range 4 {
			if n == 0 || k.name == "IQ1M" {
				left := 16
				if k.name == "IQ1M" {
					left = 31 - (4*n + 3)
				}
				k.op("VSHL $%d, V0.S4, V1.S4", left)
				k.two(0x4f210400, "sshr.4s #31", 1, 1)
				k.and(1, 1, 9)
			}
			for i := range 2 {
				at := 64*(2*n+i) + 16*q
				k.load(2, at, "R7")
				k.op("VSUB V1.B16, V2.B16, V2.B16")
				k.store(2, at, "R7")
			}
		}
	}
	k.ops("ADD $32, R5", "ADD $512, R7", "SUBS $1, R8", "BNE deltas")
}

// evenSigns writes all signs to the arguments, at R5: of every eighth column too, and of the last eight of 32.
func (k grid) evenSigns() {
	for i, x := range []uint64{0x77, 0x11, 0x22, 0x44} {
		k.op("MOVD $%d, R15", x)
		k.op("VDUP R15, V%d.B16", 16+i)
	}
	k.ops("MOVD $expandArgs_signs, R5", "ADD R0, R5")
	k.op("ADD $%d, R2, R6", k.signs)
	k.op("MOVD $4, R8")
	k.line("even:")
	for i := range 7 {
		k.load(i, 64*i, "R6")
	}
	for i := range 3 { // the last eight of 32
		k.op("VUSHR $%d, V%d.D2, V8.D2", 3-i, 4+i)
		k.and(8, 8, 17+i)
		if i == 0 {
			k.or(7, 8, 8)
		} else {
			k.or(7, 7, 8)
		}
	}
	for n := range 4 {
		if n < 3 {
			k.and(4+n, 4+n, 16)
		}
		k.op("VEOR V%d.B16, V%d.B16, V8.B16", n, 4+n)
		for i := 2; i > 0; i-- {
			k.op("VUSHR $%d, V8.D2, V9.D2", i)
			k.op("VEOR V9.B16, V8.B16, V8.B16")
		}
		k.and(8, 8, 17)
		k.op("VSHL $3, V8.D2, V8.D2")
		k.or(4+n, 4+n, 8)
		k.store(n, 64*n, "R5")
		k.store(4+n, 64*(4+n), "R5")
	}
	k.ops("ADD $16, R5", "ADD $16, R6", "SUBS $1, R8", "BNE even", "SUB $64, R5")
}

// applySigns negates codes. R5 is at the signs.
func (k grid) applySigns() {
	k.ops("MOVD R1, R7", "MOVD $8, R8")
	k.line("signs:")
	for v := range 8 {
		k.op("FMOVD %d(R5), F0", 64*(4*(v%2)+v/2))
		for q := range 4 {
			k.op("VTBL V%d.B16, [V0.B16], V1.B16", 26+q)
			k.op("VCMTST V25.B16, V1.B16, V1.B16")
			k.load(2, 64*v+16*q, "R7")
			k.op("VSUB V2.B16, V30.B16, V3.B16")
			k.three(0x6ea01c00, "bit.16b", 2, 3, 1)
			k.store(2, 64*v+16*q, "R7")
		}
	}
	k.ops("ADD $8, R5", "ADD $512, R7", "SUBS $1, R8", "BNE signs")
}

// gridTable is the Go side of the expanders.
func gridTable() []byte {
	s := &source{}
	s.line("// Code generated by _gen/neon; DO NOT EDIT.\n\n//go:build !noasm\n\npackage kernel\n")
	s.line("// expandNEON are the expanders of the formats, in their order.")
	s.line("var expandNEON = [len(gridPlaces)]func(a *expandArgs){")
	for _, g := range grids {
		s.line("expand%sNEON,", g.name)
	}
	s.line("}")
	return s.formatted()
}
