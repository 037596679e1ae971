package glm

import (
	"log/slog"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/spec"
)

// survey looks at a checkpoint by its headers.
func survey(c *checkpoint.Checkpoint) (*weights.Survey, error) {
	cfg, err := readConfig(c)
	if err != nil {
		return nil, err
	}
	s := cfg.survey()
	f, err := openFiles(c, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		s.Fail(err)
		return s, nil
	}
	head, _ := f.HasHead() // the survey says what is wrong with it
	s.Warnings = append(s.Warnings, warnings(f, cfg, head)...)
	m := newModel(cfg)
	f.Survey(s, weights.Tables{Model: m.weights(), Head: newHead(m).weights()})
	return s, nil
}

// survey is what the config says of a model.
func (c *config) survey() *weights.Survey {
	o := model.Options{MaxDrafts: spec.MaxDepth}
	return &weights.Survey{
		Family: c.family(), ModelType: c.modelType, Hidden: c.hidden, Vocab: c.vocab, Context: c.context,
		AttentionLayers: len(c.dense), Experts: c.experts, ActiveExperts: c.topK, Tied: c.tied, Stop: append([]int32{}, c.stop...),
		Layout: c.layout(o, len(c.dense)), HeadLayout: c.headLayout(o), Missing: []string{}, Unknown: []string{}, Warnings: []string{},
		Head: weights.HeadSurvey{Promised: c.mtpLayers, Missing: []string{}, Files: []string{}, Ignored: []string{}, Norms: []weights.Norm{}},
	}
}

// family is the kind of model, for people.
func (c *config) family() string {
	return map[string]string{
		lite:     "GLM-4.7-Flash, mixture of experts over latent rows",
		deepseek: "DeepSeek-V3, mixture of experts over latent rows",
		grouped:  "GLM-4.5, mixture of experts",
	}[c.modelType]
}

// inventory lists the weights of a checkpoint, which stays open as long as they are used. The
// checkpoint may also be that of a head in a folder of its own.
func inventory(c *checkpoint.Checkpoint, part weights.Portion, log *slog.Logger) (*weights.Inventory, error) {
	cfg, err := readConfig(c)
	if err != nil {
		return nil, err
	}
	f, err := openFiles(c, cfg, log)
	if err != nil {
		return nil, err
	}
	m := newModel(cfg)
	return f.Inventory(part, weights.Tables{Model: m.weights(), Head: newHead(m).weights()}, &converted{cfg, c.Config()})
}
