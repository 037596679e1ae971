package picture

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
)

func file(t testing.TB, name ...string) []byte {
	t.Helper()
	return filetest.Read(t, filepath.Join(append([]string{"testdata"}, name...)...))
}

func load(t testing.TB, name string, into any) {
	t.Helper()
	if err := json.Unmarshal(file(t, name), into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func decode(t testing.TB, data []byte, o Options) *Image {
	t.Helper()
	m, err := Decode(data, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Pix) != 3*m.Width*m.Height {
		t.Fatalf("%d bytes for %d×%d pixels", len(m.Pix), m.Width, m.Height)
	}
	return m
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// floats is all rows of patches as little-endian bytes.
func floats(p *Patches) []byte {
	values := make([]float32, p.Rows()*p.Width())
	p.Read(0, values)
	out := make([]byte, 0, 4*len(values))
	for _, v := range values {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return out
}

func TestPicturesEqualTheReference(t *testing.T) {
	c, err := ReadImages(file(t, "preprocessor_config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Images []struct {
			File          string
			Width, Height int
			Resized       [2]int
			Grid          [3]int `json:"grid_thw"`
			Tokens        int
			RGB           string `json:"sha256_rgb"`
			Small         string `json:"sha256_resized"`
			Values        string `json:"sha256_pixel_values"`
		}
	}
	load(t, "golden.json", &golden)
	if len(golden.Images) != 8 {
		t.Fatalf("%d images, want 8", len(golden.Images))
	}
	for _, want := range golden.Images {
		t.Run("file="+want.File, func(t *testing.T) {
			m := decode(t, file(t, "images", want.File), Options{})
			if m.Width != want.Width || m.Height != want.Height {
				t.Fatalf("%d×%d, want %d×%d", m.Width, m.Height, want.Width, want.Height)
			}
			if sum(m.Pix) != want.RGB {
				t.Error("decoded bytes differ")
			}
			if got := m.resize(want.Resized[0], want.Resized[1], 1); sum(got.Pix) != want.Small {
				t.Error("resized bytes differ")
			}
			p, err := c.Prepare(m, 2)
			if err != nil {
				t.Fatal(err)
			}
			if g := p.Grid; [3]int{g.Time, g.Height, g.Width} != want.Grid || p.Tokens() != want.Tokens {
				t.Errorf("grid %v with %d tokens, want %v with %d", g, p.Tokens(), want.Grid, want.Tokens)
			}
			if sum(floats(p)) != want.Values {
				t.Error("pixel values differ")
			}
		})
	}
}

func TestVideosEqualTheReference(t *testing.T) {
	c, err := ReadVideos(file(t, "video_preprocessor_config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Video struct {
			Frames  []string
			Resized [2]int
			Grid    [3]int `json:"grid_thw"`
			Values  string `json:"sha256_pixel_values"`
		}
	}
	load(t, "golden.json", &golden)
	var frames []*Image
	for _, name := range golden.Video.Frames {
		frames = append(frames, decode(t, file(t, "images", name), Options{}))
	}
	p, err := c.PrepareVideo(frames, 1)
	if err != nil {
		t.Fatal(err)
	}
	if g := p.Grid; [3]int{g.Time, g.Height, g.Width} != golden.Video.Grid {
		t.Errorf("grid %v, want %v", g, golden.Video.Grid)
	}
	if sum(floats(p)) != golden.Video.Values {
		t.Error("pixel values differ")
	}
}

func TestSizesEqualTheReference(t *testing.T) {
	var golden struct {
		Factor   int
		Image    [][]json.RawMessage
		Video    [][]json.RawMessage
		Sampling []struct {
			Frames     int
			FPS        float64
			Count      int
			Indices    []int
			Timestamps []string
		} `json:"video_sampling"`
	}
	load(t, "geometry.json", &golden)
	if len(golden.Image) != 260 || len(golden.Video) != 160 || len(golden.Sampling) != 6 {
		t.Fatalf("%d images, %d videos and %d samplings", len(golden.Image), len(golden.Video), len(golden.Sampling))
	}
	c := Images()
	if c.Patch*c.Merge != golden.Factor {
		t.Fatalf("tokens of %d pixels, want %d", c.Patch*c.Merge, golden.Factor)
	}
	refused := 0
	for _, row := range slices.Concat(golden.Image, golden.Video) {
		numbers := make([]int, len(row)-1)
		for i := range numbers {
			filetest.Decode(t, row[i], &numbers[i])
		}
		var want *[2]int // height, width
		filetest.Decode(t, row[len(row)-1], &want)
		n := len(numbers)
		height, width := numbers[n-4], numbers[n-3]
		c.MinPixels, c.MaxPixels = numbers[n-2], numbers[n-1]
		w, h, err := c.Size(width, height)
		if n == 5 {
			w, h, err = c.VideoSize(numbers[0], width, height)
		}
		if want == nil {
			refused++
		}
		if (err != nil) != (want == nil) || err == nil && [2]int{h, w} != *want {
			t.Errorf("%v: %d×%d %v, want %v", numbers, h, w, err, want)
		}
	}
	if refused == 0 {
		t.Error("no size is refused")
	}
	for _, s := range golden.Sampling {
		indices, err := c.Sample(s.Frames, s.FPS)
		if err != nil || len(indices) != s.Count || !slices.Equal(ends(indices, len(s.Indices)), s.Indices) {
			t.Errorf("%d frames at %v: %v %v, want %v", s.Frames, s.FPS, indices, err, s.Indices)
		}
		seconds, err := c.Timestamps(indices, s.FPS)
		if err != nil {
			t.Fatal(err)
		}
		texts := make([]string, len(seconds))
		for i, v := range seconds {
			texts[i] = fmt.Sprintf("<%.1f seconds>", v)
		}
		if !slices.Equal(ends(texts, len(s.Timestamps)), s.Timestamps) {
			t.Errorf("%d frames at %v: %v, want %v", s.Frames, s.FPS, texts, s.Timestamps)
		}
	}
}

// ends is the first and last half of n values: the golden file has only these of long lists.
func ends[T any](s []T, n int) []T {
	if len(s) <= n {
		return s
	}
	return slices.Concat(s[:n/2], s[len(s)-n/2:])
}
