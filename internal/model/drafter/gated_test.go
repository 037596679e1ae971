package drafter_test

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
)

// randomTensors are tensors of a drafter of width 128, by name and shape.
func randomTensors(shapes map[string][]int) (list []golden.SpecTensor, values map[string][]float32) {
	rng := rand.New(rand.NewPCG(5, 6))
	values = map[string][]float32{}
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		shape, n := shapes[name], 1
		for _, d := range shape {
			n *= d
		}
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(rng.NormFloat64()) / 8
			if strings.Contains(name, "norm.") {
				v[i]++
			}
		}
		values[name] = v
		list = append(list, golden.SpecTensor{Name: name, Shape: shape, Values: v})
	}
	return list, values
}

// TestGatedMarkovHead compares what a gated Markov head adds to logits with its definition, in float64.
func TestGatedMarkovHead(t *testing.T) {
	const width, vocab, rank = 128, 512, 16
	list, values := randomTensors(map[string][]int{
		"fc.weight": {width, 2 * width}, "hidden_norm.weight": {width}, "norm.weight": {width},
		"layers.0.input_layernorm.weight": {width}, "layers.0.post_attention_layernorm.weight": {width},
		"layers.0.self_attn.q_proj.weight": {64, width}, "layers.0.self_attn.k_proj.weight": {64, width}, "layers.0.self_attn.v_proj.weight": {64, width},
		"layers.0.self_attn.o_proj.weight": {width, 64}, "layers.0.mlp.gate_proj.weight": {64, width}, "layers.0.mlp.up_proj.weight": {64, width},
		"layers.0.mlp.down_proj.weight": {width, 64}, "markov_head.markov_w1.weight": {vocab, rank}, "markov_head.markov_w2.weight": {vocab, rank},
		"markov_head.gate_proj.weight": {rank, width + rank}, "markov_head.gate_proj.bias": {rank},
	})
	dir := t.TempDir()
	golden.Write(t, dir, []byte(`{"hidden_size": 128, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 32, "vocab_size": 512,
		"block_size": 4, "mask_token_id": 510, "target_layer_ids": [0, 2], "markov_rank": 16, "markov_head_type": "gated"}`), list)
	r := open(t, "dense", dir, backend.Options{})
	s := r.Memory(t, r.d.Block.Layout())
	text := texts(t)[0][:30]
	if err := r.d.Block.Append([]model.Span{{State: s, Hidden: r.taps(t, text[:29], 29)}}); err != nil {
		t.Fatal(err)
	}
	out, err := r.d.Block.Forward([]model.Span{{State: s, Tokens: text[29:], Want: 3}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	base, rows := r.Host(t, out.Logits), r.Host(t, r.d.Last())
	for j, before := range []int32{7, 400, 12} {
		if err := r.d.Block.Follow(j, []int32{before}); err != nil {
			t.Fatal(err)
		}
		e := values["markov_head.markov_w1.weight"][before*rank:][:rank]
		in := append(append([]float32{}, rows[j*width:(j+1)*width]...), e...)
		var gated [rank]float64
		for i := range gated {
			sum := float64(values["markov_head.gate_proj.bias"][i])
			for k, x := range in {
				sum += float64(values["markov_head.gate_proj.weight"][i*len(in)+k]) * float64(x)
			}
			gated[i] = float64(e[i]) / (1 + math.Exp(-sum))
		}
		got := r.Host(t, out.Logits.RowRange(j, j+1))
		for id := range vocab {
			want := float64(base[j*vocab+id])
			for i, x := range gated {
				want += x * float64(values["markov_head.markov_w2.weight"][id*rank+i])
			}
			if math.Abs(float64(got[id])-want) > golden.Tol.Hidden {
				t.Fatalf("draft %d, token %d: logit %v, want %v", j, id, got[id], want)
			}
		}
	}
}
