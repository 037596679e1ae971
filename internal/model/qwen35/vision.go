package qwen35

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/model/qwen35/vision"
	"github.com/foretoken/foretoken/internal/model/weights"
)

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

// resolve fills in the reference's defaults. The error is of sizes with which no tensor can be
// looked for; what else is wrong says check.
func (f *fileVision) resolve() (*vision.Config, error) {
	read := network.Reader{}
	v := &vision.Config{
		Depth:        read.Size("depth", f.Depth, 27, 1<<10),
		Width:        read.Size("hidden_size", f.Hidden, 1152, 1<<16),
		Heads:        read.Size("num_heads", f.Heads, 16, 1<<10),
		Intermediate: read.Size("intermediate_size", f.Intermediate, 4304, 1<<18),
		Output:       read.Size("out_hidden_size", f.Output, 3584, 1<<20),
		Patch:        read.Size("patch_size", f.Patch, 16, 64),
		Temporal:     read.Size("temporal_patch_size", f.Temporal, 2, 8),
		Merge:        read.Size("spatial_merge_size", f.Merge, 2, 8),
		Positions:    read.Size("num_position_embeddings", f.Positions, 2304, 1<<20),
		Channels:     read.Size("in_channels", f.Channels, 3, 64),
		Activation:   vision.Activation,
	}
	if len(f.Deepstack) > 0 {
		v.Deepstack = f.Deepstack
	}
	if f.Activation != "" {
		v.Activation = f.Activation
	}
	if read.Err != nil {
		return nil, fmt.Errorf("vision_config: %w", read.Err)
	}
	return v, nil
}

// NewTower implements network.multimodal.
func (c *config) NewTower() network.Tower { return vision.New(c.vision) }

// OpenTower implements network.multimodal.
func (c *config) OpenTower(f *weights.Files) (_ network.Tower, err error) {
	if !f.HasTower() {
		return nil, nil
	}
	f.SkipTower()
	defer func() {
		if err != nil {
			err = fmt.Errorf("qwen35: %w", err)
		}
	}()
	if c.vision == nil {
		if c.visionErr != nil {
			return nil, c.visionErr
		}
		return nil, errors.New("config.json has no vision_config, but the weights have a vision tower")
	}
	t := vision.New(c.vision)
	// Whose tensors are missing is a text model that was cut from another: whatever else is wrong
	// follows from that.
	if err = f.FindTower(t.Weights()); err != nil {
		return nil, err
	}
	if err = c.vision.Check(c.Width); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	if err = f.CheckTower(t.Weights()); err != nil {
		return nil, err
	}
	return t, nil
}

// readVision decodes vision_config; it is nil if there is none. A model with an unreadable tower
// still takes text, so the error is kept.
func readVision(text json.RawMessage) (*vision.Config, error) {
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
