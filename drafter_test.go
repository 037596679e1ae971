package foretoken

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/sample"
)

// untrained writes a DSpark drafter for the embedded model with random weights.
func untrained(t *testing.T, width int) string {
	t.Helper()
	const vocab, heads, rows, rank = 8256, 64, 64, 16
	rng := rand.New(rand.NewPCG(1, 2))
	var list []golden.SpecTensor
	add := func(name string, shape ...int) {
		n := 1
		for _, d := range shape {
			n *= d
		}
		values := make([]float32, n)
		for i := range values {
			values[i] = 1 // of a norm
			if len(shape) > 1 {
				values[i] = float32(rng.NormFloat64()) / 16
			}
		}
		list = append(list, golden.SpecTensor{Name: name, Shape: shape, Values: values})
	}
	add("fc.weight", width, 2*width)
	add("hidden_norm.weight", width)
	add("norm.weight", width)
	for _, name := range []string{"input_layernorm", "post_attention_layernorm"} {
		add("layers.0."+name+".weight", width)
	}
	for _, name := range []string{"q_proj", "k_proj", "v_proj"} {
		add("layers.0.self_attn."+name+".weight", heads, width)
	}
	add("layers.0.self_attn.o_proj.weight", width, heads)
	add("layers.0.mlp.gate_proj.weight", rows, width)
	add("layers.0.mlp.up_proj.weight", rows, width)
	add("layers.0.mlp.down_proj.weight", width, rows)
	add("markov_head.markov_w1.weight", vocab, rank)
	add("markov_head.markov_w2.weight", vocab, rank)
	dir := t.TempDir()
	golden.Write(t, dir, fmt.Appendf(nil, `{"architectures": ["Qwen3DSparkModel"], "hidden_size": %d, "intermediate_size": 64, "num_hidden_layers": 1,
		"num_attention_heads": 2, "head_dim": 32, "vocab_size": 8256, "block_size": 6, "mask_token_id": 8255, "target_layer_ids": [1, 5], "markov_rank": 16}`, width), list)
	return dir
}

// TestDraftersChangeNothing compares answers with a drafter, whose drafts are nearly all wrong, with those of plain
// decoding.
func TestDraftersChangeNothing(t *testing.T) {
	dir := untrained(t, 384)
	ask := func(m *Model, temperature float64) (ids []int32, s SpeculationStats) {
		a := collect(t, m, Request{Prompt: m.TextPrompt("One day"), MaxTokens: 30, Depth: 3, Sampling: &sample.Options{Temperature: temperature, Seed: 3}})
		for _, token := range a.Tokens {
			ids = append(ids, token.ID)
		}
		return ids, a.Result.Speculation
	}
	plain := openTiny(t, Options{Speculation: Speculation{Depth: DepthOff}})
	for name, o := range map[string]Options{
		"alone":                       {Speculation: Speculation{Drafter: dir, NoLookup: true, NoSelfTest: true, Head: HeadOff}},
		"with copies":                 {Speculation: Speculation{Drafter: dir, Head: HeadOff}},
		"on disk":                     {Speculation: Speculation{Drafter: dir, NoSelfTest: true}, PrefixCache: PrefixCache{Dir: t.TempDir()}},
		"with a head":                 {Speculation: Speculation{Drafter: dir, Head: HeadRequired}},
		"its layers on other devices": {Device: "opaque,opaque,cpu", Threads: 1, Speculation: Speculation{Drafter: dir, NoSelfTest: true, Head: HeadOff}},
	} {
		m := openTiny(t, o)
		if m.model.Head() == nil != (o.Speculation.Head == HeadOff) || m.SelfTest() == nil != o.Speculation.NoSelfTest {
			t.Errorf("%s: head %v, self-test %v", name, m.model.Head(), m.SelfTest())
		}
		if d := m.Info().Drafter; d == nil || d.Kind != "DSpark" || d.Bytes == 0 || m.Info().Bytes != m.info.Bytes+d.Bytes {
			t.Errorf("%s: %+v", name, m.Info())
		}
		if want := "drafter "; (o.PrefixCache.Dir != "") != strings.Contains(m.identity("x", 0), want) {
			t.Errorf("%s: stored prefixes are those of %q", name, m.identity("x", 0))
		}
		for _, temperature := range []float64{0, 0.8} {
			want, _ := ask(plain, temperature)
			// At a fixed depth the drafter is taken before the head, whatever was measured.
			if got, s := ask(m, temperature); !slices.Equal(got, want) || s.Drafted == 0 || (s.Beside > 0) != (m.model.Head() != nil) {
				t.Errorf("%s: tokens %v with %d drafts, %d of them beside the head, want %v", name, got, s.Drafted, s.Beside, want)
			}
		}
	}
}

// TestSelfTestOfDrafters loads a trained drafter and an untrained one, about which there is a warning.
func TestSelfTestOfDrafters(t *testing.T) {
	for dir, warned := range map[string]bool{golden.TinyDrafter(t).Dir: false, untrained(t, 384): true} {
		var log strings.Builder
		m, err := Open(t.Context(), Tiny, Options{Speculation: Speculation{Drafter: dir}, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
		if err != nil {
			t.Fatal(err)
		}
		v := m.SelfTest()
		if v.Drafter != "DSpark" || (2*v.Accepted[0] < v.Drafted[0]) != warned {
			t.Errorf("%s: %d of %d drafts were accepted", v.Drafter, v.Accepted[0], v.Drafted[0])
		}
		for _, part := range []string{"DSpark: only", "taps", "norms", "kind", "windows", "another model", "foretoken doctor --drafter"} {
			if strings.Contains(log.String(), part) != warned {
				t.Errorf("warned %v of %q: %s", !warned, part, log.String())
			}
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestDraftersThatDoNotFit opens files that are no drafters, or drafters of other models.
func TestDraftersThatDoNotFit(t *testing.T) {
	text := filetest.Write(t, filepath.Join(t.TempDir(), "x.gguf"), "no drafter")
	for want, o := range map[string]Speculation{
		"hidden_size is 128, but the model's hidden rows have 384": {Drafter: untrained(t, 128)},
		"is not a drafter, but a qwen35 model":                     {Drafter: Tiny},
		"is a file, but not a GGUF file":                           {Drafter: filetest.Write(t, filepath.Join(t.TempDir(), "README.md"), "no drafter")},
		"is not a model folder":                                    {Drafter: t.TempDir()},
		"gguf":                                                     {Drafter: text},
	} {
		m, err := Open(t.Context(), Tiny, Options{Speculation: o, Log: silent})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if err == nil {
			_ = m.Close()
		}
	}
}
