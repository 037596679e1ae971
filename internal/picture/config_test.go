package picture

import (
	"math"
	"strings"
	"testing"
)

func nan() float64 { return math.NaN() }

func TestConfigurationsAreRead(t *testing.T) {
	c, err := ReadImages([]byte(`{}`))
	if err != nil || c != Images() {
		t.Errorf("nothing said is %+v, %v, want the release's values", c, err)
	}
	c, err = ReadImages([]byte(`{
		"size": {"shortest_edge": 100, "longest_edge": 200}, "max_pixels": 5000, "patch_size": 14, "merge_size": 1, "temporal_patch_size": 1,
		"image_mean": [0.1, 0.2, 0.3], "image_std": [1, 2, 3], "rescale_factor": 0.00392156862745098, "resample": 3, "do_resize": true,
		"image_processor_type": "Qwen2VLImageProcessorFast", "min_frames": null, "something": [{}]}`))
	want := Images()
	want.MinPixels, want.MaxPixels, want.Patch, want.Merge, want.Temporal = 100, 5000, 14, 1, 1
	want.Mean, want.Std = [3]float32{0.1, 0.2, 0.3}, [3]float32{1, 2, 3}
	if err != nil || c != want {
		t.Errorf("%+v, %v, want %+v", c, err, want)
	}
	both := []byte(`{"image_processor": {"patch_size": 12}, "video_processor": {"fps": 4, "max_frames": 9}, "patch_size": 3}`)
	want = Images()
	want.Patch = 12
	if c, err = ReadImages(both); err != nil || c != want {
		t.Errorf("%+v, %v, want %+v", c, err, want)
	}
	want = Videos()
	want.Rate, want.MaxFrames = 4, 9
	if c, err = ReadVideos(both); err != nil || c != want {
		t.Errorf("%+v, %v, want %+v", c, err, want)
	}
	if c, err = ReadVideos([]byte(`{"image_processor": {"patch_size": 12}}`)); err != nil || c != Videos() {
		t.Errorf("a file about images makes %+v of videos, %v", c, err)
	}
}

func TestBadConfigurationsAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		``:                                 "unexpected end",
		`[]`:                               "cannot unmarshal",
		`{"patch_size": "16"}`:             "cannot unmarshal",
		`{"patch_size": 0}`:                "patch_size is 0, want 1 to 64",
		`{"patch_size": 1e9}`:              "cannot unmarshal",
		`{"patch_size": 65}`:               "patch_size is 65",
		`{"merge_size": -1}`:               "merge_size is -1",
		`{"temporal_patch_size": 100}`:     "temporal_patch_size is 100",
		`{"min_pixels": 0}`:                "from 0 to 16777216 pixels",
		`{"size": {"shortest_edge": 3e7}}`: "cannot unmarshal",
		`{"min_pixels": 30000000}`:         "from 30000000 to 16777216 pixels",
		`{"max_pixels": 1000000000000}`:    "at most 268435456",
		`{"image_mean": [0.5]}`:            "image_mean has 1 numbers, want 3",
		`{"image_std": [0.5, 0, 0.5]}`:     "image_std is [0.5 0 0.5], want",
		`{"image_mean": [1e39, 0, 0]}`:     "cannot unmarshal",
		`{"image_mean": [1e30, 0, 0]}`:     "want numbers",
		`{"do_resize": false}`:             "do_resize is false",
		`{"do_normalize": false}`:          "do_normalize is false",
		`{"rescale_factor": 1}`:            "rescale_factor is 1, want 1/255",
		`{"resample": 2}`:                  "resample is not supported, want 3",
		`{"fps": 0}`:                       "fps is 0",
		`{"min_frames": 0}`:                "from 0 to 768 frames",
		`{"max_frames": 100000}`:           "at most 16384",
		`{"image_processor_type": "CLIP"}`: `processor "CLIP" is not supported`,
	} {
		if c, err := ReadImages([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "image: ") {
			t.Errorf("%s: %+v, %v, want %q", text, c, err, want)
		}
	}
	if _, err := (Config{}).Prepare(newImage(1, 1), 1); err == nil {
		t.Error("no configuration is one")
	}
	if _, err := (Config{}).PrepareVideo([]*Image{newImage(1, 1)}, 1); err == nil {
		t.Error("no configuration is one")
	}
}
