package qwen35

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/qwen35/vision"
	"github.com/foretoken/foretoken/internal/picture"
)

// towerOf is the tower of a folder, or ends the test.
func towerOf(tb testing.TB, r *rig) *vision.Tower {
	tb.Helper()
	t, err := r.Tower()
	if err != nil || t == nil {
		tb.Fatalf("tower %v: %v", t, err)
	}
	return t.(*vision.Tower)
}

// goldenPictures are those of the vision fixture, prepared: eight images, then the video.
func goldenPictures(tb testing.TB, f *golden.VisionFixture) []*picture.Patches {
	tb.Helper()
	config, err := picture.ReadImages(golden.Picture(tb, "preprocessor_config.json"))
	if err != nil {
		tb.Fatal(err)
	}
	decode := func(name string) *picture.Image {
		m, err := picture.Decode(golden.Picture(tb, name), picture.Options{})
		if err != nil {
			tb.Fatal(err)
		}
		return m
	}
	var list []*picture.Patches
	for _, m := range f.Images {
		p, err := config.Prepare(decode(m.File), 1)
		if err != nil {
			tb.Fatal(err)
		}
		list = append(list, p)
	}
	if config, err = picture.ReadVideos(golden.Picture(tb, "video_preprocessor_config.json")); err != nil {
		tb.Fatal(err)
	}
	var frames []*picture.Image
	for _, name := range f.Video.Frames {
		frames = append(frames, decode(name))
	}
	video, err := config.PrepareVideo(frames, 1)
	if err != nil {
		tb.Fatal(err)
	}
	return append(list, video)
}

// see runs a whole pass in steps of about that many operations and returns the pictures' rows.
func see(tb testing.TB, t *vision.Tower, budget int, pictures ...*picture.Patches) [][]float32 {
	tb.Helper()
	p, err := t.BeginWithin(pictures, budget)
	if err != nil {
		tb.Fatal(err)
	}
	defer p.Close()
	stepTo(tb, p, func() bool { return p.At == vision.Finished })
	rows := make([][]float32, len(pictures))
	for i := range pictures {
		out := p.Take(i)
		x, err := t.Backend.Host(out)
		if err != nil {
			tb.Fatal(err)
		}
		rows[i] = slices.Clone(x)
		t.Backend.Free(out)
	}
	return rows
}

// stepTo steps until something is reached.
func stepTo(tb testing.TB, p *vision.Pass, reached func() bool) {
	tb.Helper()
	for !reached() {
		if _, err := p.Step(); err != nil {
			tb.Fatal(err)
		}
	}
}

// visionFolder is the vision fixture, to be edited.
func visionFolder(t *testing.T) *folder {
	t.Helper()
	c := golden.Open(t, golden.Dir(t, "vision"))
	f := newFolder(t, c.Config())
	for _, name := range c.Tensors() {
		x, err := c.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		f.main().add(tensor{name: name, typ: x.Type, shape: x.Shape, data: slices.Clone(x.Data)})
	}
	return f
}

// mlxTower stores the tower as converted checkpoints do.
func mlxTower(t *testing.T, f *folder) {
	f.edit(t, rename("model.visual.", "vision_tower."))
	x := f.find(t, "patch_embed.proj.weight")
	n := x.shape
	raw, last := x.values(), make([]float32, 0, len(x.data))
	pixels := n[2] * n[3] * n[4]
	for d := range n[0] {
		for p := range pixels {
			for c := range n[1] {
				last = append(last, raw[(d*n[1]+c)*pixels+p])
			}
		}
	}
	*x = numbers(x.name, x.typ, []int{n[0], n[2], n[3], n[4], n[1]}, last)
}

// TestTowerEqualsReference holds every stage of the tower against the reference, in both layouts,
// with a video among the images.
func TestTowerEqualsReference(t *testing.T) {
	f := golden.LoadVision(t)
	pictures := goldenPictures(t, f)
	for layout, edits := range map[string][]edit{"raw": nil, "mlx": {mlx, mlxTower}} {
		t.Run("layout="+layout, func(t *testing.T) {
			r := open(t, visionFolder(t).edit(t, edits...).write(t), 0, model.Options{Compute: backend.Float32})
			tower := towerOf(t, r)
			compare := func(name string, got []float32) {
				t.Helper()
				want := f.Array(t, name)
				if err := near(got, want.Data, golden.Tol.Tower); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			for i, rows := range see(t, tower, vision.StepOperations, pictures...) {
				name := fmt.Sprintf("%d.merged", i)
				if i == len(f.Images) {
					name = "video.merged"
				}
				compare(name, rows)
			}
			for i, m := range pictures[:len(f.Images)] {
				p, err := tower.BeginWithin([]*picture.Patches{m}, vision.StepOperations)
				if err != nil {
					t.Fatal(err)
				}
				if i == 0 || i == 3 {
					stepTo(t, p, func() bool { return p.At == vision.Projecting })
					compare(fmt.Sprintf("%d.embedded", i), r.Host(t, p.X))
					stepTo(t, p, func() bool { return p.Block == 1 })
					compare(fmt.Sprintf("%d.block0", i), r.Host(t, p.X))
				}
				stepTo(t, p, func() bool { return p.At == vision.Merging })
				compare(fmt.Sprintf("%d.last", i), r.Host(t, p.X))
				p.Close()
			}
			// Without positions rows are the patches alone.
			flat := *tower
			flat.Positions = make([]float32, len(flat.Positions))
			for _, i := range []int{0, 3} {
				p, err := flat.BeginWithin(pictures[i:i+1], vision.StepOperations)
				if err != nil {
					t.Fatal(err)
				}
				stepTo(t, p, func() bool { return p.At == vision.Projecting })
				compare(fmt.Sprintf("%d.patch", i), r.Host(t, p.X))
				p.Close()
			}
		})
	}
}

// TestTowerOfTinyEqualsReference does so with the trained tower, and tells how far from it one of 8
// bits is.
func TestTowerOfTinyEqualsReference(t *testing.T) {
	f := golden.LoadTinyVision(t)
	text := filetest.Read(t, filepath.Join(golden.Dir(t, "tiny"), "preprocessor_config.json"))
	config, err := picture.ReadImages(text)
	if err != nil {
		t.Fatal(err)
	}
	var pictures []*picture.Patches
	for _, e := range f.Examples {
		m, err := picture.Decode(e.Picture, picture.Options{})
		if err != nil {
			t.Fatal(err)
		}
		p, err := config.Prepare(m, 1)
		if err != nil {
			t.Fatal(err)
		}
		pictures = append(pictures, p)
	}
	for _, c := range []struct {
		o         model.Options
		tolerance float64
	}{{model.Options{}, golden.Tol.Tower}, {model.Options{Quantize: 8}, golden.Tol.Tower8}} {
		for i, rows := range see(t, towerOf(t, open(t, golden.Dir(t, "tiny"), 0, c.o)), vision.StepOperations, pictures...) {
			if err := near(rows, f.Array(t, fmt.Sprintf("%d.merged", i)).Data, c.tolerance); err != nil {
				t.Errorf("quantized to %d, image %d: %v", c.o.Quantize, i, err)
			}
		}
	}
}

// near is the error of numbers that are further from others than a share of the largest of these.
func near(got, want []float32, share float64) error {
	largest := 0.0
	for _, x := range want {
		largest = max(largest, math.Abs(float64(x)))
	}
	var w golden.Worst
	w.Add("number", got, want)
	return w.Err(share * largest)
}

// TestTowerRowsAreTheirOwn is the law of the tower: the bits of an image's rows depend neither on
// the size of the steps, nor on the images that share the pass or their order, nor on threads,
// instruction sets or devices.
func TestTowerRowsAreTheirOwn(t *testing.T) {
	f := golden.LoadVision(t)
	pictures := goldenPictures(t, f)
	pictures = append(pictures[:4:4], pictures[len(pictures)-1])
	for _, c := range []struct {
		name string
		dir  string
		o    model.Options
	}{
		{"numbers", golden.Dir(t, "vision"), model.Options{}},
		{"integers", visionFolder(t).edit(t, wideTower).write(t), model.Options{Quantize: 8}},
	} {
		t.Run("products="+c.name, func(t *testing.T) {
			dir, o := c.dir, c.o
			tower := towerOf(t, open(t, dir, 1, o))
			want := see(t, tower, vision.StepOperations, pictures...)
			for i, m := range pictures {
				same(t, fmt.Sprintf("image %d alone", i), see(t, tower, 1, m), want[i:i+1])
			}
			rng := rand.New(rand.NewPCG(16, uint64(o.Quantize)))
			for range 3 {
				budget := []int{1, 300_000, 3_000_000, vision.StepOperations}[rng.IntN(4)]
				var some []*picture.Patches
				var rows [][]float32
				for _, i := range rng.Perm(len(pictures))[:1+rng.IntN(len(pictures))] {
					some, rows = append(some, pictures[i]), append(rows, want[i])
				}
				same(t, fmt.Sprintf("%d images in steps of %d", len(some), budget), see(t, tower, budget, some...), rows)
			}
			const few = 1
			for name, b := range map[string]backend.Backend{
				"generic": backendtest.Open(t, backend.Options{Threads: 1, ISA: "generic"}),
				"opaque":  backendtest.NewOpaque(backendtest.Open(t, backend.Options{Threads: 1})),
				"split":   divided(t, second(func(p backend.Part) bool { return p.Kind == backend.TowerPart })),
			} {
				same(t, name, see(t, towerOf(t, openOn(t, b, dir, o)), vision.StepOperations, pictures[:few]...), want[:few])
			}
			old := runtime.GOMAXPROCS(2)
			defer runtime.GOMAXPROCS(old)
			same(t, "3 threads", see(t, towerOf(t, open(t, dir, 3, o)), 1_000_000, pictures...), want)
		})
	}
}
