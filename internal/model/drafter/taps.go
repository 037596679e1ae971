package drafter

import (
	"fmt"
	"math"
	"slices"

	"github.com/foretoken/foretoken/internal/checkpoint"
)

// tapped finds the layers of the target whose inputs the drafter reads. Keys differ in whether they count inputs or outputs.
func (f *fileConfig) tapped(c *config) error {
	n := c.target.Layers
	outputs := list(f, func(k *fileKeys) []checkpoint.Whole { return k.TargetIDs })
	if outputs == nil {
		outputs = list(f, func(k *fileKeys) []checkpoint.Whole { return k.DSparkIDs })
	}
	inputs := list(f, func(k *fileKeys) []checkpoint.Whole { return k.AuxIDs })
	if c.kind == EAGLE3 {
		if inputs = f.EagleIDs; inputs == nil && f.Eagle != nil && outputs == nil {
			// SpecForge names outputs, but a list that ends with the number of layers can only be inputs.
			if outputs = f.Eagle.EagleIDs; len(outputs) > 0 && int(slices.Max(outputs)) == n {
				inputs, outputs = outputs, nil
			}
		}
		c.noFC = !value(f, true, func(k *fileKeys) *bool { return k.UseAux })
	}
	switch {
	case c.noFC:
		c.taps = []int{n + 1} // after the final norm
		return nil
	case inputs != nil:
		c.taps = wholes(inputs, 0)
	case outputs != nil:
		c.taps = wholes(outputs, 1)
	case c.kind == EAGLE3:
		c.taps, c.spread = []int{2, n / 2, n - 3}, true
	default:
		c.taps, c.spread = spreadTaps(n, len(c.layers)), true
	}
	for i, tap := range c.taps {
		if tap < 0 || tap > n {
			return fmt.Errorf("config.json: the drafter reads the input of layer %d, but the model has %d layers", tap, n)
		}
		if slices.Contains(c.taps[:i], tap) {
			return fmt.Errorf("config.json: the drafter reads the input of layer %d twice", tap)
		}
	}
	if len(c.taps) < 2 {
		return fmt.Errorf("config.json: the drafter reads the inputs of %d layers of the model, want at least 2", len(c.taps))
	}
	return nil
}

func wholes(list []checkpoint.Whole, add int) []int {
	ints := make([]int, len(list))
	for i, x := range list {
		ints[i] = int(x) + add
	}
	return ints
}

// spreadTaps are the layers of a DFlash drafter whose config names none, as the first version of its code has them.
func spreadTaps(target, layers int) []int {
	if layers == 1 {
		return []int{target/2 + 1}
	}
	taps := make([]int, layers)
	for j := range taps {
		taps[j] = int(math.RoundToEven(1+float64(j*(target-4))/float64(layers-1))) + 1
	}
	return taps
}
