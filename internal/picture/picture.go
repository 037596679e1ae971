// Package picture turns the bytes of an image into the input of a vision tower: it decodes PNG, JPEG,
// WebP and GIF, rotates them and reduces them to RGB, resizes them to whole tokens and cuts them into
// patches, with the bytes of the reference processor (transformers on the CPU: libjpeg-turbo's
// decoder, torchvision's resize of bytes). Files and their configuration are untrusted: declared sizes
// are checked against limits before memory is allocated. The package knows neither models nor
// prompts, and reads no file.
package picture

import (
	"errors"
	"fmt"

	"github.com/foretoken/foretoken/internal/rescue"
)

// Reasons to refuse an image. Messages begin with one of these and say what was found.
// All five are the sender's fault.
var (
	ErrFormat      = errors.New("not a PNG, JPEG, WebP or GIF image")
	errUnsupported = errors.New("unsupported image")
	ErrCorrupt     = errors.New("broken image")
	errTooLarge    = errors.New("image too large")
	errShape       = errors.New("image of an unusable shape")
)

// Image is a decoded image.
type Image struct {
	Width, Height int
	Pix           []byte // [Height, Width, 3], RGB
}

// newImage is a black image.
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

// Options limit the cost of an image and say how it is read.
type Options struct {
	// MaxBytes limits a file. 0 means DefaultMaxBytes.
	MaxBytes int
	// MaxPixels limits the declared size: width times height, and for an animation that times
	// its frames. Decoding takes at most 14 bytes per pixel, usually 5 to 8. 0 means
	// DefaultMaxPixels.
	MaxPixels int
	// AsStored ignores the EXIF orientation. Normally it is applied:
	// that is how people see an image, and how it was seen when the models were trained. The
	// reference rotates images that its own loader opened and not those that a chat names by path,
	// URL or base64.
	AsStored bool
	// OnWhite blends images with transparency over white, as some servers do. Normally
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

// Decode decodes an image, or the first frame of an animation. Its errors are those of this package.
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

// guard runs a decoder on data of acceptable size and format. A panic is an error of the
// image: some decoders are from other modules.
func guard(data []byte, o Options, decode func() error) (err error) {
	if len(data) > o.maxBytes() {
		return fmt.Errorf("%w: the file has %d bytes, at most %d are allowed", errTooLarge, len(data), o.maxBytes())
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

// HeadBytes is how much of a file CheckFormat needs.
const HeadBytes = 16

// CheckFormat refuses a file, by its first bytes, if Decode does not support its format.
func CheckFormat(head []byte) error {
	switch name := format(head); {
	case name == "PNG", name == "JPEG", name == "WebP", name == "GIF":
		return nil
	case name != "":
		return fmt.Errorf("%w: %s, want PNG, JPEG, WebP or GIF", errUnsupported, name)
	case len(head) == 0:
		return fmt.Errorf("%w: no bytes", ErrFormat)
	}
	return fmt.Errorf("%w: it begins with %q", ErrFormat, head[:min(len(head), 8)])
}

// format is the name of the format by the first bytes of a file, "" if it is unknown.
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

// checkSize refuses a declared size beyond the limits. frames is 1 for a still image.
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
	return fmt.Errorf("%w: it declares %s, at most %d are allowed", errTooLarge, what, o.maxPixels())
}

// checkPromise refuses a header that declares more than the file can hold: width times height
// pixels out of n bytes, of which each makes at most perByte. So a short file cannot cause
// a large allocation.
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
