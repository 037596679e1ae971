package glm

import (
	"encoding/json"
	"fmt"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/model/weights"
)

func init() {
	network.Register(&model.Family{
		Package:       "glm",
		Types:         []string{lite, deepseek, grouped},
		Architectures: []string{architectures[lite], architectures[deepseek], architectures[grouped]},
		Dialogue: model.Dialogue{
			Ends:    ends,
			Turns:   []string{"<|user|>", "<|assistant|>", "<|observation|>", "<｜User｜>", "<｜Assistant｜>"},
			Answers: []string{"<|assistant|>", "<｜Assistant｜>"},
		},
		Head:     headNames,
		NoHead:   noHead,
		GGUF:     []string{ggufLatent, ggufGrouped},
		Assemble: assembleGGUF,
	}, func(c *checkpoint.Checkpoint) (network.Config, error) { return readConfig(c) },
		releasedShapes, func(s *shape) (string, network.Config) { return s.name, s.resolved() })
}

// ends are the tokens that end a text or a turn: of GLM, whose turns end where the next one begins,
// and of DeepSeek.
var ends = []string{"<|endoftext|>", "<|user|>", "<|observation|>", "<｜end▁of▁sentence｜>"}

// headNames reports tensors of the head: those of the layer after the last, or with names of converters.
func headNames(config []byte) model.HeadNames {
	layers := naming(layersOf(config))
	return model.HeadNames{Has: func(name string) bool {
		name, _ = layers.canonical(name)
		return weights.IsHead(name)
	}}
}

// layersOf is how many layers a config says a model has.
func layersOf(config []byte) int {
	var f fileConfig
	_ = json.Unmarshal(config, &f) // opening the model reports what is wrong with it
	if t := f.text(); t.Layers != nil {
		return int(*t.Layers)
	}
	return defaults[f.text().kind()].layers
}

// noHead says what is missing where a config promises a head, or that it does not.
func noHead(config []byte) string {
	var f fileConfig
	_ = json.Unmarshal(config, &f) // the model has been opened with it
	t := f.text()
	promised := max(network.Or(t.NextLayers, 0), network.Or(t.MTPLayers, 0))
	if promised == 0 {
		return "the checkpoint has no multi-token-prediction head, neither in config.json nor in its tensors: choose a checkpoint with a head"
	}
	return fmt.Sprintf("the weights have no model.layers.%d.* tensors (eh_proj, enorm, hnorm, shared_head.norm and a layer), "+
		"although config.json declares a head (num_nextn_predict_layers %d): a converter dropped them; "+
		"foretoken pull ORG/NAME --with-head fetches the original head, and foretoken mtp inject adds one from a file", layersOf(config), promised)
}
