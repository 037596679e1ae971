package picture

import (
	"encoding/binary"
	"fmt"
)

// huffmanTable decodes one code at a time: short codes by a table, longer ones by their length.
type huffmanTable struct {
	short   [1 << shortBits]uint16 // length<<8 | value of the code with this beginning; 0: none, or longer
	maxCode [18]int32              // highest code of a length, -1 for none; the last stops every search
	offset  [17]int32              // of a length's codes in values
	values  []byte
}

const shortBits = 9

// newHuffmanTable makes a table of the number of codes of each length, from 1, and their values.
func newHuffmanTable(counts [16]byte, values []byte) (*huffmanTable, bool) {
	t := &huffmanTable{values: values}
	code, k := int32(0), int32(0)
	for i, count := range counts {
		length := i + 1
		t.offset[length] = k - code
		t.maxCode[length] = -1
		for range count {
			if code >= 1<<length {
				return nil, false
			}
			if length <= shortBits {
				first := code << (shortBits - length)
				for j := range int32(1) << (shortBits - length) {
					t.short[first+j] = uint16(length)<<8 | uint16(values[k])
				}
			}
			t.maxCode[length] = code
			code, k = code+1, k+1
		}
		code <<= 1
	}
	t.maxCode[17] = 1 << 30
	return t, true
}

// bitReader reads the bits between two markers. Behind the end it reads zeros, see overrun.
type bitReader struct {
	data []byte
	pos  int
	bits uint64 // the next ones, from the highest
	n    int    // of them
	pad  int    // zeros among them beyond the data
}

// fill makes n at least 32: enough for one code and its extra bits.
func (r *bitReader) fill() {
	if r.n >= 32 {
		return
	}
	if r.pos+4 <= len(r.data) {
		v := binary.BigEndian.Uint32(r.data[r.pos:])
		if not := ^v; (not-0x01010101)&v&0x80808080 == 0 { // no byte is 0xff
			r.bits |= uint64(v) << (32 - r.n)
			r.n += 32
			r.pos += 4
			return
		}
	}
	for r.n <= 56 {
		b, ok := r.next()
		if !ok {
			r.pad += 64 - r.n
			r.n = 64
			return
		}
		r.bits |= uint64(b) << (56 - r.n)
		r.n += 8
	}
}

// next is the next byte before a marker.
func (r *bitReader) next() (byte, bool) {
	if r.pos >= len(r.data) {
		return 0, false
	}
	b := r.data[r.pos]
	if b != 0xff {
		r.pos++
		return b, true
	}
	if r.pos+1 >= len(r.data) || r.data[r.pos+1] != 0 {
		return 0, false
	}
	r.pos += 2
	return b, true
}

// overrun reports whether bits were taken that the data does not have.
func (r *bitReader) overrun() bool { return r.n < r.pad }

// take is the next n bits, at most 16 after a fill and a code.
func (r *bitReader) take(n uint) int32 {
	v := int32(r.bits >> 48 >> (16 - n))
	r.bits <<= n
	r.n -= int(n)
	return v
}

// symbol is the value of the next code.
func (r *bitReader) symbol(t *huffmanTable) (byte, bool) {
	r.fill()
	if e := t.short[r.bits>>(64-shortBits)]; e != 0 {
		r.bits <<= e >> 8
		r.n -= int(e >> 8)
		return byte(e), true
	}
	length := 1
	for int32(r.bits>>48>>(16-length)) > t.maxCode[length] {
		length++
		if length > 16 {
			return 0, false
		}
	}
	return t.values[r.take(uint(length))+t.offset[length]], true
}

// extended is a coefficient of n bits: those that begin with 0 are negative.
func (r *bitReader) extended(n uint) int32 {
	v := r.take(n)
	if v < 1<<n>>1 {
		v += -1<<n + 1
	}
	return v
}

// jpegScan is one pass over the blocks of some components.
type jpegScan struct {
	bitReader
	components  []*jpegComponent
	dc, ac      []*huffmanTable
	perMCU      int   // blocks
	first, last int   // coefficients, in zigzag order
	high, low   uint  // successive approximation: bits known before and after
	endRun      int   // blocks without further coefficients
	live        *bool // of the block, see jpegComponent
	block       func(s *jpegScan, i int, b *[64]int16) bool
}

// scan reads the header of a scan and its blocks.
func (d *jpegDecoder) scan(header []byte) error {
	if d.components == nil {
		return fmt.Errorf("%w: JPEG with a scan before its frame", ErrCorrupt)
	}
	if d.scans++; d.scans > maxScans {
		return fmt.Errorf("%w: JPEG with more than %d scans", errTooLarge, maxScans)
	}
	s, err := d.newScan(header)
	if err != nil {
		return err
	}
	s.data, s.pos = d.data, d.pos
	perRow, rows := d.mcusX, d.mcusY
	if len(s.components) == 1 {
		c := s.components[0]
		perRow, rows = ceilDiv(c.width, 8), ceilDiv(c.height, 8)
	}
	if d.visits += perRow * rows * s.perMCU; d.visits > maxVisits {
		return fmt.Errorf("%w: JPEG with more than %d blocks in its scans", errTooLarge, maxVisits)
	}
	expected := byte(mRST0)
	for mcu := range perRow * rows {
		if d.restart > 0 && mcu > 0 && mcu%d.restart == 0 {
			d.pos = s.pos
			if marker, ok := d.nextMarker(); !ok || marker != expected {
				return fmt.Errorf("%w: JPEG without its restart marker %d", ErrCorrupt, expected-mRST0)
			}
			expected = mRST0 + (expected+1)&7
			s.bitReader = bitReader{data: d.data, pos: d.pos}
			s.endRun = 0
			for _, c := range s.components {
				c.dc = 0
			}
		}
		if !s.mcu(mcu%perRow, mcu/perRow, d.progressive) {
			return fmt.Errorf("%w: JPEG with bad codes at byte %d", ErrCorrupt, s.pos)
		}
		if s.overrun() {
			if s.pos+1 >= len(s.data) {
				return d.truncated()
			}
			return fmt.Errorf("%w: JPEG data ends at byte %d, before the image is complete", ErrCorrupt, s.pos)
		}
	}
	d.pos = s.pos
	return nil
}

func (d *jpegDecoder) newScan(header []byte) (*jpegScan, error) {
	bad := fmt.Errorf("%w: JPEG with a bad scan header", ErrCorrupt)
	if len(header) < 1 || header[0] < 1 || int(header[0]) > len(d.components) || len(header) < 4+2*int(header[0]) {
		return nil, bad
	}
	s := &jpegScan{}
	n := int(header[0])
	approximation := header[3+2*n]
	s.first, s.last = int(header[1+2*n]), int(header[2+2*n])
	s.high, s.low = uint(approximation>>4), uint(approximation&15)
	switch {
	case !d.progressive:
		s.first, s.last, s.high, s.low, s.block = 0, 63, 0, 0, (*jpegScan).baseline // the header is ignored
	case s.first > s.last || s.last > 63 || s.low > 13 || s.high > 0 && s.high != s.low+1, s.first == 0 && s.last > 0, s.first > 0 && n > 1:
		return nil, bad
	case s.first == 0 && s.high == 0:
		s.block = (*jpegScan).firstDC
	case s.first == 0:
		s.block = (*jpegScan).refineDC
	case s.high == 0:
		s.block = (*jpegScan).firstAC
	default:
		s.block = (*jpegScan).refineAC
	}
	for i := range n {
		id, tables := header[1+2*i], header[2+2*i]
		var c *jpegComponent
		for _, known := range d.components {
			if known.id == id {
				c = known
			}
		}
		if c == nil || tables>>4 > 3 || tables&15 > 3 {
			return nil, bad
		}
		for _, other := range s.components {
			if other == c {
				return nil, bad
			}
		}
		if c.quant == nil {
			if d.quant[c.quantIndex] == nil {
				return nil, fmt.Errorf("%w: JPEG without quantization table %d", ErrCorrupt, c.quantIndex)
			}
			c.quant = d.quant[c.quantIndex]
		}
		dc, ac := d.huffman[0][tables>>4], d.huffman[1][tables&15]
		if dc == nil && s.first == 0 && s.high == 0 || ac == nil && s.last > 0 {
			return nil, fmt.Errorf("%w: JPEG without the Huffman table of component %d", ErrCorrupt, id)
		}
		if d.progressive && !s.follows(c) {
			return nil, fmt.Errorf("%w: JPEG with a scan of component %d that does not follow from the scans before", ErrCorrupt, id)
		}
		c.dc = 0
		s.components, s.dc, s.ac = append(s.components, c), append(s.dc, dc), append(s.ac, ac)
		s.perMCU += c.h * c.v
	}
	if n == 1 {
		s.perMCU = 1
	}
	if s.perMCU > 10 {
		return nil, bad
	}
	return s, nil
}

// follows notes which bits the scan brings to a component, if these are the next ones. Scans that
// come again would cost time that the size of a file does not bound.
func (s *jpegScan) follows(c *jpegComponent) bool {
	for k := s.first; k <= s.last; k++ {
		if s.high == 0 && c.missing[k] >= 0 || s.high > 0 && c.missing[k] != int(s.high) {
			return false
		}
		c.missing[k] = int(s.low)
	}
	return true
}

// mcu reads the blocks of the MCU at column x and row y: one block if the scan has one component.
func (s *jpegScan) mcu(x, y int, progressive bool) bool {
	for i, c := range s.components {
		h, v := c.h, c.v
		if len(s.components) == 1 {
			h, v = 1, 1
		}
		for j := range h * v {
			bx, by := x*h+j%h, y*v+j/h
			if progressive {
				at := by*c.blocksX + bx
				s.live = &c.live[at]
				if !s.block(s, i, (*[64]int16)(c.coefficients[64*at:])) {
					return false
				}
				continue
			}
			var b [64]int16
			if !s.baseline(i, &b) {
				return false
			}
			c.put(&b, bx, by)
		}
	}
	return true
}

// baseline reads a whole block.
func (s *jpegScan) baseline(i int, b *[64]int16) bool {
	if !s.firstDC(i, b) {
		return false
	}
	ac := s.ac[i]
	for k := 1; k < 64; k++ {
		v, ok := s.symbol(ac)
		if !ok {
			return false
		}
		run, n := int(v>>4), uint(v&15)
		if n == 0 && run < 15 {
			return true
		}
		k += run
		if n == 0 {
			continue
		}
		if k > 63 {
			return false
		}
		b[zigzag[k]] = int16(s.extended(n))
	}
	return true
}

// firstDC reads the first coefficient, or its high bits.
func (s *jpegScan) firstDC(i int, b *[64]int16) bool {
	n, ok := s.symbol(s.dc[i])
	if !ok || n > 15 {
		return false
	}
	c := s.components[i]
	c.dc += s.extended(uint(n))
	b[0] = int16(c.dc << s.low)
	return true
}

// refineDC reads one more bit of the first coefficient.
func (s *jpegScan) refineDC(_ int, b *[64]int16) bool {
	s.fill()
	b[0] |= int16(s.take(1) << s.low)
	return true
}

// firstAC reads some coefficients, or their high bits.
func (s *jpegScan) firstAC(i int, b *[64]int16) bool {
	if s.endRun > 0 {
		s.endRun--
		return true
	}
	for k := s.first; k <= s.last; k++ {
		v, ok := s.symbol(s.ac[i])
		if !ok {
			return false
		}
		run, n := int(v>>4), uint(v&15)
		if n == 0 && run < 15 {
			s.endRun = 1<<run - 1 + int(s.take(uint(run)))
			return true
		}
		k += run
		if n == 0 {
			continue
		}
		if k > 63 {
			return false
		}
		b[zigzag[k]] = int16(s.extended(n) << s.low)
		*s.live = true
	}
	return true
}

// refineAC reads one more bit of known coefficients, and new coefficients with this bit.
func (s *jpegScan) refineAC(i int, b *[64]int16) bool {
	k, one := s.first, int16(1)<<s.low
	if s.endRun == 0 {
		for ; k <= s.last; k++ {
			v, ok := s.symbol(s.ac[i])
			if !ok {
				return false
			}
			run, value := int(v>>4), int16(0)
			switch {
			case v&15 == 0 && run < 15:
				s.endRun = 1<<run + int(s.take(uint(run)))
			case v&15 == 1:
				value = -one
				if s.take(1) == 1 {
					value = one
				}
			case v&15 > 1:
				return false
			}
			if s.endRun > 0 {
				break
			}
			k = s.refine(b, k, run)
			if value != 0 {
				if k > s.last {
					return false
				}
				b[zigzag[k]] = value
				*s.live = true
			}
		}
	}
	if s.endRun > 0 {
		s.endRun--
		if *s.live {
			s.refine(b, k, -1)
		}
	}
	return true
}

// refine reads a bit for each nonzero coefficient from k on, until it has passed run zero
// ones, and returns the index of the next zero one. A negative run means to the end.
func (s *jpegScan) refine(b *[64]int16, k, run int) int {
	one := int16(1) << s.low
	for ; k <= s.last; k++ {
		at := &b[zigzag[k]]
		if *at == 0 {
			if run == 0 {
				break
			}
			run--
			continue
		}
		s.fill()
		if s.take(1) == 1 && *at&one == 0 {
			if *at > 0 {
				*at += one
			} else {
				*at -= one
			}
		}
	}
	return k
}
