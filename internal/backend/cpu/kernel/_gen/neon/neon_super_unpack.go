package main

// unpack puts quarters h and h+1 of vectors 2p and 2p+1 of a step into V16 and V17, V18 and V19.
func (k super) unpack(p, h int) {
	switch {
	case k.grid:
		for v := range 2 {
			k.load2(16+2*v, 128*p+64*v+16*h, "R8")
		}
		for c := 16; c < 20; c++ {
			k.op("VSUB V%d.B16, V%d.B16, V%d.B16", regShifts, c, c)
		}
		return
	case k.fourfold():
		k.sixBitCodes(p, h)
		return
	case k.bits < 4:
		k.twoBits(p, h)
	default:
		k.load2(16, 64*p+16*h, "R8")
		for q := range 2 {
			k.op("VUSHR $4, V%d.B16, V%d.B16", 16+q, 18+q)
			k.and(16+q, 16+q, regMask)
		}
	}
	switch {
	case k.levels:
		for c := 16; c < 20; c++ {
			k.op("VTBL V%d.B16, [V%d.B16], V%d.B16", c, regTable, c)
		}
	case k.bits == 3 || k.bits == 5:
		for v := range 2 {
			k.op("FMOVD %d(R7), F20", 16*p+8*v)
			for q := range 2 {
				k.op("VTBL V%d.B16, [V20.B16], V%d.B16", regSpreads+h+q, 21+q)
				k.three(0x6e204400, "ushl.16b", 21+q, 21+q, regShifts)
				k.insert(16+2*v+q, 21+q)
			}
		}
		for c := 16; k.bits == 3 && c < 20; c++ {
			k.op("VSUB V%d.B16, V%d.B16, V%d.B16", regMiddle, c, c)
		}
	case k.bits == 6:
		k.load2(20, 16*h, "R7")
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

// twoBits is the part of unpack for a first plane of 2 bits, of which one vector has four.
func (k super) twoBits(p, h int) {
	k.load2(20, 16*h, "R8")
	for q := range 2 {
		if p == 0 {
			k.and(16+q, 20+q, regMask)
			k.op("VUSHR $2, V%d.B16, V%d.B16", 20+q, 18+q)
			k.and(18+q, 18+q, regMask)
		} else {
			k.op("VUSHR $4, V%d.B16, V%d.B16", 20+q, 16+q)
			k.and(16+q, 16+q, regMask)
			k.op("VUSHR $6, V%d.B16, V%d.B16", 20+q, 18+q)
		}
	}
}

// sixBitCodes is unpack for codes times four. The second plane stays in registers for both p.
func (k super) sixBitCodes(p, h int) {
	if p == 0 {
		k.load2(regSpreads+h, 16*h, "R7")
		for q := range 2 {
			k.op("VEOR V%d.B16, V%d.B16, V%d.B16", regHigh, regSpreads+h+q, regSpreads+h+q)
		}
	}
	k.load2(22, 64*p+16*h, "R8")
	for q := range 2 {
		k.op("VSHL $%d, V%d.B16, V%d.B16", 6-4*p, regSpreads+h+q, 16+q)
		k.op("VSHL $%d, V%d.B16, V%d.B16", 4-4*p, regSpreads+h+q, 18+q)
		k.op("VSRI $2, V%d.B16, V%d.B16", 22+q, 18+q)
		k.op("VSHL $4, V%d.B16, V%d.B16", 22+q, 22+q)
		k.op("VSRI $2, V%d.B16, V%d.B16", 22+q, 16+q)
		k.and(18+q, 18+q, regShifts)
	}
}

// insert puts the high bits of n into d.
func (k super) insert(d, n int) { k.three(0x6ea01c00, "bit.16b", d, n, regHigh) }
