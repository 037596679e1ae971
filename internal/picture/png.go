package picture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
)

// decodePNG leaves the work to the standard library, once the header is acceptable.
func decodePNG(data []byte, o Options) (m *Image, exif []byte, err error) {
	const header = 8 + 8 + 13 // signature, head of a chunk, IHDR
	if len(data) < header || string(data[12:16]) != "IHDR" {
		return nil, nil, fmt.Errorf("%w: PNG without a header", ErrCorrupt)
	}
	width, height := binary.BigEndian.Uint32(data[16:]), binary.BigEndian.Uint32(data[20:])
	if width > 1<<31-1 || height > 1<<31-1 {
		return nil, nil, fmt.Errorf("%w: PNG of %d×%d pixels", ErrCorrupt, width, height)
	}
	w, h := int(width), int(height)
	if err := checkSize(w, h, 1, o); err != nil {
		return nil, nil, err
	}
	// Deflate makes at most 1032 bytes of one.
	channels := map[byte]int{0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[data[25]]
	if bits := channels * int(data[24]); bits > 0 {
		if err := checkPromise(w, h, len(data), 1032*8/min(bits, 64)); err != nil {
			return nil, nil, err
		}
	}
	decoded, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		var unsupported png.UnsupportedError
		if errors.As(err, &unsupported) {
			return nil, nil, fmt.Errorf("%w: %w", errUnsupported, err)
		}
		return nil, nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return fromImage(decoded, o.OnWhite), pngExif(data), nil
}

// pngExif is the EXIF data of a PNG file that was decoded, nil if there is none.
func pngExif(data []byte) []byte {
	for data = data[8:]; len(data) >= 12; {
		n := int64(binary.BigEndian.Uint32(data))
		if n+12 > int64(len(data)) {
			return nil
		}
		if string(data[4:8]) == "eXIf" {
			return data[8 : 8+n]
		}
		data = data[n+12:]
	}
	return nil
}

// fromImage takes the stored colors of images from the PNG and lossless WebP decoders:
// transparency is dropped or blended over white, and 16-bit colors keep the high byte.
func fromImage(in image.Image, onWhite bool) *Image {
	m := newImage(in.Bounds().Dx(), in.Bounds().Dy())
	switch in := in.(type) {
	case *image.Gray:
		m.take(in.Pix, in.Stride, 1, [4]int{0, 0, 0, -1}, false)
	case *image.Gray16:
		m.take(in.Pix, in.Stride, 2, [4]int{0, 0, 0, -1}, false)
	case *image.RGBA: // PNG's decoder makes it where everything is opaque
		m.take(in.Pix, in.Stride, 4, [4]int{0, 1, 2, -1}, false)
	case *image.RGBA64:
		m.take(in.Pix, in.Stride, 8, [4]int{0, 2, 4, -1}, false)
	case *image.NRGBA:
		m.take(in.Pix, in.Stride, 4, [4]int{0, 1, 2, 3}, onWhite)
	case *image.NRGBA64:
		m.take(in.Pix, in.Stride, 8, [4]int{0, 2, 4, 6}, onWhite)
	case *image.Paletted:
		m.look(in.Pix, in.Stride, colors(in.Palette, onWhite))
	default:
		panic(fmt.Sprintf("image: decoded to %T", in))
	}
	return m
}

// take copies pixels of step bytes, in which at is where red, green, blue and alpha are.
func (m *Image) take(pix []byte, stride, step int, at [4]int, onWhite bool) {
	red, green, blue, alpha := at[0], at[1], at[2], at[3]
	for y := range m.Height {
		from, to := pix[y*stride:], m.row(y)
		for len(to) >= 3 {
			to[0], to[1], to[2] = from[red], from[green], from[blue]
			if onWhite {
				a := from[alpha]
				to[0], to[1], to[2] = over(to[0], a), over(to[1], a), over(to[2], a)
			}
			to, from = to[3:], from[step:]
		}
	}
}

// look looks pixels up in a palette.
func (m *Image) look(pix []byte, stride int, colors *[256][3]byte) {
	for y := range m.Height {
		from, to := pix[y*stride:], m.row(y)
		for x := range m.Width {
			copy(to[3*x:3*x+3], colors[from[x]][:])
		}
	}
}

// colors is a palette of PNG's decoder, whose entries are as stored.
func colors(p color.Palette, onWhite bool) *[256][3]byte {
	table := new([256][3]byte)
	for i, c := range p {
		switch c := c.(type) {
		case color.RGBA:
			table[i] = [3]byte{c.R, c.G, c.B}
		case color.NRGBA:
			table[i] = [3]byte{c.R, c.G, c.B}
			if onWhite {
				table[i] = [3]byte{over(c.R, c.A), over(c.G, c.A), over(c.B, c.A)}
			}
		}
	}
	return table
}
