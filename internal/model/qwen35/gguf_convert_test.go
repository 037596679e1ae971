package qwen35_test

import (
	"bytes"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/convert"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
	"github.com/foretoken/foretoken/internal/model/qwen35"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// TestGGUFConverts writes a GGUF file as a folder: every number, the head's among them, is
// the one that the file stands for.
func TestGGUFConverts(t *testing.T) {
	for name, path := range map[string]string{
		"dense":  qwen35.MixedGGUF(t, golden.Dir(t, "dense"), golden.Dir(t, "tiny"), "qwen35"),
		"moe":    qwen35.MixedGGUF(t, golden.Dir(t, "moe"), golden.Dir(t, "tiny"), "qwen35moe"),
		"vision": qwen35.VisionGGUF(t, golden.Dir(t, "tiny")),
	} {
		file, err := model.OpenGGUF(path, "")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close() //nolint:errcheck // read only
		dir := filepath.Join(t.TempDir(), "converted")
		s, err := convert.Convert(t.Context(), file, dir, convert.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if s.HeadIn == 0 || s.HeadOut < s.HeadIn { // scales and biases are tensors of their own
			t.Errorf("%s: %d tensors of the head in, %d out", name, s.HeadIn, s.HeadOut)
		}
		if (s.VisionIn > 0) != (name == "vision") || s.VisionOut < s.VisionIn {
			t.Errorf("%s: %d tensors of the vision tower in, %d out", name, s.VisionIn, s.VisionOut)
		}
		if _, err := os.Stat(filepath.Join(dir, "preprocessor_config.json")); (err == nil) != (name == "vision") {
			t.Errorf("%s: preprocessor_config.json: %v", name, err)
		}
		config, err := os.ReadFile(filepath.Join(dir, "config.json"))
		count := func(pattern string) int { return len(regexp.MustCompile(pattern).FindAll(config, -1)) }
		if err != nil || count(`"group_size": 16\b`) != count(`"group_size": 16,\s*"mode": "nvfp4"`) {
			t.Errorf("%s: there are groups that MLX cannot read: %v", name, err)
		}
		folder := golden.Open(t, dir)
		want, got := numbers(t, file), numbers(t, folder)
		if len(want) != len(got) {
			t.Errorf("%s: %d weights, %d after it", name, len(want), len(got))
		}
		for weight, v := range want {
			if !slices.EqualFunc(v, got[weight], func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
				t.Errorf("%s: %s has other numbers", name, weight)
			}
		}
	}
}

// TestGGUFConvertsHeads writes files whose value heads are tiled as folders, which have them in the order of the
// release: both give the same answers, and matrices whose superblocks are cut stay coded.
func TestGGUFConvertsHeads(t *testing.T) {
	paths := map[string]string{"mixed": qwen35.MixedGGUF(t, golden.Dir(t, "moe"), golden.Dir(t, "tiny"), "qwen35moe")}
	for _, typ := range []string{"F32", "Q8_0", "Q4_K", "Q6_K", "IQ4_XS"} {
		paths[typ] = qwen35.WideGGUF(t, typ)
	}
	text := []int32{1, 2, 3, 5, 8, 13, 21, 34}
	for name, path := range paths {
		file, err := model.OpenGGUF(path, "")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close() //nolint:errcheck // read only
		dir := filepath.Join(t.TempDir(), "converted")
		if _, err := convert.Convert(t.Context(), file, dir, convert.Options{}); err != nil {
			t.Fatal(err)
		}
		config, err := os.ReadFile(filepath.Join(dir, "config.json"))
		if err != nil || bytes.Contains(config, []byte("tiled")) {
			t.Errorf("%s: the config speaks of tiles: %v", name, err)
		}
		if coded := bytes.Contains(config, []byte(`"bits": 4`)); name == "Q4_K" && !coded {
			t.Errorf("%s: %s", name, config)
		}
		want, got := qwen35.Answers(t, path, text), qwen35.Answers(t, dir, text)
		for i, row := range want {
			for j, x := range row {
				if d := math.Abs(float64(got[i][j] - x)); !(d < 1e-4) {
					t.Fatalf("%s: row %d, logit %d is %g, want %g", name, i, j, got[i][j], x)
				}
			}
		}
	}
}

// numbers are the effective values of all weights.
func numbers(t *testing.T, c *checkpoint.Checkpoint) map[string][]float32 {
	t.Helper()
	v, err := model.Inventory(c, weights.Whole, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	v.IncludeTower()
	return modeltest.Numbers(t, v)
}
