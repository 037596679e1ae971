package model

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/checkpoint/gguf"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/state"
)

// Family is a kind of models: how to recognize its checkpoints, and its operations. Its
// package registers it; the rest of the program uses it only through this type.
type Family struct {
	Package       string   // with whose name its errors begin
	Types         []string // model_type of its checkpoints
	Architectures []string // values of architectures in config.json
	Dialogue      Dialogue

	// Open loads a checkpoint onto a backend. It refuses one with tensors missing or left over,
	// naming them. The checkpoint may be closed afterwards.
	Open func(*checkpoint.Checkpoint, backend.Backend, Options) (Model, error)
	// Survey reads the headers of a checkpoint, or of a folder with only a head. It
	// finds everything that Open would refuse. It is an error if the config is not one of the family.
	Survey func(*checkpoint.Checkpoint) (*weights.Survey, error)
	// Inventory lists the weights of a checkpoint, or of a folder with only a head, which
	// stays open as long as they are used.
	Inventory func(*checkpoint.Checkpoint, weights.Portion, *slog.Logger) (*weights.Inventory, error)

	// Head recognizes tensors and modules by their names in the files of a config; nil: there are no
	// heads.
	Head func(config []byte) HeadNames
	// NoHead says in a sentence what a checkpoint without a head lacks, given its config.json;
	// nil: a default sentence.
	NoHead func(config []byte) string

	// Drafts reports whether a config.json is that of a drafter in files of its own; nil: the family is one of models. A
	// family of drafters has no Open: its package opens them, for a model.
	Drafts func(config []byte) bool
	// Fit is Survey of a drafter for a model. It is an error if the drafter was made for another one.
	Fit func(c *checkpoint.Checkpoint, t Target) (*weights.Survey, error)

	GGUF []string // general.architecture of its GGUF files
	// Assemble presents such a file as a checkpoint folder. Opening reads the headers only.
	Assemble func(*gguf.File) (checkpoint.Assembly, error)
	// AddTower adds the vision tower of another such file to the result of Assemble,
	// which is unchanged if it fails; nil: there are no towers.
	AddTower func(*checkpoint.Assembly, *gguf.File) error

	Shapes []string // released sizes that Generate makes, the smallest first
	// SurveyShape surveys the result of Generate, without a tower; nil for an unknown shape.
	SurveyShape func(shape string, f weights.Form) *weights.Survey
	// Generate makes a model of a released size with arbitrary weights: its speed is
	// that of the real one. The matrices have the given form.
	Generate func(shape string, f weights.Form, b backend.Backend, o Options) (Model, error)
}

// Dialogue is the notation of a family's conversations: spellings of control tokens. Those that
// a checkpoint's tokenizer does not have are ignored.
type Dialogue struct {
	// Ends are the tokens that end a text or a turn, in addition to the checkpoint's: configs may
	// name only one of them.
	Ends []string
	// Turns are the tokens that open a turn: one for all roles, or one for each role.
	Turns []string
	// Answers open the assistant's: texts, with the token.
	Answers  []string
	Pictures PictureTokens
}

// PictureTokens are the tokens of images and videos, unless the config names others.
type PictureTokens struct {
	Image, Video string   // stand in place of one
	Start, End   string   // stand around it
	Others       []string // that are not for answers either
}

// HeadNames recognizes the parts of a multi-token-prediction head in a file.
type HeadNames struct {
	// Has reports whether a tensor or module is the head's.
	Has func(name string) bool
	// Tells reports whether a tensor tells how the head is stored. Without such a tensor that is found
	// in another way. Nil: there is none.
	Tells func(name string) bool
	// Norms is the convention of the head's norms by the shape of a tensor that tells, and by the
	// format that the metadata of its file names. Nil as Tells.
	Norms func(shape []int, format string) weights.Convention
}

var families []*Family

// Register makes a family known. It is called from the init of its package.
func Register(f *Family) {
	for _, other := range families {
		for _, mine := range [][2][]string{{f.Types, other.Types}, {f.GGUF, other.GGUF}, {f.Shapes, other.Shapes}} {
			for _, name := range mine[0] {
				if slices.Contains(mine[1], name) {
					panic(fmt.Sprintf("model: %s of %s is registered by %s", name, f.Package, other.Package))
				}
			}
		}
	}
	families = append(families, f)
}

// Of returns the family of a checkpoint by its config.json: by its model_type or, if it has none,
// by its architectures. The error lists the known families.
func Of(config []byte) (*Family, error) { return find(config, false) }

// Target is what a drafter must fit.
type Target struct {
	Width  int // of a hidden row
	Vocab  int // length of a row of logits, padding included
	Layers int
	Layout state.Layout // of a sequence; empty if it is not known
}

// TargetOf is a surveyed model as the target of drafters.
func TargetOf(s *weights.Survey) Target {
	return Target{Width: s.Hidden, Vocab: s.Vocab, Layers: len(s.Layout.Layers), Layout: s.Layout}
}

// OfPart is Of, also for a folder with nothing but a head, whose model_type is that of the model
// with weights.HeadType after it, and for a drafter.
func OfPart(config []byte) (*Family, error) { return find(config, true) }

func find(config []byte, part bool) (*Family, error) {
	var c struct {
		Type          string   `json:"model_type"`
		Architectures []string `json:"architectures"`
	}
	if err := json.Unmarshal(config, &c); err != nil {
		return nil, fmt.Errorf("model: config.json: %w", err)
	}
	name := c.Type
	if part {
		name = strings.TrimSuffix(name, weights.HeadType)
	}
	for _, f := range families {
		if f.Drafts != nil && f.Drafts(config) { // whose model_type may be that of a model
			if !part {
				return nil, &DrafterError{c.Architectures}
			}
			return f, nil
		}
	}
	for _, f := range families {
		known := slices.Contains(f.Types, name)
		for _, a := range c.Architectures {
			known = known || name == "" && slices.Contains(f.Architectures, a)
		}
		if known {
			return f, nil
		}
	}
	return nil, &UnknownError{Type: c.Type}
}

// UnknownError is the error for a checkpoint of no family that is registered.
type UnknownError struct{ Type string } // model_type

func (e *UnknownError) Error() string {
	return fmt.Sprintf("model: config.json: model_type %q is not supported; supported: %s", e.Type, strings.Join(Types(), ", "))
}

// DrafterError is the error for a drafter in the place of a model.
type DrafterError struct{ Architectures []string }

func (e *DrafterError) Error() string {
	return fmt.Sprintf("model: config.json is that of a drafter (architectures %q), which drafts for a model: open the model that it was made for, with this as its drafter (--drafter)", e.Architectures)
}

// Open loads a checkpoint with the family that its config names.
func Open(c *checkpoint.Checkpoint, b backend.Backend, o Options) (Model, error) {
	f, err := Of(c.Config())
	if err != nil {
		return nil, err
	}
	if o.KVType() == dtype.Invalid {
		return nil, fmt.Errorf("model: keys and values of %d bits, want 4, 8, 16 or 32", o.KVBits)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return f.Open(c, b, o)
}

// Survey reads the headers of a checkpoint, see Family.
func Survey(c *checkpoint.Checkpoint) (*weights.Survey, error) {
	f, err := OfPart(c.Config())
	if err != nil {
		return nil, err
	}
	return f.Survey(c)
}

// Fit surveys a drafter for a model, see Family.
func Fit(c *checkpoint.Checkpoint, t Target) (*weights.Survey, error) {
	f, err := OfPart(c.Config())
	if err != nil {
		return nil, err
	}
	if f.Fit == nil {
		return nil, fmt.Errorf("model: %s is not a drafter, but a %s model", c.Name(), f.Package)
	}
	return f.Fit(c, t)
}

// Inventory lists the weights of a checkpoint, see Family.
func Inventory(c *checkpoint.Checkpoint, part weights.Portion, log *slog.Logger) (*weights.Inventory, error) {
	f, err := OfPart(c.Config())
	if err != nil {
		return nil, err
	}
	return f.Inventory(c, part, log)
}

// SurveyShape surveys the result of Generate for one of Shapes; nil: there is no such shape.
func SurveyShape(shape string, form weights.Form) *weights.Survey {
	for _, f := range families {
		if slices.Contains(f.Shapes, shape) {
			return f.SurveyShape(shape, form)
		}
	}
	return nil
}

// Generate makes a model of one of Shapes, see Family.
func Generate(shape string, form weights.Form, b backend.Backend, o Options) (Model, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	for _, f := range families {
		if slices.Contains(f.Shapes, shape) {
			return f.Generate(shape, form, b, o)
		}
	}
	return nil, fmt.Errorf("model: no shape %q, want one of %s", shape, strings.Join(Shapes(), ", "))
}

// Shapes lists the released sizes of all families.
func Shapes() []string {
	var list []string
	for _, f := range families {
		list = append(list, f.Shapes...)
	}
	return list
}

// Types lists the model types of all families in alphabetical order.
func Types() []string {
	var list []string
	for _, f := range families {
		list = append(list, f.Types...)
	}
	slices.Sort(list)
	return list
}
