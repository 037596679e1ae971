package qwen35

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/model/qwen35/vision"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// qwen38 is the config of Qwen3.8-27B.
func qwen38(t *testing.T) (text string, c *config) {
	t.Helper()
	data := filetest.Read(t, filepath.Join("testdata", "qwen3_8_27b.json"))
	c, err := parseConfig(t, string(data), `{"eos_token_id": [248046, 248044]}`)
	if err != nil {
		t.Fatal(err)
	}
	return string(data), c
}

// TestQwen38IsTheReleasedShape reads the config: all sizes and switches are those of the 27b that
// can be generated, so that its speed is that of this model.
func TestQwen38IsTheReleasedShape(t *testing.T) {
	_, got := qwen38(t)
	if !slices.Equal(got.Stop, []int32{248044, 248046}) {
		t.Errorf("texts end with %v", got.Stop)
	}
	i := slices.IndexFunc(releasedShapes, func(s shape) bool { return s.name == "27b" })
	want := releasedShapes[i].config()
	want.Stop = got.Stop
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestQwen38IsSurveyed looks at a folder of 55 GB whose tensors are holes: the counts are the
// published ones.
func TestQwen38IsSurveyed(t *testing.T) {
	text, cfg := qwen38(t)
	dir := t.TempDir()
	filetest.Write(t, filepath.Join(dir, "config.json"), text)
	var decls []checkpoint.Decl
	size := int64(0)
	add := func(name string, shape ...int) {
		decls = append(decls, checkpoint.Decl{Name: name, Type: dtype.BF16, Shape: shape})
		size += 2 * int64(weights.Elements(shape))
	}
	for w := range network.Tables(cfg).Model {
		switch name := released + w.Name; {
		case w.Name == weights.OutputMatrix+".weight":
			add(w.Name, w.Rows, w.Cols)
		case w.Kind == weights.Conv:
			add(name, w.Rows, 1, w.Cols)
		case w.IsMatrix():
			add(name, w.Rows, w.Cols)
		default:
			add(name, w.Cols)
		}
	}
	for w := range network.Tables(cfg).Head {
		if w.IsMatrix() {
			add(w.Name, w.Rows, w.Cols)
		} else {
			add(w.Name, w.Cols)
		}
	}
	for w := range vision.New(cfg.vision).Weights() {
		switch {
		case w.Kind == weights.Kernel:
			add("model."+w.Name, append([]int{w.Rows}, w.Kernel[:]...)...)
		case w.IsMatrix():
			add("model."+w.Name, w.Rows, w.Cols)
		default:
			add("model."+w.Name, w.Cols)
		}
	}
	f, err := os.Create(filepath.Join(dir, mainFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // a test's file
	header, err := checkpoint.FileHeader(decls, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(header); err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(info.Size() + size); err != nil {
		t.Fatal(err)
	}
	c := golden.Open(t, dir)
	s, err := model.Survey(c)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Missing)+len(s.Unknown)+len(s.Errors) > 0 || !s.Head.Present || s.Head.Promised != 1 {
		t.Errorf("%+v", s)
	}
	if s.Family != "Qwen3.5, dense" || s.AttentionLayers != 16 || s.DeltaLayers != 48 || s.Context != 262144 || s.Parameters != 26_895_998_464 {
		t.Errorf("%s, %d and %d layers, context %d, %d parameters", s.Family, s.AttentionLayers, s.DeltaLayers, s.Context, s.Parameters)
	}
	if s.Tower.Problem != nil || s.Tower.Parameters != 460_730_096 || s.Tower.Layers != 27 {
		t.Errorf("tower %+v", s.Tower)
	}
	for _, p := range s.Parts {
		if p.Name == "mtp head" && p.Parameters != 424_699_392 {
			t.Errorf("%d parameters of the head", p.Parameters)
		}
	}
}
