package picture

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"

	"golang.org/x/image/webp"
)

// webpFrame is the chunks of the image in a WebP file, or of the first frame of an animation.
type webpFrame struct {
	width, height int // of the canvas
	x, y          int // of the frame on the canvas
	alpha         []byte
	kind          string // VP8 or VP8L
	data          []byte
	exif          []byte
}

// decodeWebP reads the container, which x/image supports only without animation, and converts
// lossy images itself: that package returns their planes as if they were JPEG's, without
// interpolation and in the wrong range.
func decodeWebP(data []byte, o Options) (m *Image, exif []byte, err error) {
	var f webpFrame
	if n := int64(binary.LittleEndian.Uint32(data[4:])) + 8; n < int64(len(data)) {
		data = data[:max(n, 12)]
	}
	if err := f.walk(data[12:], false, o); err != nil {
		return nil, nil, err
	}
	if f.data == nil {
		return nil, nil, fmt.Errorf("%w: WebP without an image", ErrCorrupt)
	}
	w, h, err := f.size()
	if err != nil {
		return nil, nil, err
	}
	if err := checkSize(w, h, 1, o); err != nil {
		return nil, nil, err
	}
	if f.width == 0 {
		f.width, f.height = w, h
	}
	if f.x+w > f.width || f.y+h > f.height {
		return nil, nil, fmt.Errorf("%w: WebP of %d×%d pixels with a frame of %d×%d at %d, %d", ErrCorrupt, f.width, f.height, w, h, f.x, f.y)
	}
	m, err = f.decode(w, h, o.OnWhite)
	if err == nil && (w != f.width || h != f.height) {
		canvas := newImage(f.width, f.height)
		if o.OnWhite {
			canvas.fill(canvas.bounds(), [3]byte{255, 255, 255})
		}
		canvas.lay(m, image.Pt(f.x, f.y))
		m = canvas
	}
	return m, f.exif, err
}

// walk reads the chunks of the file, or of a frame.
func (f *webpFrame) walk(chunks []byte, inFrame bool, o Options) error {
	for len(chunks) >= 8 {
		kind, n := string(chunks[:4]), int64(binary.LittleEndian.Uint32(chunks[4:]))
		chunks = chunks[8:]
		if n > int64(len(chunks)) {
			return fmt.Errorf("%w: WebP ends %d bytes before its chunk %q does", ErrCorrupt, n-int64(len(chunks)), kind)
		}
		chunk := chunks[:n]
		chunks = chunks[min(n+n&1, int64(len(chunks))):]
		switch {
		case kind == "VP8X" && len(chunk) >= 10:
			f.width, f.height = 1+int(le24(chunk[4:])), 1+int(le24(chunk[7:]))
			if err := checkSize(f.width, f.height, 1, o); err != nil {
				return err
			}
		case kind == "EXIF":
			f.exif = chunk
		case f.data != nil: // only the first image counts
		case kind == "ALPH":
			f.alpha = chunk
		case kind == "VP8 ", kind == "VP8L":
			f.kind, f.data = kind, chunk
		case kind == "ANMF" && len(chunk) >= 16 && !inFrame:
			f.x, f.y = 2*int(le24(chunk)), 2*int(le24(chunk[3:]))
			if err := f.walk(chunk[16:], true, o); err != nil {
				return err
			}
		}
	}
	return nil
}

func le24(b []byte) uint32 { return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 }

// size is the declared size of the compressed image.
func (f *webpFrame) size() (width, height int, err error) {
	switch {
	case f.kind == "VP8 " && len(f.data) >= 10:
		return int(binary.LittleEndian.Uint16(f.data[6:]) & 0x3fff), int(binary.LittleEndian.Uint16(f.data[8:]) & 0x3fff), nil
	case f.kind == "VP8L" && len(f.data) >= 5:
		bits := binary.LittleEndian.Uint32(f.data[1:])
		return int(bits&0x3fff) + 1, int(bits>>14&0x3fff) + 1, nil
	}
	return 0, 0, fmt.Errorf("%w: WebP with %d bytes of image", ErrCorrupt, len(f.data))
}

// decode decodes the image with x/image as a separate file, with its transparency only if that
// matters.
func (f *webpFrame) decode(width, height int, onWhite bool) (*Image, error) {
	var file []byte
	chunk := func(kind string, data []byte) {
		file = append(file, kind...)
		file = binary.LittleEndian.AppendUint32(file, uint32(len(data)))
		file = append(file, data...)
		file = append(file, 0)[:len(file)+len(data)&1]
	}
	if onWhite && f.alpha != nil && f.kind == "VP8 " {
		w, h := uint32(width-1), uint32(height-1)
		chunk("VP8X", []byte{1 << 4, 0, 0, 0, byte(w), byte(w >> 8), byte(w >> 16), byte(h), byte(h >> 8), byte(h >> 16)})
		chunk("ALPH", f.alpha)
	}
	chunk(f.kind, f.data)
	head := binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(4+len(file)))
	decoded, err := webp.Decode(bytes.NewReader(append(append(head, "WEBP"...), file...)))
	if err != nil {
		return nil, fmt.Errorf("%w: WebP: %w", ErrCorrupt, err)
	}
	switch decoded := decoded.(type) {
	case *image.YCbCr:
		return fromVideo(decoded), nil
	case *image.NYCbCrA:
		m := fromVideo(&decoded.YCbCr)
		for i := range m.Pix {
			x, y := i/3%m.Width, i/3/m.Width
			m.Pix[i] = over(m.Pix[i], decoded.A[y*decoded.AStride+x])
		}
		return m, nil
	default:
		return fromImage(decoded, onWhite), nil
	}
}

// fromVideo converts planes of VP8, chroma halved both ways, range 16 to 235, as libwebp does: in
// integers, of four neighbors the nearest counts nine times, the next three, the last once.
func fromVideo(in *image.YCbCr) *Image {
	m := newImage(in.Rect.Dx(), in.Rect.Dy())
	halfW, halfH := (m.Width+1)/2, (m.Height+1)/2
	blue, red := make([]byte, 2*halfW), make([]byte, 2*halfW)
	for y := range m.Height {
		near := y / 2
		far := min(max(near-1+2*(y%2), 0), halfH-1)
		interpolate(blue, in.Cb[near*in.CStride:][:halfW], in.Cb[far*in.CStride:][:halfW])
		interpolate(red, in.Cr[near*in.CStride:][:halfW], in.Cr[far*in.CStride:][:halfW])
		luma, out := in.Y[y*in.YStride:][:m.Width], m.row(y)
		for x, l := range luma {
			y, b, r := int32(l)*19077>>8, int32(blue[x]), int32(red[x])
			o := out[3*x : 3*x+3 : 3*x+3]
			o[0] = clamp((y + r*26149>>8 - 14234) >> 6)
			o[1] = clamp((y - b*6419>>8 - r*13320>>8 + 8708) >> 6)
			o[2] = clamp((y + b*33050>>8 - 17685) >> 6)
		}
	}
	return m
}

// interpolate makes two samples of each, between two rows of which the first is nearer.
func interpolate(out, near, far []byte) {
	for x := range near {
		n, v := int32(near[x]), int32(far[x])
		for side := range 2 {
			at := x - 1 + 2*side
			if at < 0 || at >= len(near) {
				out[2*x+side] = byte((3*n + v + 2) >> 2)
				continue
			}
			h, d := int32(near[at]), int32(far[at])
			out[2*x+side] = byte(((n+3*h+3*v+d+8)>>3 + n) >> 1)
		}
	}
}
