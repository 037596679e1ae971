package ptx

import (
	"fmt"
	"math/bits"
	"strings"
)

// compute executes an instruction of independent lanes. If all lanes take
// part the result is written to its register directly.
func (w *warp) compute(in *instr, mask uint32) {
	all := mask == allLanes
	d32, d64 := &w.t32, &w.t64
	switch in.kind {
	case kindALU32, kindSlim, kindSelect32:
		if all {
			d32 = &w.r32[in.d]
		}
		switch in.kind {
		case kindALU32:
			in.f32(d32, &w.r32[in.a], &w.r32[in.b], &w.r32[in.c])
		case kindSlim:
			in.slim(d32, &w.r64[in.a])
		default:
			choose32(d32, &w.r32[in.a], &w.r32[in.b], w.p[in.c])
		}
		if !all {
			w.blend32(in.d, mask)
		}
	case kindCompare32:
		w.setPredicate(in.d, in.less32(&w.r32[in.a], &w.r32[in.b]), mask)
	case kindCompare64:
		w.setPredicate(in.d, in.less64(&w.r64[in.a], &w.r64[in.b]), mask)
	case kindPredicate:
		w.setPredicate(in.d, in.logic(w.p[in.a], w.p[in.b]), mask)
	default:
		if all {
			d64 = &w.r64[in.d]
		}
		switch in.kind {
		case kindALU64:
			in.f64(d64, &w.r64[in.a], &w.r64[in.b], &w.r64[in.c])
		case kindWide:
			in.wide(d64, &w.r32[in.a], &w.r32[in.b], &w.r64[in.c])
		case kindShift64:
			by := &w.by
			for i, n := range &w.r32[in.b] {
				by[i] = uint64(n)
			}
			in.f64(d64, &w.r64[in.a], by, by)
		default:
			choose(d64, &w.r64[in.a], &w.r64[in.b], w.p[in.c])
		}
		if !all {
			w.blend64(in.d, mask)
		}
	}
}

var choose32 = choose[uint32]

// choose is a where p is true and b where it is not.
func choose[T unsigned](d, a, b *[lanes]T, p uint32) {
	for i := range d {
		v := b[i]
		if p&1 != 0 {
			v = a[i]
		}
		d[i] = v
		p >>= 1
	}
}

// blend32 writes the lanes of mask of a result.
func (w *warp) blend32(d int32, mask uint32) {
	if mask == allLanes {
		w.r32[d] = w.t32
		return
	}
	to := &w.r32[d]
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m) & 31
		to[i] = w.t32[i]
	}
}

func (w *warp) blend64(d int32, mask uint32) {
	if mask == allLanes {
		w.r64[d] = w.t64
		return
	}
	to := &w.r64[d]
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m) & 31
		to[i] = w.t64[i]
	}
}

func (w *warp) setPredicate(d int32, value, mask uint32) {
	w.p[d] = w.p[d]&^mask | value&mask
}

// where lists the lines of the lanes.
func (w *warp) where() string {
	var at []string
	for _, g := range w.others {
		at = append(at, fmt.Sprintf("lanes %#x at line %d", g.mask, w.code[g.pc].line))
	}
	if gone := ^w.live; gone != 0 {
		at = append(at, fmt.Sprintf("lanes %#x have ended", gone))
	}
	return strings.Join(at, ", ")
}
