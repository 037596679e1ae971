package foretoken

import (
	"fmt"

	"github.com/foretoken/foretoken/internal/prompt"
)

// ErrNoVision is wrapped by the error for an image or video of a model without vision: its
// checkpoint has no vision tower, or Options leave it out.
var ErrNoVision = prompt.ErrNoVision

// Vision configures the vision tower. The zero value is the default.
type Vision struct {
	Off bool // load no vision tower: images are refused
	// Projector is the GGUF file with the tower of a GGUF model, as llama.cpp has it; "": the one
	// in the same folder whose name begins with mmproj.
	Projector string
	// MaxPixels is the maximum number of pixels of an image: larger ones are shrunk. All frames of
	// a video may have four times as many. 0: a million, or the checkpoint's limit if that is
	// less.
	MaxPixels int
	MaxMedia  int   // images and videos of one conversation; 0: 32
	Memory    int64 // bytes for rows of recent images, those in use first; 0: 256 MiB
	AsStored  bool  // do not apply the EXIF orientation of images
	OnWhite   bool  // blend transparent images over white instead of dropping transparency
}

// VisionInfo describes a vision tower.
type VisionInfo struct {
	Layers     int
	Width      int // of a patch's row
	Patch      int // side of a patch in pixels
	Merge      int // side of a token in patches
	Parameters int64
	Bytes      int64 // of weights in memory
	MaxPixels  int   // of an image after resizing
}

// MediaError is the error for an unusable image or video, which is its sender's fault.
type MediaError struct {
	Index int // among those of the conversation, from 0
	Err   error
}

func (e *MediaError) Error() string { return fmt.Sprintf("image or video %d: %v", e.Index+1, e.Err) }

// Unwrap returns the cause.
func (e *MediaError) Unwrap() error { return e.Err }
