// Package vision is the vision tower of the Qwen3.5 family: patches of images in, rows of the text model out.
package vision

import (
	"fmt"
	"iter"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// Tower is the family's vision tower with its weights. Patches of an image see each other in
// blocks of attention without a mask; then each token's patches become one row of the model's
// width.
type Tower struct {
	Backend backend.Backend
	cfg     *Config
	info    model.TowerInfo

	patch     linear    // [width, numbers of a patch]
	Positions []float32 // [side*side or more, width], on the host
	blocks    []block
	norm      layerNorm // of the merger: per patch
	fc1, fc2  linear    // of the merger: per token
}

// block is one of the tower's. Field names are the checkpoint's.
type block struct {
	norm1, norm2 layerNorm
	qkv          linear // [3*width, width]: queries, keys, values, each head by head
	proj         linear // [width, width]
	fc1, fc2     linear // [intermediate, width] and back
}

// linear is a matrix with a bias.
type linear struct {
	w    backend.Weight
	bias backend.Tensor // [1, rows]
}

// layerNorm is the gain and the bias of a norm, [1, width].
type layerNorm struct{ gain, bias backend.Tensor }

// New is a tower without weights.
func New(v *Config) *Tower {
	return &Tower{
		cfg: v, blocks: make([]block, v.Depth),
		info: model.TowerInfo{
			Layers: v.Depth, Width: v.Width, Output: v.Output, Patch: v.Patch, Temporal: v.Temporal, Merge: v.Merge,
			PatchBytes: 4 * int64(4*v.Width+v.dim()+v.Output/(v.Merge*v.Merge)),
		},
	}
}

// Load loads the tower.
func (t *Tower) Load(l *weights.Loader) error {
	t.Backend = l.Backend
	parameters, bytes := l.Parameters(), l.Bytes()
	err := l.Load(t.Weights())
	t.info.Parameters, t.info.Bytes = l.Parameters()-parameters, l.Bytes()-bytes
	return err
}

// Info describes the tower.
func (t *Tower) Info() model.TowerInfo { return t.info }

// Weights are those of the vision tower.
func (t *Tower) Weights() iter.Seq[*weights.Weight] {
	const p = "visual."
	v := t.cfg
	merged := v.Merge * v.Merge * v.Width
	return func(yield func(*weights.Weight) bool) {
		list := []weights.Weight{
			weights.NewKernel(&t.patch.w, p+"patch_embed.proj", v.Width, [4]int{v.Channels, v.Temporal, v.Patch, v.Patch}),
			weights.NewVector(&t.patch.bias, weights.Vector, p+"patch_embed.proj.bias", 1, v.Width),
			weights.NewTable(&t.Positions, p+"pos_embed", v.Positions, v.Width),
		}
		if !weights.Each(list, yield) {
			return
		}
		for i := range t.blocks {
			b, q := &t.blocks[i], fmt.Sprintf("%sblocks.%d.", p, i)
			list = b.norm1.weights(list[:0], q+"norm1", v.Width)
			list = b.qkv.weights(list, q+"attn.qkv", 3*v.Width, v.Width)
			list = b.proj.weights(list, q+"attn.proj", v.Width, v.Width)
			list = b.norm2.weights(list, q+"norm2", v.Width)
			list = b.fc1.weights(list, q+"mlp.linear_fc1", v.Intermediate, v.Width)
			list = b.fc2.weights(list, q+"mlp.linear_fc2", v.Width, v.Intermediate)
			if !weights.Each(list, yield) {
				return
			}
		}
		list = t.norm.weights(list[:0], p+"merger.norm", v.Width)
		list = t.fc1.weights(list, p+"merger.linear_fc1", merged, merged)
		list = t.fc2.weights(list, p+"merger.linear_fc2", v.Output, merged)
		weights.Each(list, yield)
	}
}

// weights appends the weights of module to a list.
func (l *linear) weights(list []weights.Weight, module string, rows, cols int) []weights.Weight {
	return append(list, weights.NewMatrix(&l.w, module, rows, cols), weights.NewVector(&l.bias, weights.Vector, module+".bias", 1, rows))
}

// weights are used as stored: 1 is not added to the gains of the tower.
func (n *layerNorm) weights(list []weights.Weight, module string, width int) []weights.Weight {
	return append(list,
		weights.NewVector(&n.gain, weights.Vector, module+".weight", 1, width),
		weights.NewVector(&n.bias, weights.Vector, module+".bias", 1, width))
}
