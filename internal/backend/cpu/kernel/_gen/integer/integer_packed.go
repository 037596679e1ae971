package main

// packedKernel is the kernel of a format and m rows.
func packedKernel(s *source, f codes, vnni bool, m int) panelKernel {
	k := panelKernel{s, f.panelKind(), m, &unpackPanel{avx2Kernel{source: s, codes: f, vnni: vnni, m: m}}}
	if vnni {
		k.kind = "Panel"
	}
	return k
}

// writePacked writes a kernel that reads packed codes.
func (k panelKernel) writePacked() {
	p := k.packed
	k.kernel("integer%s%sRows%d", 0, setName(p.vnni), p.name, k.m)
	k.op("MOVQ a+0(FP), AX")
	k.arg("weights", "R8")
	k.arg("out", "R9")
	k.arg("tiles", "R10")
	k.ops("SHRQ $1, R10", "JZ last")
	k.arg("tileBytes", "R11")
	k.op("IMULQ R10, R11")
	k.arg("outTile", "R12")
	k.ops("IMULQ R10, R12", "MOVQ R12, integerArgs_outSecond(AX)")
	k.line("tile:")
	k.arg("acts", "DX")
	k.arg("groups", "R12")
	k.clearOut()
	if p.factors() != "" {
		k.ops("CMPQ integerArgs_scale(AX), $const_scaleFactors", "JEQ super")
	}
	k.op("LEAQ integerTimes<>(SB), R14")
	k.line("group:")
	k.arg("decoded", "BX")
	k.op("ADDQ $%d, BX", superSums+factorTile)
	p.scalesOut()
	k.line("scalesOut:")
	k.arg("decoded", "R13")
	k.op("ADDQ $%d, R13", superSums)
	if k.strips() {
		k.arg("strips", "CX")
		k.op("MOVQ CX, integerArgs_stripsLeft(AX)")
		k.line("strip:")
	}
	k.op("XORL R15, R15")
	k.line("codes:")
	k.ops("MOVQ DX, BX", "MOVQ R8, SI")
	if p.high() > 0 {
		k.arg("plane", "DI")
		k.op("ADDQ R8, DI")
	}
	k.arg("steps", "CX")
	k.dots()
	if p.factors() != "" {
		k.ops("CMPQ integerArgs_scale(AX), $const_scaleFactors", "JEQ factors")
	}
	k.op("LEAQ %d(R13), SI", factorTile)
	k.scale()
	k.line("added:")
	if k.strips() {
		k.ops("DECQ integerArgs_stripsLeft(AX)", "JZ strips", "ADDQ integerArgs_actStrip(AX), DX")
		k.op("ADDQ $%d, R9", 64*k.m)
		k.op("JMP strip")
		k.line("strips:")
		k.ops("SUBQ integerArgs_actsBack(AX), DX", "SUBQ integerArgs_outBack(AX), R9")
	}
	k.bothTiles("group", "passed")
	k.line("passed:")
	if k.strips() {
		k.op("SUBQ integerArgs_actsBack(AX), BX")
	}
	k.op("LEAQ %d(BX), DX", 12*k.m)
	k.ops("ADDQ integerArgs_block(AX), R8", "DECQ R12", "JNZ group")
	k.line("tileEnd:")
	k.ops("ADDQ integerArgs_outTile(AX), R9", "DECQ R10", "JNZ tile", "ADDQ R11, R8", "ADDQ integerArgs_outSecond(AX), R9")
	k.line("last:")
	k.ops("TESTQ $1, integerArgs_tiles(AX)", "JZ end", "DECQ integerArgs_tiles(AX)", "XORL R11, R11")
	k.ops("MOVQ R11, integerArgs_outSecond(AX)", "MOVQ $1, R10", "JMP tile")
	k.line("end:")
	k.ops("VZEROUPPER", "RET")
	k.otherScales()
	if p.factors() != "" {
		k.superGroups()
	}
	k.line("")
}

// strips reports whether a kernel of packed codes multiplies several strips.
func (k panelKernel) strips() bool { return k.packed != nil && k.m > 2 }

// clearOut sets the output of two tiles to zero.
func (k panelKernel) clearOut() {
	k.ops("VPXOR Y0, Y0, Y0", "MOVQ R9, SI")
	if k.strips() {
		k.arg("strips", "CX")
		k.line("clear:")
	}
	k.ops("MOVQ SI, DI", "ADDQ integerArgs_outSecond(AX), DI")
	for i := range 2 * k.m {
		k.op("VMOVUPS Y0, %d(SI)", 32*i)
		k.op("VMOVUPS Y0, %d(DI)", 32*i)
	}
	if k.strips() {
		k.op("ADDQ $%d, SI", 64*k.m)
		k.ops("DECQ CX", "JNZ clear")
	}
}

// bothTiles goes on with a group of the second tile after that of the first, and then to the first again.
func (k panelKernel) bothTiles(next, passed string) {
	k.op("TESTQ R11, R11")
	k.op("JZ %s", passed)
	k.op("XORQ $1, integerArgs_panelHalf(AX)")
	k.op("JZ %sBack", next)
	k.ops("ADDQ R11, R8", "ADDQ integerArgs_outSecond(AX), R9")
	k.op("JMP %s", next)
	k.line("%sBack:", next)
	k.ops("SUBQ R11, R8", "SUBQ integerArgs_outSecond(AX), R9")
}

// superGroups is what packed codes of superblocks have in place of scales.
func (k panelKernel) superGroups() {
	p := k.packed
	k.line("super:")
	k.op("MOVL $2, CX")
	k.op("CALL integerFactors%sAVX2<>(SB)", p.factors())
	k.arg("decoded", "R14")
	k.op("LEAQ %d(R14), R13", superSums)
	k.op("XORL R15, R15")
	k.arg("per", "CX")
	k.ops("MOVQ CX, integerArgs_nextLeft(AX)", "JMP codes")
	k.line("tiles:") // the second
	k.op("ADDQ $%d, R13", factorTile)
	k.op("ADDQ $%d, R14", factorTile)
	k.op("JMP codes")
	k.factors()
	k.bothTiles("tiles", "superPassed")
	k.op("SUBQ $%d, R13", factorTile)
	k.op("SUBQ $%d, R14", factorTile)
	k.line("superPassed:")
	k.ops("MOVL $1, R15", "ADDQ $64, R14", "MOVQ BX, DX", "ADDQ integerArgs_block(AX), R8", "DECQ integerArgs_nextLeft(AX)")
	k.op("JNZ codes")
	k.op("MOVL $%d, CX", k.m)
	k.op("CALL integerSuper%s<>(SB)", p.factors()+"AVX2")
	k.ops("JNZ super", "JMP tileEnd")
}

// packedParts is planes for packed codes. Of those of 8 bits it multiplies the low halves first and then the high ones.
func (k panelKernel) packedParts() {
	for plane := range k.packed.split() {
		if plane > 0 {
			k.put()
			k.ops("MOVQ DX, BX", "MOVQ R8, SI")
			k.arg("steps", "CX")
		}
		k.line("part%d:", plane)
		k.op("CMPQ CX, $1")
		k.op("JEQ half%d", plane)
		k.quarters(8, plane)
		k.op("ADDQ $%d, BX", 32*k.m)
		k.op("SUBQ $2, CX")
		k.line("widen%d:", plane)
		k.times()
		if plane > 0 {
			k.each(func(_, _ int, sum string) { k.op("VPSLLD $4, %[1]s, %[1]s", sum) })
		} else {
			k.op("TESTQ R15, R15")
			k.op("JZ first%d", plane)
		}
		k.addSums()
		k.line("first%d:", plane)
		k.op("TESTQ CX, CX")
		k.op("JZ whole%d", plane)
		k.put()
		k.op("MOVL $1, R15")
		k.op("JMP part%d", plane)
		k.line("half%d:", plane)
		k.quarters(4, plane)
		k.op("ADDQ $%d, BX", 16*k.m)
		k.op("XORL CX, CX")
		k.op("JMP widen%d", plane)
		k.line("whole%d:", plane)
	}
}

// unpackBoth unpacks a plane of vectors v and v+1, of the first half to Y8 and Y9 and of the second to Y10 and Y11.
func (k panelKernel) unpackBoth(v, plane int) {
	p := k.packed
	if p.m = k.m; plane > 0 { // memory has been asked for what follows
		p.m = 0
	}
	for h := range 2 {
		p.half, p.at = h, 2*h-4
		p.unpack(v)
	}
	for i := 8; i < 12 && p.split() == 2; i++ {
		if plane > 0 {
			k.op("VPSRLW $4, Y%[1]d, Y%[1]d", i)
		}
		k.op("VPAND integerLow4<>(SB), Y%[1]d, Y%[1]d", i)
	}
}

// nextStep goes on with the next 16 columns of packed codes.
func (k panelKernel) nextStep() {
	k.op("ADDQ $%d, SI", step16(k.packed.low()))
	if k.packed.high() > 0 {
		k.op("ADDQ $%d, DI", step16(k.packed.high()))
	}
}

// packedPairs multiplies vectors v and v+1 of both halves.
func (k panelKernel) packedPairs(v int) {
	for m := range k.m {
		k.op("VPBROADCASTD %d(BX), Y12", 4*(v*k.m+m))
		k.op("VPBROADCASTD %d(BX), Y13", 4*((v+1)*k.m+m))
		for h := range 2 {
			k.op("VPMADDUBSW Y12, Y%d, Y14", 8+2*h)
			k.op("VPMADDUBSW Y13, Y%d, Y15", 9+2*h)
			k.op("VPADDW Y15, Y14, Y14")
			k.op("VPMADDWD %d(R14), Y14, Y14", 32*h)
			k.op("VPADDD Y14, %[1]s, %[1]s", k.sum(h, m))
		}
	}
}

// factors adds the sums of a group to those of the superblock.
func (k panelKernel) factors() {
	k.line("factors:")
	if k.kind == "Panel" {
		for h := range 2 {
			k.op("VMOVDQU %d(R14), Y%d", 32*h, 14+h)
			k.op("VPSRAD $16, Y%[1]d, Y%[1]d", 14+h)
		}
		k.each(func(h, _ int, sum string) { k.op("VPMULLD Y%d, %s, %s", 14+h, sum, sum) })
	}
	if k.kind != "Plain" { // which has added them
		k.ops("TESTQ R15, R15", "JZ begin")
		k.each(func(h, m int, sum string) { k.op("VPADDD %d(R13), %s, %s", 64*m+32*h, sum, sum) })
		k.line("begin:")
	}
	k.put()
}
