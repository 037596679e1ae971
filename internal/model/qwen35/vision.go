package qwen35

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// visionConfig is vision_config, resolved: every field has its final value.
type visionConfig struct {
	depth, width, heads, intermediate int
	output                            int // width of what leaves the merger: the model's
	patch, temporal, merge            int
	positions                         int // rows of the table of positions
	activation                        string
	channels                          int
	deepstack                         []int
}

// fileVision is vision_config as it is written.
type fileVision struct {
	Depth        *checkpoint.Whole `json:"depth"`
	Hidden       *checkpoint.Whole `json:"hidden_size"`
	Heads        *checkpoint.Whole `json:"num_heads"`
	Intermediate *checkpoint.Whole `json:"intermediate_size"`
	Activation   string            `json:"hidden_act"`
	Channels     *checkpoint.Whole `json:"in_channels"`
	Patch        *checkpoint.Whole `json:"patch_size"`
	Temporal     *checkpoint.Whole `json:"temporal_patch_size"`
	Merge        *checkpoint.Whole `json:"spatial_merge_size"`
	Output       *checkpoint.Whole `json:"out_hidden_size"`
	Positions    *checkpoint.Whole `json:"num_position_embeddings"`
	Deepstack    []int             `json:"deepstack_visual_indexes"`
}

// The tower's own constants, which no file states.
const (
	visionEps   = 1e-6
	visionTheta = 10000
)

// visionActivation is what the blocks' feed-forward computes; the merger's is the exact GELU.
const visionActivation = "gelu_pytorch_tanh"

// resolve fills in the reference's defaults. The error is of sizes with which no tensor can be
// looked for; what else is wrong says check.
func (f *fileVision) resolve() (*visionConfig, error) {
	read := reader{}
	v := &visionConfig{
		depth:        read.size("depth", f.Depth, 27, 1<<10),
		width:        read.size("hidden_size", f.Hidden, 1152, 1<<16),
		heads:        read.size("num_heads", f.Heads, 16, 1<<10),
		intermediate: read.size("intermediate_size", f.Intermediate, 4304, 1<<18),
		output:       read.size("out_hidden_size", f.Output, 3584, 1<<20),
		patch:        read.size("patch_size", f.Patch, 16, 64),
		temporal:     read.size("temporal_patch_size", f.Temporal, 2, 8),
		merge:        read.size("spatial_merge_size", f.Merge, 2, 8),
		positions:    read.size("num_position_embeddings", f.Positions, 2304, 1<<20),
		channels:     read.size("in_channels", f.Channels, 3, 64),
		activation:   visionActivation,
	}
	if len(f.Deepstack) > 0 {
		v.deepstack = f.Deepstack
	}
	if f.Activation != "" {
		v.activation = f.Activation
	}
	if read.err != nil {
		return nil, fmt.Errorf("vision_config: %w", read.err)
	}
	return v, nil
}

// check reports what a tower cannot be built from, for a model of that width.
func (v *visionConfig) check(hidden int) error {
	switch {
	case len(v.deepstack) > 0:
		return fmt.Errorf("vision_config: deepstack_visual_indexes is %v: towers of this family use their last layer only, want an empty list", v.deepstack)
	case v.activation != visionActivation:
		return fmt.Errorf("vision_config: hidden_act %q is not supported, want %s", v.activation, visionActivation)
	case v.channels != 3:
		return fmt.Errorf("vision_config: in_channels is %d, want 3", v.channels)
	case v.width%v.heads != 0 || v.dim()%4 != 0:
		return fmt.Errorf("vision_config: hidden_size %d in %d heads, want heads of a multiple of 4", v.width, v.heads)
	case v.output != hidden:
		return fmt.Errorf("vision_config: out_hidden_size is %d, but hidden_size of the model is %d", v.output, hidden)
	}
	return nil
}

// dim is the width of a head.
func (v *visionConfig) dim() int { return v.width / v.heads }

// side is that of the grid of learned positions.
func (v *visionConfig) side() int {
	n := int(math.Sqrt(float64(v.positions)))
	for n*n > v.positions {
		n--
	}
	return n
}

// rowWidth is how many numbers of a patch there are.
func (v *visionConfig) rowWidth() int { return v.channels * v.temporal * v.patch * v.patch }

// openTower looks for the vision tower of a checkpoint and checks all of it, by the headers. It is
// nil if there are no tensors of one. The error says why one cannot be used. Its tensors count as
// known, whatever comes of it.
func (c *config) openTower(f *weights.Files) (t *Tower, err error) {
	if !f.HasTower() {
		return nil, nil
	}
	f.SkipTower()
	defer func() {
		if err != nil {
			t, err = nil, fmt.Errorf("qwen35: %w", err)
		}
	}()
	if c.vision == nil {
		if c.visionErr != nil {
			return nil, c.visionErr
		}
		return nil, errors.New("config.json has no vision_config, but the weights have a vision tower")
	}
	t = newTower(c.vision)
	// Whose tensors are missing is a text model that was cut from another: whatever else is wrong
	// follows from that.
	if err = f.FindTower(t.weights()); err != nil {
		return nil, err
	}
	if err = c.vision.check(c.hidden); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	return t, f.CheckTower(t.weights())
}

// towerOf is openTower as the options have it. Whoever loads the model is told what it lacks.
func (c *config) towerOf(f *weights.Files, o model.Options) (*Tower, error) {
	if o.NoVision {
		f.SkipTower()
		return nil, nil
	}
	t, err := c.openTower(f)
	if err != nil {
		o.Log.Warn("the vision tower cannot be used: the model accepts text only", "reason", err)
	}
	return t, err
}

// readVision decodes vision_config; it is nil if there is none. A model whose tower nobody can read
// takes text all the same, so the error is kept.
func readVision(text json.RawMessage) (*visionConfig, error) {
	if len(text) == 0 || string(text) == "null" {
		return nil, nil
	}
	var f fileVision
	if err := checkpoint.DecodeJSON("vision_config", text, &f); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	v, err := f.resolve()
	if err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	return v, nil
}
