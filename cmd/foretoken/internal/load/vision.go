package load

import (
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
)

// VisionFlags say how a model sees.
type VisionFlags struct {
	Off               bool
	Projector         string
	maxPixels         flags.Setting[int]
	asStored, onWhite bool
}

// newVisionFlags are the flags. An image has at least one token, of 32 by 32 pixels.
func newVisionFlags() VisionFlags { return VisionFlags{maxPixels: flags.Whole(1024, math.MaxInt32)} }

// Add defines the flags in a group.
func (f *VisionFlags) Add(g flags.Group) {
	fs := g.Flags()
	fs.BoolVar(&f.Off, "no-vision", false, "do not load the vision tower; images are refused")
	fs.StringVar(&f.Projector, "mmproj", "", "GGUF `FILE` with the vision tower of a GGUF model (default: the file beside the model whose name begins with mmproj)")
	fs.Var(&f.maxPixels, "max-image-pixels", "maximum pixels of an image; larger images are downscaled (default: a million, or less if the checkpoint says so)")
	fs.BoolVar(&f.asStored, "image-as-stored", false, "ignore the EXIF orientation of images")
	fs.BoolVar(&f.onWhite, "image-on-white", false, "compose transparent images over white instead of dropping the alpha channel")
}

// Validate refuses flags that contradict each other.
func (f *VisionFlags) Validate() error {
	if !f.Off {
		return nil
	}
	for _, flag := range []struct {
		name  string
		given bool
	}{
		{"--mmproj", f.Projector != ""},
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

func (f *VisionFlags) options() foretoken.Vision {
	return foretoken.Vision{Off: f.Off, Projector: f.Projector, MaxPixels: f.maxPixels.Or(0), AsStored: f.asStored, OnWhite: f.onWhite}
}

// DescribeVision is a line on a vision tower for people.
func DescribeVision(v *foretoken.VisionInfo) string {
	if v == nil {
		return "none"
	}
	token := v.Patch * v.Merge
	return fmt.Sprintf("images up to %d pixels, a token for %d×%d of them", v.MaxPixels, token, token)
}

// CompleteVision adds shell completion.
func CompleteVision(cmd *cobra.Command) { flags.Must(cmd.MarkFlagFilename("mmproj", "gguf")) }
