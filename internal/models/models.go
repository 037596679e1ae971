// Package models finds models: the files of a name or a path, and the recommended sampling
// options.
package models

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/models/tiny"
	"github.com/foretoken/foretoken/sample"
)

// Tiny is the name of the model inside the program.
const Tiny = "tiny"

// ErrNotBuiltIn is returned for Tiny by a program that was built without it.
var ErrNotBuiltIn = errors.New("foretoken: this program was built without a model: give a checkpoint folder")

// Open opens the files of a model: the folder of a checkpoint, a GGUF file, or Tiny. projector is
// the file with the vision tower of a GGUF file, "" for one beside it. The caller closes them.
func Open(path, projector string) (*checkpoint.Checkpoint, error) {
	if projector != "" && !strings.HasSuffix(path, ".gguf") {
		return nil, fmt.Errorf("%s is not a GGUF file: its vision tower is part of the checkpoint, so %s cannot be used", path, projector)
	}
	switch {
	case path == Tiny:
		files := tiny.Files()
		if files == nil {
			return nil, ErrNotBuiltIn
		}
		return checkpoint.OpenFiles(Tiny, files)
	case strings.HasSuffix(path, ".gguf"):
		return model.OpenGGUF(path, projector)
	default:
		return checkpoint.Open(path)
	}
}

// Name is a model's name for people: the last part of its path, without the ending of a file.
func Name(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		path = full
	}
	return strings.TrimSuffix(filepath.Base(path), ".gguf")
}

// Sampling defaults if a checkpoint recommends nothing.
const (
	DefaultTemperature  = 0.8
	DefaultTopP         = 0.95
	DefaultXTCThreshold = 0.1
)

// Recommended is how a checkpoint recommends to sample, with a new seed.
func Recommended(g checkpoint.Generation) sample.Options {
	o := sample.Options{
		Temperature: DefaultTemperature, TopP: DefaultTopP, RepetitionPenalty: 1, XTCThreshold: DefaultXTCThreshold, Seed: sample.NewSeed(),
	}
	if g.DoSample != nil && *g.DoSample && g.Temperature == nil {
		o.Temperature = 1 // the format's own default
	}
	if g.DoSample != nil || g.Temperature != nil || g.TopK != nil || g.TopP != nil {
		o.TopP = 1 // the file does recommend something, and this is not part of it
	}
	set(&o.Temperature, g.Temperature)
	if g.DoSample != nil && !*g.DoSample {
		o.Temperature = 0
	}
	set(&o.TopP, g.TopP)
	set(&o.MinP, g.MinP)
	set(&o.RepetitionPenalty, g.RepetitionPenalty)
	set(&o.PresencePenalty, g.PresencePenalty)
	set(&o.FrequencyPenalty, g.FrequencyPenalty)
	if g.TopK != nil && *g.TopK > 0 { // some files write -1 for all
		o.TopK = int(*g.TopK)
	}
	return o
}

// set makes x the file's value, if it has one.
func set(x, file *float64) {
	if file != nil {
		*x = *file
	}
}
