package glm

import (
	"cmp"
	"fmt"
	"math"

	"github.com/foretoken/foretoken/internal/exactmath"
	"github.com/foretoken/foretoken/internal/model/network"
)

// rope is the rotation.
type rope struct {
	theta float64
	yarn  *yarn // nil: the frequencies are theta's own
}

// yarn stretches a rotation to texts longer than those it was trained with.
type yarn struct {
	factor, original float64
	fast, slow       float64
	scale, scaleAll  float64 // mscale, mscale_all_dim; 0: not given
	attention        float64 // attention_factor; 0: not given
	wholeFrequencies bool    // the ramp begins and ends at whole pairs
}

type ropeConfig struct {
	Type          string   `json:"rope_type"`
	OldType       string   `json:"type"`
	Theta         *float64 `json:"rope_theta"`
	PartialRotary *float64 `json:"partial_rotary_factor"`
	Factor        *float64 `json:"factor"`
	Original      *float64 `json:"original_max_position_embeddings"`
	Fast          *float64 `json:"beta_fast"`
	Slow          *float64 `json:"beta_slow"`
	Scale         *float64 `json:"mscale"`
	ScaleAll      *float64 `json:"mscale_all_dim"`
	Attention     *float64 `json:"attention_factor"`
	Truncate      *bool    `json:"truncate"`
}

// rotation reads the rotation from whichever place has it.
func (c *config) rotation(t *textConfig) error {
	r := cmp.Or(t.Rope, t.RopeScaling)
	theta, partial, kind := t.Theta, t.PartialRotary, "default"
	if r != nil {
		kind = cmp.Or(r.Type, r.OldType, "default")
		theta, partial = cmp.Or(r.Theta, theta), cmp.Or(r.PartialRotary, partial)
	}
	c.rope.theta = network.Or(theta, 10000)
	if !(c.rope.theta > 1) || math.IsInf(c.rope.theta, 0) {
		return fmt.Errorf("rope_theta is %v, want a number above 1", c.rope.theta)
	}
	switch {
	case c.rank > 0 && network.Or(partial, 1) != 1:
		return fmt.Errorf("partial_rotary_factor %v is not supported with latent attention, want 1: qk_rope_head_dim sets the rotated part", *partial)
	case c.rank == 0:
		factor := network.Or(partial, 0.5)
		if !(factor > 0 && factor <= 1) {
			return fmt.Errorf("partial_rotary_factor is %v, want a number in (0, 1]", factor)
		}
		if c.rotary = int(float64(c.headDim) * factor); c.rotary == 0 || c.rotary%2 != 0 {
			return fmt.Errorf("head_dim %d times partial_rotary_factor %v is %d, want an even number of dimensions", c.headDim, factor, c.rotary)
		}
	}
	switch kind {
	case "default":
		return nil
	case "yarn":
		return c.readYarn(r)
	}
	return fmt.Errorf("rope_type %q is not supported, want default or yarn", kind)
}

// readYarn reads a YaRN block.
func (c *config) readYarn(r *ropeConfig) error {
	y := &yarn{
		original: network.Or(r.Original, float64(c.Context)), fast: network.Or(r.Fast, 32), slow: network.Or(r.Slow, 1),
		scale: network.Or(r.Scale, 0), scaleAll: network.Or(r.ScaleAll, 0), attention: network.Or(r.Attention, 0),
		wholeFrequencies: network.Or(r.Truncate, true),
	}
	y.factor = network.Or(r.Factor, float64(c.Context)/y.original)
	for name, x := range map[string]float64{
		"factor": y.factor, "original_max_position_embeddings": y.original, "beta_fast": y.fast, "beta_slow": y.slow,
	} {
		if !(x > 0) || math.IsInf(x, 0) {
			return fmt.Errorf("rope_scaling: %s is %v, want a positive number", name, x)
		}
	}
	for name, x := range map[string]float64{"mscale": y.scale, "mscale_all_dim": y.scaleAll, "attention_factor": y.attention} {
		if !(x >= 0) || math.IsInf(x, 0) {
			return fmt.Errorf("rope_scaling: %s is %v, want 0 or above", name, x)
		}
	}
	c.rope.yarn = y
	return nil
}

// freqs are the angles per position of the rotated pairs.
func (c *config) freqs() []float32 {
	n, log := float64(c.rotary), exactmath.LogOfExp(c.rope.theta)
	f := make([]float32, c.rotary/2)
	for i := range f {
		own := exactmath.Exp(-log * float64(2*i) / n)
		if y := c.rope.yarn; y != nil {
			ramp := y.ramp(n, log, float64(i))
			own = own*(1-ramp) + own/y.factor*ramp
		}
		f[i] = float32(own)
	}
	return f
}

// ramp says how much pair i of a rotation of n dimensions, of whose base log is the logarithm, is
// stretched: those that turn often within the original context are not, those that turn less than
// once are by the whole factor.
func (y *yarn) ramp(n, log, i float64) float64 {
	at := func(turns float64) float64 { return n * exactmath.LogOfExp(y.original/(2*math.Pi*turns)) / (2 * log) }
	low, high := at(y.fast), at(y.slow)
	if y.wholeFrequencies {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, n-1)
	if low == high {
		high += 0.001
	}
	return min(max((i-low)/(high-low), 0), 1)
}

// growth is how much the entropy of attention grows with the context, weighted.
func (y *yarn) growth(weight float64) float64 {
	if y.factor <= 1 {
		return 1
	}
	return 0.1*weight*exactmath.LogOfExp(y.factor) + 1
}

// turn is the factor of cosines and sines.
func (c *config) turn() float32 {
	y := c.rope.yarn
	switch {
	case y == nil:
		return 1
	case y.attention > 0:
		return float32(y.attention)
	case y.scale != 0 && y.scaleAll != 0:
		return float32(y.growth(y.scale) / y.growth(y.scaleAll))
	}
	return float32(y.growth(1))
}

// scoreScale is that of attention's scores, in the absorbed form too.
func (c *config) scoreScale() float32 {
	dim := c.headDim
	if c.rank > 0 {
		dim = c.nope + c.rotary
	}
	scale := 1 / math.Sqrt(float64(dim))
	if y := c.rope.yarn; y != nil && y.scaleAll != 0 {
		scale *= y.growth(y.scaleAll) * y.growth(y.scaleAll)
	}
	return float32(scale)
}
