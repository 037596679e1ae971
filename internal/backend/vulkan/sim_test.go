package vulkan

import (
	"fmt"
	"math"
	"math/bits"
	"testing"

	"github.com/foretoken/foretoken/internal/exactmath"
)

func fb(x float32) uint32 { return math.Float32bits(x) }
func bf(x uint32) float32 { return math.Float32frombits(x) }
func sfma(a, b, c float32) float32 { return flush(exactmath.FMA32(flush(a), flush(b), flush(c))) }
func sfused(a, b, c float32) float32 {
	r := sfma(a, b, c)
	if small(a) || small(b) || small(c) || tiny(r) {
		return exactmath.FMA32(a, b, c)
	}
	return r
}
func snormal(a, b, c float32) float32 { return sfma(a, b, c) }
func fmsb(x uint32) int { return 31 - bits.LeadingZeros32(x) }
func squot(a, b float32) float32 {
	ua, ub := fb(a), fb(b)
	sign := (ua ^ ub) & 0x80000000
	ua &= 0x7fffffff
	ub &= 0x7fffffff
	if ua > 0x7f800000 || ub > 0x7f800000 || ua == ub && (ua == 0 || ua == 0x7f800000) {
		return bf(0x7fc00000)
	}
	if ua == 0x7f800000 || ub == 0 {
		return bf(sign | 0x7f800000)
	}
	if ub == 0x7f800000 || ua == 0 {
		return bf(sign)
	}
	ea, eb := int(ua>>23), int(ub>>23)
	if ea == 0 {
		s := 23 - fmsb(ua)
		ua <<= s
		ea = 1 - s
	}
	if eb == 0 {
		s := 23 - fmsb(ub)
		ub <<= s
		eb = 1 - s
	}
	x, y := bf(ua&0x7fffff|0x3f800000), bf(ub&0x7fffff|0x3f800000)
	inverse := 1 / y
	q := x * inverse
	q = snormal(snormal(-q, y, x), inverse, q)
	r := snormal(-q, y, x)
	half := y * bf(fb(q)&0x7f800000-24<<23)
	if r > half {
		q = bf(fb(q) + 1)
		r -= 2 * half
	} else if -r > half {
		q = bf(fb(q) - 1)
		r += 2 * half
	}
	e := ea - eb + int(fb(q)>>23) - 127
	m := fb(q)&0x7fffff | 0x800000
	e += 127
	if e >= 255 {
		return bf(sign | 0x7f800000)
	}
	if e > 0 {
		return bf(sign | uint32(e)<<23 | m&0x7fffff)
	}
	s := 1 - e
	if s > 25 {
		return bf(sign)
	}
	k, low, mid := m>>s, m&(1<<s-1), uint32(1)<<(s-1)
	if low > mid || low == mid && (r > 0 || r == 0 && k&1 == 1) {
		k++
	}
	return bf(sign | k)
}
func spow2(k int) float32 { return bf(uint32(k+127) << 23) }
func sexp(x float32) float32 {
	if x != x {
		return x
	}
	if x < -87.33654 {
		return 0
	}
	if x > 88.72283 {
		return bf(0x7f800000)
	}
	n := snormal(x, 1.44269504, 12582912.0) - 12582912.0
	hi, lo := snormal(n, -0.693145751953125, x), n*-1.42860682030941723212e-6
	r := hi + lo
	q := snormal(0.000198909882, r, 0.00139336474)
	q = snormal(q, r, 0.00833331048)
	q = snormal(q, r, 0.0416664667)
	q = snormal(q, r, 0.166666672)
	q = snormal(q, r, 0.5)
	one := 1 + hi
	t := one - 1
	lost := hi - t
	r2 := r * r
	z := lost + snormal(r2, q, lo)
	p := one + z
	k := int(n)
	h := k >> 1
	p = p * spow2(h)
	return p * spow2(k-h)
}
func ssilu(x float32) float32 {
	a := bf(fb(x) & 0x7fffffff)
	e := sexp(-a)
	p := x * e
	one := 1 + e
	q := squot(e, one)
	y := snormal(-p, q, snormal(x, e, -p))
	if fb(a)-0x21800000 > 0x20800000 {
		u, v := x, e
		y = -p
		for range 2 {
			y = sfused(u, v, y)
			u, v = -p, q
		}
	}
	y = p + y
	if b := fb(x); b > 0x80000000 && b <= 0xff800000 {
		return y
	}
	return x - y
}

func TestSim(t *testing.T) {
	a, b, c := operands(probeOperands)
	bad := map[string]int{}
	cmpf := func(n string, i int, g, w float32) {
		if fb(g) != fb(w) && (g == g || w == w) {
			if bad[n]++; bad[n] < 4 {
				fmt.Printf("%s %08x %08x %08x: %08x want %08x (%g %g)\n", n, fb(a[i]), fb(b[i]), fb(c[i]), fb(g), fb(w), g, w)
			}
		}
	}
	for i := range a {
		cmpf("quot", i, squot(a[i], b[i]), a[i]/b[i])
		cmpf("exp", i, sexp(c[i]), exactmath.Exp32(c[i]))
		cmpf("silu", i, ssilu(c[i]), exactmath.SiLU32(c[i]))
	}
	fmt.Println(bad)
}
