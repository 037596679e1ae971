package gemma

import (
	"fmt"
	"strconv"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model/network"
)

// sizes reads the widths and numbers of heads of both kinds of layers. Older configs have keys for full layers, newer ones have
// per_layer_config for single layers or kinds. The layers of a kind must be alike.
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

// overlay replaces the fields that an entry has.
func (a *attention) overlay(l layerConfig) {
	a.dim = int(network.Or(l.HeadDim, checkpoint.Whole(a.dim)))
	a.kvHeads = int(network.Or(l.KVHeads, checkpoint.Whole(a.kvHeads)))
}

// rotations reads the rotation of both kinds of layers.
func (c *config) rotations(t *textConfig) (err error) {
	s, f := &c.of[sliding], &c.of[full]
	if s.Rope, err = t.Rope[kindNames[sliding]].WindowRope(s.dim); err == nil {
		f.Rope, err = t.Rope[kindNames[full]].FullRope(f.dim)
	}
	return err
}
