package picture

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// noise is an image of random bytes, often extremes, which make sums overshoot.
func noise(width, height int, seed uint64) *Image {
	random := rand.New(rand.NewPCG(seed, 0))
	m := newImage(width, height)
	for i := range m.Pix {
		m.Pix[i] = byte(clamp(int32(random.IntN(512)) - 128))
	}
	return m
}

// slowWeights has the formulas as written in the reference, with the neighbors of each
// sample only.
func slowWeights(n, m int) (first []int, weights [][]int32, shift uint) {
	scale := float64(n) / float64(m)
	support, inverse := 2.0, 1.0
	if scale >= 1 {
		support, inverse = float64(2*scale), float64(1/scale)
	}
	var rows [][]float64
	top := 0.0
	for i := range m {
		center := float64(scale * (float64(i) + 0.5))
		from := max(int(center-support+0.5), 0)
		to := min(int(center+support+0.5), n)
		var row []float64
		total := 0.0
		for j := from; j < to; j++ {
			row = append(row, cubic(float64((float64(j)-center+0.5)*inverse)))
			total += row[len(row)-1]
		}
		for j := range row {
			row[j] /= total
			top = max(top, row[j])
		}
		first, rows = append(first, from), append(rows, row)
	}
	for shift < 22 && int(0.5+float64(top*float64(int(1)<<(shift+1)))) < 1<<15 {
		shift++
	}
	for _, row := range rows {
		var q []int32
		for _, w := range row {
			if v := float64(w * float64(int(1)<<shift)); w >= 0 {
				q = append(q, int32(v+0.5))
			} else {
				q = append(q, int32(v-0.5))
			}
		}
		weights = append(weights, q)
	}
	return first, weights, shift
}

// slowResize resizes one sample at a time.
func slowResize(m *Image, width, height int) *Image {
	if width != m.Width {
		out := newImage(width, m.Height)
		first, weights, shift := slowWeights(m.Width, width)
		for y := range m.Height {
			for i := range out.row(y) {
				sum := int32(1) << (shift - 1)
				for j, w := range weights[i/3] {
					sum += w * int32(m.row(y)[3*(first[i/3]+j)+i%3])
				}
				out.row(y)[i] = byte(min(max(sum>>shift, 0), 255))
			}
		}
		m = out
	}
	if height != m.Height {
		out := newImage(width, height)
		first, weights, shift := slowWeights(m.Height, height)
		for y := range height {
			for i := range out.row(y) {
				sum := int32(1) << (shift - 1)
				for j, w := range weights[y] {
					sum += w * int32(m.row(first[y] + j)[i])
				}
				out.row(y)[i] = byte(min(max(sum>>shift, 0), 255))
			}
		}
		m = out
	}
	return m
}

func TestResizeIsTheSlowOne(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 0))
	sizes := [][4]int{{1, 1, 1, 1}, {1, 1, 32, 32}, {2, 3, 1, 1}, {640, 480, 160, 96}, {37, 91, 64, 128}, {3000, 2, 32, 2}, {2, 3000, 2, 32}}
	for range 40 {
		sizes = append(sizes, [4]int{1 + random.IntN(90), 1 + random.IntN(90), 1 + random.IntN(90), 1 + random.IntN(90)})
	}
	for i, s := range sizes {
		m := noise(s[0], s[1], uint64(i))
		want := slowResize(m, s[2], s[3])
		for _, threads := range []int{1, 2, 7} {
			if got := m.resize(s[2], s[3], threads); got.Width != s[2] || got.Height != s[3] || !bytes.Equal(got.Pix, want.Pix) {
				t.Errorf("%v with %d threads differs", s, threads)
			}
		}
	}
}

// The specification's values of weights.
func TestWeightsAreTheReferences(t *testing.T) {
	for _, want := range []struct {
		n, m, i, first int
		shift          uint
		weights        []int32
	}{
		{5, 3, 0, 0, 15, []int32{19157, 14620, 0, -1008}},
		{5, 3, 1, 0, 15, []int32{-1219, 8078, 19051, 8078, -1219}},
		{5, 3, 2, 1, 15, []int32{-1008, 0, 14620, 19157}},
		{3, 5, 0, 0, 14, []int32{17621, -1237}},
		{3, 5, 1, 0, 14, []int32{10637, 6480, -734}},
		{3, 5, 2, 0, 14, []int32{0, 16384, 0}},
		{640, 160, 2, 2, 16, []int32{-112, -720, -1200, -784, 1488, 6384, 11920, 15792, 15792, 11920, 6384, 1488, -784, -1200, -720, -112}},
	} {
		first, weights, shift := slowWeights(want.n, want.m)
		if first[want.i] != want.first || shift != want.shift || !slices.Equal(weights[want.i], want.weights) {
			t.Errorf("%d to %d: sample %d is %d>>%d: %v, want %v", want.n, want.m, want.i, first[want.i], shift, weights[want.i], want)
		}
	}
}

func TestPatchesReadInPartsAreTheWhole(t *testing.T) {
	c := Images()
	c.MinPixels, c.MaxPixels = 4096, 24576
	var frames []*Image
	for i := range 5 {
		frames = append(frames, noise(100, 70, uint64(i)))
	}
	still, err := c.Prepare(frames[0], 1)
	if err != nil {
		t.Fatal(err)
	}
	video, err := c.PrepareVideo(frames, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []*Patches{still, video} {
		whole := make([]float32, p.Rows()*p.Width())
		p.Read(0, whole)
		parts := make([]float32, len(whole))
		for row := 0; row < p.Rows(); {
			n := min(1+row%5, p.Rows()-row)
			p.Read(row, parts[row*p.Width():(row+n)*p.Width()])
			row += n
		}
		if !slices.Equal(whole, parts) {
			t.Errorf("%v: parts differ from the whole", p.Grid)
		}
	}
	// The order, by position: the second patch is right of the first, the third below it.
	at := func(p *Patches, row, color, time, y, x int) float32 {
		out := make([]float32, p.Width())
		p.Read(row, out)
		return out[((color*c.Temporal+time)*c.Patch+y)*c.Patch+x]
	}
	resized := video.frames
	for _, want := range []struct{ row, color, time, y, x, frame, pixelY, pixelX int }{
		{0, 0, 0, 0, 0, 0, 0, 0},
		{1, 1, 0, 3, 2, 0, 3, 18},
		{2, 2, 1, 3, 2, 1, 19, 2},
		{4, 0, 1, 0, 15, 1, 0, 47},
		{video.Rows() - 1, 1, 1, 15, 15, 4, resized[0].Height - 1, resized[0].Width - 1}, // the last frame again
	} {
		b := resized[want.frame].row(want.pixelY)[3*want.pixelX+want.color]
		if got := at(video, want.row, want.color, want.time, want.y, want.x); got != (float32(b)-127.5)/127.5 {
			t.Errorf("%+v: %v, want byte %d", want, got, b)
		}
	}
}

func TestHashTellsWhatTheTowerSees(t *testing.T) {
	c := Images()
	c.MinPixels, c.MaxPixels = 1024, 24576
	hash := func(c Config, frames ...*Image) string {
		t.Helper()
		p, err := c.Prepare(frames[0], 1)
		if len(frames) > 1 {
			p, err = c.PrepareVideo(frames, 2)
		}
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%x", p.Hash)
	}
	a, b := noise(64, 96, 1), noise(64, 96, 2)
	if hash(c, a) != hash(c, a.clone()) {
		t.Error("the same image has two hashes")
	}
	turned := &Image{Width: 96, Height: 64, Pix: a.Pix}
	other := a.clone()
	other.Pix[len(other.Pix)-1] ^= 1
	mean := c
	mean.Mean[2] = 0.4
	larger := c
	larger.MinPixels = 16384
	merge := c
	merge.Merge = 1
	seen := map[string]string{}
	for name, h := range map[string]string{
		"picture": hash(c, a), "another": hash(c, b), "other shape": hash(c, turned), "one bit": hash(c, other), "mean": hash(mean, a),
		"size": hash(larger, a), "order": hash(merge, a), "video": hash(c, a, a), "longer video": hash(c, a, a, a), "other video": hash(c, a, b),
	} {
		if before, ok := seen[h]; ok {
			t.Errorf("%s and %s have the same hash", name, before)
		}
		seen[h] = name
	}
}

func BenchmarkPrepare(b *testing.B) {
	for _, size := range [][2]int{{640, 480}, {1920, 1080}, {4032, 3024}} {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("size=%dx%d/threads=%d", size[0], size[1], threads), func(b *testing.B) {
				c := Images()
				c.MaxPixels = 1 << 20
				m := noise(size[0], size[1], 1)
				b.SetBytes(int64(len(m.Pix)))
				for b.Loop() {
					if _, err := c.Prepare(m, threads); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkRead(b *testing.B) {
	p, err := Images().Prepare(noise(640, 480, 1), 1)
	if err != nil {
		b.Fatal(err)
	}
	out := make([]float32, p.Rows()*p.Width())
	b.SetBytes(int64(4 * len(out)))
	for b.Loop() {
		p.Read(0, out)
	}
}

func BenchmarkResizeSlow(b *testing.B) {
	m := noise(1920, 1080, 1)
	for b.Loop() {
		slowResize(m, 1344, 736)
	}
}

func BenchmarkResize(b *testing.B) {
	m := noise(1920, 1080, 1)
	for b.Loop() {
		m.resize(1344, 736, 1)
	}
}
