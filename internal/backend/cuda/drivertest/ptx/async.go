package ptx

// asyncCopy is a copy to shared memory that is on its way.
type asyncCopy struct {
	to, from uint64
	bytes    int
}

// asyncQueue has the copies of a thread and how many of them were there at each commit.
type asyncQueue struct {
	copies []asyncCopy
	groups []int
}

func (q *asyncQueue) reset() { q.copies, q.groups = q.copies[:0], q.groups[:0] }

// copyAsync is cp.async, its groups and waits.
func copyAsync(a *assembler) error {
	if a.take("async") == "" {
		return a.wrong("only cp.async is known")
	}
	a.in.kind = kindSpecial
	switch a.take("commit_group", "wait_group") {
	case "commit_group":
		a.in.special = commitLanes
		return a.args(0)
	case "wait_group":
		a.in.special = awaitLanes
		if err := a.args(1); err != nil {
			return err
		}
		if o := &a.s.args[0]; o.kind != operandInt || o.value > 1<<20 {
			return a.wrong("the number of groups is a number in the text")
		}
		a.in.x = &extra{amount: int(a.s.args[0].value)}
		return nil
	}
	cache := a.take("ca", "cg")
	if cache == "" || a.take("shared") == "" {
		return a.wrong("only .ca and .cg from global to shared memory are known")
	}
	a.take("cta")
	if a.take("global") == "" {
		return a.wrong("only from global to shared memory")
	}
	a.take("L2::64B", "L2::128B", "L2::256B")
	return a.copyOperands(cache)
}

func (a *assembler) copyOperands(cache string) error {
	if err := a.args(3); err != nil {
		return err
	}
	size := &a.s.args[2]
	if size.kind != operandInt || size.value != 16 && (cache == "cg" || size.value != 4 && size.value != 8) {
		return a.wrong("a copy of other than 16 bytes, or 4 and 8 with .ca")
	}
	x := &extra{space: spaceGlobal, bytes: int(size.value)}
	a.in.x = x
	if err := a.address(1); err != nil {
		return err
	}
	base, base64, offset := a.in.a, x.base64, x.offset
	x.space = spaceShared
	if err := a.address(0); err != nil {
		return err
	}
	a.in.b, x.to64, x.toOffset = a.in.a, x.base64, x.offset
	a.in.a, x.base64, x.offset = base, base64, offset
	a.in.special = copyLanes
	return nil
}

func copyLanes(w *warp, in *instr, mask uint32) *Fault {
	x, at := in.x, w.addresses(in)
	for m := mask; m != 0; m &= m - 1 {
		lane := first(m)
		c := asyncCopy{from: at[lane], bytes: x.bytes}
		if x.to64 {
			c.to = w.r64[in.b][lane] + x.toOffset
		} else {
			c.to = uint64(w.r32[in.b][lane] + uint32(x.toOffset))
		}
		if f := w.bounds(spaceShared, c.to, c.bytes, len(w.b.shared), lane); f != nil {
			return f
		}
		if _, _, f := w.reach(c.from, c.bytes, lane); f != nil {
			return f
		}
		if f := w.claim(c.to, c.bytes, lane, cellAsync, nil); f != nil {
			return f
		}
		w.async[lane].copies = append(w.async[lane].copies, c)
	}
	return nil
}

func commitLanes(w *warp, _ *instr, mask uint32) *Fault {
	for m := mask; m != 0; m &= m - 1 {
		q := &w.async[first(m)]
		q.groups = append(q.groups, len(q.copies))
	}
	return nil
}

// awaitLanes delivers all but the last groups: not before, so that a read without a wait finds
// the copy on its way.
func awaitLanes(w *warp, in *instr, mask uint32) *Fault {
	b := w.b
	for m := mask; m != 0; m &= m - 1 {
		lane := first(m)
		q := &w.async[lane]
		done := len(q.groups) - in.x.amount
		if done <= 0 {
			continue
		}
		n := q.groups[done-1]
		for _, c := range q.copies[:n] {
			data, f := w.readGlobal(c.from, c.bytes, lane)
			if f != nil {
				return f
			}
			copy(b.shared[c.to:][:c.bytes], data)
			for i := int(c.to) >> b.k.granule; i <= (int(c.to)+c.bytes-1)>>b.k.granule; i++ {
				b.cells[i].write = w.stamp(lane)
			}
		}
		q.copies = append(q.copies[:0], q.copies[n:]...)
		q.groups = append(q.groups[:0], q.groups[done:]...)
		for i := range q.groups {
			q.groups[i] -= n
		}
	}
	return nil
}
