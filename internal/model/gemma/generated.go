package gemma

import (
	"math"

	"github.com/foretoken/foretoken/internal/model/network"
)

// shape is a released size.
type shape struct {
	name         string
	width, inner int
	layers       int
	every        int // full layers are those whose number, counted from 1, is a multiple of it
	heads        int
	kvHeads      [kinds]int
	window       int
	shared       int
	double       bool
	inputs       int
	experts      int // 0: there are none
	topK, expert int
}

// Sizes as released.
var releasedShapes = []shape{
	{name: "gemma-4-e2b", width: 1536, inner: 6144, layers: 35, every: 5, heads: 8, kvHeads: [kinds]int{1, 1}, window: 512, shared: 20, double: true, inputs: 256},
	{name: "gemma-4-e4b", width: 2560, inner: 10240, layers: 42, every: 6, heads: 8, kvHeads: [kinds]int{2, 2}, window: 512, shared: 18, inputs: 256},
	{name: "gemma-4-12b", width: 3840, inner: 15360, layers: 48, every: 6, heads: 16, kvHeads: [kinds]int{8, 1}, window: 1024},
	{name: "gemma-4-26b-a4b", width: 2816, inner: 2112, layers: 30, every: 6, heads: 16, kvHeads: [kinds]int{8, 2}, window: 1024, experts: 128, topK: 8, expert: 704},
	{name: "gemma-4-31b", width: 5376, inner: 21504, layers: 60, every: 6, heads: 32, kvHeads: [kinds]int{16, 4}, window: 1024},
}

// resolved is the config of the size.
func (s *shape) resolved() *config {
	c := &config{
		Settings: network.Settings{
			Package: "gemma", ModelType: gemma4, Vocab: 262144, Width: s.width, Eps: 1e-6, Context: 262144, Tied: true,
			Experts: s.experts, TopK: s.topK, EmbedFactor: float32(math.Sqrt(float64(s.width))), LogitCap: 30,
		},
		kinds: make([]kind, s.layers), shared: s.shared, heads: s.heads, window: s.window, keyIsV: s.inputs == 0,
		inner: s.inner, double: s.double, inputs: s.inputs, experts: s.expert,
	}
	for i := range c.kinds {
		if (i+1)%s.every == 0 {
			c.kinds[i] = full
		}
	}
	c.of[sliding] = attention{s.kvHeads[sliding], 256, network.Rope{Theta: 1e4, Factor: 1, Pairs: 128}}
	c.of[full] = attention{s.kvHeads[full], 512, network.Rope{Theta: 1e6, Factor: 1, Pairs: 64}}
	c.Kind = c.title()
	return c
}
