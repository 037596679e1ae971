package ptx

import (
	"math/bits"
)

// shuffle is shfl.sync.
func shuffle(a *assembler) error {
	if a.take("sync") == "" {
		return a.wrong("only .sync is known")
	}
	mode := a.take("up", "down", "bfly", "idx")
	if _, err := a.typ(typeB32); err != nil {
		return err
	}
	if mode == "" {
		return a.wrong("no mode")
	}
	if err := a.args(5); err != nil {
		return err
	}
	x := &extra{name: mode, regs: make([]int32, 2)}
	a.in.kind, a.in.x, a.in.special = kindSpecial, x, shuffleLanes
	d := a.s.args[0]
	pair := d.pair
	d.pair = nil
	var err error
	if a.in.d, err = a.dstOf(&d, typeB32); err != nil {
		return err
	}
	x.amount = -1
	if pair != nil {
		p, err := a.dstOf(pair, typePred)
		if err != nil {
			return err
		}
		x.amount = int(p)
	}
	if a.in.a, err = a.src(1, typeB32); err != nil {
		return err
	}
	if a.in.b, err = a.src(2, typeU32); err != nil {
		return err
	}
	if a.in.c, err = a.src(3, typeU32); err != nil {
		return err
	}
	x.regs[0], err = a.membermask(4)
	return err
}

func shuffleLanes(w *warp, in *instr, mask uint32) *Fault {
	x := in.x
	if wait, f := w.gather(x.regs[0], mask); wait || f != nil {
		return f
	}
	src, by, c := &w.r32[in.a], &w.r32[in.b], &w.r32[in.c]
	members := &w.r32[x.regs[0]]
	var inside uint32
	for m := mask; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m) & 31
		clamp, segment := int(c[lane]&31), int(c[lane]>>8&31)
		n := int(by[lane] & 31)
		most := lane&segment | clamp&^segment
		from, ok := 0, false
		switch x.name {
		case "up":
			from = lane - n
			ok = from >= most
		case "down":
			from = lane + n
			ok = from <= most
		case "bfly":
			from = lane ^ n
			ok = from <= most
		default:
			from = lane&segment | n&^segment
			ok = from <= most
		}
		if !ok {
			from = lane
		} else {
			inside |= 1 << lane
		}
		if mask>>from&1 == 0 || members[lane]>>from&1 == 0 {
			return w.fault(lane, "shuffle from lane %d, which does not take part", from)
		}
		w.t32[lane] = src[from]
	}
	w.blend32(in.d, mask)
	if x.amount >= 0 {
		w.setPredicate(int32(x.amount), inside, mask)
	}
	return nil
}

// reduce is redux.sync of integers.
func reduce(a *assembler) error {
	if a.take("sync") == "" {
		return a.wrong("only .sync is known")
	}
	op := a.take("add", "min", "max", "and", "or", "xor")
	t, err := a.typ(typeU32, typeS32, typeB32)
	if err != nil {
		return err
	}
	var f func(x, y uint64) uint64
	switch logical := t == typeB32; {
	case op == "add" && !logical:
		f = func(x, y uint64) uint64 { return x + y }
	case (op == "min" || op == "max") && !logical:
		f = extremeOf(t, op == "max")
	case op == "and" && logical:
		f = func(x, y uint64) uint64 { return x & y }
	case op == "or" && logical:
		f = func(x, y uint64) uint64 { return x | y }
	case op == "xor" && logical:
		f = func(x, y uint64) uint64 { return x ^ y }
	default:
		return a.wrong("no such reduction")
	}
	a.in.kind, a.in.special, a.in.x = kindSpecial, reduceLanes, &extra{op: f}
	if err := a.args(3); err != nil {
		return err
	}
	if a.in.d, err = a.dst(0, t); err != nil {
		return err
	}
	if a.in.a, err = a.src(1, t); err != nil {
		return err
	}
	a.in.b, err = a.membermask(2)
	return err
}

func reduceLanes(w *warp, in *instr, mask uint32) *Fault {
	if wait, f := w.gather(in.b, mask); wait || f != nil {
		return f
	}
	src := &w.r32[in.a]
	w.eachSet(in.b, mask, func(set uint32) {
		sum := uint64(src[first(set)])
		for m := set & (set - 1); m != 0; m &= m - 1 {
			sum = in.x.op(sum, uint64(src[first(m)]))
		}
		for m := set; m != 0; m &= m - 1 {
			w.t32[first(m)] = uint32(sum)
		}
	})
	w.blend32(in.d, mask)
	return nil
}

// vote is vote.sync of a predicate: ballot, any, all.
func vote(a *assembler) error {
	if a.take("sync") == "" {
		return a.wrong("only .sync is known")
	}
	mode := a.take("ballot", "any", "all")
	t, err := a.typ(typeB32, typePred)
	if err != nil {
		return err
	}
	if mode == "" || (mode == "ballot") != (t == typeB32) {
		return a.wrong("no such vote")
	}
	if err := a.args(3); err != nil {
		return err
	}
	if a.in.d, err = a.dst(0, t); err != nil {
		return err
	}
	if a.in.a, err = a.src(1, typePred); err != nil {
		return err
	}
	a.in.kind, a.in.x, a.in.special = kindSpecial, &extra{name: mode}, voteLanes
	a.in.b, err = a.membermask(2)
	return err
}

func voteLanes(w *warp, in *instr, mask uint32) *Fault {
	if wait, f := w.gather(in.b, mask); wait || f != nil {
		return f
	}
	var yes uint32
	w.eachSet(in.b, mask, func(set uint32) {
		votes := w.p[in.a] & set
		for m := set; m != 0; m &= m - 1 {
			w.t32[first(m)] = votes
		}
		if in.x.name == "any" && votes != 0 || in.x.name == "all" && votes == set {
			yes |= set
		}
	})
	if in.x.name == "ballot" {
		w.blend32(in.d, mask)
	} else {
		w.setPredicate(in.d, yes, mask)
	}
	return nil
}

// atomicOp is atom: one lane after another. With acq_rel it orders like a fence.
func atomicOp(a *assembler) error {
	sem := a.take("relaxed", "acq_rel")
	if scope := a.take("cta", "gpu", "sys"); (sem != "") != (scope != "") {
		return a.wrong("an order without a scope, or a scope without one")
	}
	s := a.take("global", "shared")
	a.in.kind, a.in.x = kindSpecial, &extra{space: spaces[s]}
	op := a.take("add", "min", "max", "and", "or", "xor", "exch", "cas")
	t, err := a.typ(typeU32, typeS32, typeU64, typeB32, typeB64)
	if err != nil {
		return err
	}
	x := a.in.x
	x.bytes, x.name = t.bits()/8, op
	switch untyped := t == typeB32 || t == typeB64; {
	case op == "add" && !untyped:
		x.op = func(x, y uint64) uint64 { return x + y }
	case (op == "min" || op == "max") && !untyped:
		x.op = extremeOf(t, op == "max")
	case op == "and" && untyped:
		x.op = func(x, y uint64) uint64 { return x & y }
	case op == "or" && untyped:
		x.op = func(x, y uint64) uint64 { return x | y }
	case op == "xor" && untyped:
		x.op = func(x, y uint64) uint64 { return x ^ y }
	case (op == "exch" || op == "cas") && untyped:
		x.op = func(_, y uint64) uint64 { return y }
	default:
		return a.wrong("no such operation")
	}
	n := 3
	if op == "cas" {
		n = 4
	}
	if err := a.args(n); err != nil {
		return err
	}
	if err := a.values(0, 1, t, false); err != nil {
		return err
	}
	for i := 2; i < n; i++ {
		if err := a.values(i, 1, t, true); err != nil {
			return err
		}
	}
	a.in.special = atomicLanes
	if sem == "acq_rel" {
		a.in.special = func(w *warp, in *instr, mask uint32) *Fault {
			w.b.fenced = true
			return atomicLanes(w, in, mask)
		}
	}
	return a.address(1)
}

func atomicLanes(w *warp, in *instr, mask uint32) *Fault {
	x, m := in.x, w.b.m
	value := func(i, lane int) uint64 {
		if x.wide[i] {
			return w.r64[x.regs[i]][lane]
		}
		return uint64(w.r32[x.regs[i]][lane])
	}
	at := w.addresses(in)
	m.atomics.Lock()
	defer m.atomics.Unlock()
	for left := mask; left != 0; left &= left - 1 {
		lane := first(left)
		data, f := w.reachAtomic(x, at[lane], lane)
		if f != nil {
			return f
		}
		old := number(data, x.bytes, false)
		if x.name != "cas" || old == value(1, lane) {
			putNumber(data, x.bytes, x.op(old, value(len(x.regs)-1, lane)))
		}
		if x.wide[0] {
			w.r64[x.regs[0]][lane] = old
		} else {
			w.r32[x.regs[0]][lane] = uint32(old)
		}
	}
	return nil
}

// reachAtomic returns the bytes that an atomic operation of a lane changes.
func (w *warp) reachAtomic(x *extra, address uint64, lane int) ([]byte, *Fault) {
	s, address := locate(x.space, address)
	switch s {
	case spaceShared:
		return w.atomicShared(address, x.bytes, lane)
	case spaceGlobal:
		a, place, f := w.reach(address, x.bytes, lane)
		if f != nil {
			return nil, f
		}
		return a.data[place : place+x.bytes], w.stampWrite(a, address, place, x.bytes, lane, false, stampAtomic)
	}
	return nil, w.fault(lane, "an atomic operation on %v memory", s)
}
