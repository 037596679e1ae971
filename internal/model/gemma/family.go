package gemma

import (
	"slices"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/network"
)

func init() {
	network.Register(&model.Family{
		Package:       "gemma",
		Types:         []string{gemma4, gemma4 + text, unified, unified + text},
		Architectures: slices.Concat(architectures[gemma4], architectures[unified]),
		Dialogue: model.Dialogue{
			Ends:    ends,
			Turns:   []string{"<|turn>"},
			Answers: []string{"<|turn>model\n"},
			Pictures: model.PictureTokens{
				Image: "<|image|>", Video: "<|video|>", Start: "<|image>", End: "<image|>",
				Others: []string{"<|audio>", "<|audio|>", "<audio|>"},
			},
		},
		NoHead:   noHead,
		GGUF:     []string{ggufName},
		Assemble: assembleGGUF,
	}, func(c *checkpoint.Checkpoint) (network.Config, error) { return readConfig(c) },
		releasedShapes, func(s *shape) (string, network.Config) { return s.name, s.resolved() })
}

// ends are the tokens that end a text or a turn: a call ends where its result would begin.
var ends = []string{"<eos>", "<turn|>", "<|tool_response>"}

// noHead says why there is no head.
func noHead([]byte) string {
	return "checkpoints of Gemma 4 have no multi-token-prediction head: their drafters, called assistants, are separate checkpoints: name one with --drafter"
}
