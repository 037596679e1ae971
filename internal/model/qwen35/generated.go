package qwen35

import (
	"fmt"
	"strings"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/qwen35/vision"
	"github.com/foretoken/foretoken/internal/model/weights"
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

// Shapes lists the released sizes that Generate knows, the smallest first.
func Shapes() []string {
	names := make([]string, len(releasedShapes))
	for i, s := range releasedShapes {
		names[i] = s.name
	}
	return names
}

// Generate makes a model of a released size with weights that mean nothing: its speed is
// that of the real one, which needs no download to be measured. The matrices have the given
// form. It has a vision tower if the options give that some bits.
func Generate(name string, form weights.Form, b backend.Backend, o model.Options) (*Model, error) {
	for _, s := range releasedShapes {
		if s.name != name {
			continue
		}
		l := newLoader(b, o)
		l.Generated(form)
		cfg := s.config()
		var tower *vision.Tower
		if o.TowerBits > 0 {
			tower = vision.New(cfg.vision)
		}
		m, err := load(l, cfg, true, tower, o)
		if err != nil {
			l.Free()
		}
		return m, err
	}
	return nil, fmt.Errorf("qwen35: no shape %q, want one of %s", name, strings.Join(Shapes(), ", "))
}

// surveyShape surveys what Generate makes of a size, without a tower.
func surveyShape(name string, form weights.Form) *weights.Survey {
	for i := range releasedShapes {
		if releasedShapes[i].name == name {
			c := releasedShapes[i].config()
			s := c.survey()
			s.Generated(form, weights.Tables{Model: newModel(c).weights(), Head: newHead(c).weights()})
			return s
		}
	}
	return nil
}

// config is what config.json of that size says.
func (s *shape) config() *config {
	c := &config{
		modelType: "qwen3_5", tied: s.tied, vocab: releasedVocab, hidden: s.hidden, intermediate: s.intermediate,
		heads: s.heads, kvHeads: s.kvHeads, headDim: 256, keyHeads: s.keyHeads, valueHeads: s.valueHeads,
		keyDim: 128, valueDim: 128, kernel: 4, eps: 1e-6, context: 262144, theta: 1e7, rotary: 64, sections: [3]int{11, 11, 10},
		experts: s.experts, topK: s.topK, expertWidth: s.expertWidth, sharedWidth: s.sharedWidth, normTopK: true,
		mtpLayers: 1,
	}
	for i := range s.layers {
		c.layers = append(c.layers, (i+1)%4 == 0)
	}
	v := s.tower
	v.Output, v.Patch, v.Temporal, v.Merge, v.Channels = s.hidden, 16, 2, 2, 3
	v.Positions, v.Activation = 2304, vision.Activation
	c.vision = &v
	return c
}

// passBytes is the weights that a pass over one row reads: all of the model but the
// embedding, of which it reads one row unless it is the output matrix too, and of the
// experts only those that are chosen.
func (m *Model) passBytes() int64 {
	total := int64(0)
	for w := range m.weights() {
		if !w.IsMatrix() || w.Name == "embed_tokens.weight" && !m.cfg.tied {
			continue
		}
		n := w.LoadedBytes()
		if w.Experts > 0 {
			n = n * int64(m.cfg.topK) / int64(w.Experts)
		}
		total += n
	}
	return total
}
