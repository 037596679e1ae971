package drafter

import (
	"fmt"
	"strings"

	"github.com/foretoken/foretoken/internal/model/weights"
)

// Kind is how a drafter drafts.
type Kind uint8

// The kinds.
const (
	DFlash         Kind = iota // a block of rows, each of which drafts the token of its position
	DFlash2                    // DFlash with convolutions along the block, and a selector that chooses one candidate after another
	DSpark                     // DFlash with a Markov head: the logits of a row depend on the draft before it
	EAGLE3                     // one token per pass, from the row of the pass before
	GemmaAssistant             // likewise, without a KV cache: it reads the model's
)

// String is the name that its authors gave it.
func (k Kind) String() string {
	return [...]string{"DFlash", "DFlash2", "DSpark", "EAGLE-3", "assistant"}[k]
}

// architectures are the names of kinds in config.json.
var architectures = map[string]Kind{
	"DFlashDraftModel": DFlash, "DFlashSpeculator": DFlash,
	"DFlash2DraftModel": DFlash2,
	"Qwen3DSparkModel":  DSpark, "DSparkDraftModel": DSpark, "DSparkSpeculator": DSpark,
	"Gemma4AssistantForCausalLM": GemmaAssistant, "Gemma4UnifiedAssistantForCausalLM": GemmaAssistant,
	"LlamaForCausalLMEagle3": EAGLE3, "Eagle3LlamaForCausalLM": EAGLE3, "Qwen3Eagle3Model": EAGLE3, "Eagle3Speculator": EAGLE3,
}

// refused are parts of names of tensors that no kind has, with what they are.
var refused = []struct{ part, what string }{
	{"prefix_gru.", "Domino drafters"},
	{"mask_hidden", "P-EAGLE drafters"},
	{"aux_hidden_norms", "drafters with gated attention (Laguna)"},
	{"attention_sink_bias", "drafters with attention sinks"},
	{"kv_a_proj", "drafters with latent attention (DeepSeek-V4, Kimi)"},
	{"hyper_connection", "drafters with hyper-connections (DeepSeek-V4)"},
}

// kindOf is the kind of a file: by its tensors, and by the config where they do not tell.
func kindOf(tensors names, archs []string) (Kind, error) {
	for _, r := range refused {
		if name := tensors.some(r.part); name != "" {
			return 0, fmt.Errorf("tensor %s: %s are not supported", name, r.what)
		}
	}
	named, known := DFlash, false
	for _, a := range archs {
		if kind, ok := architectures[a]; ok {
			named, known = kind, true
		}
	}
	switch {
	case tensors.has("pre_projection"):
		return GemmaAssistant, nil
	case tensors.some("candidate_selector.") != "":
		return DFlash2, nil
	case tensors.has("markov_head.markov_w1"):
		return DSpark, nil
	case tensors["layers.0.hidden_norm.weight"]:
		return EAGLE3, nil
	case tensors["hidden_norm.weight"] && tensors.has("fc"):
		// DeepSeek's drafters without a Markov head have the tensors of DFlash.
		if known && named == DSpark || named == DFlash2 {
			return named, nil
		}
		return DFlash, nil
	}
	return 0, fmt.Errorf("unknown kind (architectures %q): want DFlash (hidden_norm and fc), DFlash2 (candidate_selector), DSpark (markov_head), EAGLE-3 (midlayer.hidden_norm) or an assistant (pre_projection)", archs)
}

// renamed are other beginnings of names.
var renamed = [][2]string{
	{"midlayer.", "layers.0."},
	{"encoder.fc.", "fc."},
	{"encoder.output_norm_enc.", "hidden_norm."},
	{"logit_head.markov_head.", "markov_head."},
}

// short is the name of a tensor without what exporters have put before it.
func short(name string) string {
	name = strings.TrimPrefix(name, "model.")
	for _, r := range renamed {
		if rest, ok := strings.CutPrefix(name, r[0]); ok {
			return r[1] + rest
		}
	}
	return name
}

// canonical is the canonical name of a tensor, and whether it is needed as a weight.
func canonical(name string) (string, bool) {
	name = short(name)
	switch {
	case hidesTokens(name), name == "t2d", name == "mask_embedding", strings.HasSuffix(name, "emb.inv_freq"):
		return name, false
	}
	return weights.DrafterPrefix + name, true
}
