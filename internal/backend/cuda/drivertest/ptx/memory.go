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
		a.in.a, x.base64, x.offset, x.fixed = a.constant(class64, 0), true, o.value, true
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

// addresses are those of all lanes.
func (w *warp) addresses(in *instr) *v64 {
	x, to := in.x, &w.places
	if x.base64 {
		for i, v := range &w.r64[in.a] {
			to[i] = v + x.offset
		}
		return to
	}
	offset := uint32(x.offset)
	for i, v := range &w.r32[in.a] {
		to[i] = uint64(v + offset)
	}
	return to
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
	if x.fixed && x.space == spaceParam {
		data, f := w.fetch(spaceParam, x.offset, n, first(mask))
		if f == nil {
			w.loadAlike(x, data, mask)
		}
		return f
	}
	at := w.addresses(in)
	if (x.space == spaceParam || x.space == spaceGlobal && w.waited == allLanes) && alike(at, mask) {
		data, f := w.fetch(x.space, at[first(mask)], n, first(mask))
		if f == nil {
			w.loadAlike(x, data, mask)
		}
		return f
	}
	switch x.space {
	case spaceShared:
		return w.loadShared(x, at, mask)
	case spaceGlobal:
		return w.loadGlobal(x, at, mask)
	}
	for m := mask; m != 0; m &= m - 1 {
		lane := first(m)
		data, f := w.fetch(x.space, at[lane], n, lane)
		if f != nil {
			return f
		}
		w.loadValue(x, data, lane)
	}
	return nil
}

// alike reports whether the lanes of mask have the same address.
func alike(at *v64, mask uint32) bool {
	one := at[first(mask)]
	for m := mask & (mask - 1); m != 0; m &= m - 1 {
		if at[first(m)] != one {
			return false
		}
	}
	return true
}

// loadValue writes the bytes that a lane has read to its registers.
func (w *warp) loadValue(x *extra, data []byte, lane int) {
	if x.plain {
		for j, r := range x.regs {
			w.r32[r][lane&31] = binary.LittleEndian.Uint32(data[4*j:])
		}
		return
	}
	for j, r := range x.regs {
		if v := number(data[j*x.bytes:], x.bytes, x.signed); x.wide[j] {
			w.r64[r][lane&31] = v
		} else {
			w.r32[r][lane&31] = uint32(v)
		}
	}
}

// loadAlike is loadValue for all lanes of mask.
func (w *warp) loadAlike(x *extra, data []byte, mask uint32) {
	for j, r := range x.regs {
		if v := number(data[j*x.bytes:], x.bytes, x.signed); x.wide[j] {
			fill(&w.r64[r], v, mask)
		} else {
			fill(&w.r32[r], uint32(v), mask)
		}
	}
}

// fill writes a number to the lanes of mask.
func fill[T unsigned](d *[lanes]T, v T, mask uint32) {
	if mask == allLanes {
		for i := range d {
			d[i] = v
		}
		return
	}
	for i := range d {
		old := d[i]
		if mask&1 != 0 {
			old = v
		}
		d[i] = old
		mask >>= 1
	}
}

// loadShared is loadLanes for shared memory. Lanes often read the address of the one before: it is checked once.
func (w *warp) loadShared(x *extra, at *v64, mask uint32) *Fault {
	b, key, granule := w.b, w.key(), w.b.k.granule&31
	n, size := uint64(x.bytes*len(x.regs)), uint64(len(b.shared))
	for mask != 0 {
		lane := first(mask)
		address, run := at[lane], uint32(0)
		for mask != 0 && at[first(mask)] == address {
			run |= mask & -mask
			mask &= mask - 1
		}
		if address&(n-1) != 0 || address >= size || address+n > size {
			return w.bounds(spaceShared, address, int(n), len(b.shared), lane)
		}
		cells := b.cells[address>>granule : (address+n-1)>>granule+1]
		for i := range cells {
			c := &cells[i]
			if s := c.write; uint32(s>>cellTick)-1 >= w.known[s>>(cellThread+5)&31] || s&cellAsync != 0 || c.atom != 0 {
				for m := run; m != 0; m &= m - 1 {
					if f := w.readable(c, address, first(m)); f != nil {
						return f
					}
				}
			}
			switch r := c.read; {
			case (r^key)>>setWarp == 0:
				c.read = r | uint64(run)
			case r == 0 || r&setFlag == 0 && uint32(r>>setTick)-1 < w.known[r>>setWarp&31]: // as note does
				c.read = key | uint64(run)
			default:
				w.note(&c.read, run)
			}
		}
		if data := b.shared[address:][:n]; run&(run-1) == 0 {
			w.loadValue(x, data, lane)
		} else {
			w.loadAlike(x, data, run)
		}
	}
	return nil
}

// loadGlobal is loadLanes for global memory.
func (w *warp) loadGlobal(x *extra, at *v64, mask uint32) *Fault {
	b := w.b
	n := x.bytes * len(x.regs)
	mine := b.m.launch<<stampLaunch | uint64(b.number)<<stampBlock
	var a *allocation
	which := uint64(0) // its number
	for m := mask; m != 0; m &= m - 1 {
		lane := first(m)
		address := at[lane]
		place := int(address & (1<<placeBits - 1))
		if a == nil || address>>placeBits != which || place&(n-1) != 0 || place+n > len(a.data) {
			var f *Fault
			if a, place, f = w.reach(address, n, lane); f != nil {
				return f
			}
			which = address >> placeBits
		}
		if f := w.stampRead(a.used[place>>2:(place+n-1)>>2+1], mine|touched(place, n), address, lane); f != nil {
			return f
		}
		w.loadValue(x, a.data[place:place+n], lane)
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
	x, at := in.x, w.addresses(in)
	data := w.buffer[:x.bytes*len(x.regs)]
	for m := mask; m != 0; m &= m - 1 {
		lane := first(m)
		if x.plain {
			for j, r := range x.regs {
				binary.LittleEndian.PutUint32(data[4*j:], w.r32[r][lane])
			}
		} else {
			w.gatherValue(data, x, lane)
		}
		if err := w.deposit(x.space, at[lane], data, lane); err != nil {
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
