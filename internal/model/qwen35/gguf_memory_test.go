package qwen35

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint/gguf"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// wideGGUF writes a file of one DeltaNet layer with two value heads for each key head. They are
// 128 columns each, as in the releases: half a superblock.
func wideGGUF(t *testing.T, typ string) string {
	t.Helper()
	var config map[string]any
	filetest.Decode(t, specDense.JSON(), &config)
	text := config["text_config"].(map[string]any)
	for key, n := range map[string]int{
		"vocab_size": 64, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 1, "full_attention_interval": 2,
		"linear_num_key_heads": 8, "linear_num_value_heads": 16, "linear_key_head_dim": 32, "linear_value_head_dim": 128,
	} {
		text[key] = n
	}
	edited := filetest.Encode(t, config)
	cfg, err := parseConfig(t, string(edited), "")
	if err != nil {
		t.Fatal(err)
	}
	l, r := newLlama(t, edited, "qwen35", oneType(typ)), rand.New(rand.NewPCG(3, 9))
	l.metadata()
	l.tokenizer(t, golden.Dir(t, "tiny"))
	add := func(w *weights.Weight) bool {
		x := plainTensor{shape: []int{w.Rows, w.Cols}, v: make([]float32, w.Rows*w.Cols)}
		if w.Rows == 1 {
			x.shape = x.shape[1:]
		}
		for i := range x.v {
			if x.v[i] = float32(r.NormFloat64()); w.IsMatrix() {
				x.v[i] /= 16
			}
		}
		l.tensor(w.Name, x)
		return true
	}
	network.Tables(cfg).Model(add)
	network.Tables(cfg).Head(add)
	return filetest.Write(t, filepath.Join(t.TempDir(), typ+".gguf"), l.out.Bytes())
}

// TestGGUFStaysAtItsSize loads files in superblocks that have columns of two value heads each: they take two percent more
// memory than the file at most. On a GPU, whose kernels read the factors of groups as whole bytes, it is four.
func TestGGUFStaysAtItsSize(t *testing.T) {
	types := []string{"Q4_K", "IQ2_XS"}
	if long {
		types = append(types, "Q5_K", "Q6_K", "IQ4_XS", "IQ3_XXS")
	}
	for _, typ := range types {
		t.Run(fmt.Sprintf("type=%s", typ), func(t *testing.T) {
			path := wideGGUF(t, typ)
			f, err := gguf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			stored := int64(0)
			for _, x := range f.Tensors {
				m, err := x.Matrix()
				if err != nil {
					t.Fatal(err)
				}
				stored += int64(len(m.Data))
			}
			for _, p := range f.Parts {
				if err := p.Close(); err != nil {
					t.Fatal(err)
				}
			}
			r := open(t, path, 1, model.Options{Compute: backend.Int8})
			loaded, most := r.Info().Bytes, stored*102/100
			if !strings.HasPrefix(r.B.Name(), "cpu ") {
				most = stored * 104 / 100
			}
			t.Logf("%d bytes in the file, %d in memory", stored, loaded)
			if loaded > most {
				t.Errorf("%d bytes in memory, %d in the file", loaded, stored)
			}
		})
	}
}

// TestSurveyOfGGUFDecodesNothing: the tensors of such a file are made when they are asked for,
// and a survey must not ask.
func TestSurveyOfGGUFDecodesNothing(t *testing.T) {
	path, _ := convertGGUF(t, golden.Dir(t, "tiny"), "qwen35", oneType("Q8_0"), 1)
	c := openedGGUF(t, path)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s, err := model.Survey(c)
	runtime.ReadMemStats(&after)
	if err != nil || len(s.Missing)+len(s.Unknown)+len(s.Errors) > 0 || s.Parameters != 18_950_320 || !s.Head.Present {
		t.Errorf("%v, %+v", err, s)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 8<<20 {
		t.Errorf("a survey allocated %d bytes", n)
	}
}
