package picture

// Constants of the inverse transform (Loeffler, Ligtenberg and Moschytz 1989, with 11 products),
// times 2^13 and rounded. The order of additions and the two roundings are those of libjpeg's "islow",
// the de facto reference.
const (
	c0298631336 = 2446
	c0390180644 = 3196
	c0541196100 = 4433
	c0765366865 = 6270
	c0899976223 = 7373
	c1175875602 = 9633
	c1501321110 = 12299
	c1847759065 = 15137
	c1961570560 = 16069
	c2053119869 = 16819
	c2562915447 = 20995
	c3072711026 = 25172
)

// butterfly is the inverse transform of one row or column, times 2^13.
func butterfly(x0, x1, x2, x3, x4, x5, x6, x7 int32) (y0, y1, y2, y3, y4, y5, y6, y7 int32) {
	z := (x2 + x6) * c0541196100
	e2, e3 := z-x6*c1847759065, z+x2*c0765366865
	e0, e1 := (x0+x4)<<13, (x0-x4)<<13
	e0, e3 = e0+e3, e0-e3
	e1, e2 = e1+e2, e1-e2

	z1, z2, z3, z4 := x7+x1, x5+x3, x7+x3, x5+x1
	z5 := (z3 + z4) * c1175875602
	z1 *= -c0899976223
	z2 *= -c2562915447
	z3 = z5 - z3*c1961570560
	z4 = z5 - z4*c0390180644
	o0 := x7*c0298631336 + z1 + z3
	o1 := x5*c2053119869 + z2 + z4
	o2 := x3*c3072711026 + z2 + z3
	o3 := x1*c1501321110 + z1 + z4
	return e0 + o3, e1 + o2, e2 + o1, e3 + o0, e3 - o0, e2 - o1, e1 - o2, e0 - o3
}

// clamp is v limited to a byte.
func clamp(v int32) byte {
	return byte(min(max(v, 0), 255))
}

// put transforms a block of coefficients into the samples at column bx and row by of blocks.
func (c *jpegComponent) put(b *[64]int16, bx, by int) {
	stride := 8 * c.blocksX
	out := c.plane[8*(by*stride+bx):]
	q := c.quant
	var w [64]int32
	flat := true // only the first column has anything, and there only the first row
	for i := range 8 {
		if b[8+i]|b[16+i]|b[24+i]|b[32+i]|b[40+i]|b[48+i]|b[56+i] == 0 {
			flat = flat && (i == 0 || b[i] == 0)
			v := int32(b[i]) * q[i] << 2
			w[i], w[8+i], w[16+i], w[24+i], w[32+i], w[40+i], w[48+i], w[56+i] = v, v, v, v, v, v, v, v
			continue
		}
		flat = false
		y0, y1, y2, y3, y4, y5, y6, y7 := butterfly(
			int32(b[i])*q[i], int32(b[8+i])*q[8+i], int32(b[16+i])*q[16+i], int32(b[24+i])*q[24+i],
			int32(b[32+i])*q[32+i], int32(b[40+i])*q[40+i], int32(b[48+i])*q[48+i], int32(b[56+i])*q[56+i])
		const half, shift = 1 << 10, 11
		w[i], w[8+i], w[16+i], w[24+i] = (y0+half)>>shift, (y1+half)>>shift, (y2+half)>>shift, (y3+half)>>shift
		w[32+i], w[40+i], w[48+i], w[56+i] = (y4+half)>>shift, (y5+half)>>shift, (y6+half)>>shift, (y7+half)>>shift
	}
	if flat {
		v := clamp((w[0]+16)>>5 + 128)
		for y := range 8 {
			o := out[y*stride : y*stride+8]
			o[0], o[1], o[2], o[3], o[4], o[5], o[6], o[7] = v, v, v, v, v, v, v, v
		}
		return
	}
	for y := range 8 {
		r := w[8*y : 8*y+8 : 8*y+8]
		y0, y1, y2, y3, y4, y5, y6, y7 := butterfly(r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7])
		const half, shift = 128<<18 + 1<<17, 18
		o := out[y*stride : y*stride+8]
		o[0], o[1], o[2], o[3] = clamp((y0+half)>>shift), clamp((y1+half)>>shift), clamp((y2+half)>>shift), clamp((y3+half)>>shift)
		o[4], o[5], o[6], o[7] = clamp((y4+half)>>shift), clamp((y5+half)>>shift), clamp((y6+half)>>shift), clamp((y7+half)>>shift)
	}
}

// row is row y at the image's resolution, for h×v pixels per sample, interpolated as libjpeg does: of
// two neighbors the nearer counts three times. It is in out or in the plane.
func (c *jpegComponent) row(y, h, v int, out []byte) []byte {
	stride := 8 * c.blocksX
	near := y / v
	in := c.plane[near*stride:][:c.width]
	if h == 1 && v == 1 {
		return in
	}
	if v == 2 && (h == 1 || h == 2 && c.width > 2) {
		far := min(max(near-1+2*(y%2), 0), c.height-1)
		other := c.plane[far*stride:][:c.width]
		if h == 2 {
			doubleBoth(out, in, other)
			return out
		}
		for x, s := range in {
			out[x] = byte((3*int32(s) + int32(other[x]) + 1 + int32(y%2)) >> 2)
		}
		return out
	}
	if h == 2 && v == 1 && c.width > 2 {
		double(out, in)
		return out
	}
	for x := range out {
		out[x] = in[x/h]
	}
	return out
}

// double makes two samples of each. out has twice as many, or one less.
func double(out, in []byte) {
	last := len(in) - 1
	for x, s := range in {
		left, right := int32(s), int32(s)
		if x > 0 {
			left = (3*int32(s) + int32(in[x-1]) + 1) >> 2
		}
		if x < last {
			right = (3*int32(s) + int32(in[x+1]) + 2) >> 2
		}
		out[2*x] = byte(left)
		if 2*x+1 < len(out) {
			out[2*x+1] = byte(right)
		}
	}
}

// doubleBoth is double between two rows, of which the first is nearer.
func doubleBoth(out, near, far []byte) {
	far = far[:len(near)]
	this := 3*int32(near[0]) + int32(far[0])
	before := this // the first sample has only itself: 3+1 times
	for x := range near {
		after := this
		if x+1 < len(near) {
			after = 3*int32(near[x+1]) + int32(far[x+1])
		}
		out[2*x] = byte((3*this + before + 8) >> 4)
		if 2*x+1 < len(out) {
			out[2*x+1] = byte((3*this + after + 7) >> 4)
		}
		before, this = this, after
	}
}

// convert makes the image of the planes, in the color space that libjpeg would infer.
func (d *jpegDecoder) convert() *Image {
	m := newImage(d.width, d.height)
	n := len(d.components)
	spare := make([]byte, n*d.width)
	rows := make([][]byte, n)
	ids := ""
	for _, c := range d.components {
		ids += string(rune(c.id))
	}
	luma := n == 3 && (d.jfif || d.adobe > 0 || d.adobe < 0 && ids != "RGB") || n == 4 && d.adobe > 0
	for y := range d.height {
		for i, c := range d.components {
			rows[i] = c.row(y, d.hMax/c.h, d.vMax/c.v, spare[i*d.width:(i+1)*d.width])
		}
		out := m.row(y)
		switch {
		case n == 1:
			for x, v := range rows[0][:d.width] {
				out[3*x], out[3*x+1], out[3*x+2] = v, v, v
			}
			continue
		case luma:
			fromYCbCr(out, rows[0], rows[1], rows[2])
		default:
			for x := range d.width {
				out[3*x], out[3*x+1], out[3*x+2] = rows[0][x], rows[1][x], rows[2][x]
			}
		}
		if n == 4 {
			fromInk(out, rows[3], luma)
		}
	}
	return m
}

// fromYCbCr writes pixels of JPEG's color space, full range.
func fromYCbCr(out, luma, blue, red []byte) {
	n := len(out) / 3
	luma, blue, red = luma[:n], blue[:n], red[:n]
	for x := range luma {
		y, b, r := int32(luma[x]), int32(blue[x])-128, int32(red[x])-128
		o := out[3*x : 3*x+3 : 3*x+3]
		o[0] = clamp(y + (91881*r+32768)>>16)
		o[1] = clamp(y + (-22554*b-46802*r+32768)>>16)
		o[2] = clamp(y + (116130*b+32768)>>16)
	}
}

// fromInk multiplies the inks of pixels with black, as Adobe stores them: 255 is no ink. The reference
// inverts, multiplies and rounds.
func fromInk(out, black []byte, luma bool) {
	for x := range len(out) / 3 {
		k := uint32(black[x])
		for i := range 3 {
			c := uint32(out[3*x+i])
			if luma { // these inks are 255 minus the converted value
				c = 255 - c
			}
			t := (255-c)*k + 128
			out[3*x+i] = byte(k - (t+t>>8)>>8)
		}
	}
}
