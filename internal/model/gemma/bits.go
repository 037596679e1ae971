package gemma

import "strings"

// Bits implements network.Config. The router is not quantized, and the narrow matrices of layer embeddings get at least 8
// bits. At 4 bits values, outputs and down projections get one more, and the embedding, which is also the output matrix, two.
func (*config) Bits(module string, bits int) int {
	last := module[strings.LastIndexByte(module, '.')+1:]
	switch last {
	case "gate":
		return 0
	case "per_layer_input_gate", "per_layer_projection", "per_layer_model_projection":
		return max(bits, 8)
	}
	if bits != 4 {
		return bits
	}
	switch last {
	case "embed_tokens", "lm_head":
		return 6
	case "v_proj", "o_proj", "down_proj":
		return 5
	}
	return bits
}
