// Package picture makes of a picture's bytes what a vision tower is fed: it decodes PNG, JPEG,
// WebP and GIF, turns and reduces them to RGB, resizes them to whole tokens and cuts them into
// patches, with the bytes of the reference processor (transformers on the CPU: libjpeg-turbo's
// decoder, torchvision's resize of bytes). Files and their configuration come from strangers: what
// they declare is held against limits before memory is spent on it. It knows neither models nor
// prompts, and reads no file.
package picture

import (
	"errors"
	"fmt"

	"github.com/foretoken/foretoken/internal/rescue"
)

// What a picture is refused for. Messages begin with one of these and say what was found; whether
// it is the sender's fault is all that callers need of them: all five are.
var (
	ErrFormat      = errors.New("not a PNG, JPEG, WebP or GIF image")
	ErrUnsupported = errors.New("unsupported image")
	ErrCorrupt     = errors.New("broken image")
	ErrTooLarge    = errors.New("image too large")
	ErrShape       = errors.New("image of an unusable shape")
)

// Image is a decoded picture.
type Image struct {
	Width, Height int
	Pix           []byte // [Height, Width, 3], RGB
}

// newImage is a black picture.
func newImage(width, height int) *Image {
	return &Image{Width: width, Height: height, Pix: make([]byte, 3*width*height)}
}

// row is the bytes of row y.
func (m *Image) row(y int) []byte { return m.Pix[3*m.Width*y : 3*m.Width*(y+1)] }

// Defaults of Options.
const (
	DefaultMaxBytes  = 64 << 20
	DefaultMaxPixels = 1 << 27
)

// Options say how much a picture may cost and how it is read.
type Options struct {
	// MaxBytes limits a file. 0 means DefaultMaxBytes.
	MaxBytes int
	// MaxPixels limits what a file declares: width times height, and for an animation that times
	// its frames. Decoding takes at most 14 bytes for each of them, usually 5 to 8. 0 means
	// DefaultMaxPixels.
	MaxPixels int
	// AsStored leaves a picture as it lies in the file. Normally it is turned as its EXIF data
	// says: that is how people see it, and how it was seen when the models were trained. The
	// reference turns pictures that its own loader opened and not those that a chat names by path,
	// URL or base64.
	AsStored bool
	// OnWhite lays pictures with transparency over white, as some servers do. Normally
	// transparency is dropped and the colors stay as they are stored, as in the reference.
	OnWhite bool
}

func (o Options) maxBytes() int {
	if o.MaxBytes == 0 {
		return DefaultMaxBytes
	}
	return o.MaxBytes
}

func (o Options) maxPixels() int {
	if o.MaxPixels == 0 {
		return DefaultMaxPixels
	}
	return o.MaxPixels
}

// Decode decodes a picture, of an animation the first frame. Its errors are those of this package.
func Decode(data []byte, o Options) (*Image, error) {
	var m *Image
	err := guard(data, o, func() (err error) {
		var exif []byte
		switch format(data) {
		case "PNG":
			m, exif, err = decodePNG(data, o)
		case "JPEG":
			m, exif, err = decodeJPEG(data, o)
		case "WebP":
			m, exif, err = decodeWebP(data, o)
		case "GIF":
			m, err = decodeGIF(data, o)
		}
		if err == nil && !o.AsStored {
			m = m.turn(orientation(exif))
		}
		return err
	})
	return m, err
}

// guard runs a decoder on data whose size and format are acceptable. A panic is an error of the
// picture: decoders that are not ours are among them.
func guard(data []byte, o Options, decode func() error) (err error) {
	if len(data) > o.maxBytes() {
		return fmt.Errorf("%w: the file has %d bytes, at most %d are allowed", ErrTooLarge, len(data), o.maxBytes())
	}
	if err := CheckFormat(data); err != nil {
		return err
	}
	err = rescue.Do(decode)
	if rescue.Stack(err) != "" {
		err = fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return err
}

// HeadBytes is how much of a file CheckFormat needs to know.
const HeadBytes = 16

// CheckFormat refuses a file, by its first bytes, whose format Decode does not know.
func CheckFormat(head []byte) error {
	switch name := format(head); {
	case name == "PNG", name == "JPEG", name == "WebP", name == "GIF":
		return nil
	case name != "":
		return fmt.Errorf("%w: %s, want PNG, JPEG, WebP or GIF", ErrUnsupported, name)
	case len(head) == 0:
		return fmt.Errorf("%w: no bytes", ErrFormat)
	}
	return fmt.Errorf("%w: it begins with %q", ErrFormat, head[:min(len(head), 8)])
}

// format is the name of the format by the first bytes of a file, "" if it is none that we know.
func format(data []byte) string {
	for _, f := range []struct{ name, magic string }{
		{"PNG", "\x89PNG\r\n\x1a\n"},
		{"JPEG", "\xff\xd8"},
		{"WebP", "RIFF????WEBP"},
		{"GIF", "GIF87a"},
		{"GIF", "GIF89a"},
		{"BMP", "BM"},
		{"TIFF", "II*\x00"},
		{"TIFF", "MM\x00*"},
		{"AVIF", "????ftypavif"},
		{"HEIC", "????ftyphei"},
		{"HEIC", "????ftypmif1"},
		{"JPEG XL", "\xff\x0a"},
		{"JPEG XL", "\x00\x00\x00\x0cJXL "},
		{"PDF", "%PDF"},
		{"SVG", "<svg"},
	} {
		if begins(data, f.magic) {
			return f.name
		}
	}
	return ""
}

// begins reports whether data begins with magic, in which ? stands for any byte.
func begins(data []byte, magic string) bool {
	if len(data) < len(magic) {
		return false
	}
	for i := range len(magic) {
		if magic[i] != '?' && magic[i] != data[i] {
			return false
		}
	}
	return true
}

// checkSize refuses what a header declares. frames is 1 for a still picture.
func checkSize(width, height, frames int, o Options) error {
	if width < 1 || height < 1 {
		return fmt.Errorf("%w: %d×%d pixels", ErrCorrupt, width, height)
	}
	// Sides have at most 32 bits and files have far fewer frames than float64 can count: no overflow.
	if float64(width)*float64(height)*float64(frames) <= float64(o.maxPixels()) {
		return nil
	}
	what := fmt.Sprintf("%d×%d pixels", width, height)
	if frames > 1 {
		what = fmt.Sprintf("%d frames of %s", frames, what)
	}
	return fmt.Errorf("%w: it declares %s, at most %d are allowed", ErrTooLarge, what, o.maxPixels())
}

// checkPromise refuses a header that declares more than the file can hold: width times height
// pixels out of n bytes, of which each makes at most perByte. It keeps a short file from making us
// allocate what its format allows.
func checkPromise(width, height, n, perByte int) error {
	if float64(width)*float64(height) > float64(n)*float64(perByte) {
		return fmt.Errorf("%w: it declares %d×%d pixels, more than its %d bytes can hold", ErrCorrupt, width, height, n)
	}
	return nil
}

// over is a color byte over white, for its alpha.
func over(c, alpha byte) byte {
	x := uint32(c)*uint32(alpha) + 255*(255-uint32(alpha)) + 128
	return byte((x + x>>8) >> 8)
}
