// Package prompt makes prompts of conversations and texts: it renders templates, encodes text, prepares
// images and videos, and constrains thinking.
package prompt

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dialogue"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/tokenizer"
)

var (
	// ErrNoTemplate is foretoken.ErrNoTemplate.
	ErrNoTemplate = errors.New("the checkpoint has no chat template")
	// ErrNoVision is foretoken.ErrNoVision.
	ErrNoVision = errors.New("this model does not accept images")
)

// Options say how to make a Builder.
type Options struct {
	Name       string // of the model, for errors
	Dialogue   model.Dialogue
	Log        *slog.Logger
	MediaError func(index int, err error) error // the error for an image or video that cannot be used
}

// Vision says which images a model accepts, and how. The fields are those of foretoken.Vision.
type Vision struct {
	Off                 bool
	MaxPixels, MaxMedia int
	AsStored, OnWhite   bool
}

// Builder makes the prompts of one model. Its methods may be called from several goroutines.
type Builder struct {
	name       string
	log        *slog.Logger
	mediaError func(index int, err error) error
	dialogue   model.Dialogue
	tok        *tokenizer.Tokenizer
	templates  checkpoint.Templates
	parsed     [2]func() (*dialogue.Template, error) // of conversations without tools and with them, parsed on demand
	syntax     func() dialogue.CallSyntax            // detected on demand

	context int
	vocab   int     // ids that stand for tokens
	stops   []int32 // ids that end a text

	processor *imageProcessor // nil: the model accepts no images
	visionErr error           // and why
	marks     pictureTokens   // that templates write, whether it accepts images or not
}

// New reads the tokenizer and the templates of a checkpoint.
func New(c *checkpoint.Checkpoint, o Options) (*Builder, error) {
	b := &Builder{name: o.Name, log: o.Log, mediaError: o.MediaError, dialogue: o.Dialogue}
	data, err := c.ReadFile("tokenizer.json")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("model %s: there is no tokenizer.json in the folder: copy it from where the model was published", b.name)
	case err != nil:
		return nil, fmt.Errorf("model %s: %w", b.name, err)
	}
	if b.tok, err = tokenizer.New(data); err != nil {
		return nil, fmt.Errorf("model %s: tokenizer.json: %w", b.name, err)
	}
	b.tok.Show(dialogue.Tags()...) // some files flag them special, and answers are read by them
	if b.templates, err = c.Templates(); err != nil {
		return nil, fmt.Errorf("model %s: %w", b.name, err)
	}
	for i, tools := range []bool{false, true} {
		b.parsed[i] = sync.OnceValues(func() (*dialogue.Template, error) { return dialogue.NewTemplate(b.Template(tools)) })
	}
	b.syntax = sync.OnceValue(func() dialogue.CallSyntax { return dialogue.Teaches(b.Template(true)) })
	return b, nil
}

// Fit sets the values of the loaded model: the maximum context, and the ids that end a text, which are
// those of the checkpoint and always those of the family.
func (b *Builder) Fit(info *model.Info, context int) {
	b.context, b.vocab = context, min(info.Vocab, b.tok.Size())
	b.stops = slices.Clone(info.Stop)
	for _, token := range b.dialogue.Ends {
		if id, ok := b.tok.ID(token); ok {
			b.stops = append(b.stops, id)
		}
	}
	slices.Sort(b.stops)
	b.stops = slices.Compact(b.stops)
}

// Tokenizer is the tokenizer of the checkpoint.
func (b *Builder) Tokenizer() *tokenizer.Tokenizer { return b.tok }

// Templates are the chat templates of the checkpoint.
func (b *Builder) Templates() checkpoint.Templates { return b.templates }

// Vocab is the number of ids that stand for tokens.
func (b *Builder) Vocab() int { return b.vocab }

// Stops are the ids that end a text.
func (b *Builder) Stops() []int32 { return b.stops }

// Syntax is how the template teaches the model to write tool calls.
func (b *Builder) Syntax() dialogue.CallSyntax { return b.syntax() }
