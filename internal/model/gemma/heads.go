package gemma

import (
	"fmt"
	"math"
	"strconv"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/exactmath"
	"github.com/foretoken/foretoken/internal/model/network"
)

// sizes reads the widths and numbers of heads of both kinds of layers. A config says them for full layers, or newer ones for
// single layers or kinds: the layers of a kind must be alike.
func (c *config) sizes(t *textConfig) error {
	read := network.Reader{}
	c.of[sliding].dim = read.Size("head_dim", t.HeadDim, 256, 1<<12)
	c.of[sliding].kvHeads = read.Size("num_key_value_heads", t.KVHeads, 4, 1<<12)
	c.of[full].dim = read.Size("global_head_dim", t.FullDim, 512, 1<<12)
	c.of[full].kvHeads = c.of[sliding].kvHeads
	if c.keyIsV && t.FullKVHeads != nil { // without it the reference ignores the number
		c.of[full].kvHeads = read.Size("num_global_key_value_heads", t.FullKVHeads, 0, 1<<12)
	}
	if read.Err != nil {
		return read.Err
	}
	if err := c.perLayer(t); err != nil {
		return err
	}
	for k, a := range c.of {
		if c.heads%a.kvHeads != 0 {
			return fmt.Errorf("num_attention_heads %d is not a multiple of the %d key heads of %s layers", c.heads, a.kvHeads, kindNames[k])
		}
		if a.dim%2 != 0 {
			return fmt.Errorf("heads of %s layers have %d numbers, want an even number", kindNames[k], a.dim)
		}
	}
	return nil
}

// perLayer reads per_layer_config.
func (c *config) perLayer(t *textConfig) error {
	for name := range t.PerLayer {
		if i, err := strconv.Atoi(name); (err != nil || i < 0 || i >= len(c.kinds)) && name != kindNames[sliding] && name != kindNames[full] {
			return fmt.Errorf("per_layer_config has the entry %q, want a layer or a kind of layers", name)
		}
	}
	var known [kinds]*attention
	for i, k := range c.kinds {
		a := c.of[k]
		for _, name := range []string{kindNames[k], strconv.Itoa(i)} {
			a.overlay(t.PerLayer[name])
		}
		if a.dim < 1 || a.dim > 1<<12 || a.kvHeads < 1 || a.kvHeads > 1<<12 {
			return fmt.Errorf("per_layer_config: layer %d has %d key heads of %d numbers", i, a.kvHeads, a.dim)
		}
		if known[k] == nil {
			known[k] = &a
		}
		if *known[k] != a {
			return fmt.Errorf("per_layer_config: layer %d has %d key heads of %d numbers, an earlier layer of its kind %d of %d: this is not supported",
				i, a.kvHeads, a.dim, known[k].kvHeads, known[k].dim)
		}
	}
	if a := known[full]; t.FullDim != nil && a.dim != c.of[full].dim || c.keyIsV && t.FullKVHeads != nil && a.kvHeads != c.of[full].kvHeads {
		return fmt.Errorf("per_layer_config and global_head_dim or num_global_key_value_heads differ")
	}
	for k, a := range known {
		if a != nil {
			c.of[k] = *a
		}
	}
	return nil
}

// overlay takes what an entry says.
func (a *attention) overlay(l layerConfig) {
	a.dim = int(network.Or(l.HeadDim, checkpoint.Whole(a.dim)))
	a.kvHeads = int(network.Or(l.KVHeads, checkpoint.Whole(a.kvHeads)))
}

// rotations reads the rotation of both kinds of layers.
func (c *config) rotations(t *textConfig) error {
	for k := range kinds {
		a, r := &c.of[k], t.Rope[kindNames[k]]
		theta, partial := 1e4, 1.0
		if k == full {
			theta = 1e6
		}
		if r == nil {
			r = &ropeConfig{Type: "default"}
			if k == full {
				quarter := 0.25
				r = &ropeConfig{Type: "proportional", Partial: &quarter}
			}
		}
		a.theta, a.factor = network.Or(r.Theta, theta), 1
		switch r.Type {
		case "", "default":
		case "proportional":
			partial, a.factor = network.Or(r.Partial, 1), network.Or(r.Factor, 1)
		default:
			return fmt.Errorf("rope_parameters: rope_type %q is not supported, want default or proportional", r.Type)
		}
		switch {
		case !(a.theta > 1) || math.IsInf(a.theta, 0):
			return fmt.Errorf("rope_parameters: rope_theta is %v, want a number above 1", a.theta)
		case !(partial >= 0 && partial <= 1):
			return fmt.Errorf("rope_parameters: partial_rotary_factor is %v, want a number from 0 to 1", partial)
		case !(a.factor > 0) || math.IsInf(a.factor, 0):
			return fmt.Errorf("rope_parameters: factor is %v, want a positive number", a.factor)
		}
		a.pairs = int(partial * float64(a.dim) / 2)
	}
	return nil
}

// freqs are the angles per position of all pairs of a head. Those that do not turn have 0: the pairs are (i, i+dim/2) in any
// case, and the exponent divides by the whole width.
func (a *attention) freqs() []float32 {
	log, f := exactmath.LogOfExp(a.theta), make([]float32, a.dim/2)
	for i := range a.pairs {
		f[i] = float32(exactmath.Exp(-log*float64(2*i)/float64(a.dim)) / a.factor)
	}
	return f
}
