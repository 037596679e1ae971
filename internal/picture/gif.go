package picture

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"image/gif"
)

// maxFramesInFile bounds the cost of frames without their pixels.
const maxFramesInFile = 1 << 14

// gifFile is the metadata of a GIF file.
type gifFile struct {
	width, height int
	header        []byte // to the end of the global palette
	palette       []byte // global, RGB
	background    byte
	frames        []gifFrame
	pixels        int // of all frames
	hundredths    int // seconds that all frames are shown
}

// gifFrame is one frame in the file.
type gifFrame struct {
	area        image.Rectangle
	data        []byte // from the descriptor to the end of the pixels
	palette     []byte
	transparent int // index, -1 for none
	disposal    byte
}

// decodeGIF decodes the first frame.
func decodeGIF(data []byte, o Options) (*Image, error) {
	f, err := parseGIF(data, o, 1)
	if err != nil {
		return nil, err
	}
	frames, err := f.compose([]int{0}, o)
	if err != nil {
		return nil, err
	}
	return frames[0], nil
}

// DecodeFrames decodes the frames of a GIF animation that choose returns, given the number of frames and
// the mean frames per second. Its indices are below frames and ascending.
func DecodeFrames(data []byte, o Options, choose func(frames int, rate float64) []int) ([]*Image, error) {
	var frames []*Image
	err := guard(data, o, func() error {
		if name := format(data); name != "GIF" {
			return fmt.Errorf("%w: %s as a video, want a GIF animation", errUnsupported, name)
		}
		f, err := parseGIF(data, o, 0)
		if err != nil {
			return err
		}
		n := len(f.frames)
		chosen := choose(n, 100*float64(n)/float64(f.hundredths))
		if len(chosen) == 0 {
			return nil
		}
		if err = checkSize(f.width, f.height, len(chosen), o); err != nil {
			return err
		}
		frames, err = f.compose(chosen, o)
		return err
	})
	return frames, err
}

// parseGIF reads the blocks of a file until it has the given number of frames, 0 for all.
func parseGIF(data []byte, o Options, frames int) (*gifFile, error) {
	r := gifReader{data: data, pos: 13}
	if len(data) < r.pos {
		return nil, r.truncated()
	}
	f := &gifFile{
		width:  int(binary.LittleEndian.Uint16(data[6:])),
		height: int(binary.LittleEndian.Uint16(data[8:])), background: data[11],
	}
	if err := checkSize(f.width, f.height, 1, o); err != nil {
		return nil, err
	}
	f.palette = r.palette(data[10])
	f.header = data[:min(r.pos, len(data))]
	frame := gifFrame{transparent: -1}
	delay := 0
	for {
		if r.pos == len(data) && len(f.frames) > 0 {
			return f, nil // some writers forget the end
		}
		switch kind := r.bytes(1); {
		case r.failed:
			return nil, r.truncated()
		case kind[0] == ';':
			if len(f.frames) == 0 {
				return nil, fmt.Errorf("%w: GIF without a frame", ErrCorrupt)
			}
			return f, nil
		case kind[0] == '!':
			label := r.bytes(1)
			block := r.blocks()
			if !r.failed && label[0] == 0xf9 && len(block) >= 5 && block[0] >= 4 {
				frame.transparent = -1
				if block[1]&1 != 0 {
					frame.transparent = int(block[4])
				}
				frame.disposal = block[1] >> 2 & 7
				delay = int(binary.LittleEndian.Uint16(block[2:]))
			}
		case kind[0] == ',':
			if err := f.add(&r, frame, o); err != nil {
				return nil, err
			}
			if delay < 2 {
				delay = 10 // as browsers do
			}
			f.hundredths += delay
			if len(f.frames) == frames {
				return f, nil
			}
			frame, delay = gifFrame{transparent: -1}, 0
		default:
			return nil, fmt.Errorf("%w: GIF with an unknown block %#x", ErrCorrupt, kind[0])
		}
	}
}

// add reads a frame behind its first byte.
func (f *gifFile) add(r *gifReader, frame gifFrame, o Options) error {
	start := r.pos - 1
	d := r.bytes(9)
	if r.failed {
		return r.truncated()
	}
	x, y := int(binary.LittleEndian.Uint16(d)), int(binary.LittleEndian.Uint16(d[2:]))
	w, h := int(binary.LittleEndian.Uint16(d[4:])), int(binary.LittleEndian.Uint16(d[6:]))
	frame.area = image.Rect(x, y, x+w, y+h)
	if frame.palette = r.palette(d[8]); frame.palette == nil {
		frame.palette = f.palette
	}
	r.bytes(1) // bits of a code
	r.blocks()
	if r.failed {
		return r.truncated()
	}
	frame.data = r.data[start:r.pos]
	if w == 0 || h == 0 || !frame.area.In(image.Rect(0, 0, f.width, f.height)) {
		return fmt.Errorf("%w: GIF of %d×%d pixels with a frame at %v", ErrCorrupt, f.width, f.height, frame.area)
	}
	// A code of 12 bits stands for at most 4096 pixels.
	if err := checkPromise(w, h, len(frame.data), 4096*8/12); err != nil {
		return err
	}
	if f.pixels += w * h; f.pixels > o.maxPixels() {
		return fmt.Errorf("%w: GIF with more than %d pixels in its frames", errTooLarge, o.maxPixels())
	}
	if f.frames = append(f.frames, frame); len(f.frames) > maxFramesInFile {
		return fmt.Errorf("%w: GIF with more than %d frames", errTooLarge, maxFramesInFile)
	}
	return nil
}

// compose decodes frames up to the last of chosen and draws each over those before it.
func (f *gifFile) compose(chosen []int, o Options) ([]*Image, error) {
	var out []*Image
	canvas := newImage(f.width, f.height)
	if first := f.frames[0]; first.transparent >= 0 || o.OnWhite {
		canvas.fill(canvas.bounds(), first.clear(o))
	} else {
		canvas.fill(canvas.bounds(), first.color(0))
	}
	last := chosen[len(chosen)-1]
	for i := 0; len(out) < len(chosen); i++ {
		frame := &f.frames[i]
		pix, err := f.indices(frame)
		if err != nil {
			return nil, err
		}
		var under *Image // the frame's area as it was: all that the frame can change
		if frame.disposal == 3 && i < last {
			under = canvas.crop(frame.area)
		}
		canvas.draw(frame, pix, i == 0 && !o.OnWhite)
		for len(out) < len(chosen) && chosen[len(out)] == i {
			if i == last {
				out = append(out, canvas)
			} else {
				out = append(out, canvas.clone())
			}
		}
		if i == last {
			break
		}
		switch {
		case under != nil:
			canvas.lay(under, frame.area.Min)
		case frame.disposal == 2 && (frame.transparent >= 0 || o.OnWhite):
			canvas.fill(frame.area, frame.clear(o))
		case frame.disposal == 2:
			global := gifFrame{palette: f.palette}
			canvas.fill(frame.area, global.color(f.background))
		}
	}
	return out, nil
}

// indices decodes the pixels of a frame. The standard library gets it as a separate file, so
// that only one is in memory.
func (f *gifFile) indices(frame *gifFrame) ([]byte, error) {
	file := bytes.Join([][]byte{f.header, frame.data, {';'}}, nil)
	m, err := gif.Decode(bytes.NewReader(file))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return m.(*image.Paletted).Pix, nil
}

// color is an entry of the frame's palette, black if it is out of range.
func (f *gifFrame) color(i byte) [3]byte {
	if n := 3 * int(i); n+3 <= len(f.palette) {
		return [3]byte(f.palette[n:])
	}
	return [3]byte{}
}

// clear is the color where nothing was drawn: the stored color of transparency, or white.
func (f *gifFrame) clear(o Options) [3]byte {
	if o.OnWhite {
		return [3]byte{255, 255, 255}
	}
	return f.color(byte(f.transparent))
}

func (m *Image) bounds() image.Rectangle { return image.Rect(0, 0, m.Width, m.Height) }

func (m *Image) clone() *Image {
	return &Image{Width: m.Width, Height: m.Height, Pix: bytes.Clone(m.Pix)}
}

// crop is a copy of a part of the image.
func (m *Image) crop(area image.Rectangle) *Image {
	part := newImage(area.Dx(), area.Dy())
	for y := range part.Height {
		copy(part.row(y), m.row(area.Min.Y + y)[3*area.Min.X:])
	}
	return part
}

// lay copies an image onto m, its first pixel to at.
func (m *Image) lay(part *Image, at image.Point) {
	for y := range part.Height {
		copy(m.row(at.Y + y)[3*at.X:], part.row(y))
	}
}

func (m *Image) fill(area image.Rectangle, color [3]byte) {
	for y := area.Min.Y; y < area.Max.Y; y++ {
		row := m.row(y)[3*area.Min.X : 3*area.Max.X]
		for x := 0; x < len(row); x += 3 {
			copy(row[x:x+3], color[:])
		}
	}
}

// draw draws a frame. Transparent pixels are skipped unless all is true.
func (m *Image) draw(f *gifFrame, pix []byte, all bool) {
	for y := f.area.Min.Y; y < f.area.Max.Y; y++ {
		row := m.row(y)[3*f.area.Min.X : 3*f.area.Max.X]
		for x := range f.area.Dx() {
			if i := pix[x]; all || int(i) != f.transparent {
				c := f.color(i)
				copy(row[3*x:3*x+3], c[:])
			}
		}
		pix = pix[f.area.Dx():]
	}
}

// gifReader reads parts of a file, and fails for good at its end.
type gifReader struct {
	data   []byte
	pos    int
	failed bool
}

func (r *gifReader) truncated() error {
	return fmt.Errorf("%w: GIF ends after %d bytes, before the image is complete", ErrCorrupt, len(r.data))
}

func (r *gifReader) bytes(n int) []byte {
	if r.failed = r.failed || r.pos+n > len(r.data); r.failed {
		return make([]byte, n)
	}
	r.pos += n
	return r.data[r.pos-n : r.pos]
}

// palette is the palette that flags announce, or nil.
func (r *gifReader) palette(flags byte) []byte {
	if flags&0x80 == 0 {
		return nil
	}
	return r.bytes(3 << (flags&7 + 1))
}

// blocks skips a series of blocks and returns the first one, with its length before it.
func (r *gifReader) blocks() []byte {
	start := r.pos
	end := start
	for {
		n := int(r.bytes(1)[0])
		r.bytes(n)
		if r.failed {
			return nil
		}
		if end == start {
			end = r.pos
		}
		if n == 0 {
			return r.data[start:end]
		}
	}
}
