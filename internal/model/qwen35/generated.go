package qwen35

import (
	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/model/qwen35/vision"
)

// shape is a released size.
type shape struct {
	name                                    string
	layers, hidden, intermediate            int
	heads, kvHeads, keyHeads, valueHeads    int
	experts, topK, expertWidth, sharedWidth int
	tied                                    bool
	tower                                   vision.Config // depth, width, heads, intermediate
}

// The towers there are.
var (
	smallTower = vision.Config{Depth: 12, Width: 768, Heads: 12, Intermediate: 3072}
	midTower   = vision.Config{Depth: 24, Width: 1024, Heads: 16, Intermediate: 4096}
	largeTower = vision.Config{Depth: 27, Width: 1152, Heads: 16, Intermediate: 4304}
)

var releasedShapes = []shape{
	{name: "0.8b", layers: 24, hidden: 1024, intermediate: 3584, heads: 8, kvHeads: 2, keyHeads: 16, valueHeads: 16, tied: true, tower: smallTower},
	{name: "2b", layers: 24, hidden: 2048, intermediate: 6144, heads: 8, kvHeads: 2, keyHeads: 16, valueHeads: 16, tied: true, tower: midTower},
	{name: "4b", layers: 32, hidden: 2560, intermediate: 9216, heads: 16, kvHeads: 4, keyHeads: 16, valueHeads: 32, tied: true, tower: midTower},
	{name: "9b", layers: 32, hidden: 4096, intermediate: 12288, heads: 16, kvHeads: 4, keyHeads: 16, valueHeads: 32, tower: largeTower},
	{name: "27b", layers: 64, hidden: 5120, intermediate: 17408, heads: 24, kvHeads: 4, keyHeads: 16, valueHeads: 48, tower: largeTower},
	{
		name: "35b-a3b", layers: 40, hidden: 2048, heads: 16, kvHeads: 2, keyHeads: 16, valueHeads: 32,
		experts: 256, topK: 8, expertWidth: 512, sharedWidth: 512, tower: largeTower,
	},
}

// config is config.json of that size.
func (s *shape) config() *config {
	c := &config{
		Settings: network.Settings{
			Package: "qwen35", ModelType: "qwen3_5", Tied: s.tied, Vocab: releasedVocab, Width: s.hidden, Eps: 1e-6, Context: 262144,
			Experts: s.experts, TopK: s.topK, MTPLayers: 1,
		},
		intermediate: s.intermediate, heads: s.heads, kvHeads: s.kvHeads, headDim: 256, keyHeads: s.keyHeads, valueHeads: s.valueHeads,
		keyDim: 128, valueDim: 128, kernel: 4, theta: 1e7, rotary: 64, sections: [3]int{11, 11, 10},
		expertWidth: s.expertWidth, sharedWidth: s.sharedWidth, normTopK: true,
	}
	c.Kind = kindOf(c)
	for i := range s.layers {
		c.layers = append(c.layers, (i+1)%4 == 0)
	}
	v := s.tower
	v.Output, v.Patch, v.Temporal, v.Merge, v.Channels = s.hidden, 16, 2, 2, 3
	v.Positions, v.Activation = 2304, vision.Activation
	c.vision = &v
	return c
}
