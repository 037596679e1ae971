package qwen35

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/model/weights"
)

func init() {
	network.Register(&model.Family{
		Package: "qwen35",
		Types:   []string{"qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_next"},
		Architectures: []string{
			"Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM", "Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM", "Qwen3NextForCausalLM",
		},
		Dialogue: model.Dialogue{
			Ends: []string{endOfText, endOfTurn}, Turns: []string{"<|im_start|>"}, Answers: []string{"<|im_start|>assistant"},
			Pictures: model.PictureTokens{
				Image: "<|image_pad|>", Video: "<|video_pad|>", Start: "<|vision_start|>", End: "<|vision_end|>", Others: []string{"<|vision_pad|>"},
			},
		},
		Head:     headNames,
		NoHead:   noHead,
		GGUF:     slices.Sorted(maps.Keys(ggufTypes)),
		Assemble: assembleGGUF,
		AddTower: addGGUFTower,
	}, func(c *checkpoint.Checkpoint) (network.Config, error) { return readConfig(c) },
		releasedShapes, func(s *shape) (string, network.Config) { return s.name, s.config() })
}

// The tokens that end a text and a turn of a chat. Configs name the first only, and files that
// other programs have made name either.
const (
	endOfText = "<|endoftext|>"
	endOfTurn = "<|im_end|>"
)

// headNames tells what is the head's, whatever layout the checkpoint has. The shape of a
// convolution tells how the norms of the model are stored, and so those of its head.
func headNames([]byte) model.HeadNames {
	return model.HeadNames{
		Has: func(name string) bool {
			name, _ = canonical(name)
			return weights.IsHead(name)
		},
		Tells: func(name string) bool { return strings.HasSuffix(name, "layers.0.linear_attn.conv1d.weight") },
		Norms: conventionBy,
	}
}

// noHead says what is missing where a config promises a head, or that it does not.
func noHead(config []byte) string {
	type promise struct {
		MTP  checkpoint.Whole `json:"mtp_num_hidden_layers"`
		Next checkpoint.Whole `json:"num_nextn_predict_layers"`
	}
	var cfg struct {
		promise
		Text promise `json:"text_config"`
	}
	_ = json.Unmarshal(config, &cfg) // the model has been opened with it
	n := max(cfg.MTP, cfg.Next, cfg.Text.MTP, cfg.Text.Next)
	if n == 0 {
		return "the checkpoint has no multi-token-prediction head, neither in config.json nor in its tensors: choose a checkpoint with a head"
	}
	return fmt.Sprintf("the weights have no mtp.* tensors (mtp.fc, mtp.norm, mtp.pre_fc_norm_embedding, mtp.pre_fc_norm_hidden, mtp.layers.0.*), "+
		"although config.json declares a head (mtp_num_hidden_layers %d): a converter dropped them; "+
		"foretoken pull ORG/NAME --with-head fetches the original head, and foretoken mtp inject adds one from a file", n)
}
