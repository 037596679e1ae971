package qwen35

import (
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// Tower is the family's vision tower with its weights. Patches of a picture see each other in
// blocks of attention without a mask; then each token's patches become one row of the model's
// width.
type Tower struct {
	b    backend.Backend
	cfg  *visionConfig
	info model.TowerInfo

	patch     linear    // [width, numbers of a patch]
	positions []float32 // [side*side or more, width], on the host
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

// newTower is a tower without weights.
func newTower(v *visionConfig) *Tower {
	return &Tower{
		cfg: v, blocks: make([]block, v.depth),
		info: model.TowerInfo{
			Layers: v.depth, Width: v.width, Output: v.output, Patch: v.patch, Temporal: v.temporal, Merge: v.merge,
			PatchBytes: 4 * int64(4*v.width+v.dim()+v.output/(v.merge*v.merge)),
		},
	}
}

// load loads the tower.
func (t *Tower) load(l *weights.Loader) error {
	t.b = l.Backend
	parameters, bytes := l.Parameters(), l.Bytes()
	err := l.Load(t.weights())
	t.info.Parameters, t.info.Bytes = l.Parameters()-parameters, l.Bytes()-bytes
	return err
}

// Info describes the tower.
func (t *Tower) Info() model.TowerInfo { return t.info }
