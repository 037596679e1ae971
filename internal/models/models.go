// Package models finds models: the files that a name or a path stands for, what they weigh,
// and how they want to be sampled.
package models

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
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

// Size is about the bytes that the weights of a model take in memory, quantized to bits if that
// is not 0, with its vision tower or without, from the headers of its files. It is 0 if they cannot
// be read: Open says why.
func Size(path, projector string, bits int, vision bool) int64 {
	c, err := Open(path, projector)
	if err != nil {
		return 0
	}
	defer c.Close() //nolint:errcheck // it was only read
	s, err := model.Survey(c)
	if err != nil {
		return 0
	}
	tower := s.Tower.Loaded
	text, parameters := s.Loaded-tower, int64(0)
	if bits > 0 {
		for _, p := range s.Parts {
			if p.Name != weights.VisionPart {
				parameters += p.Parameters
			}
		}
		// Every group of 64 has a scale and an offset of two bytes, and those are widened.
		text = min(text, parameters*int64(bits+1)/8)
		tower = min(tower, s.Tower.Parameters*9/8) // which gets 8 bits
	}
	if !vision {
		return text
	}
	return text + tower
}

// What is recommended where a checkpoint recommends nothing.
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
