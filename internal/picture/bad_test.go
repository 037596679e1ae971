package picture

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// pngOf is a PNG file with a header and compressed pixels, true or not.
func pngOf(width, height uint32, depth, kind byte, pixels []byte) []byte {
	head := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, width), height)
	head = append(head, depth, kind, 0, 0, 0)
	var packed bytes.Buffer
	z := zlib.NewWriter(&packed)
	if _, err := z.Write(pixels); err != nil {
		panic(err)
	}
	if err := z.Close(); err != nil {
		panic(err)
	}
	return slices.Concat([]byte("\x89PNG\r\n\x1a\n"), pngChunk("IHDR", head), pngChunk("IDAT", packed.Bytes()), pngChunk("IEND", nil))
}

// patched replaces bytes at offset behind the text after.
func patched(data []byte, after string, offset int, with ...byte) []byte {
	i := bytes.Index(data, []byte(after))
	if i < 0 {
		panic(fmt.Sprintf("no %q", after))
	}
	out := bytes.Clone(data)
	copy(out[i+offset:], with)
	return out
}

// without is data without one segment of a JPEG file.
func without(data []byte, marker byte) []byte {
	i := bytes.Index(data, []byte{0xff, marker})
	n := 2 + int(binary.BigEndian.Uint16(data[i+2:]))
	return slices.Concat(data[:i], data[i+n:])
}

// manyScans repeats the first scan of an image.
func manyScans(data []byte, times int) []byte {
	from := bytes.Index(data, []byte{0xff, mSOS})
	scan := data[from : len(data)-2]
	if i := bytes.Index(scan[2:], []byte{0xff, mDHT}); i >= 0 {
		scan = scan[:i+2]
	}
	return slices.Concat(data[:from], bytes.Repeat(scan, times), data[len(data)-2:])
}

type bad struct {
	name string
	data []byte
	kind error
	want string // in the message
}

func badPictures(t testing.TB) []bad {
	t.Helper()
	baseline, progressive := file(t, "decoders", "ycc_2x2_baseline.jpg"), file(t, "decoders", "ycc_2x2_progressive.jpg")
	restart := file(t, "decoders", "restart_baseline.jpg")
	lossy, lossless := file(t, "decoders", "lossy_48x33.webp"), file(t, "decoders", "lossless_48x33.webp")
	good := encodePNG(t, noise(40, 30, 1).standard(opaque))
	moving := encodeGIF(t, animation())
	sof, sos, dht := "\xff\xc0", "\xff\xda", "\xff\xc4"
	return []bad{
		{"nothing", nil, ErrFormat, "no bytes"},
		{"text", []byte("a picture of a cat"), ErrFormat, `it begins with "a pictur"`},
		{"one byte", []byte{0xff}, ErrFormat, `\xff`},
		{"HEIC", []byte("\x00\x00\x00\x18ftypheic\x00\x00"), errUnsupported, "HEIC, want PNG, JPEG, WebP or GIF"},
		{"AVIF", []byte("\x00\x00\x00\x18ftypavif\x00\x00"), errUnsupported, "AVIF"},
		{"TIFF", tiff(binary.LittleEndian, 1), errUnsupported, "TIFF"},
		{"BMP", []byte("BM1234567890"), errUnsupported, "BMP"},
		{"SVG", []byte("<svg></svg>"), errUnsupported, "SVG"},
		{"file too large", make([]byte, DefaultMaxBytes+1), errTooLarge, "67108865 bytes, at most 67108864"},

		{"PNG of a signature", good[:8], ErrCorrupt, "without a header"},
		{"PNG of death", pngOf(60000, 60000, 8, 2, make([]byte, 1<<16)), errTooLarge, "60000×60000 pixels, at most 134217728"},
		{"PNG of 2^32 pixels a side", pngOf(1<<32-1, 1<<32-1, 8, 2, nil), ErrCorrupt, "4294967295×4294967295"},
		{"PNG of no pixels", pngOf(0, 10, 8, 2, nil), ErrCorrupt, "0×10 pixels"},
		{"PNG with a lying header", pngOf(11000, 11000, 8, 6, make([]byte, 1<<12)), ErrCorrupt, "11000×11000 pixels, more than its"},
		{"PNG shorter than it says", pngOf(100, 100, 8, 2, make([]byte, 1<<14)), ErrCorrupt, "not enough pixel data"},
		{"PNG that inflates to more", pngOf(8, 8, 8, 0, make([]byte, 8<<20)), ErrCorrupt, "too much pixel data"},
		{"truncated PNG", good[:len(good)/2], ErrCorrupt, "not enough pixel data"},
		{"PNG with a wrong sum", patched(good, "IHDR", 17, 0, 0, 0, 0), ErrCorrupt, "invalid checksum"},
		{"PNG of 3 bits", pngOf(8, 8, 3, 0, make([]byte, 64)), errUnsupported, "bit depth"},
		{"PNG of an unknown kind", pngOf(8, 8, 8, 5, make([]byte, 64)), errUnsupported, "bit depth 8, color type 5"},

		{"JPEG of a marker", []byte{0xff, 0xd8, 0xff, 0xd9}, ErrCorrupt, "without a frame"},
		{"JPEG of death", patched(baseline, sof, 5, 0xea, 0x60, 0xea, 0x60), errTooLarge, "60000×60000 pixels"},
		{"JPEG with a lying header", patched(baseline, sof, 5, 0x27, 0x10, 0x27, 0x10), ErrCorrupt, "10000×10000 pixels, more than its"},
		{"JPEG without a height", patched(baseline, sof, 5, 0, 0), ErrCorrupt, "51×0 pixels"},
		{"truncated JPEG", baseline[:len(baseline)/2], ErrCorrupt, "before the image is complete"},
		{"truncated progressive JPEG", progressive[:bytes.Index(progressive, []byte(sos))+40], ErrCorrupt, "before the image is complete"},
		{"JPEG truncated in a segment", baseline[:bytes.Index(baseline, []byte(dht))+10], ErrCorrupt, "ends after"},
		{"JPEG of 12 bits", patched(baseline, sof, 4, 12), errUnsupported, "JPEG of 12 bits"},
		{"JPEG of two components", patched(baseline, sof, 9, 2), errUnsupported, "2 components"},
		{"JPEG with a sampling of 0", patched(baseline, sof, 11, 0), ErrCorrupt, "sampling 0×0"},
		{"JPEG with a sampling of 3 to 2", patched(baseline, sof, 11, 0x31, 0, 2, 0x21), errUnsupported, "samples 2×1 to 3×1"},
		{"arithmetic JPEG", patched(baseline, sof, 0, 0xff, 0xc9), errUnsupported, "arithmetic-coded JPEG"},
		{"lossless JPEG", patched(baseline, sof, 0, 0xff, 0xc3), errUnsupported, "lossless or hierarchical JPEG"},
		{"JPEG without quantization", without(without(baseline, mDQT), mDQT), ErrCorrupt, "without quantization table 0"},
		{"JPEG without codes", without(without(without(without(baseline, mDHT), mDHT), mDHT), mDHT), ErrCorrupt, "without the Huffman table"},
		{"JPEG with too many codes", patched(baseline, dht, 5, 9), ErrCorrupt, "bad Huffman table"},
		{"JPEG with a scan of nothing", patched(baseline, sos, 4, 0), ErrCorrupt, "bad scan header"},
		{"JPEG with two frames", slices.Concat(baseline[:bytes.Index(baseline, []byte(sos))], baseline[bytes.Index(baseline, []byte(sof)):]), ErrCorrupt, "two frames"},
		{"JPEG with a scan before its frame", without(baseline, mSOF0), ErrCorrupt, "scan before its frame"},
		{"JPEG without a restart", patched(restart, "\xff\xd1", 0, 0xff, 0xd5), ErrCorrupt, "without its restart marker 1"},
		{"JPEG of a thousand scans", manyScans(baseline, 1000), errTooLarge, "more than 200 scans"},
		{"JPEG with a scan twice", manyScans(progressive, 2), ErrCorrupt, "does not follow"},

		{"WebP of a head", lossy[:12], ErrCorrupt, "without an image"},
		{"truncated WebP", lossy[:len(lossy)/2], ErrCorrupt, "before its chunk \"VP8 \" does"},
		{"truncated lossless WebP", lossless[:60], ErrCorrupt, "before its chunk \"VP8L\" does"},
		{"WebP with a lying canvas", animated(20, 20, lossy), ErrCorrupt, "20×20 pixels with a frame of 48×33 at 4, 2"},
		{"WebP of death", patched(animated(20, 20, lossy), "VP8X", 12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), errTooLarge, "16777216×16777216 pixels"},
		{"lossless WebP of death", patched(lossless, "VP8L", 9, 0xff, 0xff, 0xff, 0x0f), errTooLarge, "16384×16384 pixels"},
		{"WebP without its mark", patched(lossy, "VP8 ", 11, 0, 0, 0), ErrCorrupt, "vp8: invalid format"},

		{"GIF of a head", moving[:13], ErrCorrupt, "before the image is complete"},
		{"GIF of death", patched(moving, "GIF89a", 6, 0x60, 0xea, 0x60, 0xea), errTooLarge, "60000×60000 pixels"},
		{"truncated GIF", moving[:60], ErrCorrupt, "before the image is complete"},
		{"GIF with a frame outside", patched(moving, "GIF89a", 6, 3, 0, 3, 0), ErrCorrupt, "3×3 pixels with a frame at (0,0)-(6,4)"},
		{"GIF with a lying frame", lyingGIF(t), ErrCorrupt, "10000×10000 pixels, more than its"},
		{"GIF with an unknown block", patched(moving, "\x21\xf9", 0, '?'), ErrCorrupt, "unknown block 0x3f"},
		{"GIF of no frame", slices.Concat(patched(moving, "GIF89a", 10, 0)[:13], []byte{';'}), ErrCorrupt, "without a frame"},
	}
}

// lyingGIF is a few bytes whose frame is said to be large.
func lyingGIF(t testing.TB) []byte {
	t.Helper()
	data := encodeGIF(t, &gif.GIF{Image: []*image.Paletted{image.NewPaletted(image.Rect(0, 0, 4, 4), color.Palette{color.Black, color.White})}, Delay: []int{0}})
	size := []byte{0x10, 0x27, 0x10, 0x27}
	data = patched(data, "GIF89a", 6, size...)
	return patched(data, "\x2c\x00\x00\x00\x00", 5, size...)
}

// A bad image has an error of its kind that says what is wrong, and costs little memory.
func TestBadPicturesAreRefused(t *testing.T) {
	const most = 4 << 20
	pictures := badPictures(t)
	if len(pictures) < 50 {
		t.Errorf("%d bad images", len(pictures))
	}
	for _, b := range pictures {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m, err := Decode(b.data, Options{})
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: an image of %d×%d", b.name, m.Width, m.Height)
			continue
		}
		if !errors.Is(err, b.kind) || !known(err) || !strings.Contains(err.Error(), b.want) || !strings.HasPrefix(err.Error(), b.kind.Error()) {
			t.Errorf("%s: %q, want %q with %q", b.name, err, b.kind, b.want)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > most {
			t.Errorf("%s: took %d bytes", b.name, n)
		}
		t.Logf("%s: %v", b.name, err)
	}
}

func TestLimitsAreTheCallers(t *testing.T) {
	for kind, data := range map[string][]byte{
		"PNG": encodePNG(t, noise(48, 33, 1).standard(opaque)), "JPEG": file(t, "decoders", "coarse_baseline.jpg"),
		"WebP": file(t, "decoders", "lossy_48x33.webp"), "GIF": encodeGIF(t, animation()),
	} {
		m := decode(t, data, Options{})
		exact := Options{MaxBytes: len(data), MaxPixels: m.Width * m.Height}
		decode(t, data, exact)
		for name, o := range map[string]Options{"bytes": {MaxBytes: exact.MaxBytes - 1}, "pixels": {MaxPixels: exact.MaxPixels - 1}} {
			if _, err := Decode(data, o); !errors.Is(err, errTooLarge) || !known(err) {
				t.Errorf("%s with one of its %s too many: %v", kind, name, err)
			}
		}
	}
	// The frames in the file and the kept frames are limited together.
	all := func(n int, _ float64) []int {
		indices := make([]int, n)
		for i := range indices {
			indices[i] = i
		}
		return indices
	}
	data := encodeGIF(t, animation())
	for pixels, want := range map[int]string{59: "more than 59 pixels in its frames", 100: "5 frames of 6×4 pixels, at most 100", 120: ""} {
		_, err := DecodeFrames(data, Options{MaxPixels: pixels}, all)
		if want == "" && err != nil || want != "" && (!errors.Is(err, errTooLarge) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d pixels: %v, want %q", pixels, err, want)
		}
	}
	frame := data[bytes.IndexByte(data[20:], ',')+20:]
	r := gifReader{data: frame, pos: 10}
	r.palette(frame[9])
	r.bytes(1)
	r.blocks()
	long := slices.Concat(data[:len(data)-1], bytes.Repeat(frame[:r.pos], maxFramesInFile), []byte{';'})
	if _, err := DecodeFrames(long, Options{}, all); !errors.Is(err, errTooLarge) || !strings.Contains(err.Error(), "more than 16384 frames") {
		t.Errorf("%d frames too many: %v", 5, err)
	}
	if _, err := DecodeFrames(file(t, "images", "grey_96x64.png"), Options{}, all); !errors.Is(err, errUnsupported) || !known(err) {
		t.Errorf("frames of a PNG file: %v", err)
	}
}

func TestShapesAreRefused(t *testing.T) {
	c := Images()
	frames := []*Image{newImage(40, 40), newImage(40, 41)}
	for name, got := range map[string]func() error{
		"201×1":                 func() error { _, err := c.Prepare(newImage(201, 1), 1); return err },
		"1×201":                 func() error { _, err := c.Prepare(newImage(1, 201), 1); return err },
		"0×0":                   func() error { _, err := c.Prepare(newImage(0, 0), 1); return err },
		"without frames":        func() error { _, err := c.PrepareVideo(nil, 1); return err },
		"1 frames, at least 2":  func() error { _, err := c.PrepareVideo(frames[:1], 1); return err },
		"frame 2 of 40×41":      func() error { _, err := c.PrepareVideo(frames, 1); return err },
		"0 frames":              func() error { _, err := c.Sample(0, 30); return err },
		"-1 frames per second":  func() error { _, err := c.Sample(10, -1); return err },
		"NaN frames per second": func() error { _, err := c.Timestamps([]int{1}, nan()); return err },
	} {
		if err := got(); err == nil || !errors.Is(err, errShape) || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want it to say %q", err, name)
		}
	}
}

// Changed bytes give another image or an error, never a panic or an image beyond the
// limits.
func TestChangedPicturesAreHarmless(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 0))
	pictures, refused := 0, 0
	all := seeds(t)
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		for _, data := range all[kind] {
			for range 40 {
				changed := bytes.Clone(data)
				for range 1 + random.IntN(4) {
					changed[random.IntN(len(changed))] = byte(random.Uint32())
				}
				if random.IntN(4) == 0 {
					changed = changed[:random.IntN(len(changed)+1)]
				}
				pictures++
				m, err := Decode(changed, Options{MaxPixels: 1 << 16})
				if err != nil {
					refused++
				}
				if err != nil && !known(err) || err == nil && m.Width*m.Height > 1<<16 {
					t.Fatalf("%s: %v\n%q", kind, err, changed)
				}
			}
		}
	}
	if refused == 0 || refused == pictures {
		t.Errorf("%d of %d changed images are refused", refused, pictures)
	}
}

// A baseline scan has all coefficients and bits, regardless of its header: libjpeg only warns.
func TestBaselineIgnoresWhatIsOfProgressiveScans(t *testing.T) {
	data := file(t, "decoders", "ycc_2x2_baseline.jpg")
	want := decode(t, data, Options{})
	if got := decode(t, patched(data, "\xff\xda", 11, 3, 9, 0x21), Options{}); !bytes.Equal(got.Pix, want.Pix) {
		t.Error("another image")
	}
}

// Scans of few bytes may visit many blocks, but not without end.
func TestVisitsOfBlocksAreBounded(t *testing.T) {
	data := file(t, "decoders", "grey_progressive.jpg") // 6×4 blocks
	d := &jpegDecoder{data: data, pos: 2, adobe: -1}
	if _, err := d.decode(); err != nil || d.visits%24 != 0 || d.visits < 2*24 {
		t.Fatalf("%d visits: %v", d.visits, err)
	}
	d = &jpegDecoder{data: data, pos: 2, adobe: -1, visits: maxVisits - d.visits + 1}
	if _, err := d.decode(); !errors.Is(err, errTooLarge) {
		t.Errorf("%d visits: %v", d.visits, err)
	}
}

// Decoding allocates at most perPixel bytes per pixel and a constant, as Options say.
func TestMemoryIsBoundedByPixels(t *testing.T) {
	const side, perPixel, besides = 300, 14, 1 << 18
	m := noise(side, side, 1)
	deep := image.NewNRGBA64(m.bounds())
	indexed := image.NewPaletted(m.bounds(), animation().Image[0].Palette)
	for i := range deep.Pix {
		deep.Pix[i] = m.Pix[i%len(m.Pix)]
	}
	for i := range indexed.Pix {
		indexed.Pix[i] = m.Pix[i] & 3
	}
	for name, data := range map[string][]byte{
		"PNG of 16 bits, turned": withExif(t, encodePNG(t, deep), tiff(binary.BigEndian, 6)), "PNG": encodePNG(t, m.standard(opaque)), "JPEG": encodeJPEG(t, m.standard(opaque)),
		"GIF": encodeGIF(t, &gif.GIF{Image: []*image.Paletted{indexed}, Delay: []int{0}}),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		decode(t, data, Options{})
		runtime.ReadMemStats(&after)
		n := after.TotalAlloc - before.TotalAlloc
		t.Logf("%s: %.1f bytes a pixel", name, float64(n)/(side*side))
		if n > side*side*perPixel+besides {
			t.Errorf("%s: %d bytes for %d pixels", name, n, side*side)
		}
	}
}

// Small frames that are disposed to the previous state cost little, however large the canvas is.
func TestFramesCostWhatTheyCover(t *testing.T) {
	const side, frames = 1000, 100
	g := &gif.GIF{Config: image.Config{ColorModel: animation().Config.ColorModel, Width: side, Height: side}}
	for range frames {
		g.Image = append(g.Image, image.NewPaletted(image.Rect(2, 3, 4, 4), animation().Image[1].Palette))
		g.Delay, g.Disposal = append(g.Delay, 10), append(g.Disposal, gif.DisposalPrevious)
	}
	data := encodeGIF(t, g)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := DecodeFrames(data, Options{}, func(n int, _ float64) []int { return []int{0, n - 1} }); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if n, most := after.TotalAlloc-before.TotalAlloc, uint64(20*3*side*side); n > most {
		t.Errorf("%d bytes for %d frames, want at most %d: two of them are kept", n, frames, most)
	}
}
