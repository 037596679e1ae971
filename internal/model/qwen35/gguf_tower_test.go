package qwen35

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/checkpoint/gguf/gguftest"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/qwen35/vision"
	"github.com/foretoken/foretoken/internal/picture"
)

// llamaTower is the converter's names of a tower.
var llamaTower = strings.NewReplacer(
	"patch_embed.proj.", "v.patch_embd.", "pos_embed.", "v.position_embd.", "merger.norm.", "v.post_ln.",
	"merger.linear_fc1.", "mm.0.", "merger.linear_fc2.", "mm.2.", "blocks.", "v.blk.",
	"norm1.", "ln1.", "norm2.", "ln2.", "attn.qkv.", "attn_qkv.", "attn.proj.", "attn_out.", "mlp.linear_fc1.", "ffn_up.", "mlp.linear_fc2.", "ffn_down.",
)

// projector makes a GGUF file of the tower of a folder, as llama.cpp's converter does. The folder's
// tower becomes what the file stands for. Some keys have other values.
func projector(t *testing.T, f *folder, choose func(name string, cols int) string, other map[string]any) *gguftest.File {
	t.Helper()
	out := &gguftest.File{}
	set := func(key string, x any) {
		if other[key] == nil {
			out.Set(key, x)
		}
	}
	for key, x := range other {
		out.Set(key, x)
	}
	v := f.config["vision_config"].(map[string]any)
	set("general.architecture", "clip")
	set("clip.has_vision_encoder", true)
	set("clip.projector_type", "qwen3vl_merger")
	set("clip.use_gelu", true)
	for key, name := range map[string]string{
		"embedding_length": "hidden_size", "feed_forward_length": "intermediate_size", "block_count": "depth",
		"projection_dim": "out_hidden_size", "attention.head_count": "num_heads",
	} {
		set("clip.vision."+key, uint32(number(t, v[name])))
	}
	set("clip.vision.patch_size", uint32(16))
	set("clip.vision.spatial_merge_size", uint32(2))
	set("clip.vision.image_size", uint32(128))
	set("clip.vision.attention.layer_norm_epsilon", float32(1e-6))
	set("clip.vision.image_mean", []float32{0.5, 0.25, 0.5})
	set("clip.vision.image_std", []float32{0.5, 0.5, 0.125})
	set("clip.vision.is_deepstack_layers", make([]bool, number(t, v["depth"])))
	f.each(func(x *tensor) {
		short, ok := strings.CutPrefix(x.name, "model.visual.")
		if !ok {
			return
		}
		name, values := llamaTower.Replace(short), x.values()
		n := x.shape
		switch {
		case len(n) == 5:
			pixels := n[3] * n[4]
			for frame := range 2 {
				var half []float32
				for i := range n[0] * n[1] {
					half = append(half, values[(2*i+frame)*pixels:][:pixels]...)
				}
				suffix := []string{"", ".1"}[frame]
				out.Add(name+suffix, choose("kernel", 0), []int{n[0], n[1], n[3], n[4]}, half)
			}
		case len(n) == 2 && short != "pos_embed.weight":
			x.set(out.Add(name, choose(name, n[1]), n, values))
		default:
			out.Add(name, "F32", n, values)
		}
	})
	return out
}

// number is a number of a config, as it was made or read.
func number(t *testing.T, x any) int {
	t.Helper()
	switch n := x.(type) {
	case int:
		return n
	case float64:
		return int(n)
	}
	t.Fatalf("%v is no number", x)
	return 0
}

// plainly stores the kernel as numbers, and other matrices as types in turn.
func plainly(kernel string, choose func(string, int) string) func(string, int) string {
	return func(name string, cols int) string {
		if name == "kernel" {
			return kernel
		}
		return choose(name, cols)
	}
}

// put writes a file and returns its path.
func put(t *testing.T, dir, name string, f *gguftest.File) string {
	t.Helper()
	return filetest.Write(t, filepath.Join(dir, name), f.Bytes())
}

// TestGGUFTowerIsTheSame: a projector beside a GGUF model gives the bits of the tower in the
// checkpoint that both were made from, in every type.
func TestGGUFTowerIsTheSame(t *testing.T) {
	for name, choose := range map[string]func(string, int) string{
		"F32": oneType("F32"), "BF16": oneType("BF16"), "Q8_0": plainly("F32", oneType("Q8_0")), "mixed": plainly("F32", mixed()),
	} {
		t.Run("type="+name, func(t *testing.T) {
			source := visionFolder(t)
			if name != "BF16" {
				source.edit(t, wideTower)
			}
			path, _ := convertGGUF(t, source.write(t), "qwen35", oneType("BF16"), 1)
			tower := projector(t, source, choose, nil)
			put(t, filepath.Dir(path), "mmproj-F16.gguf", tower)
			source.each(func(x *tensor) { // what was rounded may need more
				if inTower(x.name) {
					*x = numbers(x.name, dtype.F32, x.shape, x.values())
				}
			})
			o := model.Options{Compute: backend.Float32}
			want := encoded(t, source, o)
			r := open(t, path, 1, o)
			same(t, "rows", see(t, towerOf(t, r), vision.StepOperations, onePicture(t)), want)
		})
	}
}

// TestGGUFTowerSaysHowToPreparePictures: the files that other checkpoints have are made of the
// metadata, and the sum is over the tower too.
func TestGGUFTowerSaysHowToPreparePictures(t *testing.T) {
	source := visionFolder(t)
	path, _ := convertGGUF(t, source.write(t), "qwen35", oneType("BF16"), 1)
	blind := openedGGUF(t, path)
	if _, err := blind.ReadFile("preprocessor_config.json"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a tower: %v", err)
	}
	put(t, filepath.Dir(path), "mmproj.gguf", projector(t, source, oneType("BF16"), map[string]any{"clip.vision.image_max_pixels": uint32(1 << 20)}))
	c := openedGGUF(t, path)
	text, err := c.ReadFile("preprocessor_config.json")
	if err != nil {
		t.Fatal(err)
	}
	p, err := picture.ReadImages(text)
	if err != nil || p.Mean != [3]float32{0.5, 0.25, 0.5} || p.Std != [3]float32{0.5, 0.5, 0.125} || p.MaxPixels != 1<<20 || p.MinPixels != 65536 {
		t.Errorf("images %+v, %v", p, err)
	}
	if text, err = c.ReadFile("video_preprocessor_config.json"); err != nil {
		t.Fatal(err)
	}
	if p, err = picture.ReadVideos(text); err != nil || p.Mean != [3]float32{0.5, 0.25, 0.5} || p.MaxPixels != picture.Videos().MaxPixels {
		t.Errorf("videos %+v, %v", p, err)
	}
	var config struct {
		Text struct {
			Rope struct {
				Sections []int `json:"mrope_section"`
			} `json:"rope_parameters"`
		} `json:"text_config"`
	}
	if err := json.Unmarshal(c.Config(), &config); err != nil || !slices.Equal(config.Text.Rope.Sections, []int{3, 3, 2}) {
		t.Errorf("%v, %+v", err, config)
	}
	a, err := blind.Sum(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := c.Sum(t.Context(), ""); err != nil || a.ID == b.ID {
		t.Errorf("the sum does not depend on the tower: %v", err)
	}
}

// TestGGUFTowerIsFound beside the model: of several that fit the one with the likest name, then the
// smallest. Those that do not fit are no reason to refuse the model.
func TestGGUFTowerIsFound(t *testing.T) {
	source := visionFolder(t)
	path, _ := convertGGUF(t, source.write(t), "qwen35", oneType("BF16"), 1)
	dir := filepath.Dir(path)
	if err := os.Rename(path, filepath.Join(dir, "Some-2B-Q4.gguf")); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "Some-2B-Q4.gguf")
	layers := func(explicit string) int {
		t.Helper()
		c, err := model.OpenGGUF(path, explicit)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close() //nolint:errcheck // read only
		s, err := model.Survey(c)
		if err != nil || s.Tower.Problem != nil {
			t.Fatalf("%v, %v", err, s.Tower.Problem)
		}
		return s.Tower.Layers
	}
	tower := func(blocks int, typ string, other map[string]any) *gguftest.File {
		f := visionFolder(t)
		f.main().take(func(name string) bool {
			for i := blocks; i < 3; i++ {
				if strings.Contains(name, "visual.blocks."+string(rune('0'+i))) {
					return true
				}
			}
			return false
		})
		f.config["vision_config"].(map[string]any)["depth"] = blocks
		return projector(t, f, oneType(typ), other)
	}
	if n := layers(""); n != 0 {
		t.Errorf("a tower of %d layers from nowhere", n)
	}
	put(t, dir, "tower.gguf", tower(3, "F32", nil))
	filetest.Write(t, filepath.Join(dir, "mmproj-broken.gguf"), "GGUF?")
	put(t, dir, "mmproj-Some-2B-Q4.gguf", tower(3, "BF16", map[string]any{"clip.projector_type": "ldp"}))
	if n := layers(""); n != 0 {
		t.Errorf("a tower of %d layers from files that have none", n)
	}
	if n := layers(filepath.Join(dir, "tower.gguf")); n != 3 {
		t.Errorf("a tower of %d layers by its name", n)
	}
	put(t, dir, "mmproj-F32.gguf", tower(2, "F32", nil))
	put(t, dir, "mmproj-F16.gguf", tower(1, "BF16", nil))
	if n := layers(""); n != 1 {
		t.Errorf("a tower of %d layers is not the smallest", n)
	}
	put(t, dir, "mmproj-some-2b-F32.gguf", tower(2, "F32", nil))
	if n := layers(""); n != 2 {
		t.Errorf("a tower of %d layers is not the model's", n)
	}
}

// TestGGUFTowerRefused checks the errors for wrong towers.
func TestGGUFTowerRefused(t *testing.T) {
	source := visionFolder(t)
	path, _ := convertGGUF(t, source.write(t), "qwen35", oneType("BF16"), 1)
	set := func(key string, x any) map[string]any { return map[string]any{key: x} }
	kernels := 0 // parts and other matrices that were stored
	for _, c := range []struct {
		name   string
		other  map[string]any
		extra  string // tensor
		choose func(string, int) string
		words  []string
	}{
		{"a model", set("general.architecture", "qwen35"), "", nil, []string{`architecture "qwen35", want clip`}},
		{"another kind", set("clip.projector_type", "gemma3"), "", nil, []string{"clip.projector_type", "gemma3", "qwen3vl_merger"}},
		{"another kind among several", set("clip.vision.projector_type", "gemma3"), "", nil, []string{"clip.vision.projector_type", "gemma3"}},
		{"another model", set("clip.vision.projection_dim", uint32(2048)), "", nil, []string{"2048", "64", "another model"}},
		{"deepstack", nil, "v.deepstack.1.norm.weight", nil, []string{"v.deepstack.1.norm.weight", "3 blocks"}},
		{"a block too many", nil, "v.blk.3.ln1.weight", nil, []string{"v.blk.3.ln1.weight"}},
		{"another patch", set("clip.vision.patch_size", uint32(14)), "", nil, []string{"v.patch_embd.weight", "14×14"}},
		{"a kernel of two types", nil, "", func(name string, _ int) string {
			if kernels++; name == "kernel" && kernels%2 == 0 {
				return "F32"
			}
			return "BF16"
		}, []string{"v.patch_embd.weight.1", "both parts"}},
		{"no number", set("clip.vision.block_count", "three"), "", nil, []string{"clip.vision.block_count", "not a number"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			choose := c.choose
			if choose == nil {
				choose = oneType("BF16")
			}
			f := projector(t, visionFolder(t), choose, c.other)
			if c.extra != "" {
				f.Add(c.extra, "F32", []int{48}, make([]float32, 48))
			}
			at := put(t, t.TempDir(), "p.gguf", f)
			k, err := model.OpenGGUF(path, at)
			if err == nil {
				_ = k.Close()
				t.Fatal("it was opened")
			}
			checkWords(t, "error", err.Error(), append(c.words, "p.gguf"))
		})
	}
	if _, err := model.OpenGGUF(path, filepath.Join(t.TempDir(), "none.gguf")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	alone := put(t, t.TempDir(), "mmproj.gguf", projector(t, visionFolder(t), oneType("BF16"), nil))
	if _, err := model.OpenGGUF(alone, ""); err == nil || !strings.Contains(err.Error(), "a vision tower without a model") {
		t.Errorf("alone: %v", err)
	}
}

// TestGGUFTowerOfStrangers flips single bits in the header of a projector: it is refused, or the
// model has a tower, or says why it has none.
func TestGGUFTowerOfStrangers(t *testing.T) {
	source := visionFolder(t)
	path, _ := convertGGUF(t, source.write(t), "qwen35", oneType("BF16"), 1)
	data := projector(t, source, oneType("BF16"), nil).Bytes()
	header := bytes.LastIndex(data, []byte("v.post_ln.weight")) + 64
	at := filepath.Join(t.TempDir(), "p.gguf")
	rng := rand.New(rand.NewPCG(16, 1))
	refused, blind, seeing := 0, 0, 0
	for range 200 {
		flipped := bytes.Clone(data)
		flipped[rng.IntN(header)] ^= 1 << rng.IntN(8)
		filetest.Write(t, at, flipped)
		c, err := model.OpenGGUF(path, at)
		if err != nil {
			refused++
			continue
		}
		s, err := model.Survey(c)
		switch {
		case err != nil || len(s.Missing)+len(s.Unknown)+len(s.Errors) > 0:
			t.Errorf("the model is refused: %v, %+v", err, s)
		case s.Tower.Problem != nil || !s.Tower.Present:
			blind++
		default:
			seeing++
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if t.Logf("%d refused, %d blind, %d seeing", refused, blind, seeing); refused == 0 || seeing == 0 {
		t.Error("flips make no difference, or all of it")
	}
}
