//go:build !noasm

package kernel

// quantizeRowAVX512 is Set.quantize; the twin is quantizeRow.
func quantizeRowAVX512(dst []byte, x []float32, group int, p place) {
	if n := p.check(dst, x, group); n > 0 {
		quantizeAVX512(&dst[0], &x[0], n, group, &p)
	}
}

// quantizeRowAVX2 is Set.quantize; the twin is quantizeRow.
func quantizeRowAVX2(dst []byte, x []float32, group int, p place) {
	if n := p.check(dst, x, group); n > 0 {
		quantizeAVX2(&dst[0], &x[0], n, group, &p)
	}
}

// check panics if a row of x does not fit dst, and returns the number of its groups.
func (p place) check(dst []byte, x []float32, group int) int {
	n := len(x) / group
	last := p.first + (n-1)*p.next
	across, whole := 2, 16 // numbers from the scale to the last of the tail
	if p.part > 0 {
		across, whole = group/p.part/2, 64
	}
	if n > 0 && (group%whole != 0 || p.part&^48 != 0 || p.part == 48 || last+p.tail+across*p.across+4 > len(dst) ||
		last+p.code(group-1)+4 > len(dst)) {
		panic("cpu: row does not fit its strip")
	}
	return n
}

//go:noescape
func quantizeAVX512(dst *byte, x *float32, groups, group int, p *place)

//go:noescape
func quantizeAVX2(dst *byte, x *float32, groups, group int, p *place)
