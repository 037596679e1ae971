package drafter_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/checkpoint/gguf/gguftest"
	"github.com/foretoken/foretoken/internal/convert"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
)

// ggufAssistantNames are names of an assistant's tensors and those of its GGUF file, which has no clusters.
var ggufAssistantNames = strings.NewReplacer(
	"model.embed_tokens", "token_embd", "model.norm", "output_norm", "pre_projection", "nextn.pre_projection", "post_projection", "nextn.post_projection",
	"model.layers.", "blk.", "input_layernorm", "attn_norm", "self_attn.q_proj", "attn_q", "self_attn.q_norm", "attn_q_norm", "self_attn.o_proj", "attn_output",
	"post_attention_layernorm", "post_attention_norm", "pre_feedforward_layernorm", "ffn_norm", "post_feedforward_layernorm", "post_ffw_norm",
	"mlp.gate_proj", "ffn_gate", "mlp.up_proj", "ffn_up", "mlp.down_proj", "ffn_down", "layer_scalar", "layer_output_scale.weight",
)

// ggufOfAssistant writes the assistant of gemma4_dense as a GGUF file, with changes.
func ggufOfAssistant(t *testing.T, change func(g *gguftest.File)) string {
	t.Helper()
	const p = "gemma4-assistant."
	g := &gguftest.File{}
	g.Set("general.architecture", "gemma4-assistant")
	for key, n := range map[string]uint32{
		"embedding_length": 32, "embedding_length_out": 64, "feed_forward_length": 48, "block_count": 4, "nextn_predict_layers": 4, "attention.head_count": 4,
		"attention.key_length": 32, "attention.key_length_swa": 16, "attention.sliding_window": 40,
	} {
		g.Set(p+key, n)
	}
	g.Set(p+"attention.head_count_kv", []int32{2, 2, 2, 1})
	g.Set(p+"attention.sliding_window_pattern", []bool{true, true, true, false})
	g.Set(p+"attention.layer_norm_rms_epsilon", float32(1e-6))
	g.Set(p+"rope.freq_base", float32(1e6))
	g.Set(p+"rope.freq_base_swa", float32(1e4))
	c := golden.Open(t, golden.Dir(t, "gemma4_dense/assistant"))
	for _, name := range c.Tensors() {
		x, err := c.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		g.AddRaw(ggufAssistantNames.Replace(name), gguftest.Types["BF16"], x.Shape, slices.Clone(x.Data))
	}
	change(g)
	path := filepath.Join(t.TempDir(), "assistant.gguf")
	if err := os.WriteFile(path, g.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// divisors are those of the rotation of full layers, of which some are ones.
func divisors(g *gguftest.File, ones int, rest float32) {
	list := slices.Repeat([]float32{rest}, 16)
	for i := range ones {
		list[i] = 1
	}
	g.Add("rope_freqs.weight", "F32", []int{16}, list)
}

// TestAssistantsOfGGUFDraftAsTheReference makes the guesses of golden files with an assistant that was a GGUF file, and is converted to a
// folder. Files that are not as they should be are refused.
func TestAssistantsOfGGUFDraftAsTheReference(t *testing.T) {
	c, err := model.OpenGGUF(ggufOfAssistant(t, func(g *gguftest.File) { divisors(g, 4, 1e30) }), "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // read only
	dir := filepath.Join(t.TempDir(), "out")
	if _, err := convert.Convert(t.Context(), c, dir, convert.Options{}); err != nil {
		t.Fatal(err)
	}
	f := golden.Load(t, "gemma4_dense")
	r := openOn(t, "gemma4_dense", c, backendtest.Open(t, backend.Options{}), backend.Float32)
	again := openOn(t, "gemma4_dense", golden.Open(t, dir), backendtest.Open(t, backend.Options{}), backend.Float32)
	for i, k := range f.Cases[:2] {
		for _, r := range []*rig{r, again} {
			r.assists(t, f, i, nil, r.d, func(j int) ([]int32, []float32) { return k.Chain[j], k.ChainMargin[j] })
		}
	}
	for want, change := range map[string]func(g *gguftest.File){
		"divisor 8":                   func(g *gguftest.File) { divisors(g, 4, 8) },
		`tensor "blk.0.other.weight"`: func(g *gguftest.File) { g.Add("blk.0.other.weight", "F32", []int{16}, make([]float32, 16)) },
	} {
		if _, err := model.OpenGGUF(ggufOfAssistant(t, change), ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
