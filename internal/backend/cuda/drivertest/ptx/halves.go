package ptx

import (
	"math"
	"math/bits"
)

// Tensor cores add halves in an unspecified order and rounding. So products of halves are executed only if every sum is
// exact in any order: numbers are whole multiples of a unit, and no sum has more digits than a float.
const maxSum = 1 << 24

// multiples is halves as multiples of 2^unit, and the largest magnitude. It reports whether all are finite.
func multiples(list []uint32) (n []int64, unit int, most uint64, ok bool) {
	n = make([]int64, len(list))
	exponents := make([]int, len(list))
	unit = 32
	for i, h := range list {
		digits, e := uint64(h&1023), int(h>>10&31)
		switch e {
		case 31:
			return nil, 0, 0, false
		case 0:
			e = 1
		default:
			digits |= 1024
		}
		n[i], exponents[i] = int64(digits), e-25
		if digits != 0 {
			unit = min(unit, e-25+bits.TrailingZeros64(digits))
		}
	}
	for i, h := range list {
		if n[i] == 0 {
			continue
		}
		if d := exponents[i] - unit; d > 0 {
			n[i] <<= d
		} else {
			n[i] >>= -d
		}
		most = max(most, uint64(n[i]))
		if h&0x8000 != 0 {
			n[i] = -n[i]
		}
	}
	return n, unit, most, true
}

// halves adds products of halves to accumulators, and returns the error, or "". Fragments, by the manual: lane l has row
// l/4 (and 8 more) of A and column l/4 of B; the halves of a register are columns 2(l%4) and one more of A, and rows of B.
func (w *warp) halves(m *mmaShape) string {
	a, b := make([]uint32, 16*16), make([]uint32, 8*16) // by row, and by column
	for lane := range lanes {
		group, at := lane>>2, lane&3*2
		for i, r := range m.a {
			v, k := w.r32[r][lane], (group+i&1*8)*16+at+i>>1*8
			a[k], a[k+1] = v&0xffff, v>>16
		}
		for i, r := range m.b {
			v, k := w.r32[r][lane], group*16+at+i*8
			b[k], b[k+1] = v&0xffff, v>>16
		}
	}
	left, unitA, mostA, okA := multiples(a)
	right, unitB, mostB, okB := multiples(b)
	if !okA || !okB {
		return "mma of a half that is not finite"
	}
	if mostA > maxSum || mostB > maxSum || 16*mostA*mostB >= maxSum/2 {
		return "mma of halves whose sums may not be exact"
	}
	unit := math.Ldexp(1, unitA+unitB)
	var sums [4]v32
	for i, r := range m.acc {
		for lane := range lanes {
			row, col := left[(lane>>2+i>>1*8)*16:], right[(lane&3*2+i&1)*16:]
			sum := int64(0)
			for k := range 16 {
				sum += row[k] * col[k]
			}
			acc := float64(f32(w.r32[r][lane])) / unit
			if !(acc > -maxSum/2 && acc < maxSum/2) || acc != float64(int64(acc)) {
				return "mma of halves and an accumulator whose sums may not be exact"
			}
			sums[i][lane] = math.Float32bits(float32((acc + float64(sum)) * unit))
		}
	}
	for i, r := range m.d {
		w.r32[r] = sums[i]
	}
	return ""
}
