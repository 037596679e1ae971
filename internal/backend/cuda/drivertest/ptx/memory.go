package ptx

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

var stored = []typ{typeB8, typeU8, typeS8, typeB16, typeU16, typeS16, typeB32, typeU32, typeS32, typeB64, typeU64, typeS64, typeF32, typeF64}

var spaces = map[string]space{"": spaceGeneric, "global": spaceGlobal, "shared": spaceShared, "local": spaceLocal, "param": spaceParam}

// access takes the modifiers of loads and stores: space, caching, width.
func (a *assembler) access() (typ, int, error) {
	a.take("volatile", "weak")
	a.in.kind = kindSpecial
	a.in.x = &extra{space: spaces[a.take("global", "shared", "local", "param")]}
	a.take("cta")                                          // of shared
	a.take("nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt") // hints
	n := 1
	switch a.take("v2", "v4") {
	case "v2":
		n = 2
	case "v4":
		n = 4
	}
	t, err := a.typ(stored...)
	if err != nil {
		return t, n, err
	}
	a.in.x.bytes, a.in.x.signed = t.bits()/8, t.signed()
	if t.bits()/8*n > 16 {
		return t, n, a.wrong("more than 16 bytes")
	}
	return t, n, nil
}

// address resolves operand i, in brackets, and notes how narrow shared memory is used.
func (a *assembler) address(i int) error {
	o := &a.s.args[i]
	x := a.in.x
	if o.kind != operandAddress || o.pair != nil {
		return a.wrong("an operand that is not an address")
	}
	if len(o.list) == 0 {
		if o.name != "" && o.space != x.space && x.space != spaceGeneric {
			return a.wrong("%s is in another space", o.name)
		}
		if o.name != "" && x.space == spaceGeneric {
			return a.wrong("the address of a variable without its space")
		}
		a.in.a, x.base64, x.fixed, x.offset = a.constant(class64, 0), true, true, o.value
	} else {
		if o.reg.bits < 32 || o.reg.bits == 32 && x.space != spaceShared && x.space != spaceParam && x.space != spaceLocal {
			return a.wrong("an address in %d bits", o.reg.bits)
		}
		a.in.a, x.base64, x.offset = o.reg.index, o.reg.class == class64, o.value
	}
	if (x.space == spaceShared || x.space == spaceGeneric) && x.bytes < 1<<a.k.granule {
		a.k.granule = bits.TrailingZeros(uint(x.bytes))
	}
	return nil
}

// values resolves operand i, n registers of type t or wider.
func (a *assembler) values(i, n int, t typ, source bool) error {
	list := []operand{a.s.args[i]}
	if n > 1 {
		if a.s.args[i].kind != operandVector || len(a.s.args[i].list) != n {
			return a.wrong("a vector of %d belongs here", n)
		}
		list = a.s.args[i].list
	}
	for j := range list {
		o := &list[j]
		at, long := int32(0), t.bits() == 64
		switch {
		case o.pair != nil:
			return a.wrong("a pair")
		case o.kind == operandReg && o.reg.class != classPred && o.reg.bits >= t.bits() && (!t.float() || o.reg.bits == t.bits()):
			at, long = o.reg.index, o.reg.class == class64
		case source && o.kind != operandReg:
			var err error
			if at, err = a.srcOf(o, t); err != nil {
				return err
			}
		default:
			return a.wrong("%s does not hold %d bits", o.name, t.bits())
		}
		a.in.x.regs, a.in.x.wide = append(a.in.x.regs, at), append(a.in.x.wide, long)
	}
	return nil
}

// plain reports whether the values, of type t, are words in registers of 32 bits.
func (a *assembler) plain(t typ) bool { return t.bits() == 32 && !slices.Contains(a.in.x.wide, true) }

func load(a *assembler) error {
	t, n, err := a.access()
	if err != nil {
		return err
	}
	if err := a.args(2); err != nil {
		return err
	}
	if err := a.values(0, n, t, false); err != nil {
		return err
	}
	a.in.special, a.in.x.plain = loadLanes, a.plain(t)
	return a.address(1)
}

func store(a *assembler) error {
	t, n, err := a.access()
	if err != nil {
		return err
	}
	if a.in.x.space == spaceParam {
		return a.wrong("parameters are not written")
	}
	if err := a.args(2); err != nil {
		return err
	}
	if err := a.values(1, n, t, true); err != nil {
		return err
	}
	a.in.special, a.in.x.plain = storeLanes, a.plain(t)
	return a.address(0)
}

// at is the address of a lane.
func (w *warp) at(in *instr, lane int) uint64 {
	if in.x.base64 {
		return w.r64[in.a][lane] + in.x.offset
	}
	return uint64(w.r32[in.a][lane] + uint32(in.x.offset))
}

// locate turns a generic address into one of a space.
func locate(s space, address uint64) (space, uint64) {
	switch {
	case s != spaceGeneric:
		return s, address
	case address >= localWindow:
		return spaceLocal, address - localWindow
	case address >= sharedWindow:
		return spaceShared, address - sharedWindow
	}
	return spaceGlobal, address
}

func loadLanes(w *warp, in *instr, mask uint32) *Fault {
	x := in.x
	n := x.bytes * len(x.regs)
	switch {
	case x.space == spaceShared && x.plain:
		return w.loadShared(in, mask)
	case x.space == spaceGlobal && x.plain:
		return w.loadGlobal(in, mask)
	case x.space == spaceParam:
		if address, ok := w.alike(in, mask); ok {
			return w.loadParam(in, mask, address)
		}
	}
	for m := mask; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m) & 31
		data, f := w.fetch(x.space, w.at(in, lane), n, lane)
		if f != nil {
			return f
		}
		for j, r := range x.regs {
			v := number(data[j*x.bytes:], x.bytes, x.signed)
			if x.wide[j] {
				w.r64[r][lane] = v
			} else {
				w.r32[r][lane] = uint32(v)
			}
		}
	}
	return nil
}

// alike returns the address of the lanes of mask, if all have the same.
func (w *warp) alike(in *instr, mask uint32) (uint64, bool) {
	address := w.at(in, first(mask))
	if in.x.fixed {
		return address, true
	}
	for m := mask & (mask - 1); m != 0; m &= m - 1 {
		if w.at(in, first(m)) != address {
			return 0, false
		}
	}
	return address, true
}

// loadParam is loadLanes for parameters at one address.
func (w *warp) loadParam(in *instr, mask uint32, address uint64) *Fault {
	x := in.x
	data, f := w.fetch(spaceParam, address, x.bytes*len(x.regs), first(mask))
	if f != nil {
		return f
	}
	for j, r := range x.regs {
		if v := number(data[j*x.bytes:], x.bytes, x.signed); x.wide[j] {
			fill(&w.r64[r], v, mask)
		} else {
			fill(&w.r32[r], uint32(v), mask)
		}
	}
	return nil
}

// fill writes a number to the lanes of mask.
func fill[T unsigned](d *[lanes]T, v T, mask uint32) {
	for i := range d {
		if mask>>i&1 != 0 {
			d[i] = v
		}
	}
}

// loadShared is loadLanes for words. Lanes often read the same address: each is checked once.
func (w *warp) loadShared(in *instr, mask uint32) *Fault {
	const recent = 4
	x := in.x
	n := 4 * len(x.regs)
	var addresses [recent]uint64
	var from [recent]int // a lane that has read it
	var same [recent]uint32
	next, used, misses := 0, 0, 0
	for m := mask; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m) & 31
		address := w.at(in, lane)
		if misses < 2*recent { // otherwise lanes read different addresses
			i := 0
			for i < used && addresses[i] != address {
				i++
			}
			if i < used {
				same[i] |= 1 << lane
				for _, r := range x.regs {
					w.r32[r][lane] = w.r32[r][from[i]&31]
				}
				continue
			}
			misses++
		}
		data, f := w.readShared(address, n, lane)
		if f != nil {
			return f
		}
		for j, r := range x.regs {
			w.r32[r][lane] = binary.LittleEndian.Uint32(data[4*j:])
		}
		if misses == 2*recent {
			continue
		}
		if f := w.readAlso(addresses[next], n, same[next]); f != nil {
			return f
		}
		addresses[next], from[next], same[next] = address, lane, 0
		used = max(used, next+1)
		next = (next + 1) % recent
	}
	for i := range used {
		if f := w.readAlso(addresses[i], n, same[i]); f != nil {
			return f
		}
	}
	return nil
}

// loadGlobal is loadLanes for words.
func (w *warp) loadGlobal(in *instr, mask uint32) *Fault {
	x, b := in.x, w.b
	n := 4 * len(x.regs)
	mine := b.m.launch<<stampLaunch | uint64(b.number)<<stampBlock | stampBytes
	for m := mask; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m) & 31
		address := w.at(in, lane)
		a, place, f := w.reach(address, n, lane)
		if f != nil {
			return f
		}
		if f := w.stampRead(a.used[place>>2:place>>2+len(x.regs)], mine, address, lane); f != nil {
			return f
		}
		data := a.data[place : place+n]
		for j, r := range x.regs {
			w.r32[r][lane] = binary.LittleEndian.Uint32(data[4*j:])
		}
	}
	return nil
}

// number reads little-endian bytes, with their sign if they have one.
func number(data []byte, n int, signed bool) uint64 {
	switch {
	case n == 1 && signed:
		return uint64(int64(int8(data[0])))
	case n == 1:
		return uint64(data[0])
	case n == 2 && signed:
		return uint64(int64(int16(binary.LittleEndian.Uint16(data))))
	case n == 2:
		return uint64(binary.LittleEndian.Uint16(data))
	case n == 4 && signed:
		return uint64(int64(int32(binary.LittleEndian.Uint32(data))))
	case n == 4:
		return uint64(binary.LittleEndian.Uint32(data))
	}
	return binary.LittleEndian.Uint64(data)
}

func putNumber(data []byte, n int, v uint64) {
	switch n {
	case 1:
		data[0] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(data, uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(data, uint32(v))
	default:
		binary.LittleEndian.PutUint64(data, v)
	}
}

func storeLanes(w *warp, in *instr, mask uint32) *Fault {
	x := in.x
	data := w.buffer[:x.bytes*len(x.regs)]
	for m := mask; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m) & 31
		if x.plain {
			for j, r := range x.regs {
				binary.LittleEndian.PutUint32(data[4*j:], w.r32[r][lane])
			}
		} else {
			w.gatherValue(data, x, lane)
		}
		if err := w.deposit(x.space, w.at(in, lane), data, lane); err != nil {
			return err
		}
	}
	return nil
}

// gatherValue is the bytes that a lane stores.
func (w *warp) gatherValue(data []byte, x *extra, lane int) {
	for j, r := range x.regs {
		v := uint64(0)
		if x.wide[j] {
			v = w.r64[r][lane]
		} else {
			v = uint64(w.r32[r][lane])
		}
		putNumber(data[j*x.bytes:], x.bytes, v)
	}
}

// fetch returns n bytes for a lane to read, after every check.
func (w *warp) fetch(s space, address uint64, n, lane int) ([]byte, *Fault) {
	s, address = locate(s, address)
	switch s {
	case spaceShared:
		return w.readShared(address, n, lane)
	case spaceGlobal:
		return w.readGlobal(address, n, lane)
	case spaceParam:
		if f := w.bounds(s, address, n, len(w.b.l.Params), lane); f != nil {
			return nil, f
		}
		return w.b.l.Params[address:][:n], nil
	}
	if f := w.bounds(s, address, n, w.b.k.LocalBytes, lane); f != nil {
		return nil, f
	}
	at := lane*w.b.k.LocalBytes + int(address)
	if slices.Contains(w.written[at:at+n], false) {
		return nil, w.fault(lane, "local memory at %d is read and was never written", address)
	}
	return w.local[at : at+n], nil
}

// deposit writes the value of a lane's store, after every check.
func (w *warp) deposit(s space, address uint64, data []byte, lane int) *Fault {
	s, address = locate(s, address)
	switch s {
	case spaceShared:
		return w.writeShared(address, data, lane)
	case spaceGlobal:
		return w.writeGlobal(address, data, lane)
	}
	if f := w.bounds(s, address, len(data), w.b.k.LocalBytes, lane); f != nil {
		return f
	}
	at := lane*w.b.k.LocalBytes + int(address)
	copy(w.local[at:], data)
	for i := range data {
		w.written[at+i] = true
	}
	return nil
}

// bounds checks n bytes of a space that has size bytes.
func (w *warp) bounds(s space, address uint64, n, size, lane int) *Fault {
	if address&uint64(n-1) != 0 {
		return w.fault(lane, "%d bytes of %v memory at %#x: misaligned", n, s, address)
	}
	if address > uint64(size) || address+uint64(n) > uint64(size) {
		return w.fault(lane, "%d bytes of %v memory at %d, which has %d", n, s, address, size)
	}
	return nil
}

// generic is cvta: between an address of a space and a generic one.
func generic(a *assembler) error {
	to := a.take("to") != ""
	s := a.take("global", "shared", "local")
	if _, err := a.typ(typeU64); err != nil {
		return err
	}
	if s == "" {
		return a.wrong("no space that is known here")
	}
	base := map[string]uint64{"shared": sharedWindow, "local": localWindow}[s]
	if to {
		base = -base
	}
	a.in.kind, a.in.f64 = kindALU64, each2(func(x, _ uint64) uint64 { return x + base })
	if base == 0 {
		a.in.f64 = copyInt[uint64]
	}
	return a.operands(typeU64, 1)
}
