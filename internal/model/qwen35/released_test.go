package qwen35

import (
	"bytes"
	"flag"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint/gguf/gguftest"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// What TestGGUFOfShape writes for other programs.
var (
	releasedTo    = flag.String("gguf", "", "write a GGUF file of a released size with random weights to this path")
	releasedShape = flag.String("shape", "2b", "its size, one without experts")
	releasedType  = flag.String("type", "Q4_0", "type of its matrices")
)

// release writes a size without experts and without a head as a GGUF file with random weights: blocks of them, again and again. A prime
// number of blocks makes the rows of a matrix different. The embedding is Q6_K, as in files of llama.cpp.
func release(t *testing.T, s *shape, vocab, blocks int, typ string) *llama {
	t.Helper()
	l := &llama{arch: "qwen35"}
	l.text = map[string]any{"rms_norm_eps": 1e-6, "rope_parameters": map[string]any{
		"rope_theta": 1e7, "partial_rotary_factor": 0.25, "mrope_section": []any{11., 11., 10.},
	}}
	for key, n := range map[string]int{
		"num_hidden_layers": s.layers, "mtp_num_hidden_layers": 0, "max_position_embeddings": 262144, "hidden_size": s.hidden,
		"num_attention_heads": s.heads, "num_key_value_heads": s.kvHeads, "head_dim": 256, "linear_conv_kernel_dim": 4,
		"linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": s.keyHeads, "linear_num_value_heads": s.valueHeads,
		"intermediate_size": s.intermediate, "full_attention_interval": 4, "vocab_size": vocab,
	} {
		l.text[key] = float64(n)
	}
	l.metadata()
	l.tokenizer(t, golden.Dir(t, "tiny"))
	rng := rand.New(rand.NewPCG(1, 2))
	tiles := map[string][]byte{}
	tile := func(typ string, cols int) []byte {
		if tiles[typ] == nil {
			v := make([]float32, blocks*gguftest.Columns(typ))
			for i := range v {
				v[i] = float32(rng.NormFloat64() / math.Sqrt(float64(cols)))
			}
			tiles[typ], _ = gguftest.Encode(typ, v)
		}
		return tiles[typ]
	}
	c := s.config()
	c.Vocab, c.MTPLayers = vocab, 0
	for w := range network.Tables(c).Model {
		name, shape := l.rename(w.Name), []int{w.Rows, w.Cols}
		switch {
		case w.Rows == 1: // norms, and what decays
			x := float32(1)
			if strings.HasSuffix(name, "ssm_a") {
				x = -1
			}
			ones, _ := gguftest.Encode("F32", slices.Repeat([]float32{x}, w.Cols))
			l.out.AddTiled(name, "F32", shape[1:], ones)
		case w.Kind == weights.Conv:
			l.out.AddTiled(name, "F32", shape, tile("F32", w.Cols))
		case name == "token_embd.weight":
			l.out.AddTiled(name, "Q6_K", shape, tile("Q6_K", w.Cols))
		default:
			l.out.AddTiled(name, typ, shape, tile(typ, w.Cols))
		}
	}
	return l
}

// TestGGUFOfShape writes a small size and computes with it. With -gguf it writes a released one for other programs:
//
//	go test ./internal/model/qwen35 -run TestGGUFOfShape -gguf /tmp/2b.gguf -shape 2b -type Q4_K
func TestGGUFOfShape(t *testing.T) {
	if *releasedTo != "" {
		i := slices.IndexFunc(releasedShapes, func(s shape) bool { return s.name == *releasedShape && s.experts == 0 })
		if i < 0 {
			t.Fatalf("no size %s without experts", *releasedShape)
		}
		f, err := os.Create(*releasedTo)
		if err != nil {
			t.Fatal(err)
		}
		if err := release(t, &releasedShapes[i], releasedVocab, 8209, *releasedType).out.Write(f); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	small := shape{layers: 4, hidden: 256, intermediate: 512, heads: 2, kvHeads: 1, keyHeads: 2, valueHeads: 4, tied: true}
	got := release(t, &small, 512, 13, "Q4_K").out.Bytes()
	if runtime.GOARCH == "amd64" && !bytes.Equal(got, filetest.Read(t, golden.KFile(t))) { // other processors may fuse operations of the encoder
		t.Error("golden.KFile is another file: compress this one with gzip as internal/golden/testdata/k.gguf.gz: " + filetest.Write(t, filepath.Join(os.TempDir(), "k.gguf"), got))
	}
	for _, typ := range []string{"Q4_0", "Q4_K"} {
		path := filepath.Join(t.TempDir(), "m.gguf")
		if err := os.WriteFile(path, release(t, &small, 5000, 251, typ).out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		r := open(t, path, 1, model.Options{Log: slog.New(slog.DiscardHandler)})
		logits, _ := r.Feed(t, model.Span{State: r.Sequence(t), Tokens: []int32{2, 100, 7}, Want: 3})
		for _, row := range logits {
			if lo, hi := slices.Min(row), slices.Max(row); !(lo > -100 && lo < -0.1 && hi > 0.1 && hi < 100) {
				t.Errorf("%s: logits from %v to %v", typ, lo, hi)
			}
		}
	}
}
