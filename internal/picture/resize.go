package picture

import (
	"encoding/binary"
	"sync"
)

// axis resamples one axis: each sample of the result is a sum of neighbors times weights.
type axis struct {
	first   []int   // of the neighbors
	weights []int16 // [samples, taps], padded with zeros
	taps    int
	shift   uint // the weights are times 2^shift
}

// newAxis makes the weights for n samples resampled to m: Keys' cubic with a = -0.5, stretched when
// shrinking, in 16 bits. float64 conversions keep compilers from fusing products into sums: the
// weights are the reference's to the bit.
func newAxis(n, m int) *axis {
	scale := float64(n) / float64(m)
	support, inverse := 2*max(scale, 1), 1/max(scale, 1)
	a := &axis{first: make([]int, m)}
	rows := make([][]float64, m)
	top := 0.0
	for i := range rows {
		center := float64(scale * (float64(i) + 0.5))
		from := max(int(center-support+0.5), 0)
		row := make([]float64, min(int(center+support+0.5), n)-from)
		sum := 0.0
		for j := range row {
			row[j] = cubic(float64((float64(j+from) - center + 0.5) * inverse))
			sum += row[j]
		}
		for j := range row {
			row[j] /= sum
			top = max(top, row[j])
		}
		a.first[i], rows[i] = from, row
		a.taps = max(a.taps, len(row))
	}
	for a.shift < 22 && int(0.5+float64(top*float64(int(2)<<a.shift))) < 1<<15 {
		a.shift++
	}
	a.weights = make([]int16, m*a.taps)
	for i, row := range rows {
		for j, w := range row {
			w = float64(w * float64(int(1)<<a.shift))
			if w < 0 {
				w -= 0.5
			} else {
				w += 0.5
			}
			a.weights[i*a.taps+j] = int16(w)
		}
		// Zeros stand before the neighbors where they would reach behind the end.
		if over := a.first[i] + a.taps - n; over > 0 {
			a.first[i] -= over
			w := a.weights[i*a.taps : (i+1)*a.taps]
			copy(w[over:], w[:len(row)])
			clear(w[:over])
		}
	}
	return a
}

// cubic is Keys' kernel (1981).
func cubic(x float64) float64 {
	const a = -0.5
	x = max(x, -x)
	switch {
	case x < 1:
		return float64(float64((float64((a+2)*x)-(a+3))*x)*x) + 1
	case x < 2:
		return float64((float64((float64((x-5)*x)+8)*x) - 4) * a)
	}
	return 0
}

// resize scales the image: rows first, then columns, bytes in between. A side that keeps its
// length is not touched. At most threads threads share the rows; the result does not depend on it.
func (m *Image) resize(width, height, threads int) *Image {
	if width != m.Width {
		out, a := newImage(width, m.Height), newAxis(m.Width, width)
		split(threads, (m.Height+1)/2, func(from, to int) {
			packed := make([][3]uint64, m.Width)
			for y := 2 * from; y < min(2*to, m.Height); y += 2 {
				next := min(y+1, m.Height-1) // an odd last row is computed twice
				a.rows(out.row(y), out.row(next), m.row(y), m.row(next), packed)
			}
		})
		m = out
	}
	if height != m.Height {
		out, a := newImage(width, height), newAxis(m.Height, height)
		split(threads, height, func(from, to int) {
			for y := from; y < to; y++ {
				a.column(out.row(y), m, y)
			}
		})
		m = out
	}
	return m
}

// Two sums in one: with p = x + y·2^32, w·p is w·x + w·y·2^32, and sums of it are two sums in one
// integer as long as each fits into 32 bits. Here they do: 2^15 times 2^8, weights adding up to about 1.

// low and high are the two sums, shifted and clamped. A negative low sum has borrowed one from the
// high one.
func low(sum uint64, shift uint) byte { return clamp(int32(sum) >> (shift & 31)) }

func high(sum uint64, shift uint) byte {
	return clamp((int32(sum>>32) - int32(sum)>>31) >> (shift & 31))
}

// rows resamples two rows of RGB. packed has a pixel for each of an input row.
func (a *axis) rows(out0, out1, in0, in1 []byte, packed [][3]uint64) {
	for i := range packed {
		p, q := in0[3*i:3*i+3:3*i+3], in1[3*i:3*i+3:3*i+3]
		packed[i] = [3]uint64{uint64(p[0]) | uint64(q[0])<<32, uint64(p[1]) | uint64(q[1])<<32, uint64(p[2]) | uint64(q[2])<<32}
	}
	half := uint64(1) << (a.shift - 1)
	half |= half << 32
	for i, first := range a.first {
		r, g, b := half, half, half
		weights := a.weights[i*a.taps : (i+1)*a.taps]
		pixels := packed[first:][:len(weights)]
		for j, weight := range weights {
			w, p := uint64(int64(weight)), &pixels[j]
			r += w * p[0]
			g += w * p[1]
			b += w * p[2]
		}
		o0, o1 := out0[3*i:3*i+3:3*i+3], out1[3*i:3*i+3:3*i+3]
		o0[0], o0[1], o0[2] = low(r, a.shift), low(g, a.shift), low(b, a.shift)
		o1[0], o1[1], o1[2] = high(r, a.shift), high(g, a.shift), high(b, a.shift)
	}
}

// column resamples to row y of the result, eight bytes at a time.
func (a *axis) column(out []byte, in *Image, y int) {
	const even = 0x000000ff_000000ff
	weights := a.weights[y*a.taps : (y+1)*a.taps]
	stride := 3 * in.Width
	top := in.Pix[a.first[y]*stride:]
	half := uint64(1) << (a.shift - 1)
	half |= half << 32
	x := 0
	for ; x+8 <= len(out); x += 8 {
		s0, s1, s2, s3 := half, half, half, half // bytes 0 and 4, 1 and 5, 2 and 6, 3 and 7
		at := x
		for _, weight := range weights {
			w, v := uint64(int64(weight)), binary.LittleEndian.Uint64(top[at:at+8])
			at += stride
			s0 += w * (v & even)
			s1 += w * (v >> 8 & even)
			s2 += w * (v >> 16 & even)
			s3 += w * (v >> 24 & even)
		}
		o := out[x : x+8 : x+8]
		o[0], o[1], o[2], o[3] = low(s0, a.shift), low(s1, a.shift), low(s2, a.shift), low(s3, a.shift)
		o[4], o[5], o[6], o[7] = high(s0, a.shift), high(s1, a.shift), high(s2, a.shift), high(s3, a.shift)
	}
	for ; x < len(out); x++ {
		sum := int32(1) << (a.shift - 1)
		for j, w := range weights {
			sum += int32(w) * int32(top[x+j*stride])
		}
		out[x] = clamp(sum >> a.shift)
	}
}

// split calls work for parts of [0, n) on at most threads threads.
func split(threads, n int, work func(from, to int)) {
	threads = max(min(threads, n), 1)
	var group sync.WaitGroup
	for i := 1; i < threads; i++ {
		group.Go(func() { work(i*n/threads, (i+1)*n/threads) })
	}
	work(0, n/threads)
	group.Wait()
}
