package glm

import "github.com/foretoken/foretoken/internal/model/network"

// shape is a released size.
type shape struct {
	name   string
	config config
	layers int
	dense  int // layers without experts, the first ones
}

// Sizes as released. Of the config the rest is what generated weights need.
var releasedShapes = []shape{
	{name: "glm-4.7-flash", layers: 47, dense: 1, config: config{
		Settings: network.Settings{
			ModelType: lite, Vocab: 154880, Width: 2048, Eps: 1e-5, Context: 202752, Experts: 64, TopK: 4,
		}, intermediate: 10240, heads: 20, queryRank: 768, rank: 512, nope: 192, rotary: 64, valueDim: 256,
		interleaved: true, rope: rope{theta: 1e6},
		expertWidth: 1536, sharedWidth: 1536, groups: 1, topGroups: 1, expertScale: 1.8, normTopK: true,
	}},
	{name: "glm-4.5-air", layers: 46, dense: 1, config: config{
		Settings: network.Settings{
			ModelType: grouped, Vocab: 151552, Width: 4096, Eps: 1e-5, Context: 131072, Experts: 128, TopK: 8,
		}, intermediate: 10944, heads: 96, kvHeads: 8, headDim: 128, rotary: 64, bias: true,
		rope: rope{theta: 1e6}, expertWidth: 1408, sharedWidth: 1408, groups: 1, topGroups: 1, expertScale: 1, normTopK: true,
	}},
}

// resolved is the config of the size.
func (s *shape) resolved() *config {
	c := s.config
	c.Package, c.Kind, c.OwnTables, c.MTPLayers = "glm", titles[c.ModelType], true, 1
	c.dense = make([]bool, s.layers)
	for i := range s.dense {
		c.dense[i] = true
	}
	return &c
}
