package main

import "fmt"

// sum scales the products of the strips and adds them.
func (k amxKernel) sum() {
	k.arg("stripsNow", "R8")
	k.op("SUBQ R8, integerArgs_stripsLeft(AX)")
	k.op("MOVQ R8, BX")
	k.op("SHLQ $11, BX")
	k.arg("products", "R9")
	k.arg("stripActs", "DX")
	k.arg("stripOut", "R15")
	k.arg("rows", "R14")
	k.line("add:")
	k.add("first", 0)
	k.op("CMPQ integerArgs_second(AX), $0")
	k.op("JEQ alone")
	k.op("ADDQ integerArgs_outSecond(AX), R15")
	k.add("second", 1)
	k.op("SUBQ integerArgs_outSecond(AX), R15")
	k.line("alone:")
	k.op("ADDQ integerArgs_actStrip(AX), DX")
	k.op("MOVQ R14, R10")
	k.op("SHLQ $6, R10")
	k.op("ADDQ R10, R15")
	k.op("ADDQ $2048, R9")
	k.op("DECQ R8")
	k.op("JNZ add")
	k.set("DX", "stripActs")
	k.set("R15", "stripOut")
}

// rows does something for every row there is. R14 is their number.
func (k amxKernel) rows(end string, do func(m int)) {
	for m := range amxHeight {
		if m >= amxLeast {
			k.op("CMPQ R14, $%d", m)
			k.op("JEQ %s", end)
		}
		do(m)
	}
	k.line("%s:", end)
}

// add scales the products of a strip and a tile and adds them to the sums at R15.
func (k amxKernel) add(name string, tile int) {
	k.op("CMPQ integerArgs_panelMore(AX), $0")
	k.op("JNE %sMore", name)
	for m := range amxHeight {
		k.op("VPXORD Z%d, Z%d, Z%d", m, m, m)
	}
	k.op("JMP %sBegun", name)
	k.line("%sMore:", name)
	k.rows(name+"Begun", func(m int) { k.op("VMOVUPS %d(R15), Z%d", 64*m, m) })
	k.arg("panelSlots", "R10")
	k.op("ADDQ integerArgs_slotTail(AX), R10")
	if tile == 1 {
		k.op("ADDQ $const_amxSlotBytes, R10")
	}
	k.op("LEAQ %d(R9), R11", 1024*tile)
	k.op("MOVQ DX, R13")
	k.op("ADDQ integerArgs_actTail(AX), R13")
	k.arg("panelGroups", "R12")
	k.arg("block", "DI")
	k.op("CMPQ DX, integerArgs_panelActs(AX)")
	k.op("JEQ %sAsk", name) // the first strip of the panel
	k.op("XORL DI, DI")
	k.op("CMPQ R14, $%d", amxHeight)
	k.op("JEQ %sHigh", name)
	k.line("%sAsk:", name)
	k.arg("nextBlock", "CX")
	if tile == 1 {
		k.op("ADDQ integerArgs_second(AX), CX")
	}
	k.addGroups(name, k.rows, true)
	k.op("JMP %sAdded", name)
	k.line("%sHigh:", name)
	k.addGroups(name+"High", allRows, false)
	k.line("%sAdded:", name)
	k.rows(name+"Stored", func(m int) { k.op("VMOVUPS Z%d, %d(R15)", m, 64*m) })
}

// addGroups adds the groups of a panel, for some rows, and asks memory for DI bytes at CX of each
// group of the next.
func (k amxKernel) addGroups(name string, rows func(end string, do func(m int)), ask bool) {
	k.line("%sGroup:", name)
	k.op("VMOVUPS (R10), Z16")
	if !k.signed {
		k.op("VMOVUPS 64(R10), Z17")
	}
	k.op("LEAQ (R13)(R14*4), SI")
	rows(name+"Rows", func(m int) {
		if ask {
			k.askLine(name, m)
		}
		k.addRow(m, "SI", 0)
	})
	k.op("ADDQ integerArgs_actGroup(AX), R13")
	k.op("ADDQ integerArgs_slot(AX), R10")
	k.op("ADDQ BX, R11")
	if ask {
		k.op("ADDQ DI, CX")
	}
	k.op("DECQ R12")
	k.op("JNZ %sGroup", name)
}

// addRow scales the products of row m and adds them; sums has the row sums of the activations.
func (k amxKernel) addRow(m int, sums string, offset int) {
	t := fmt.Sprintf("Z%d", 18+m%4)
	k.op("VPADDD %d(R11), Z22, %s", 64*m, t)
	k.op("VSUBPS Z22, %[1]s, %[1]s", t)
	k.op("VMULPS.BCST %d(R13), %s, %s", 4*m, t, t)
	k.op("VFMADD231PS Z16, %s, Z%d", t, m)
	if !k.signed {
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

// allRows does something for as many rows as a strip can have.
func allRows(_ string, do func(m int)) {
	for m := range amxHeight {
		do(m)
	}
}

// askLine asks for a line of the block at CX.
func (k amxKernel) askLine(name string, line int) {
	if line >= amxLeast {
		return
	}
	k.op("CMPQ DI, $%d", 128*line)
	k.op("JLE %sAsked%d", name, line)
	k.op("PREFETCHT1 %d(CX)", ahead+128*line)
	k.line("%sAsked%d:", name, line)
}
