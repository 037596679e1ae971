package drafter_test

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/checkpoint/gguf/gguftest"
	"github.com/foretoken/foretoken/internal/convert"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
)

// ggufAssistantNames are names of an assistant's tensors and those of its GGUF file.
var ggufAssistantNames = strings.NewReplacer(
	"model.embed_tokens", "token_embd", "model.norm", "output_norm", "pre_projection", "nextn.pre_projection", "post_projection", "nextn.post_projection",
	"model.layers.", "blk.", "input_layernorm", "attn_norm", "self_attn.q_proj", "attn_q", "self_attn.q_norm", "attn_q_norm", "self_attn.o_proj", "attn_output",
	"post_attention_layernorm", "post_attention_norm", "pre_feedforward_layernorm", "ffn_norm", "post_feedforward_layernorm", "post_ffw_norm",
	"mlp.gate_proj", "ffn_gate", "mlp.up_proj", "ffn_up", "mlp.down_proj", "ffn_down", "layer_scalar", "layer_output_scale.weight",
	"masked_embedding.centroids", "masked_embd_centroids", "masked_embedding.token_ordering", "masked_embd_ordering",
)

// ggufOfAssistant writes the assistant of a golden model as a GGUF file, with the divisor of the pairs in full layers that do not turn, and
// a change.
func ggufOfAssistant(t *testing.T, name string, divisor float32, change func(g *gguftest.File)) string {
	t.Helper()
	const p = "gemma4-assistant."
	g := &gguftest.File{}
	g.Set("general.architecture", "gemma4-assistant")
	c := golden.Open(t, golden.Dir(t, name+"/assistant"))
	var config struct {
		Backbone float64        `json:"backbone_hidden_size"`
		Text     map[string]any `json:"text_config"`
	}
	filetest.Decode(t, c.Config(), &config)
	n := func(key string) int32 {
		x, _ := config.Text[key].(float64)
		return int32(x)
	}
	g.Set(p+"embedding_length_out", uint32(config.Backbone))
	for key, from := range map[string]string{
		"embedding_length": "hidden_size", "feed_forward_length": "intermediate_size", "block_count": "num_hidden_layers", "nextn_predict_layers": "num_hidden_layers",
		"attention.head_count": "num_attention_heads", "attention.key_length": "global_head_dim", "attention.key_length_swa": "head_dim",
		"attention.sliding_window": "sliding_window",
	} {
		g.Set(p+key, uint32(n(from)))
	}
	heads := n("num_key_value_heads")
	g.Set(p+"attention.head_count_kv", []int32{heads, heads, heads, cmp.Or(n("num_global_key_value_heads"), heads)})
	g.Set(p+"attention.sliding_window_pattern", []bool{true, true, true, false})
	g.Set(p+"attention.layer_norm_rms_epsilon", float32(1e-6))
	g.Set(p+"rope.freq_base", float32(1e6))
	g.Set(p+"rope.freq_base_swa", float32(1e4))
	for _, name := range c.Tensors() {
		x, err := c.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		g.AddRaw(ggufAssistantNames.Replace(name), map[dtype.Type]uint32{dtype.BF16: gguftest.Types["BF16"], dtype.I64: gguftest.Types["I64"]}[x.Type], x.Shape, slices.Clone(x.Data))
	}
	divisors := slices.Repeat([]float32{divisor}, int(n("global_head_dim"))/2)
	for i := range len(divisors) / 4 {
		divisors[i] = 1
	}
	g.Add("rope_freqs.weight", "F32", []int{len(divisors)}, divisors)
	change(g)
	path := filepath.Join(t.TempDir(), "assistant.gguf")
	if err := os.WriteFile(path, g.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestAssistantsOfGGUFDraftAsTheReference makes the guesses of golden files with assistants that were GGUF files, and are converted to
// folders. Files that are not as they should be are refused.
func TestAssistantsOfGGUFDraftAsTheReference(t *testing.T) {
	same := func(*gguftest.File) {}
	for _, name := range golden.Gemma {
		c, err := model.OpenGGUF(ggufOfAssistant(t, name, 1e30, same), "")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close() //nolint:errcheck // read only
		dir := filepath.Join(t.TempDir(), "out")
		if _, err := convert.Convert(t.Context(), c, dir, convert.Options{}); err != nil {
			t.Fatal(err)
		}
		f := golden.Load(t, name)
		hidden := clustersOf(t, golden.Open(t, golden.Dir(t, name+"/assistant")))
		for _, c := range []*checkpoint.Checkpoint{c, golden.Open(t, dir)} {
			r := openOn(t, name, c, backendtest.Open(t, backend.Options{}), model.Options{Compute: backend.Float32})
			r.assists(t, f, 1, hidden, r.d, func(j int) ([]int32, []float32) { return f.Cases[1].Chain[j], f.Cases[1].ChainMargin[j] })
		}
	}
	for want, path := range map[string]string{
		"divisor 8": ggufOfAssistant(t, "gemma4_dense", 8, same),
		`tensor "blk.0.other.weight"`: ggufOfAssistant(t, "gemma4_dense", 1e30, func(g *gguftest.File) {
			g.Add("blk.0.other.weight", "F32", []int{16}, make([]float32, 16))
		}),
	} {
		if _, err := model.OpenGGUF(path, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
