package ptx

import "math/bits"

type state uint8

const (
	stateReady state = iota
	stateBarrier
	stateDone
)

// group is lanes of a warp that are at the same instruction.
type group struct {
	pc   int32
	mask uint32
	held bool // waits for lanes that are elsewhere
}

// warp is 32 threads. The lanes of mask run, at pc; the rest wait, because they are further
// on in the text: the lowest line goes first, and lanes at the same line go on together.
type warp struct {
	b    *block
	id   int
	code []instr

	r32 []v32
	r64 []v64
	p   []uint32
	t32 v32
	t64 v64
	by  v64 // of a shift

	places v64 // that lanes access

	state  state
	pc     int32
	mask   uint32
	live   uint32
	held   bool // set by an instruction that must wait for other lanes
	others []group

	barrier int                   // that it waits at
	tick    uint32                // clock of its memory accesses
	known   [32]uint32            // by warp: its accesses up to this tick happened before the current ones of all lanes
	seen    *[lanes][lanes]uint32 // the same by lane, for each lane, if only some have synchronized
	waited  uint32                // lanes that have done griddepcontrol.wait

	async   [lanes]asyncQueue
	local   []byte
	written []bool // of local
	buffer  [16]byte
}

func newWarp(b *block, id int) *warp {
	k := b.k
	w := &warp{b: b, id: id, code: k.code}
	w.r32 = make([]v32, k.count[class32]+specialCount+len(k.words))
	w.r64 = make([]v64, k.count[class64]+len(k.longs))
	w.p = make([]uint32, k.count[classPred])
	for i := range w.r32 { // a kernel that reads an unset register shall not find zeros
		for lane := range w.r32[i] {
			w.r32[i][lane] = 0x7fa5a5a5
		}
	}
	for i := range w.r64 {
		for lane := range w.r64[i] {
			w.r64[i][lane] = 0x7fa5a5a57fa5a5a5
		}
	}
	for i := range w.p {
		w.p[i] = 0xa5a5a5a5
	}
	for i, c := range k.words {
		for lane := range lanes {
			w.r32[k.count[class32]+specialCount+i][lane] = c
		}
	}
	for i, c := range k.longs {
		for lane := range lanes {
			w.r64[k.count[class64]+i][lane] = c
		}
	}
	w.local = make([]byte, k.LocalBytes*lanes)
	w.written = make([]bool, k.LocalBytes*lanes)
	return w
}

// begin makes w ready for the block that b is now.
func (w *warp) begin() {
	b := w.b
	n := b.l.threads()
	at := w.b.k.count[class32]
	s, g, i := b.l.Block, b.l.Grid, b.index
	special := w.r32[at : at+specialCount]
	t := w.id * lanes
	x, y, z := t%s[0], t/s[0]%s[1], t/s[0]/s[1]
	for lane := range lanes {
		special[0][lane], special[1][lane], special[2][lane], special[12][lane] = uint32(x), uint32(y), uint32(z), uint32(lane)
		if x++; x == s[0] {
			x = 0
			if y++; y == s[1] {
				y = 0
				z++
			}
		}
	}
	for j, v := range [...]int{s[0], s[1], s[2], i[0], i[1], i[2], g[0], g[1], g[2]} { // the same for all lanes
		r := &special[3+j]
		for lane := range r {
			r[lane] = uint32(v)
		}
	}
	w.state, w.pc, w.held, w.others = stateReady, 0, false, w.others[:0]
	w.live = uint32(uint64(1)<<min(lanes, n-w.id*lanes) - 1)
	w.mask = w.live
	w.tick, w.seen = 1, nil
	w.known = [32]uint32{}
	w.waited = allLanes
	if b.l.Dependent {
		w.waited = 0
	}
	for i := range w.async {
		w.async[i].reset()
	}
	clear(w.written)
}

// run executes until the warp waits for others or has ended.
func (w *warp) run() *Fault {
	for w.state == stateReady {
		in := &w.code[w.pc]
		mask := w.mask
		if in.guard >= 0 {
			if in.negated {
				mask &^= w.p[in.guard]
			} else {
				mask &= w.p[in.guard]
			}
		}
		switch {
		case in.kind == kindALU32 && mask == allLanes:
			in.f32(&w.r32[in.d], &w.r32[in.a], &w.r32[in.b], &w.r32[in.c])
			w.pc++
		case in.kind < kindBranch:
			if mask != 0 {
				w.compute(in, mask)
			}
			w.pc++
		case in.kind == kindBranch:
			w.branch(in.d, mask)
			if in.d <= w.pc {
				if w.b.steps += 64; w.b.steps > w.b.m.options.Steps { // only loops can run forever
					return w.fault(first(mask), "more than %d instructions in a block: is there an end?", w.b.m.options.Steps)
				}
			}
		case in.kind == kindExit:
			w.exit(mask)
		default:
			if err := w.together(in, mask); err != nil {
				return err
			}
		}
		if len(w.others) > 0 {
			if err := w.settle(); err != nil {
				return err
			}
		}
	}
	return nil
}

// together executes an instruction of memory or many lanes.
func (w *warp) together(in *instr, mask uint32) *Fault {
	if mask != 0 && in.special != nil {
		if err := in.special(w, in, mask); err != nil {
			return err
		}
		if w.held {
			return w.hold()
		}
	}
	if w.state == stateReady {
		w.pc++
	}
	return nil
}

func first(mask uint32) int { return bits.TrailingZeros32(mask) & 31 }

// branch sends the lanes of mask to another instruction.
func (w *warp) branch(to int32, mask uint32) {
	switch mask {
	case w.mask:
		w.pc = to
	case 0:
		w.pc++
	default:
		w.others = append(w.others, group{pc: to, mask: mask})
		w.mask &^= mask
		w.pc++
	}
}

// exit ends lanes. Barriers and shuffles then wait for the lanes that are left.
func (w *warp) exit(mask uint32) {
	w.live &^= mask
	w.mask &^= mask
	w.pc++
	for i := range w.others {
		w.others[i].held = false
	}
	if w.live == 0 {
		w.state = stateDone
		w.b.left()
	}
}

// hold suspends the running lanes until the rest have reached the same instruction.
func (w *warp) hold() *Fault {
	w.held = false
	w.others = append(w.others, group{w.pc, w.mask, true})
	w.mask = 0
	return w.settle()
}

// settle joins lanes that have met and lets the lowest run.
func (w *warp) settle() *Fault {
	if w.mask != 0 {
		for i := 0; i < len(w.others); i++ {
			if g := w.others[i]; g.pc == w.pc {
				w.mask |= g.mask
				w.others[i] = w.others[len(w.others)-1]
				w.others = w.others[:len(w.others)-1]
				i--
			}
		}
	}
	lowest := -1
	for i, g := range w.others {
		if !g.held && (lowest < 0 || g.pc < w.others[lowest].pc) {
			lowest = i
		}
	}
	switch {
	case w.mask != 0 && (lowest < 0 || w.pc < w.others[lowest].pc), w.state == stateDone:
		return nil
	case lowest < 0:
		w.pc, w.mask = w.others[0].pc, w.others[0].mask
		return w.fault(first(w.mask), "lanes %#x wait for lanes that never come: %s", w.mask, w.where())
	}
	g := w.others[lowest]
	w.others[lowest] = w.others[len(w.others)-1]
	w.others = w.others[:len(w.others)-1]
	if w.mask != 0 {
		w.others = append(w.others, group{pc: w.pc, mask: w.mask})
	}
	w.pc, w.mask = g.pc, g.mask
	return w.settle()
}
