package picture

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
)

// Config is a model's preprocessing of images, or of videos.
type Config struct {
	Patch    int // pixels of a patch's side
	Temporal int // frames in a patch
	Merge    int // patches of a token's side

	// Pixels of a resized image, or of all frames of a video. Options of the model may lower
	// the maximum.
	MinPixels, MaxPixels int

	Mean, Std [3]float32 // of red, green and blue, where 1 is the highest byte

	// For videos: sampled frames per second, and in all.
	Rate                 float64
	MinFrames, MaxFrames int
}

// Images is the configuration of the released models for images.
func Images() Config {
	half := [3]float32{0.5, 0.5, 0.5}
	return Config{
		Patch: 16, Temporal: 2, Merge: 2, MinPixels: 65536, MaxPixels: 16777216, Mean: half, Std: half,
		Rate: 2, MinFrames: 4, MaxFrames: 768,
	}
}

// Videos is the configuration of the released models for videos.
func Videos() Config {
	c := Images()
	c.MinPixels, c.MaxPixels = 4096, 25165824
	return c
}

// Limits of a configuration. They are far from those of any model.
const (
	maxSide      = 64      // of a patch in pixels
	maxMerge     = 8       // patches
	maxTemporal  = 8       // frames
	maxTarget    = 1 << 28 // pixels
	maxVideo     = 1 << 14 // frames
	maxDeviation = 1e6     // of mean and standard deviation
)

// Check reports values with which no patches can be made.
func (c Config) Check() error {
	switch {
	case c.Patch < 1 || c.Patch > maxSide:
		return fmt.Errorf("image: patch_size is %d, want 1 to %d", c.Patch, maxSide)
	case c.Temporal < 1 || c.Temporal > maxTemporal:
		return fmt.Errorf("image: temporal_patch_size is %d, want 1 to %d", c.Temporal, maxTemporal)
	case c.Merge < 1 || c.Merge > maxMerge:
		return fmt.Errorf("image: merge_size is %d, want 1 to %d", c.Merge, maxMerge)
	case c.MinPixels < 1 || c.MinPixels > c.MaxPixels || c.MaxPixels > maxTarget:
		return fmt.Errorf("image: from %d to %d pixels, want at least 1 and at most %d", c.MinPixels, c.MaxPixels, maxTarget)
	case !(c.Rate > 0) || c.Rate > maxVideo:
		return fmt.Errorf("image: fps is %v, want more than 0 and at most %d", c.Rate, maxVideo)
	case c.MinFrames < 1 || c.MinFrames > c.MaxFrames || c.MaxFrames > maxVideo:
		return fmt.Errorf("image: from %d to %d frames, want at least 1 and at most %d", c.MinFrames, c.MaxFrames, maxVideo)
	}
	for i := range 3 {
		if mean, std := c.Mean[i], c.Std[i]; !(math.Abs(float64(mean)) <= maxDeviation) || !(std > 0) || std > maxDeviation {
			return fmt.Errorf("image: image_mean is %v and image_std is %v, want numbers, above 0 in image_std", c.Mean, c.Std)
		}
	}
	return nil
}

// configFile is the part of preprocessor_config.json and video_preprocessor_config.json that we read.
type configFile struct {
	Image *configFile `json:"image_processor"`
	Video *configFile `json:"video_processor"`

	ImageType string `json:"image_processor_type"`
	VideoType string `json:"video_processor_type"`

	Patch    *int `json:"patch_size"`
	Temporal *int `json:"temporal_patch_size"`
	Merge    *int `json:"merge_size"`
	Size     struct {
		Least *int `json:"shortest_edge"`
		Most  *int `json:"longest_edge"`
	} `json:"size"`
	MinPixels *int      `json:"min_pixels"`
	MaxPixels *int      `json:"max_pixels"`
	Mean      []float32 `json:"image_mean"`
	Std       []float32 `json:"image_std"`

	Rescale   *float64 `json:"rescale_factor"`
	Resample  *int     `json:"resample"`
	DoResize  *bool    `json:"do_resize"`
	DoRescale *bool    `json:"do_rescale"`
	DoNorm    *bool    `json:"do_normalize"`
	DoRGB     *bool    `json:"do_convert_rgb"`

	Rate      *float64 `json:"fps"`
	MinFrames *int     `json:"min_frames"`
	MaxFrames *int     `json:"max_frames"`
}

// ReadImages reads the configuration of images from the text of preprocessor_config.json, or of
// processor_config.json, which has it as a member. Missing values are those of the
// releases; unsupported values are an error, because a wrong image would show only in the answers.
func ReadImages(text []byte) (Config, error) {
	return read(text, Images(), func(f *configFile) *configFile { return f.Image })
}

// ReadVideos reads the configuration of videos from video_preprocessor_config.json or
// processor_config.json.
func ReadVideos(text []byte) (Config, error) {
	return read(text, Videos(), func(f *configFile) *configFile { return f.Video })
}

func read(text []byte, c Config, inside func(*configFile) *configFile) (Config, error) {
	var f configFile
	if err := json.Unmarshal(text, &f); err != nil {
		return Config{}, fmt.Errorf("image: configuration of the processor: %w", err)
	}
	if part := inside(&f); part != nil {
		f = *part
	} else if f.Image != nil || f.Video != nil {
		return c, nil // the file is about the other kind
	}
	if err := f.check(); err != nil {
		return Config{}, err
	}
	for _, v := range []struct{ to, from *int }{
		{&c.Patch, f.Patch},
		{&c.Temporal, f.Temporal},
		{&c.Merge, f.Merge},
		{&c.MinPixels, f.Size.Least},
		{&c.MaxPixels, f.Size.Most},
		{&c.MinPixels, f.MinPixels},
		{&c.MaxPixels, f.MaxPixels},
		{&c.MinFrames, f.MinFrames},
		{&c.MaxFrames, f.MaxFrames},
	} {
		if v.from != nil {
			*v.to = *v.from
		}
	}
	if f.Rate != nil {
		c.Rate = *f.Rate
	}
	for _, v := range []struct {
		to   *[3]float32
		from []float32
		name string
	}{{&c.Mean, f.Mean, "image_mean"}, {&c.Std, f.Std, "image_std"}} {
		if v.from == nil {
			continue
		}
		if len(v.from) != 3 {
			return Config{}, fmt.Errorf("image: %s has %d numbers, want 3", v.name, len(v.from))
		}
		*v.to = [3]float32(v.from)
	}
	return c, c.Check()
}

// check refuses processors that do something else than this package.
func (f *configFile) check() error {
	for _, name := range []string{f.ImageType, f.VideoType} {
		if name != "" && !strings.HasPrefix(name, "Qwen2VL") && !strings.HasPrefix(name, "Qwen3VL") {
			return fmt.Errorf("image: processor %q is not supported, want Qwen2VL or Qwen3VL", name)
		}
	}
	for name, does := range map[string]*bool{"do_resize": f.DoResize, "do_rescale": f.DoRescale, "do_normalize": f.DoNorm, "do_convert_rgb": f.DoRGB} {
		if does != nil && !*does {
			return fmt.Errorf("image: %s is false, which is not supported", name)
		}
	}
	if f.Rescale != nil && !(math.Abs(*f.Rescale*255-1) < 1e-6) {
		return fmt.Errorf("image: rescale_factor is %v, want 1/255", *f.Rescale)
	}
	if f.Resample != nil && *f.Resample != 3 {
		return errors.New("image: resample is not supported, want 3 (bicubic)")
	}
	return nil
}
