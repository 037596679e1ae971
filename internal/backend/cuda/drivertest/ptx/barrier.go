package ptx

import "math/bits"

// bar is a barrier of a block while a phase of it is under way.
type bar struct {
	arrived  int // threads
	expected int
	whole    bool // no count was given: all threads of the block
	who      uint32
	waiting  []*warp
	joined   [32]uint32 // ticks that all waiting warps will know
}

// barrier is bar and barrier.cta: sync and arrive among warps, and bar.warp.sync.
func barrier(a *assembler) error {
	a.in.kind, a.in.x = kindSpecial, &extra{}
	if a.op == "bar" && a.take("warp") != "" {
		if a.take("sync") == "" {
			return a.wrong("not known here")
		}
		if err := a.args(1); err != nil {
			return err
		}
		a.in.special = syncLanes
		var err error
		a.in.a, err = a.membermask(0)
		return err
	}
	a.take("cta")
	which := a.take("sync", "arrive")
	if which == "" {
		return a.wrong("not known here")
	}
	a.in.x.single = a.take("aligned") != "" || a.op == "bar"
	n := len(a.s.args)
	if n < 1 || n > 2 || which == "arrive" && n < 2 {
		return a.wrong("%d operands", n)
	}
	var err error
	if a.in.a, err = a.src(0, typeU32); err != nil {
		return err
	}
	a.in.b = -1
	if n == 2 {
		if a.in.b, err = a.src(1, typeU32); err != nil {
			return err
		}
	}
	a.in.special = arriveLanes
	if which == "sync" {
		a.in.special = waitLanes
	}
	return nil
}

// membermask resolves operand i, which may be written as -1.
func (a *assembler) membermask(i int) (int32, error) {
	if o := &a.s.args[i]; o.kind == operandInt && o.signed {
		return a.src(i, typeS32)
	}
	return a.src(i, typeU32)
}

func syncLanes(w *warp, in *instr, mask uint32) *Fault {
	if wait, f := w.gather(in.a, mask); wait || f != nil {
		return f
	}
	w.eachSet(in.a, mask, w.syncWarp)
	return nil
}

// gather makes the lanes of a warp wait until all that their membermasks name are here.
func (w *warp) gather(register int32, mask uint32) (wait bool, f *Fault) {
	members := &w.r32[register]
	var all uint32
	for m := mask; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m) & 31
		if members[lane]>>lane&1 == 0 {
			return false, w.fault(lane, "membermask %#x does not name the lane itself", members[lane])
		}
		all |= members[lane]
	}
	missing := all & w.live &^ mask
	if missing == 0 {
		return false, nil
	}
	if missing&w.mask != 0 {
		return false, w.fault(first(missing&w.mask), "membermask %#x names lanes that do not take part: %#x", all, missing&w.mask)
	}
	w.held = true
	return true, nil
}

// eachSet calls f for each membermask among lanes, with the lanes that have it.
func (w *warp) eachSet(register int32, mask uint32, f func(set uint32)) {
	members := &w.r32[register]
	for mask != 0 {
		set := members[first(mask)] & mask
		f(set)
		mask &^= set
	}
}

// arrive counts a warp at a barrier; last reports that the phase is over.
func (w *warp) arrive(in *instr, mask uint32, wait bool) (last, held bool, f *Fault) {
	b := w.b
	if mask != w.live {
		if mask != w.mask {
			return false, false, w.fault(first(mask), "barrier for lanes %#x of %#x: the others pass it by", mask, w.live)
		}
		return false, true, nil // other lanes may still come
	}
	id, count, whole := w.r32[in.a][first(mask)], 0, in.b < 0
	if !whole {
		count = int(w.r32[in.b][first(mask)])
	}
	for m := mask; m != 0; m &= m - 1 {
		if i := first(m); w.r32[in.a][i] != id || !whole && int(w.r32[in.b][i]) != count {
			return false, false, w.fault(i, "lanes of a warp at different barriers")
		}
	}
	if id > 15 {
		return false, false, w.fault(first(mask), "barrier %d: there are 16", id)
	}
	if whole {
		count = b.expected()
	}
	if count <= 0 || count%lanes != 0 || count > (b.l.threads()+lanes-1)/lanes*lanes {
		return false, false, w.fault(first(mask), "barrier %d for %d threads", id, count)
	}
	at := &b.bars[id]
	switch {
	case at.arrived > 0 && (at.expected != count || at.whole != whole):
		return false, false, w.fault(first(mask), "barrier %d is for %d threads here, and was for %d", id, count, at.expected)
	case at.who>>w.id&1 != 0:
		return false, false, w.fault(first(mask), "the warp arrives at barrier %d again before the others have", id)
	case wait && len(at.waiting) > 0 && at.waiting[0].pc != w.pc:
		if there := &b.k.code[at.waiting[0].pc]; in.x.single || there.x.single {
			return false, false, w.fault(first(mask), "barrier %d is here and in line %d: warps that come from several places need barrier.cta.sync", id, there.line)
		}
	}
	w.barrier = int(id)
	at.expected, at.whole = count, whole
	at.arrived += lanes
	at.who |= 1 << w.id
	for v, t := range w.known {
		at.joined[v] = max(at.joined[v], t)
	}
	at.joined[w.id] = w.tick
	w.tick++
	if wait {
		at.waiting = append(at.waiting, w)
		w.state = stateBarrier
	}
	return at.arrived >= at.expected, false, nil
}

// expected are the threads of warps that have not ended, as whole warps.
func (b *block) expected() int {
	n := 0
	for _, w := range b.warps {
		if w.state != stateDone {
			n += lanes
		}
	}
	return n
}

// release ends a phase: all waiting warps continue, ordered after the arrived warps.
func (b *block) release(id int) {
	at := &b.bars[id]
	for _, w := range at.waiting {
		for v := range w.known {
			w.known[v] = max(w.known[v], at.joined[v])
		}
		w.state = stateReady
		w.pc++
	}
	b.bars[id] = bar{waiting: at.waiting[:0]}
}

// left lets barriers of all threads go on without a warp that has ended.
func (b *block) left() {
	for i := range b.bars {
		if at := &b.bars[i]; at.arrived > 0 && at.whole {
			if at.expected = b.expected(); at.arrived >= at.expected {
				b.release(i)
			}
		}
	}
}

func waitLanes(w *warp, in *instr, mask uint32) *Fault {
	last, held, f := w.arrive(in, mask, true)
	w.held = held
	if f == nil && last {
		id := w.barrier
		w.b.release(id)
		w.pc-- // together advances by one itself
	}
	return f
}

func arriveLanes(w *warp, in *instr, mask uint32) *Fault {
	last, held, f := w.arrive(in, mask, false)
	w.held = held
	if f == nil && last {
		w.b.release(w.barrier)
	}
	return f
}

// fence is membar: order between blocks, which is believed from then on.
func fence(a *assembler) error {
	if a.take("cta", "gl", "sys") == "" {
		return a.wrong("no scope that is known here")
	}
	a.in.kind = kindSpecial
	a.in.special = func(w *warp, _ *instr, _ uint32) *Fault {
		w.b.fenced = true
		return nil
	}
	return a.args(0)
}

// dependence is griddepcontrol.
func dependence(a *assembler) error {
	a.in.kind = kindSpecial
	switch a.take("wait", "launch_dependents") {
	case "wait":
		a.in.special = func(w *warp, _ *instr, mask uint32) *Fault {
			w.waited |= mask
			w.b.m.waits.Store(true)
			return nil
		}
	case "launch_dependents": // a later kernel begins when this one has ended, which is allowed too
		a.in.special = func(w *warp, _ *instr, mask uint32) *Fault {
			if mask&^w.waited != 0 {
				w.b.m.early.Store(true)
			}
			return nil
		}
	default:
		return a.wrong("not known here")
	}
	return a.args(0)
}
