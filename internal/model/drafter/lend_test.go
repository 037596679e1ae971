package drafter_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
)

// layerOf are the tensors of a layer of a drafter and of its taps, two of them.
func layerOf(width, in int) map[string][]int {
	return map[string][]int{
		"fc.weight": {width, 2 * 128}, "norm.weight": {width},
		"layers.0.input_layernorm.weight": {width}, "layers.0.post_attention_layernorm.weight": {width},
		"layers.0.self_attn.q_proj.weight": {64, in}, "layers.0.self_attn.k_proj.weight": {64, in}, "layers.0.self_attn.v_proj.weight": {64, in},
		"layers.0.self_attn.o_proj.weight": {width, 64}, "layers.0.mlp.gate_proj.weight": {64, width}, "layers.0.mlp.up_proj.weight": {64, width},
		"layers.0.mlp.down_proj.weight": {width, 64},
	}
}

// TestCopiesOfMatricesAreShared opens drafters with an embedding and an output matrix of their own: one that is a copy of the model's, in
// memory as integers or as floats, is not loaded.
func TestCopiesOfMatricesAreShared(t *testing.T) {
	const config = `{"hidden_size": 128, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 32, "vocab_size": 512,
		"block_size": 4, "mask_token_id": 510, "target_layer_ids": [0, 2]}`
	whole := open(t, "dense", golden.Drafters(t, "")[0].Dir, backend.Options{})
	embed, output := whole.Model.(model.Lender).Matrices()
	shapes := layerOf(128, 128)
	shapes["hidden_norm.weight"], shapes["embed_tokens.weight"], shapes["lm_head.weight"] = []int{128}, []int{512, 128}, []int{512, 128}
	for copied := range 3 {
		list, _ := randomTensors(shapes)
		for i := range list {
			switch {
			case list[i].Name == "embed_tokens.weight" && copied == 1:
				list[i].Values = whole.rowsOf(t, embed)
			case list[i].Name == "lm_head.weight" && copied == 2:
				list[i].Values = whole.rowsOf(t, output)
			}
		}
		dir := t.TempDir()
		golden.Write(t, dir, []byte(config), list)
		for _, compute := range []backend.Compute{backend.Float32, backend.Int8} {
			r := openComputed(t, "dense", golden.Open(t, dir), compute)
			if e, o := r.d.Shares(); e != (copied == 1) || o != (copied == 2) {
				t.Errorf("copy %d, %v: the embedding is shared: %t, the output matrix: %t", copied, compute, e, o)
			}
		}
	}
}

// rowsOf are all rows of a matrix of the model.
func (r *rig) rowsOf(tb testing.TB, w backend.Weight) []float32 {
	tb.Helper()
	ids := make([]int32, w.Rows())
	for i := range ids {
		ids[i] = int32(i)
	}
	rows, err := r.B.Alloc(dtype.F32, len(ids), w.Cols())
	if err != nil {
		tb.Fatal(err)
	}
	r.B.Embed(rows, w, ids, 0)
	return r.Host(tb, rows)
}

// TestRowsOfAnotherWidth feeds rows in place of tokens, which have the model's width, to an EAGLE-3 drafter of another width.
func TestRowsOfAnotherWidth(t *testing.T) {
	shapes := layerOf(64, 2*64)
	shapes["layers.0.hidden_norm.weight"], shapes["embed_tokens.weight"], shapes["lm_head.weight"] = []int{64}, []int{512, 64}, []int{512, 64}
	list, _ := randomTensors(shapes)
	dir := t.TempDir()
	golden.Write(t, dir, []byte(`{"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 64, "target_hidden_size": 128, "intermediate_size": 64, "num_hidden_layers": 1,
		"num_attention_heads": 2, "head_dim": 32, "vocab_size": 512, "draft_vocab_size": 512, "eagle_aux_hidden_state_layer_ids": [0, 2]}`), list)
	r := open(t, "dense", dir, backend.Options{})
	text := slices.Clone(texts(t)[0][:30])
	taps := r.taps(t, text[:29], 29)
	image, err := r.B.Alloc(dtype.F32, 3, r.Info().Width)
	if err != nil {
		t.Fatal(err)
	}
	var logits []string
	for _, id := range []int32{0, model.NoToken} {
		s := model.Span{State: r.Memory(t, r.d.Head.Layout()), Tokens: slices.Clone(text[1:]), Hidden: taps, Want: 1}
		for i := range image.Rows {
			s.Tokens[10+i] = id
		}
		if id == model.NoToken {
			s.Inputs = []backend.Input{{At: 10, Rows: image}}
		}
		out, err := r.d.Head.Forward([]model.Span{s}, nil)
		if err != nil {
			t.Fatal(err)
		}
		logits = append(logits, fmt.Sprint(r.Host(t, out.Logits)))
	}
	if logits[0] != logits[1] {
		t.Errorf("rows give the logits %s, want %s of token 0", logits[1], logits[0])
	}
}
