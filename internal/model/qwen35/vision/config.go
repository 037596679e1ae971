package vision

import (
	"fmt"
	"math"
)

// Config is vision_config, resolved: every field has its final value.
type Config struct {
	Depth, Width, Heads, Intermediate int
	Output                            int // width of what leaves the merger: the model's
	Patch, Temporal, Merge            int
	Positions                         int // rows of the table of positions
	Activation                        string
	Channels                          int
	Deepstack                         []int
}

// The tower's own constants, which no file states.
const (
	visionEps   = 1e-6
	visionTheta = 10000
)

// Activation is what the blocks' feed-forward computes; the merger's is the exact GELU.
const Activation = "gelu_pytorch_tanh"

// Check reports what a tower cannot be built from, for a model of that width.
func (v *Config) Check(hidden int) error {
	switch {
	case len(v.Deepstack) > 0:
		return fmt.Errorf("vision_config: deepstack_visual_indexes is %v: towers of this family use their last layer only, want an empty list", v.Deepstack)
	case v.Activation != Activation:
		return fmt.Errorf("vision_config: hidden_act %q is not supported, want %s", v.Activation, Activation)
	case v.Channels != 3:
		return fmt.Errorf("vision_config: in_channels is %d, want 3", v.Channels)
	case v.Width%v.Heads != 0 || v.dim()%4 != 0:
		return fmt.Errorf("vision_config: hidden_size %d in %d heads, want heads of a multiple of 4", v.Width, v.Heads)
	case v.Output != hidden:
		return fmt.Errorf("vision_config: out_hidden_size is %d, but hidden_size of the model is %d", v.Output, hidden)
	}
	return nil
}

// dim is the width of a head.
func (v *Config) dim() int { return v.Width / v.Heads }

// side is that of the grid of learned positions.
func (v *Config) side() int {
	n := int(math.Sqrt(float64(v.Positions)))
	for n*n > v.Positions {
		n--
	}
	return n
}

// rowWidth is how many numbers of a patch there are.
func (v *Config) rowWidth() int { return v.Channels * v.Temporal * v.Patch * v.Patch }
