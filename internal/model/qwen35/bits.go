package qwen35

import (
	"strings"

	"github.com/foretoken/foretoken/internal/model/weights"
)

// Bits implements network.Config. Small matrices with a
// large say keep 8 bits: the router decides between experts, the head between draft tokens, the
// vision tower what is seen, and the decay is an exponential of its projection. At 4 bits, which small models notice, the
// matrices that others build on get one more, and embedding and output two.
func (*config) Bits(module string, bits int) int {
	if weights.IsHead(module) || weights.IsTower(module) {
		return 8
	}
	last := module[strings.LastIndexByte(module, '.')+1:]
	switch last {
	case "gate", "shared_expert_gate", "in_proj_a", "in_proj_b", "in_proj_ba":
		return 8
	case "embed_tokens", "lm_head":
		if bits == 4 {
			return 6
		}
	case "in_proj_qkv", "in_proj_qkvz", "out_proj", "v_proj", "o_proj", "down_proj":
		if bits == 4 {
			return 5
		}
	}
	return bits
}
