//go:build !noasm

package kernel

// quantizeRowAVX512 is Set.quantize; the twin is quantizeRow.
func quantizeRowAVX512(dst []byte, x []float32, group int, p place) {
	if p.part > 0 {
		quantizeRow(dst, x, group, p)
		return
	}
	if n := p.check(dst, x, group); n > 0 {
		quantizeAVX512(&dst[0], &x[0], n, group, &p)
	}
}

// quantizeRowAVX2 is Set.quantize; the twin is quantizeRow.
func quantizeRowAVX2(dst []byte, x []float32, group int, p place) {
	if p.part > 0 {
		quantizeRow(dst, x, group, p)
		return
	}
	if n := p.check(dst, x, group); n > 0 {
		quantizeAVX2(&dst[0], &x[0], n, group, &p)
	}
}

// check panics if a row of x does not fit dst, and returns the number of its groups.
func (p place) check(dst []byte, x []float32, group int) int {
	n := len(x) / group
	last := p.first + (n-1)*p.next
	if n > 0 && (group%16 != 0 || last+p.tail+2*p.across+4 > len(dst) || last+(group/4-1)*p.vector+4 > len(dst)) {
		panic("cpu: row does not fit its strip")
	}
	return n
}

//go:noescape
func quantizeAVX512(dst *byte, x *float32, groups, group int, p *place)

//go:noescape
func quantizeAVX2(dst *byte, x *float32, groups, group int, p *place)
