package convert

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/picture"
)

// sight is the rows that the vision tower of a folder computes for an image of a hundred colors.
func sight(t *testing.T, dir string) []float32 {
	t.Helper()
	r := modeltest.Open(t, dir, 1, model.Options{Compute: backend.Float32})
	tower, err := r.Model.(model.Multimodal).Tower()
	if err != nil || tower == nil {
		t.Fatalf("%s: tower %v, %v", dir, tower, err)
	}
	m := &picture.Image{Width: 80, Height: 64, Pix: make([]byte, 3*80*64)}
	for i := range m.Pix {
		m.Pix[i] = byte(i * i % 251)
	}
	config := picture.Images()
	config.MinPixels = 1024
	p, err := config.Prepare(m, 1)
	if err != nil {
		t.Fatal(err)
	}
	pass, err := tower.Begin([]*picture.Patches{p})
	if err != nil {
		t.Fatal(err)
	}
	defer pass.Close()
	for done := false; !done; {
		if done, err = pass.Step(); err != nil {
			t.Fatal(err)
		}
	}
	x := pass.Take(0)
	rows, err := r.B.Host(x)
	if err != nil {
		t.Fatal(err)
	}
	defer r.B.Free(x)
	return slices.Clone(rows)
}

// TestConvertKeepsVision: names and layout of MLX, the same rows, and all files that a tower needs.
func TestConvertKeepsVision(t *testing.T) {
	dir := golden.Dir(t, "vision")
	out, s := converted(t, dir, Options{})
	source, c := golden.Open(t, dir), golden.Open(t, out)
	if s.VisionIn != 9+12*3 || s.VisionOut != s.VisionIn || s.LeftOut != 0 || s.TensorsIn != len(source.Tensors()) || s.TensorsOut != len(c.Tensors()) {
		t.Errorf("%+v of %d tensors and %d", s, len(source.Tensors()), len(c.Tensors()))
	}
	kernel := read(t, source, "model.visual.patch_embed.proj.weight")
	x := read(t, c, "vision_tower.patch_embed.proj.weight")
	if !slices.Equal(kernel.shape, []int{48, 3, 2, 16, 16}) || !slices.Equal(x.shape, []int{48, 2, 16, 16, 3}) || x.typ != kernel.typ {
		t.Fatalf("kernels of %v became %v", kernel.shape, x.shape)
	}
	for _, at := range [][4]int{{0, 0, 0, 0}, {2, 0, 0, 0}, {1, 1, 3, 7}, {0, 1, 15, 15}} { // channel, frame, line, column
		from, to := ((at[0]*2+at[1])*16+at[2])*16+at[3], ((at[1]*16+at[2])*16+at[3])*3+at[0]
		if kernel.values()[from] != x.values()[to] {
			t.Errorf("number %v of the kernels is elsewhere", at)
		}
	}
	for _, name := range source.Tensors() {
		if rest, ok := strings.CutPrefix(name, "model.visual."); ok && rest != "patch_embed.proj.weight" {
			if got, want := read(t, c, "vision_tower."+rest), read(t, source, name); !slices.Equal(got.data, want.data) || !slices.Equal(got.shape, want.shape) {
				t.Errorf("%s differs", name)
			}
		}
	}
	if !slices.Equal(sight(t, out), sight(t, dir)) {
		t.Error("the tower sees differently")
	}
	top, _ := configOf(t, out)
	if top["vision_config"] == nil || top["image_token_id"] != 500.0 {
		t.Errorf("config %s", c.Config())
	}
	again, _ := converted(t, out, Options{})
	sameFolders(t, again, out)
	if wide, _ := converted(t, out, Options{Type: dtype.F32}); !slices.Equal(sight(t, wide), sight(t, dir)) {
		t.Error("the tower sees differently in float32")
	}
}

// TestConvertLeavesVisionOut: neither tensors, nor the config, nor the files for images are left,
// on request or if the tower cannot be used.
func TestConvertLeavesVisionOut(t *testing.T) {
	incomplete := golden.Dir(t, "dense")
	for _, c := range []struct {
		dir  string
		o    Options
		left int
	}{
		{golden.Dir(t, "vision"), Options{NoVision: true}, 9 + 12*3},
		{incomplete, Options{}, 3},
		{incomplete, Options{NoVision: true}, 3},
	} {
		out, s := converted(t, c.dir, c.o)
		if s.VisionIn+s.VisionOut != 0 || s.LeftOut != c.left || !strings.Contains(s.String(), "tensors of a vision tower left out") {
			t.Errorf("%s: %s, %+v", c.dir, &s, s)
		}
		written := golden.Open(t, out)
		if strings.Contains(string(written.Config()), "vision_config") || slices.ContainsFunc(written.Tensors(), func(n string) bool { return strings.Contains(n, "vis") }) {
			t.Errorf("%s: %q, config %s", c.dir, written.Tensors(), written.Config())
		}
		for _, name := range visionTexts {
			if _, err := os.Stat(filepath.Join(out, name)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %s is there: %v", c.dir, name, err)
			}
		}
	}
}

// TestConvertQuantizesVision gives the embedded model's tower fewer bits, and takes them back.
func TestConvertQuantizesVision(t *testing.T) {
	dir := golden.Dir(t, "tiny")
	want := sight(t, dir)
	for _, c := range []struct {
		bits int
		near float64 // cosine
	}{{8, 0.9995}, {4, 0.95}} {
		out, s := converted(t, dir, Options{Vision: &Encoding{Format: dtype.Affine, Bits: c.bits, Group: 64}})
		var product, a, b float64
		for i, x := range sight(t, out) {
			product, a, b = product+float64(x)*float64(want[i]), a+float64(x)*float64(x), b+float64(want[i])*float64(want[i])
		}
		if cosine := product / math.Sqrt(a*b); !(cosine > c.near) {
			t.Errorf("%d bits: rows have cosine %.5f with those of bf16", c.bits, cosine)
		}
		k, source := golden.Open(t, out), golden.Open(t, dir)
		for _, name := range visionTexts[:2] {
			want, err := source.ReadFile(name)
			got, missing := k.ReadFile(name)
			if err := errors.Join(err, missing); err != nil || string(got) != string(want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		v, err := model.Inventory(k, weights.Whole, discard)
		if err != nil {
			t.Fatal(err)
		}
		for i := range v.Tower {
			w := &v.Tower[i]
			if !w.IsMatrix() {
				continue
			}
			stored, err := w.Stored()
			if quantized := w.Kind == weights.Matrix; err != nil || quantized != (stored[0].Format == dtype.Affine && stored[0].Bits == c.bits) {
				t.Errorf("%s: %v, %v", w.Name, stored[0].Format, err)
			}
		}
		if s.VisionOut != s.VisionIn+2*(4*4+2) {
			t.Errorf("%d bits: %+v", c.bits, s)
		}
		checkQuantization(t, k, "vision_tower.merger.linear_fc1", c.bits)
		plain, back := Encoding{Format: dtype.Plain}, ""
		if back, s = converted(t, out, Options{Vision: &plain, Type: dtype.F32}); s.VisionOut != 9+12*4 {
			t.Errorf("%d bits and back: %+v", c.bits, s)
		}
		if !slices.Equal(sight(t, back), sight(t, out)) {
			t.Errorf("%d bits: the numbers that the codes stand for are others", c.bits)
		}
	}
	if _, err := Convert(t.Context(), golden.Open(t, dir), filepath.Join(t.TempDir(), "out"), Options{Overrides: []Override{{"visual.patch_embed.proj", Encoding{Format: dtype.Affine, Bits: 4, Group: 32}}}}); err == nil || !strings.Contains(err.Error(), "convolution kernels are not quantized") {
		t.Errorf("an override for kernels: %v", err)
	}
	if _, err := Convert(t.Context(), golden.Open(t, dir), filepath.Join(t.TempDir(), "out"), Options{NoVision: true, Vision: &Encoding{}}); err == nil || !strings.Contains(err.Error(), "cannot be combined") {
		t.Errorf("an encoding for what is left out: %v", err)
	}
}

// checkQuantization checks that the config declares bits bits for a module.
func checkQuantization(t *testing.T, c *checkpoint.Checkpoint, module string, bits int) {
	t.Helper()
	top, _ := configOf(t, c.Name())
	block, _ := top["quantization"].(map[string]any)
	said := block
	if own, ok := block[module].(map[string]any); ok {
		said = own
	}
	if said["bits"] != float64(bits) {
		t.Errorf("%s: %v", module, said)
	}
}
