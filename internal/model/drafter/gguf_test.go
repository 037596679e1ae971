package drafter_test

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/checkpoint/gguf/gguftest"
	"github.com/foretoken/foretoken/internal/convert"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/drafter"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// fileKeys are keys of config.json that GGUF files have, too.
type fileKeys struct {
	Layers     int      `json:"num_hidden_layers"`
	Block      int      `json:"block_size"`
	Types      []string `json:"layer_types"`
	Window     int      `json:"sliding_window"`
	Causal     *bool    `json:"is_causal"`
	FromAnchor *bool    `json:"sample_from_anchor"`
	DFlash     struct {
		Block  int `json:"block_size"`
		Kernel int `json:"conv_kernel_size"`
		Group  int `json:"conv_group_size"`
		Rank   int `json:"selector_rank"`
		Top    int `json:"selector_top_k"`
	} `json:"dflash_config"`
}

// metadata writes the keys of a GGUF file as its converter does.
func metadata(t *testing.T, g *gguftest.File, f *golden.DrafterFixture, arch string) {
	t.Helper()
	var k fileKeys
	data, err := os.ReadFile(filepath.Join(f.Dir, "config.json"))
	if err == nil {
		err = json.Unmarshal(data, &k)
	}
	if err != nil {
		t.Fatal(err)
	}
	g.Set("general.architecture", arch)
	for key, n := range map[string]int{
		"embedding_length": 128, "feed_forward_length": 192, "block_count": k.Layers, "attention.head_count": 4, "attention.head_count_kv": 2,
		"attention.key_length": 32, "conv_kernel_size": k.DFlash.Kernel, "conv_group_size": k.DFlash.Group, "selector_rank": k.DFlash.Rank,
		"selector_top_k": k.DFlash.Top, "attention.sliding_window": k.Window, "block_size": max(k.Block, k.DFlash.Block),
	} {
		if n > 0 {
			g.Set(arch+"."+key, uint32(n))
		}
	}
	g.Set(arch+".attention.layer_norm_rms_epsilon", float32(1e-6))
	g.Set(arch+".rope.freq_base", float32(1e7))
	g.Set("tokenizer.ggml.mask_token_id", uint32(510))
	var taps []int32
	for _, tap := range f.Taps {
		taps = append(taps, int32(tap))
	}
	g.Set(arch+".target_layers", taps)
	if k.Window > 0 {
		var pattern []bool
		for _, kind := range k.Types {
			pattern = append(pattern, kind == "sliding_attention")
		}
		g.Set(arch+".attention.sliding_window_pattern", pattern)
	}
	for key, b := range map[string]*bool{"attention.causal": k.Causal, "sample_from_anchor": k.FromAnchor} {
		if b != nil {
			g.Set(arch+"."+key, *b)
		}
	}
}

// converted writes a drafter as a GGUF file.
func converted(t *testing.T, f *golden.DrafterFixture) string {
	t.Helper()
	arch := "dflash"
	if strings.HasPrefix(f.Name, "eagle3") {
		arch = "eagle3"
	}
	g := &gguftest.File{}
	metadata(t, g, f, arch)
	c, err := checkpoint.Open(f.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // read only
	for _, name := range c.Tensors() {
		to := drafter.GGUFName(name, arch)
		if to == "" {
			continue
		}
		x, err := c.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		typ, data := gguftest.Types["BF16"], slices.Clone(x.Data)
		switch {
		case name == "d2t":
			typ = 27
			for i := range len(data) / 8 {
				id := binary.LittleEndian.Uint64(data[8*i:]) + uint64(i)
				binary.LittleEndian.PutUint64(data[8*i:], id)
			}
		case arch == "eagle3" && (strings.HasSuffix(name, "q_proj.weight") || strings.HasSuffix(name, "k_proj.weight")):
			data = neighbors(data, x.Shape[0], 32)
		}
		g.AddRaw(to, typ, x.Shape, data)
	}
	path := filepath.Join(t.TempDir(), "drafter.gguf")
	if err := os.WriteFile(path, g.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// neighbors orders the rows of heads so that the pairs of the rotation are neighbors.
func neighbors(data []byte, rows, dim int) []byte {
	size := len(data) / rows
	out := make([]byte, 0, len(data))
	for r := range rows {
		head, i := r/dim*dim, r%dim
		from := head + i/2 + i%2*dim/2
		out = append(out, data[from*size:(from+1)*size]...)
	}
	return out
}

// TestGGUFDraftsAreTheReferences drafts the rounds of the golden files with drafters that were GGUF files and are converted to
// folders. Their surveys are those of the golden files. Files of EAGLE-3.1 do not exist.
func TestGGUFDraftsAreTheReferences(t *testing.T) {
	for _, f := range golden.Drafters(t, "") {
		if f.Name == "eagle31" {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			c, err := model.OpenGGUF(converted(t, f), "")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close() //nolint:errcheck // read only
			dir := filepath.Join(t.TempDir(), "out")
			if _, err := convert.Convert(t.Context(), c, dir, convert.Options{}); err != nil {
				t.Fatal(err)
			}
			r := open(t, f.Target, dir, backend.Options{})
			for i := range f.Cases {
				r.rounds(t, f, i)
			}
			want := surveyed(t, golden.Open(t, f.Dir))
			for _, c := range []*checkpoint.Checkpoint{c, golden.Open(t, dir)} {
				got := surveyed(t, c)
				if got.Loaded != want.Loaded || got.Parameters != want.Parameters || !slices.Equal(got.Drafter.Taps, want.Drafter.Taps) {
					t.Errorf("%s: survey %+v, want %+v", c.Name(), got, want)
				}
			}
		})
	}
}

// surveyed is the survey of a drafter that can be loaded.
func surveyed(t *testing.T, c *checkpoint.Checkpoint) *weights.Survey {
	t.Helper()
	s, err := model.Survey(c)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Errors)+len(s.Missing)+len(s.Unknown) > 0 || s.Loaded == 0 || s.Drafter == nil {
		t.Errorf("%s: %+v", c.Name(), s)
	}
	return s
}

// TestGGUFFilesThatAreRefused names files that are not drafters.
func TestGGUFFilesThatAreRefused(t *testing.T) {
	for want, write := range map[string]func(*gguftest.File){
		`architecture "llama" is not supported; supported: dflash, eagle3`: func(g *gguftest.File) { g.Set("general.architecture", "llama") },
		`the metadata have no key "dflash.embedding_length"`:               func(g *gguftest.File) { g.Set("general.architecture", "dflash") },
		`tensor "rope_freqs.weight": scaled rotations are not supported`: func(g *gguftest.File) {
			metadata(t, g, golden.Drafters(t, "")[3], "eagle3")
			g.Add("rope_freqs.weight", "F32", []int{16}, make([]float32, 16))
		},
		`tensor "blk.0.other.weight": it is not part of a drafter of the architecture dflash`: func(g *gguftest.File) {
			metadata(t, g, golden.Drafters(t, "")[0], "dflash")
			g.Add("blk.0.other.weight", "F32", []int{16}, make([]float32, 16))
		},
	} {
		g := &gguftest.File{}
		write(g)
		path := filepath.Join(t.TempDir(), "x.gguf")
		if err := os.WriteFile(path, g.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := model.OpenGGUF(path, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
