package glm

import (
	"strings"

	"github.com/foretoken/foretoken/internal/model/weights"
)

// Bits implements network.Config. The router
// stays as it is. The head decides between draft tokens and keeps 8 bits. At 4 bits the matrices
// that others build on get one more, and embedding and output two.
func (*config) Bits(module string, bits int) int {
	last := module[strings.LastIndexByte(module, '.')+1:]
	switch {
	case last == "gate":
		return 0
	case weights.IsHead(module):
		return 8
	case bits != 4:
		return bits
	}
	switch last {
	case "embed_tokens", "lm_head":
		return 6
	case "v_proj", "o_proj", "down_proj", "kv_a_proj_with_mqa", "kv_b_proj", "embed_q", "unembed_out":
		return 5
	}
	return bits
}
