package picture

import (
	"encoding/binary"
	"fmt"
)

// The standard library's JPEG decoder has another inverse transform than libjpeg and repeats
// chroma samples where libjpeg interpolates: on 4:2:0 images it is off by up to 75 levels. Vision
// towers are trained on libjpeg's bytes. This decoder has them bit for bit.

// Markers.
const (
	mSOF0 = 0xc0 // baseline
	mSOF1 = 0xc1 // extended, Huffman
	mSOF2 = 0xc2 // progressive, Huffman
	mDHT  = 0xc4
	mJPG  = 0xc8
	mDAC  = 0xcc
	mRST0 = 0xd0
	mRST7 = 0xd7
	mSOI  = 0xd8
	mEOI  = 0xd9
	mSOS  = 0xda
	mDQT  = 0xdb
	mDRI  = 0xdd
	mAPP0 = 0xe0
	mAPP1 = 0xe1
	mAPPE = 0xee
)

const (
	// maxScans and maxVisits bound the decoding time: each scan may cost a few bytes and
	// a pass over all blocks. Encoders write about ten scans; those of the largest image that
	// is allowed by default visit half as many blocks.
	maxScans  = 200
	maxVisits = 1 << 26
	// blocksPerByte: a block of 64 pixels takes at least one bit of the first scan.
	blocksPerByte = 8
)

// zigzag is where the k-th coefficient of a stream stands in a block.
var zigzag = [64]uint8{
	0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5,
	12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21, 28,
	35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
	58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
}

type jpegDecoder struct {
	data    []byte
	pos     int
	options Options

	width, height int
	progressive   bool
	components    []*jpegComponent
	hMax, vMax    int
	mcusX, mcusY  int

	quant   [4]*[64]int32 // natural order
	huffman [2][4]*huffmanTable
	restart int // MCUs between restart markers, 0 for none
	scans   int
	visits  int // of blocks, by all scans

	jfif  bool
	adobe int // color transform of Adobe's segment, -1 without one
	exif  []byte
}

type jpegComponent struct {
	id            byte
	h, v          int // sampling factors
	quantIndex    byte
	quant         *[64]int32 // of its first scan, nil before
	width, height int        // samples that belong to the image
	blocksX       int        // in a row of the plane: whole MCUs
	blocksY       int
	plane         []byte  // [8*blocksY, 8*blocksX]
	coefficients  []int16 // [blocksY, blocksX, 64], of progressive images
	live          []bool  // of each block: it has a coefficient other than the first
	missing       [64]int // low bits of each coefficient that no scan has given yet, in zigzag order; -1: all
	dc            int32   // of the previous block
}

func decodeJPEG(data []byte, o Options) (m *Image, exif []byte, err error) {
	d := &jpegDecoder{data: data, pos: 2, options: o, adobe: -1}
	m, err = d.decode()
	return m, d.exif, err
}

func (d *jpegDecoder) decode() (*Image, error) {
	for {
		marker, ok := d.nextMarker()
		if !ok || marker == mEOI {
			break // some writers forget the end
		}
		if marker >= mRST0 && marker <= mRST7 || marker == 0x01 {
			continue
		}
		segment, ok := d.segment()
		if !ok {
			return nil, d.truncated()
		}
		if err := d.process(marker, segment); err != nil {
			return nil, err
		}
	}
	if d.components == nil {
		return nil, fmt.Errorf("%w: JPEG without a frame", ErrCorrupt)
	}
	for _, c := range d.components {
		if c.quant == nil {
			return nil, d.truncated()
		}
		if d.progressive {
			for i := range c.blocksX * c.blocksY {
				c.put((*[64]int16)(c.coefficients[64*i:]), i%c.blocksX, i/c.blocksX)
			}
			c.coefficients = nil
		}
	}
	return d.convert(), nil
}

func (d *jpegDecoder) truncated() error {
	return fmt.Errorf("%w: JPEG ends after %d bytes, before the image is complete", ErrCorrupt, len(d.data))
}

// nextMarker skips bytes up to and including the next marker.
func (d *jpegDecoder) nextMarker() (marker byte, ok bool) {
	for ; d.pos+1 < len(d.data); d.pos++ {
		if m := d.data[d.pos+1]; d.data[d.pos] == 0xff && m != 0 && m != 0xff {
			d.pos += 2
			return m, true
		}
	}
	return 0, false
}

// segment returns the bytes of a marker's segment and skips them.
func (d *jpegDecoder) segment() ([]byte, bool) {
	if d.pos+2 > len(d.data) {
		return nil, false
	}
	n := int(binary.BigEndian.Uint16(d.data[d.pos:]))
	if n < 2 || d.pos+n > len(d.data) {
		return nil, false
	}
	s := d.data[d.pos+2 : d.pos+n]
	d.pos += n
	return s, true
}

func (d *jpegDecoder) process(marker byte, s []byte) error {
	switch marker {
	case mSOF0, mSOF1, mSOF2:
		d.progressive = marker == mSOF2
		return d.frame(s)
	case mDHT:
		return d.huffmanTables(s)
	case mDQT:
		return d.quantTables(s)
	case mDRI:
		if len(s) < 2 {
			return fmt.Errorf("%w: JPEG with a short restart interval", ErrCorrupt)
		}
		d.restart = int(binary.BigEndian.Uint16(s))
	case mSOS:
		return d.scan(s)
	case mAPP0:
		d.jfif = d.jfif || begins(s, "JFIF\x00")
	case mAPP1:
		if d.exif == nil && begins(s, "Exif\x00") {
			d.exif = s
		}
	case mAPPE:
		if begins(s, "Adobe") && len(s) >= 12 {
			d.adobe = int(s[11])
		}
	case mSOI:
		return fmt.Errorf("%w: JPEG begins again before its end", ErrCorrupt)
	default:
		if marker >= mSOF0 && marker < mRST0 && marker != mJPG || marker == mDAC {
			kind := "lossless or hierarchical"
			if marker > mJPG {
				kind = "arithmetic-coded"
			}
			return fmt.Errorf("%w: %s JPEG, want baseline or progressive", errUnsupported, kind)
		}
	}
	return nil
}

// frame reads the header of the image and allocates it.
func (d *jpegDecoder) frame(s []byte) error {
	if d.components != nil {
		return fmt.Errorf("%w: JPEG with two frames", ErrCorrupt)
	}
	if len(s) < 6 || len(s) < 6+3*int(s[5]) {
		return fmt.Errorf("%w: JPEG with a short frame header", ErrCorrupt)
	}
	if s[0] != 8 {
		return fmt.Errorf("%w: JPEG of %d bits, want 8", errUnsupported, s[0])
	}
	d.height, d.width = int(binary.BigEndian.Uint16(s[1:])), int(binary.BigEndian.Uint16(s[3:]))
	if err := checkSize(d.width, d.height, 1, d.options); err != nil {
		return err
	}
	if err := checkPromise(d.width, d.height, len(d.data)-d.pos, 64*blocksPerByte); err != nil {
		return err
	}
	n := int(s[5])
	if n != 1 && n != 3 && n != 4 {
		return fmt.Errorf("%w: JPEG of %d components, want 1, 3 or 4", errUnsupported, n)
	}
	components := make([]*jpegComponent, n)
	for i := range components {
		c := &jpegComponent{id: s[6+3*i], h: int(s[7+3*i] >> 4), v: int(s[7+3*i] & 15), quantIndex: s[8+3*i]}
		if c.h < 1 || c.h > 4 || c.v < 1 || c.v > 4 || c.quantIndex > 3 {
			return fmt.Errorf("%w: JPEG component with sampling %d×%d and table %d", ErrCorrupt, c.h, c.v, c.quantIndex)
		}
		for k := range c.missing {
			c.missing[k] = -1
		}
		for _, other := range components[:i] {
			if other.id == c.id {
				return fmt.Errorf("%w: JPEG with two components %d", ErrCorrupt, c.id)
			}
		}
		d.hMax, d.vMax = max(d.hMax, c.h), max(d.vMax, c.v)
		components[i] = c
	}
	d.mcusX, d.mcusY = ceilDiv(d.width, 8*d.hMax), ceilDiv(d.height, 8*d.vMax)
	for _, c := range components {
		if d.hMax%c.h != 0 || d.vMax%c.v != 0 {
			return fmt.Errorf("%w: JPEG with samples %d×%d to %d×%d", errUnsupported, c.h, c.v, d.hMax, d.vMax)
		}
		c.width, c.height = ceilDiv(d.width*c.h, d.hMax), ceilDiv(d.height*c.v, d.vMax)
		c.blocksX, c.blocksY = d.mcusX*c.h, d.mcusY*c.v
		c.plane = make([]byte, 64*c.blocksX*c.blocksY)
		if d.progressive {
			c.coefficients, c.live = make([]int16, 64*c.blocksX*c.blocksY), make([]bool, c.blocksX*c.blocksY)
		}
	}
	d.components = components
	return nil
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

func (d *jpegDecoder) quantTables(s []byte) error {
	for len(s) > 0 {
		wide, index := int(s[0]>>4), s[0]&15
		n := 64 << wide
		if wide > 1 || index > 3 || len(s) < 1+n {
			return fmt.Errorf("%w: JPEG with a bad quantization table", ErrCorrupt)
		}
		table := new([64]int32)
		for k, at := range zigzag {
			if wide == 1 {
				table[at] = int32(binary.BigEndian.Uint16(s[1+2*k:]))
			} else {
				table[at] = int32(s[1+k])
			}
		}
		d.quant[index] = table
		s = s[1+n:]
	}
	return nil
}

func (d *jpegDecoder) huffmanTables(s []byte) error {
	for len(s) > 0 {
		if len(s) < 17 || s[0]&15 > 3 || s[0]>>4 > 1 {
			return fmt.Errorf("%w: JPEG with a bad Huffman table", ErrCorrupt)
		}
		n := 0
		for _, count := range s[1:17] {
			n += int(count)
		}
		if n > 256 || len(s) < 17+n {
			return fmt.Errorf("%w: JPEG with a bad Huffman table", ErrCorrupt)
		}
		table, ok := newHuffmanTable([16]byte(s[1:17]), s[17:17+n])
		if !ok {
			return fmt.Errorf("%w: JPEG with a bad Huffman table", ErrCorrupt)
		}
		d.huffman[s[0]>>4][s[0]&15] = table
		s = s[17+n:]
	}
	return nil
}
