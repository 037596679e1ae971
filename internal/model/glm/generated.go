package glm

import (
	"fmt"
	"strings"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
)

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
		modelType: lite, vocab: 154880, hidden: 2048, intermediate: 10240, heads: 20, queryRank: 768, rank: 512, nope: 192, rotary: 64, valueDim: 256,
		interleaved: true, eps: 1e-5, context: 202752, rope: rope{theta: 1e6},
		experts: 64, topK: 4, expertWidth: 1536, sharedWidth: 1536, groups: 1, topGroups: 1, expertScale: 1.8, normTopK: true, mtpLayers: 1,
	}},
	{name: "glm-4.5-air", layers: 46, dense: 1, config: config{
		modelType: grouped, vocab: 151552, hidden: 4096, intermediate: 10944, heads: 96, kvHeads: 8, headDim: 128, rotary: 64, bias: true,
		eps: 1e-5, context: 131072, rope: rope{theta: 1e6},
		experts: 128, topK: 8, expertWidth: 1408, sharedWidth: 1408, groups: 1, topGroups: 1, expertScale: 1, normTopK: true, mtpLayers: 1,
	}},
}

// shapes lists the released sizes that generate knows, the smallest first.
func shapes() (names []string) {
	for i := range releasedShapes {
		names = append(names, releasedShapes[i].name)
	}
	return names
}

// generate implements model.Family.Generate.
func generate(name string, form weights.Form, b backend.Backend, o model.Options) (*Model, error) {
	for i := range releasedShapes {
		s := &releasedShapes[i]
		if s.name != name {
			continue
		}
		l := newLoader(b, o)
		l.Generated(form)
		m, err := load(l, s.resolved(), true, o)
		if err != nil {
			l.Free()
			return nil, err
		}
		return m, nil
	}
	return nil, fmt.Errorf("glm: no shape %q, want one of %s", name, strings.Join(shapes(), ", "))
}

// surveyShape surveys what generate makes of a size.
func surveyShape(name string, form weights.Form) *weights.Survey {
	for i := range releasedShapes {
		if releasedShapes[i].name == name {
			c := releasedShapes[i].resolved()
			s, m := c.survey(), newModel(c)
			s.Generated(form, weights.Tables{Model: m.weights(), Head: newHead(m).weights()})
			return s
		}
	}
	return nil
}

// resolved is the config of the size.
func (s *shape) resolved() *config {
	c := s.config
	c.dense = make([]bool, s.layers)
	for i := range s.dense {
		c.dense[i] = true
	}
	return &c
}
