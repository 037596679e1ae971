package qwen35

import (
	"fmt"
	"strconv"
	"strings"
)

// Names of tensors in GGUF files, and in the layout of converted checkpoints.
var (
	ggufTop = map[string]string{
		"token_embd.weight":  "language_model.model.embed_tokens.weight",
		"output_norm.weight": "language_model.model.norm.weight",
		"output.weight":      "language_model.lm_head.weight",
	}
	// ggufHead are those of the block that is the head, beside those of any block.
	ggufHead = map[string]string{
		"nextn.eh_proj.weight":          "fc.weight",
		"nextn.enorm.weight":            "pre_fc_norm_embedding.weight",
		"nextn.hnorm.weight":            "pre_fc_norm_hidden.weight",
		"nextn.shared_head_norm.weight": "norm.weight",
	}
	ggufBlock = map[string]string{
		"attn_norm.weight":           "input_layernorm.weight",
		"post_attention_norm.weight": "post_attention_layernorm.weight",

		"attn_q.weight":      "self_attn.q_proj.weight",
		"attn_k.weight":      "self_attn.k_proj.weight",
		"attn_v.weight":      "self_attn.v_proj.weight",
		"attn_output.weight": "self_attn.o_proj.weight",
		"attn_q_norm.weight": "self_attn.q_norm.weight",
		"attn_k_norm.weight": "self_attn.k_norm.weight",

		"attn_qkv.weight":   "linear_attn.in_proj_qkv.weight",
		"attn_gate.weight":  "linear_attn.in_proj_z.weight",
		"ssm_beta.weight":   "linear_attn.in_proj_b.weight",
		"ssm_alpha.weight":  "linear_attn.in_proj_a.weight",
		"ssm_ba.weight":     "linear_attn.", // cut in two
		"ssm_conv1d.weight": "linear_attn.conv1d.weight",
		"ssm_a":             "linear_attn.A_log",
		"ssm_dt":            "linear_attn.dt_bias",
		"ssm_dt.bias":       "linear_attn.dt_bias",
		"ssm_norm.weight":   "linear_attn.norm.weight",
		"ssm_out.weight":    "linear_attn.out_proj.weight",

		"ffn_gate.weight": "mlp.gate_proj.weight",
		"ffn_up.weight":   "mlp.up_proj.weight",
		"ffn_down.weight": "mlp.down_proj.weight",

		"ffn_gate_inp.weight":       "mlp.gate.weight",
		"ffn_gate_exps.weight":      "mlp.switch_mlp.gate_proj.weight",
		"ffn_up_exps.weight":        "mlp.switch_mlp.up_proj.weight",
		"ffn_gate_up_exps.weight":   "mlp.", // cut in two
		"ffn_down_exps.weight":      "mlp.switch_mlp.down_proj.weight",
		"ffn_gate_inp_shexp.weight": "mlp.shared_expert_gate.weight",
		"ffn_gate_shexp.weight":     "mlp.shared_expert.gate_proj.weight",
		"ffn_up_shexp.weight":       "mlp.shared_expert.up_proj.weight",
		"ffn_down_shexp.weight":     "mlp.shared_expert.down_proj.weight",
	}
)

// name returns the name of a tensor in converted checkpoints, and the part of its name in the file that
// identifies its kind.
func (g *ggufFile) name(name string) (converted, last string, err error) {
	if converted, ok := ggufTop[name]; ok {
		return converted, name, nil
	}
	block, last, _ := strings.Cut(strings.TrimPrefix(name, "blk."), ".")
	i, err := strconv.Atoi(block)
	if err == nil && i >= 0 && i < g.layers+g.nextn && strings.HasPrefix(name, "blk.") {
		head := i - g.layers
		switch {
		case ggufBlock[last] != "" && head < 0:
			return fmt.Sprintf("language_model.model.layers.%d.%s", i, ggufBlock[last]), last, nil
		case ggufBlock[last] != "":
			return fmt.Sprintf("language_model.mtp.layers.%d.%s", head, ggufBlock[last]), last, nil
		case ggufHead[last] != "" && head == 0:
			return "language_model.mtp." + ggufHead[last], last, nil
		}
	}
	return "", "", fmt.Errorf("it is not part of a %s model of %d blocks", g.arch, g.layers+g.nextn)
}
