package gemma

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint/gguf/gguftest"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// What TestGGUFOfShape writes for other programs.
var (
	releasedTo     = flag.String("gguf", "", "write a GGUF file of a released size with random weights to this path")
	releasedShape  = flag.String("shape", "gemma-4-26b-a4b", "its size")
	releasedLayers = flag.Int("layers", 0, "about its layers, whole groups of five or six; 0: all")
	releasedType   = flag.String("type", "Q4_0", "type of its matrices")
	releasedEmbed  = flag.String("embedding", "Q6_K", "type of its embedding")
)

// smaller is the size with about as many layers: groups that end with a full layer, of which the share that reads the KV cache of others
// stays as it is, but is one at least.
func (s shape) smaller(layers int) shape {
	groups, own := s.layers/s.every, max(layers/s.every, 1)
	if s.shared > 0 {
		own = max(layers/s.every, 2)
		s.shared = max(s.shared/s.every*own/groups, 1) * s.every
	}
	s.layers = min(own, groups) * s.every
	return s
}

// config is config.json of the size, as metadata reads it.
func (s *shape) config(vocab int) map[string]any {
	var types []any
	for _, k := range s.resolved().kinds {
		types = append(types, kindNames[k])
	}
	c := map[string]any{"layer_types": types, "use_double_wide_mlp": s.double}
	for key, n := range map[string]int{
		"num_hidden_layers": s.layers, "max_position_embeddings": 131072, "hidden_size": s.width, "num_attention_heads": s.heads,
		"global_head_dim": 512, "head_dim": 256, "sliding_window": s.window, "num_kv_shared_layers": s.shared,
		"hidden_size_per_layer_input": s.inputs, "num_experts": s.experts, "top_k_experts": s.topK, "moe_intermediate_size": s.expert,
		"num_key_value_heads": s.kvHeads[sliding], "num_global_key_value_heads": s.kvHeads[full], "intermediate_size": s.inner, "vocab_size": vocab,
	} {
		c[key] = float64(n)
	}
	return c
}

// release writes the size as a GGUF file with random weights: blocks of them, again and again. A prime number of blocks makes the rows of
// a matrix different. Types whose blocks do not fit in rows are Q4_0.
func (l *llama) release(s *shape, vocab, blocks int, typ, embedding string) {
	l.f = &folder{config: s.config(vocab)}
	l.metadata()
	l.words(vocab)
	rng := rand.New(rand.NewPCG(1, 2))
	tiles := map[string][]byte{}
	tile := func(typ string, deviation float64) []byte {
		key := fmt.Sprint(typ, deviation)
		if tiles[key] == nil {
			v := make([]float32, blocks*gguftest.Columns(typ))
			for i := range v {
				v[i] = float32(rng.NormFloat64() * deviation)
			}
			tiles[key], _ = gguftest.Encode(typ, v)
		}
		return tiles[key]
	}
	fits := func(cols int, types ...string) string {
		return types[slices.IndexFunc(types, func(t string) bool { return cols%gguftest.Columns(t) == 0 })]
	}
	c := s.resolved()
	c.Vocab = vocab
	for w := range network.Tables(c).Model {
		name, shape := l.rename(stored(w.Name)), []int{w.Rows, w.Cols}
		if w.Experts > 0 {
			shape = slices.Insert(shape, 0, w.Experts)
		}
		deviation, types := 1/math.Sqrt(float64(w.Cols)), []string{typ, "Q4_0", "F32"}
		switch {
		case w.Kind == weights.Ones || strings.HasSuffix(name, ".ffn_up_exps.weight"): // not stored, or with the gates
			continue
		case w.Rows == 1 && w.Kind != weights.Router:
			ones, _ := gguftest.Encode("F32", slices.Repeat([]float32{1}, w.Cols))
			l.out.AddTiled(name, "F32", shape[1:], ones)
			continue
		case w.Kind == weights.Router:
			deviation, types = 1, []string{"F32"}
		case name == "token_embd.weight":
			types[0] = embedding
		case strings.HasSuffix(name, ".ffn_gate_exps.weight"):
			name = strings.Replace(name, "gate", "gate_up", 1)
			shape[1] *= 2
		}
		t := fits(w.Cols, types...)
		l.out.AddTiled(name, t, shape, tile(t, deviation))
	}
}

// TestGGUFOfShape writes released sizes, by default small ones with everything that they have, and computes with them. With -gguf it
// writes one for other programs:
//
//	go test ./internal/model/gemma -run TestGGUFOfShape -gguf /tmp/26b.gguf -shape gemma-4-26b-a4b -layers 12
func TestGGUFOfShape(t *testing.T) {
	if *releasedTo != "" {
		s, l := *ofShape(t, *releasedShape), llama{}
		if *releasedLayers > 0 {
			s = s.smaller(*releasedLayers)
		}
		l.release(&s, 262144, 8209, *releasedType, *releasedEmbed)
		f, err := os.Create(*releasedTo)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.out.Write(f); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %s, %d layers, %d without a KV cache of their own", *releasedTo, s.name, s.layers, s.shared)
	}
	for i := range releasedShapes {
		for _, typ := range []string{"Q4_0", "Q4_K"} {
			s, l := releasedShapes[i].smaller(0), llama{}
			s.width, s.inner, s.window = 256, 256, 40
			s.experts, s.expert, s.topK = min(s.experts, 4), min(s.expert, 64), min(s.topK, 2)
			l.release(&s, 512, 251, typ, "Q6_K")
			path := filepath.Join(t.TempDir(), "m.gguf")
			if err := os.WriteFile(path, l.out.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			c := openFolder(t, path)
			x, err := model.Survey(c)
			if err != nil || len(x.Missing)+len(x.Unknown)+len(x.Errors) > 0 {
				t.Fatalf("%s, %s: %v, %+v", s.name, typ, err, x)
			}
			for _, row := range answers(t, path, []int32{2, 100, 7}) {
				if lo, hi := slices.Min(row), slices.Max(row); !(lo >= -30 && lo < -0.1 && hi > 0.1 && hi <= 30) {
					t.Errorf("%s, %s: logits from %v to %v", s.name, typ, lo, hi)
				}
			}
		}
	}
}
