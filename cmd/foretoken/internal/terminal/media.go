package terminal

import (
	"github.com/spf13/cobra"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
)

// mediaFlags name the images and videos of a prompt.
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

// completeMedia adds shell completion.
func completeMedia(cmd *cobra.Command) {
	flags.Must(cmd.MarkFlagFilename("image", "png", "jpg", "jpeg", "webp", "gif"))
	flags.Must(cmd.MarkFlagFilename("video", "png", "jpg", "jpeg", "webp", "gif"))
}

// validate refuses flags that have no effect, given those of the model and the template.
func (f *mediaFlags) validate(v *load.VisionFlags, t *templateFlags) error {
	flag := "--image"
	if len(f.images) == 0 {
		flag = "--video"
	}
	switch given := len(f.images)+len(f.videos) > 0; {
	case f.rate.Given && len(f.videos) == 0:
		return flags.Usagef("--fps needs --video")
	case f.rate.Given && f.rate.Value == 0:
		return flags.Usagef("--fps 0: want a number above 0")
	case given && v.Off:
		return flags.Usagef("%s and --no-vision cannot be combined", flag)
	case given && t.off:
		return flags.Usagef("%s and --no-chat-template cannot be combined: %[1]s needs the chat template", flag)
	}
	return nil
}
