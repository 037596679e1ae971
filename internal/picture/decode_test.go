package picture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"maps"
	"slices"
	"strings"
	"testing"
)

type sums struct {
	Files map[string]struct {
		Width, Height int
		SHA256        string
	}
}

func TestDecodersEqualTheLibraries(t *testing.T) {
	var want sums
	load(t, "decoders/sums.json", &want)
	if len(want.Files) < 35 {
		t.Fatalf("%d files", len(want.Files))
	}
	for name, w := range want.Files {
		m := decode(t, file(t, "decoders", name), Options{})
		if m.Width != w.Width || m.Height != w.Height || sum(m.Pix) != w.SHA256 {
			t.Errorf("%s: %d×%d, sum %s, want %d×%d, %s", name, m.Width, m.Height, sum(m.Pix), w.Width, w.Height, w.SHA256)
		}
	}
}

// pngChunk is a chunk with its sum.
func pngChunk(kind string, data []byte) []byte {
	out := binary.BigEndian.AppendUint32(nil, uint32(len(data)))
	out = append(append(out, kind...), data...)
	return binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out[4:]))
}

func encodePNG(t testing.TB, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func encodeJPEG(t testing.TB, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, m, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// standard is the image as one of the standard library, with alpha.
func (m *Image) standard(alpha func(x, y int) byte) *image.NRGBA {
	out := image.NewNRGBA(m.bounds())
	for y := range m.Height {
		for x := range m.Width {
			p := m.row(y)[3*x:]
			out.SetNRGBA(x, y, color.NRGBA{R: p[0], G: p[1], B: p[2], A: alpha(x, y)})
		}
	}
	return out
}

func opaque(int, int) byte { return 255 }

func TestPNGKeepsWhatIsStored(t *testing.T) {
	m := noise(19, 7, 1)
	holes := func(x, y int) byte { return byte(x * 13 * y) }
	if got := decode(t, encodePNG(t, m.standard(opaque)), Options{}); !bytes.Equal(got.Pix, m.Pix) {
		t.Error("RGB differs")
	}
	if got := decode(t, encodePNG(t, m.standard(holes)), Options{}); !bytes.Equal(got.Pix, m.Pix) {
		t.Error("colors below transparency differ")
	}
	white := decode(t, encodePNG(t, m.standard(holes)), Options{OnWhite: true})
	for i, got := range white.Pix {
		a := int(holes(i/3%m.Width, i/3/m.Width))
		if want := (int(m.Pix[i])*a + 255*(255-a) + 127) / 255; int(got) != want {
			t.Fatalf("byte %d over white with alpha %d is %d, want %d", m.Pix[i], a, got, want)
		}
	}

	gray, gray16, deep := image.NewGray(m.bounds()), image.NewGray16(m.bounds()), image.NewNRGBA64(m.bounds())
	for y := range m.Height {
		for x := range m.Width {
			p := m.row(y)[3*x:]
			gray.SetGray(x, y, color.Gray{Y: p[0]})
			gray16.SetGray16(x, y, color.Gray16{Y: uint16(p[0])<<8 | uint16(p[1])})
			deep.SetNRGBA64(x, y, color.NRGBA64{R: uint16(p[0])<<8 | 255, G: uint16(p[1]) << 8, B: uint16(p[2])<<8 | 128, A: uint16(holes(x, y)) << 8})
		}
	}
	for name, stored := range map[string]image.Image{"gray": gray, "gray of 16 bits": gray16} {
		got := decode(t, encodePNG(t, stored), Options{})
		for i, v := range got.Pix {
			if v != m.Pix[i/3*3] {
				t.Fatalf("%s: byte %d is %d, want %d", name, i, v, m.Pix[i/3*3])
			}
		}
	}
	if got := decode(t, encodePNG(t, deep), Options{}); !bytes.Equal(got.Pix, m.Pix) {
		t.Error("the high bytes of 16 bits differ")
	}
	for _, entries := range []int{2, 4, 16, 200} { // 1, 2, 4 and 8 bits
		stored := image.NewPaletted(m.bounds(), nil)
		for i := range entries {
			stored.Palette = append(stored.Palette, color.NRGBA{R: byte(i * 7), G: byte(255 - i), B: 9, A: byte(i * 3)})
		}
		for i := range stored.Pix {
			stored.Pix[i] = m.Pix[i] % byte(entries)
		}
		got := decode(t, encodePNG(t, stored), Options{})
		for i, index := range stored.Pix {
			c := stored.Palette[index].(color.NRGBA)
			if [3]byte(got.Pix[3*i:]) != [3]byte{c.R, c.G, c.B} {
				t.Fatalf("palette of %d: pixel %d is %v, want %v", entries, i, got.Pix[3*i:3*i+3], c)
			}
		}
	}
}

// tiff is EXIF data with some other tag and an orientation.
func tiff(order binary.AppendByteOrder, orientation uint16) []byte {
	head := "MM"
	if order.String() == "LittleEndian" {
		head = "II"
	}
	out := order.AppendUint16([]byte(head), 42)
	out = order.AppendUint32(out, 10)
	out = order.AppendUint16(append(out, 0, 0), 2)
	for tag, value := range map[uint16]uint16{0x010f: 7, 0x0112: orientation} {
		out = order.AppendUint16(order.AppendUint16(out, tag), 3)
		out = order.AppendUint16(order.AppendUint16(order.AppendUint32(out, 1), value), 0)
	}
	return order.AppendUint32(out, 0)
}

// withExif adds EXIF data to an image.
func withExif(t testing.TB, data, exif []byte) []byte {
	t.Helper()
	switch format(data) {
	case "JPEG":
		exif = append([]byte("Exif\x00\x00"), exif...)
		segment := binary.BigEndian.AppendUint16([]byte{0xff, mAPP1}, uint16(len(exif)+2))
		return slices.Concat(data[:2], segment, exif, data[2:])
	case "PNG":
		return slices.Concat(data[:33], pngChunk("eXIf", exif), data[33:])
	case "WebP":
		chunk := binary.LittleEndian.AppendUint32([]byte("EXIF"), uint32(len(exif)))
		out := slices.Concat(data, chunk, exif, make([]byte, len(exif)&1))
		binary.LittleEndian.PutUint32(out[4:], uint32(len(out)-8))
		return out
	}
	t.Fatal("no place for EXIF data")
	return nil
}

func TestOrientationIsTheTable(t *testing.T) {
	m := noise(5, 3, 1)
	h, w := m.Height-1, m.Width-1
	for o, from := range map[int]func(y, x int) (int, int){
		0: func(y, x int) (int, int) { return y, x },
		1: func(y, x int) (int, int) { return y, x },
		2: func(y, x int) (int, int) { return y, w - x },
		3: func(y, x int) (int, int) { return h - y, w - x },
		4: func(y, x int) (int, int) { return h - y, x },
		5: func(y, x int) (int, int) { return x, y },
		6: func(y, x int) (int, int) { return h - x, y },
		7: func(y, x int) (int, int) { return h - x, w - y },
		8: func(y, x int) (int, int) { return x, w - y },
		9: func(y, x int) (int, int) { return y, x },
	} {
		got := m.turn(o)
		for y := range got.Height {
			for x := range got.Width {
				fy, fx := from(y, x)
				if [3]byte(got.row(y)[3*x:]) != [3]byte(m.row(fy)[3*fx:]) {
					t.Fatalf("orientation %d: pixel %d, %d is not that at %d, %d", o, y, x, fy, fx)
				}
			}
		}
		// Turned there and back.
		back := map[int]int{6: 8, 8: 6}[o]
		if back == 0 {
			back = o
		}
		if again := got.turn(back); again.Width != m.Width || !bytes.Equal(again.Pix, m.Pix) {
			t.Errorf("orientation %d and %d do not undo each other", o, back)
		}
	}
}

func TestOrientationIsReadFromEveryFormat(t *testing.T) {
	for _, data := range [][]byte{
		encodeJPEG(t, noise(21, 9, 1).standard(opaque)), encodePNG(t, noise(21, 9, 1).standard(opaque)), file(t, "decoders", "lossy_37x26.webp"),
	} {
		stored := decode(t, data, Options{})
		for o := range 10 {
			for _, order := range []binary.AppendByteOrder{binary.BigEndian, binary.LittleEndian} {
				with := withExif(t, data, tiff(order, uint16(o)))
				got, want := decode(t, with, Options{}), stored.turn(o)
				if got.Width != want.Width || !bytes.Equal(got.Pix, want.Pix) {
					t.Errorf("%s with orientation %d, %v, is not turned", format(data), o, order)
				}
				if got := decode(t, with, Options{AsStored: true}); got.Width != stored.Width || !bytes.Equal(got.Pix, stored.Pix) {
					t.Errorf("%s with orientation %d is not as stored", format(data), o)
				}
			}
		}
		// Broken data means nothing.
		whole := tiff(binary.LittleEndian, 6)
		for n := range len(whole) - 8 {
			if o := orientation(whole[:n]); o != 1 && n < 20 {
				t.Errorf("%d bytes of EXIF data are orientation %d", n, o)
			}
		}
	}
}

// animation is five frames of 6×4 pixels: all in one color, a corner that stays, one that is disposed to
// the previous state, one that is cleared, and all but two holes.
func animation() *gif.GIF {
	colors := color.Palette{color.RGBA{A: 255}, color.RGBA{R: 250, A: 255}, color.RGBA{G: 250, A: 255}, color.RGBA{B: 250, A: 255}}
	frame := func(area image.Rectangle, index uint8, transparent bool) *image.Paletted {
		p := slices.Clone(colors)
		if transparent {
			p[0] = color.RGBA{}
		}
		m := image.NewPaletted(area, p)
		for i := range m.Pix {
			m.Pix[i] = index
		}
		return m
	}
	hole := frame(image.Rect(0, 0, 6, 4), 3, true)
	hole.SetColorIndex(5, 3, 0)
	hole.SetColorIndex(0, 3, 0)
	return &gif.GIF{
		Image: []*image.Paletted{
			frame(image.Rect(0, 0, 6, 4), 1, true),
			frame(image.Rect(0, 0, 2, 2), 2, true),
			frame(image.Rect(4, 0, 6, 2), 3, true),
			frame(image.Rect(0, 2, 2, 4), 3, true),
			hole,
		},
		Delay:    []int{10, 20, 0, 30, 40},
		Disposal: []byte{gif.DisposalNone, gif.DisposalNone, gif.DisposalPrevious, gif.DisposalBackground, gif.DisposalNone},
		Config:   image.Config{ColorModel: colors, Width: 6, Height: 4},
	}
}

func encodeGIF(t testing.TB, g *gif.GIF) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := gif.EncodeAll(&b, g); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// letters shows an image of pure colors as text.
func letters(m *Image) string {
	var s strings.Builder
	for i := 0; i < len(m.Pix); i += 3 {
		switch p := m.Pix[i : i+3]; {
		case p[0] == 250:
			s.WriteByte('r')
		case p[1] == 250:
			s.WriteByte('g')
		case p[2] == 250:
			s.WriteByte('b')
		default:
			s.WriteByte('.')
		}
		if (i/3+1)%m.Width == 0 {
			s.WriteByte('\n')
		}
	}
	return s.String()
}

func TestGIFFramesAreComposed(t *testing.T) {
	data := encodeGIF(t, animation())
	want := []string{
		"rrrrrr\nrrrrrr\nrrrrrr\nrrrrrr\n",
		"ggrrrr\nggrrrr\nrrrrrr\nrrrrrr\n",
		"ggrrbb\nggrrbb\nrrrrrr\nrrrrrr\n",
		"ggrrrr\nggrrrr\nbbrrrr\nbbrrrr\n",
		"bbbbbb\nbbbbbb\nbbbbbb\n.bbbbr\n",
	}
	for _, chosen := range [][]int{{0}, {0, 1, 2, 3, 4}, {1, 4}, {2, 2, 3}, {4}, nil} {
		frames, err := DecodeFrames(data, Options{}, func(n int, rate float64) []int {
			if n != 5 || rate != 500.0/110 {
				t.Errorf("%d frames at %v, want 5 in 1.1 seconds", n, rate)
			}
			return chosen
		})
		if err != nil || len(frames) != len(chosen) {
			t.Fatalf("%d frames of %v: %v", len(frames), chosen, err)
		}
		for i, at := range chosen {
			if got := letters(frames[i]); got != want[at] {
				t.Errorf("frame %d of %v is\n%swant\n%s", at, chosen, got, want[at])
			}
		}
	}
	if got := letters(decode(t, data, Options{})); got != want[0] {
		t.Errorf("the image is\n%swant its first frame", got)
	}
	last := func(n int, _ float64) []int { return []int{n - 1} }
	if frames, err := DecodeFrames(data[:len(data)-1], Options{}, last); err != nil || letters(frames[0]) != want[4] {
		t.Errorf("without the byte that ends the file: %v", err)
	}
	if _, err := DecodeFrames(data[:len(data)-3], Options{}, last); !errors.Is(err, ErrCorrupt) {
		t.Errorf("with the last frame cut off: %v", err)
	}
}

// A frame smaller than the screen stands on the color of transparency, whose bytes are kept.
func TestGIFKeepsTheColorOfTransparency(t *testing.T) {
	g := animation()
	g.Image, g.Delay, g.Disposal = g.Image[2:3], g.Delay[:1], g.Disposal[:1]
	data := encodeGIF(t, g)
	// The encoder writes black for it: blue, in the palette of the frame or of all.
	black := bytes.Index(data, []byte{0, 0, 0, 250, 0, 0})
	copy(data[black:], []byte{0, 250, 0})
	if i := bytes.Index(data, []byte{0, 0, 0, 250, 0, 0}); i >= 0 {
		copy(data[i:], []byte{0, 250, 0})
	}
	if got := letters(decode(t, data, Options{})); got != "ggggbb\nggggbb\ngggggg\ngggggg\n" {
		t.Errorf("the image is\n%s", got)
	}
	white := decode(t, data, Options{OnWhite: true})
	if [3]byte(white.Pix) != [3]byte{255, 255, 255} || letters(white)[4:6] != "bb" {
		t.Errorf("over white the image is\n%s", letters(white))
	}
}

// animated makes an animation of lossy images, the first at 4, 2 on a canvas.
func animated(width, height int, files ...[]byte) []byte {
	chunk := func(kind string, data ...[]byte) []byte {
		d := slices.Concat(data...)
		return slices.Concat([]byte(kind), binary.LittleEndian.AppendUint32(nil, uint32(len(d))), d, make([]byte, len(d)&1))
	}
	w, h := width-1, height-1
	body := slices.Concat([]byte("WEBP"), chunk("VP8X", []byte{2, 0, 0, 0, byte(w), byte(w >> 8), 0, byte(h), byte(h >> 8), 0}), chunk("ANIM", make([]byte, 6)))
	for _, f := range files {
		head := make([]byte, 16)
		head[0], head[3] = 2, 1
		body = append(body, chunk("ANMF", head, f[12:])...)
	}
	return slices.Concat([]byte("RIFF"), binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body)
}

func TestWebPAnimationIsItsFirstFrame(t *testing.T) {
	first, second := file(t, "decoders", "lossy_37x26.webp"), file(t, "decoders", "lossy_48x33.webp")
	m := decode(t, first, Options{})
	got := decode(t, animated(60, 40, first, second), Options{})
	want := newImage(60, 40)
	for y := range m.Height {
		copy(want.row(y + 2)[3*4:], m.row(y))
	}
	if got.Width != 60 || !bytes.Equal(got.Pix, want.Pix) {
		t.Error("the first frame is not in its place")
	}
	if got := decode(t, animated(60, 40, first), Options{OnWhite: true}); got.Pix[0] != 255 || !bytes.Equal(got.row(2)[3*4:3*41], m.row(0)) {
		t.Error("the frame is not on white")
	}
}

func TestWebPOverWhite(t *testing.T) {
	for _, name := range []string{"lossy_alpha_48x33.webp", "lossless_alpha_48x33.webp"} {
		stored, white := decode(t, file(t, "decoders", name), Options{}), decode(t, file(t, "decoders", name), Options{OnWhite: true})
		for x := range stored.Width { // alpha rises from 0 to 255 in a row, and is 0 in every fourth
			a := x * 255 / (stored.Width - 1)
			for c := range 3 {
				if v := white.row(0)[3*x+c]; v != 255 {
					t.Fatalf("%s: %d where nothing is, want white", name, v)
				}
				if got, want := white.row(1)[3*x+c], over(stored.row(1)[3*x+c], byte(a)); got != want {
					t.Fatalf("%s: %d at %d, want %d", name, got, x, want)
				}
			}
		}
	}
}

// The same pixels are the same image in every format.
func TestPictureIsTheSameInAnotherFormat(t *testing.T) {
	m := decode(t, file(t, "decoders", "lossless_48x33.webp"), Options{})
	again := decode(t, encodePNG(t, m.standard(opaque)), Options{})
	a, err := Images().Prepare(m, 1)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Images().Prepare(again, 1)
	if err != nil {
		t.Fatal(err)
	}
	if a.Hash != b.Hash {
		t.Error("PNG and WebP of the same pixels have different hashes")
	}
}

func TestErrorsAreOfThisPackage(t *testing.T) {
	data := file(t, "images", "jpeg420_90x61.jpg")
	for n := range data {
		_, err := Decode(data[:n], Options{})
		if err != nil && !known(err) {
			t.Fatalf("%d bytes: %v", n, err)
		}
		if err == nil && n < len(data)-2 {
			t.Fatalf("%d bytes of %d are an image", n, len(data))
		}
	}
}

// known reports whether an error is one of those that an image is refused for, and no panic.
func known(err error) bool {
	return slices.ContainsFunc([]error{ErrFormat, errUnsupported, ErrCorrupt, errTooLarge, errShape}, func(kind error) bool { return errors.Is(err, kind) }) &&
		!strings.Contains(err.Error(), "panic")
}

// seeds is one small file of each kind, by format.
func seeds(t testing.TB) map[string][][]byte {
	t.Helper()
	all := [][]byte{
		encodeGIF(t, animation()), animated(60, 40, file(t, "decoders", "lossy_37x26.webp")),
		encodePNG(t, noise(5, 4, 1).standard(opaque)), encodePNG(t, noise(5, 4, 1).standard(func(x, _ int) byte { return byte(x) })),
		file(t, "images", "palette_33x40.png"), file(t, "images", "grey_96x64.png"), file(t, "images", "exif6_80x45.jpg"),
	}
	var want sums
	load(t, "decoders/sums.json", &want)
	for _, name := range slices.Sorted(maps.Keys(want.Files)) {
		all = append(all, file(t, "decoders", name))
	}
	by := map[string][][]byte{}
	for _, data := range all {
		by[format(data)] = append(by[format(data)], data)
	}
	return by
}

func BenchmarkDecode(b *testing.B) {
	m := noise(64, 36, 1).resize(1920, 1080, 1) // smooth, as photographs are
	for name, data := range map[string][]byte{"JPEG": encodeJPEG(b, m.standard(opaque)), "PNG": encodePNG(b, m.standard(opaque))} {
		b.Run("format="+name+"/size=1920x1080", func(b *testing.B) {
			b.SetBytes(int64(len(m.Pix)))
			for b.Loop() {
				decode(b, data, Options{})
			}
		})
		b.Run("format="+name+"/size=1920x1080/library=standard", func(b *testing.B) {
			b.SetBytes(int64(len(m.Pix)))
			for b.Loop() {
				if _, _, err := image.Decode(bytes.NewReader(data)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
