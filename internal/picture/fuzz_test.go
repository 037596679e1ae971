package picture

import "testing"

// fuzzDecode checks that a decoder never panics and returns an error of this package or an
// image within the limits.
func fuzzDecode(f *testing.F, kind string) {
	for _, data := range seeds(f)[kind] {
		f.Add(data, false)
	}
	f.Fuzz(func(t *testing.T, data []byte, onWhite bool) {
		if format(data) != kind {
			return
		}
		o := Options{MaxBytes: 1 << 16, MaxPixels: 1 << 16, OnWhite: onWhite}
		m, err := Decode(data, o)
		switch {
		case err != nil && !known(err):
			t.Fatal(err)
		case err == nil && (m.Width < 1 || m.Height < 1 || m.Width*m.Height > o.MaxPixels || len(m.Pix) != 3*m.Width*m.Height):
			t.Fatalf("%d×%d pixels in %d bytes", m.Width, m.Height, len(m.Pix))
		}
	})
}

func FuzzPNG(f *testing.F)  { fuzzDecode(f, "PNG") }
func FuzzJPEG(f *testing.F) { fuzzDecode(f, "JPEG") }
func FuzzWebP(f *testing.F) { fuzzDecode(f, "WebP") }
func FuzzGIF(f *testing.F)  { fuzzDecode(f, "GIF") }

func FuzzFrames(f *testing.F) {
	for _, data := range seeds(f)["GIF"] {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o := Options{MaxBytes: 1 << 16, MaxPixels: 1 << 16}
		frames, err := DecodeFrames(data, o, func(n int, rate float64) []int {
			indices, err := Videos().Sample(n, rate)
			if err != nil {
				t.Fatal(err)
			}
			return indices
		})
		if err != nil && !known(err) {
			t.Fatal(err)
		}
		pixels := 0
		for _, m := range frames {
			pixels += m.Width * m.Height
		}
		if pixels > o.MaxPixels {
			t.Fatalf("%d pixels", pixels)
		}
	})
}

// An accepted configuration makes patches of any image of a usable shape, within reason.
func FuzzConfig(f *testing.F) {
	f.Add(file(f, "preprocessor_config.json"), 40, 30)
	f.Add([]byte(`{"image_processor": {"patch_size": 12, "min_pixels": 1}, "fps": 3}`), 1, 200)
	f.Fuzz(func(t *testing.T, text []byte, width, height int) {
		c, err := ReadImages(text)
		if err != nil {
			return
		}
		w, h, err := c.Size(width, height)
		token := c.Patch * c.Merge
		if err == nil && (w < 1 || h < 1 || w%token != 0 || h%token != 0) {
			t.Fatalf("%d×%d becomes %d×%d, of tokens of %d", width, height, w, h, token)
		}
	})
}
