package main

import "fmt"

// sum scales the products of a turn before and adds them.
func (k amxKernel) sum(turn int) {
	group := (turn + amxPanel - amxLag) % amxPanel
	end := sprint("added%d", turn)
	if turn < amxLag { // of the run before
		k.op("CMPQ integerArgs_addGroups(AX), $%d", group)
		k.op("JLE %s", end)
	} else {
		k.nextSums()
	}
	k.arg("rows", "R14")
	k.op("MOVQ R15, R13")
	sums := 4 // scaled
	if k.form == amxPoints {
		sums = 8 // negative
	}
	k.op("LEAQ (R13)(R14*%d), SI", sums)
	k.op("MOVQ integerArgs_slotAt+%d(AX), DI", 8*group)
	k.op("VMOVUPS (DI)(R10*1), Z16")
	if k.form != amxSigned {
		k.op("VMOVUPS 64(DI)(R10*1), Z17")
	}
	k.rows(sprint("row%dOf", turn), func(m int) { k.addRow(group, m, "SI", 0) })
	k.op("ADDQ integerArgs_actGroup(AX), R15")
	k.line("%s:", end)
}

// nextSums stores the sums of a run and begins with those of the next, if there is one.
func (k amxKernel) nextSums() {
	k.arg("rows", "R14")
	k.ops("CMPQ integerArgs_addGroups(AX), $0", "JEQ summed")
	k.arg("addOut", "R13")
	k.rows("storeOf", func(m int) { k.op("VMOVUPS Z%d, %d(R13)", m, 64*m) })
	k.line("summed:")
	k.set("R12", "addGroups")
	k.ops("TESTQ R12, R12", "JEQ done")
	k.arg("panelScales", "R10")
	k.arg("stripActs", "R15")
	k.op("ADDQ integerArgs_actTail(AX), R15")
	k.arg("stripOut", "R13")
	k.set("R13", "addOut")
	k.ops("CMPQ integerArgs_panelMore(AX), $0", "JNE more")
	for m := range amxHeight {
		k.op("VPXORD Z%d, Z%d, Z%d", m, m, m)
	}
	k.op("JMP begun")
	k.line("more:")
	k.rows("loadOf", func(m int) { k.op("VMOVUPS %d(R13), Z%d", 64*m, m) })
	k.line("begun:")
}

// rows does something for every row there is. R14 is their number. The last comes first, so that 16 rows need one
// comparison.
func (k amxKernel) rows(name string, do func(m int)) {
	for m := amxHeight; m > amxLeast; m-- {
		k.op("CMPQ R14, $%d", m)
		k.op("JEQ %s%d", name, m)
	}
	k.op("JMP %s%d", name, amxLeast)
	for m := amxHeight; m > 0; m-- {
		if m >= amxLeast {
			k.line("%s%d:", name, m)
		}
		do(m - 1)
	}
}

// addRow scales row m of the products of number i and adds them; sums has the row sums of the activations. Every
// fourth is converted by an instruction on the port that multiplies, which keeps both ports equally busy.
func (k amxKernel) addRow(i, m int, sums string, offset int) {
	t := fmt.Sprintf("Z%d", 18+m%4)
	if m%4 == 0 && k.form != amxPoints {
		k.op("VCVTDQ2PS %d(R11), %s", 1024*i+64*m, t)
	} else {
		k.op("VPADDD %d(R11), Z22, %s", 1024*i+64*m, t)
		if k.form == amxPoints {
			k.op("VPDPWSSD.BCST %d(%s), Z17, %s", offset+4*m, sums, t)
		}
		k.op("VSUBPS Z22, %[1]s, %[1]s", t)
	}
	k.op("VMULPS.BCST %d(R13), %s, %s", 4*m, t, t)
	k.op("VFMADD231PS Z16, %s, Z%d", t, m)
	if k.form == amxBiased {
		k.op("VFMADD231PS.BCST %d(%s), Z17, Z%d", offset+4*m, sums, m)
	}
}

// magic loads 1.5*2^23, which makes a float32 of an integer that is added to its bits, below 2^22: what is
// left when it is subtracted again. While tiles are in use, that is two more instructions on a port that
// rests instead of one on the port that has all multiplications.
func (k amxKernel) magic(scratch, z string) {
	k.op("MOVL $0x4b400000, %s", scratch)
	k.op("VPBROADCASTD %s, %s", scratch, z)
}
