package model

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/picture"
)

// Multimodal is a model whose checkpoint may have a vision tower.
type Multimodal interface {
	Model
	// Tower is the vision tower. It is nil if the checkpoint has none or Options leave it out. The
	// error says why an existing one cannot be used, and names missing parts: such a model
	// still takes text.
	Tower() (Tower, error)
}

// Tower turns images into the rows of a prompt that replace embedded tokens. One
// goroutine uses it and its model at a time.
type Tower interface {
	Info() TowerInfo
	// Begin starts a pass over some images, which are independent: the rows of each are the
	// same in every pass. The images must not change until the pass is closed.
	Begin(pictures []*picture.Patches) (TowerPass, error)
}

// TowerInfo describes a vision tower.
type TowerInfo struct {
	Layers     int
	Width      int // of a patch's row
	Output     int // of a token's row: the model's Width
	Patch      int // side of a patch in pixels
	Temporal   int // frames of a patch
	Merge      int // side of a token in patches
	Parameters int64
	Bytes      int64 // of weights in memory
	PatchBytes int64 // of memory of a pass for each patch of its images, until it is closed
}

// TowerPass is a pass over images in steps, so that decoding of text need not wait
// for its end.
type TowerPass interface {
	// Step computes the next piece of the pass, of some milliseconds, and reports whether it was
	// the last. An error of the device in any queued work is state.ErrFailed.
	Step() (done bool, err error)
	// Take returns the rows of image i, [tokens, Output] in float32, after the last step: the
	// caller frees them.
	Take(i int) backend.Tensor
	// Close frees the rows that were not taken. It may be called at any time, also more than once.
	Close()
}
