package network

import (
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/spec"
	"github.com/foretoken/foretoken/internal/state"
)

// Config is a resolved config of a family of decoders, and the parts that differ between families.
type Config interface {
	Common() *Settings
	// Layout is the state of a sequence in the model or in its head.
	Layout(o model.Options, head bool) state.Layout
	// Layers returns the layers of the model, or the layer of its head, without weights. They compute in n.
	Layers(n *Network, head bool) []Layer
	// Bits returns the bits to which a module is quantized on load, if bits is the choice for most modules.
	Bits(module string, bits int) int
	// Files looks through the names of a checkpoint. It may return files with an error about their contents.
	Files(c *checkpoint.Checkpoint, log *slog.Logger) (*weights.Files, error)
	// Check logs mistakes of converters that an open model can be used with.
	Check(f *weights.Files, head bool, log *slog.Logger)
	// Describe completes the survey of a checkpoint.
	Describe(s *weights.Survey, f *weights.Files)
	// Converted is how converted checkpoints are written, given config.json of the source.
	Converted(source []byte) weights.Converted
	// Repairs returns the repairs of a head, see model.Repairable.
	Repairs(h *Head) []model.Repair
}

// multimodal is a config whose checkpoints may have a vision tower.
type multimodal interface {
	Config
	// OpenTower checks the vision tower by the headers. It is nil if there are no tensors of one. The
	// error says why one cannot be used. Its tensors count as known in any case.
	OpenTower(f *weights.Files) (Tower, error)
	// NewTower is the tower that a released size has.
	NewTower() Tower
}

// Tower is a vision tower that can be loaded.
type Tower interface {
	model.Tower
	Load(l *weights.Loader) error
	Weights() iter.Seq[*weights.Weight]
}

// Layer is a decoder layer. Its operations read and write the rows of the network that it was made for.
type Layer interface {
	// Forward queues its operations.
	Forward()
	// CatchUp queues the operations that fill its state. It is called for layers of heads only.
	CatchUp()
	// Place sets the place of its state.
	Place(at backend.Place)
	// Weights appends its weights, whose names begin with prefix, to a list.
	Weights(list []weights.Weight, prefix string) []weights.Weight
}

// Register registers a family of decoders: read reads the config of a checkpoint, and size is the name and the config of one of the
// released sizes.
func Register[S any](f *model.Family, read func(*checkpoint.Checkpoint) (Config, error), sizes []S, size func(*S) (string, Config)) {
	for i := range sizes {
		name, _ := size(&sizes[i])
		f.Shapes = append(f.Shapes, name)
	}
	shape := func(name string) Config {
		_, cfg := size(&sizes[slices.Index(f.Shapes, name)])
		return cfg
	}
	f.Open = func(c *checkpoint.Checkpoint, b backend.Backend, o model.Options) (model.Model, error) {
		cfg, err := read(c)
		if err != nil {
			return nil, err
		}
		m, err := Open(cfg, c, b, o)
		if err != nil {
			return nil, err
		}
		return m, nil
	}
	f.Survey = func(c *checkpoint.Checkpoint) (*weights.Survey, error) {
		cfg, err := read(c)
		if err != nil {
			return nil, err
		}
		return survey(cfg, c), nil
	}
	f.Inventory = func(c *checkpoint.Checkpoint, part weights.Portion, log *slog.Logger) (*weights.Inventory, error) {
		cfg, err := read(c)
		if err != nil {
			return nil, err
		}
		return inventory(cfg, c, part, log)
	}
	f.SurveyShape = func(name string, form weights.Form) *weights.Survey {
		cfg := shape(name)
		s := newSurvey(cfg)
		s.Generated(form, Tables(cfg))
		return s
	}
	f.Generate = func(name string, form weights.Form, b backend.Backend, o model.Options) (model.Model, error) {
		if !slices.Contains(f.Shapes, name) {
			return nil, fmt.Errorf("%s: no shape %q, want one of %s", f.Package, name, strings.Join(f.Shapes, ", "))
		}
		m, err := Generate(shape(name), form, b, o)
		if err != nil {
			return nil, err
		}
		return m, nil
	}
	model.Register(f)
}

// newSurvey returns the parts of a survey that the config determines.
func newSurvey(cfg Config) *weights.Survey {
	c, o := cfg.Common(), model.Options{MaxDrafts: spec.MaxDepth}
	s := &weights.Survey{
		Family: c.Kind, ModelType: c.ModelType, Hidden: c.Width, Vocab: c.Vocab, Context: c.Context,
		Experts: c.Experts, ActiveExperts: c.TopK, Tied: c.Tied, Stop: append([]int32{}, c.Stop...),
		Layout: cfg.Layout(o, false), HeadLayout: cfg.Layout(o, true), Missing: []string{}, Unknown: []string{}, Warnings: []string{},
		Head: weights.HeadSurvey{
			Promised: c.MTPLayers, PreNorm: c.PreNorm, Missing: []string{}, Files: []string{}, Ignored: []string{}, Norms: []weights.Norm{},
		},
	}
	for _, y := range s.Layout.Layers {
		if _, delta := y.(state.Delta); delta {
			s.DeltaLayers++
		} else {
			s.AttentionLayers++
		}
	}
	return s
}

// Tables are the weights of a model and its head.
func Tables(cfg Config) weights.Tables {
	m := newModel(cfg)
	return weights.Tables{Model: m.Weights(), Head: newHead(m).Weights()}
}

// survey looks at a checkpoint by its headers.
func survey(cfg Config, c *checkpoint.Checkpoint) *weights.Survey {
	s := newSurvey(cfg)
	f, err := cfg.Files(c, slog.New(slog.DiscardHandler))
	if err != nil {
		s.Fail(err)
	}
	if f == nil {
		return s
	}
	all := Tables(cfg)
	if v, ok := cfg.(multimodal); ok {
		var tower Tower
		if tower, s.Tower.Problem = v.OpenTower(f); tower != nil {
			all.Tower = tower.Weights()
			i := tower.Info()
			s.Tower.Layers, s.Tower.Width, s.Tower.Patch, s.Tower.Temporal, s.Tower.Merge = i.Layers, i.Width, i.Patch, i.Temporal, i.Merge
		}
	}
	f.Survey(s, all)
	cfg.Describe(s, f)
	return s
}

// inventory lists the weights of a checkpoint, which stays open as long as they are used. The checkpoint
// may also be that of a head in a folder of its own.
func inventory(cfg Config, c *checkpoint.Checkpoint, part weights.Portion, log *slog.Logger) (*weights.Inventory, error) {
	f, err := cfg.Files(c, log)
	if err != nil {
		return nil, err
	}
	m := newModel(cfg)
	m.Converting = true
	all := weights.Tables{Model: m.Weights(), Head: newHead(m).Weights()}
	if v, ok := cfg.(multimodal); ok {
		tower, err := v.OpenTower(f)
		switch {
		case tower != nil:
			all.Tower = tower.Weights()
		case err != nil && part != weights.HeadOnly:
			log.Warn("the vision tower cannot be used", "reason", err)
		}
	}
	return f.Inventory(part, all, cfg.Converted(c.Config()))
}
