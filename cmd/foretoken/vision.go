package main

import (
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
)

// visionFlags say how a model sees.
type visionFlags struct {
	off               bool
	projector         string
	maxPixels         flags.Setting[int]
	asStored, onWhite bool
}

// newVisionFlags are the flags. A picture has at least one token, of 32 by 32 pixels.
func newVisionFlags() visionFlags { return visionFlags{maxPixels: flags.Whole(1024, math.MaxInt32)} }

// add defines the flags in a group.
func (f *visionFlags) add(g flags.Group) {
	fs := g.Flags()
	fs.BoolVar(&f.off, "no-vision", false, "do not load the vision tower; images are refused")
	fs.StringVar(&f.projector, "mmproj", "", "GGUF `FILE` with the vision tower of a GGUF model (default: the file beside the model whose name begins with mmproj)")
	fs.Var(&f.maxPixels, "max-image-pixels", "maximum pixels of an image; larger images are downscaled (default: a million, or less if the checkpoint says so)")
	fs.BoolVar(&f.asStored, "image-as-stored", false, "ignore the EXIF orientation of images")
	fs.BoolVar(&f.onWhite, "image-on-white", false, "compose transparent images over white instead of dropping the alpha channel")
}

// validate refuses flags that contradict each other.
func (f *visionFlags) validate() error {
	if !f.off {
		return nil
	}
	for _, flag := range []struct {
		name  string
		given bool
	}{
		{"--mmproj", f.projector != ""},
		{"--max-image-pixels", f.maxPixels.Given},
		{"--image-as-stored", f.asStored},
		{"--image-on-white", f.onWhite},
	} {
		if flag.given {
			return flags.Usagef("%s and --no-vision cannot be combined", flag.name)
		}
	}
	return nil
}

func (f *visionFlags) options() foretoken.Vision {
	return foretoken.Vision{Off: f.off, Projector: f.projector, MaxPixels: f.maxPixels.Or(0), AsStored: f.asStored, OnWhite: f.onWhite}
}

// describeVision is a line on a vision tower for people.
func describeVision(v *foretoken.VisionInfo) string {
	if v == nil {
		return "none"
	}
	token := v.Patch * v.Merge
	return fmt.Sprintf("images up to %d pixels, a token for %d×%d of them", v.MaxPixels, token, token)
}

// completeVision adds what a shell can complete.
func completeVision(cmd *cobra.Command) { flags.Must(cmd.MarkFlagFilename("mmproj", "gguf")) }

// mediaFlags name the pictures and videos that go with a prompt.
type mediaFlags struct {
	images, videos flags.Texts
	rate           flags.Setting[float64]
}

func newMediaFlags() mediaFlags { return mediaFlags{rate: flags.Number(0, 1000)} }

// add defines the flags in a group.
func (f *mediaFlags) add(g flags.Group) {
	fs := g.Flags()
	fs.Var(&f.images, "image", "image `FILE` (PNG, JPEG, WebP, GIF) placed before the prompt; may be repeated")
	fs.Var(&f.videos, "video", "video placed before the prompt: a `FOLDER` of frames in the order of their names, an animated GIF, or one frame per repeated flag")
	fs.Var(&f.rate, "fps", "frames per second of a video (default: that of the animation, 24 for frames)")
}

// completeMedia adds what a shell can complete.
func completeMedia(cmd *cobra.Command) {
	flags.Must(cmd.MarkFlagFilename("image", "png", "jpg", "jpeg", "webp", "gif"))
	flags.Must(cmd.MarkFlagFilename("video", "png", "jpg", "jpeg", "webp", "gif"))
}

// validate refuses flags that have no effect, given those of the model and the template.
func (f *mediaFlags) validate(v *visionFlags, t *templateFlags) error {
	flag := "--image"
	if len(f.images) == 0 {
		flag = "--video"
	}
	switch given := len(f.images)+len(f.videos) > 0; {
	case f.rate.Given && len(f.videos) == 0:
		return flags.Usagef("--fps needs --video")
	case f.rate.Given && f.rate.Value == 0:
		return flags.Usagef("--fps 0: want a number above 0")
	case given && v.off:
		return flags.Usagef("%s and --no-vision cannot be combined", flag)
	case given && t.off:
		return flags.Usagef("%s and --no-chat-template cannot be combined: %[1]s needs the chat template", flag)
	}
	return nil
}
