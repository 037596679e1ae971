package qwen35

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/qwen35/vision"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/picture"
)

// onePicture is a small one, for towers of any weights.
func onePicture(tb testing.TB) *picture.Patches {
	tb.Helper()
	m := &picture.Image{Width: 96, Height: 64, Pix: make([]byte, 3*96*64)}
	for i := range m.Pix {
		m.Pix[i] = byte(i * i >> 4)
	}
	c := picture.Images()
	c.MinPixels = 1
	p, err := c.Prepare(m, 1)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// encoded is the output of the tower of a folder for an image.
func encoded(t *testing.T, f *folder, o model.Options) [][]float32 {
	t.Helper()
	return see(t, towerOf(t, open(t, f.write(t), 1, o)), vision.StepOperations, onePicture(t))
}

// TestTowerLayoutsAreOneTower stores a tower under every prefix, in every type that loses nothing,
// and in several files.
func TestTowerLayoutsAreOneTower(t *testing.T) {
	retype := func(typ dtype.Type) edit {
		return func(_ *testing.T, f *folder) {
			f.each(func(x *tensor) {
				if inTower(x.name) {
					*x = numbers(x.name, typ, x.shape, x.values())
				}
			})
		}
	}
	list := []layout{
		{"float32", []edit{retype(dtype.F32)}},
		{"mlx", []edit{mlx, mlxTower}},
		{"mlx in float32", []edit{mlx, mlxTower, retype(dtype.F32)}},
		{"shards", []edit{sharded(3, "")}},
		{"frequencies", []edit{with(some("model.visual.rotary_pos_emb.inv_freq"))}},
		{"other names", []edit{configure(func(_, top map[string]any) {
			v := top["vision_config"].(map[string]any)
			v["model_type"] = "qwen3_5_moe_vision"
			delete(v, "deepstack_visual_indexes")
			for _, usual := range []string{"hidden_act", "in_channels", "patch_size", "spatial_merge_size", "temporal_patch_size"} {
				delete(v, usual)
			}
		})}},
	}
	for _, p := range []string{"visual.", "model.language_model.visual.", "language_model.visual.", "vision_tower.", "model.vision_tower."} {
		list = append(list, layout{"prefix " + p, []edit{rename("model.visual.", p)}})
	}
	want := encoded(t, visionFolder(t), model.Options{})
	for _, l := range list {
		t.Run("layout="+l.name, func(t *testing.T) {
			same(t, "rows", encoded(t, visionFolder(t).edit(t, l.edits...), model.Options{}), want)
		})
	}
}

// wideTower gives a folder a tower whose rows can be cut into groups.
func wideTower(t *testing.T, f *folder) {
	t.Helper()
	v := &vision.Config{
		Depth: 2, Width: 128, Heads: 4, Intermediate: 160, Output: 64,
		Patch: 16, Temporal: 2, Merge: 2, Positions: 17, Channels: 3, Activation: vision.Activation,
	}
	f.config["vision_config"] = map[string]any{
		"depth": v.Depth, "hidden_size": v.Width, "num_heads": v.Heads, "intermediate_size": v.Intermediate,
		"out_hidden_size": v.Output, "num_position_embeddings": v.Positions,
	}
	f.main().take(inTower)
	n := uint32(1)
	for w := range vision.New(v).Weights() {
		x := make([]float32, w.Rows*w.Cols)
		for i := range x {
			n = n*1664525 + 1013904223
			x[i] = float32(int32(n)>>16) / (1 << 18)
		}
		shape := []int{w.Rows, w.Cols}
		switch {
		case w.Kind == weights.Kernel:
			shape = append([]int{w.Rows}, w.Kernel[:]...)
		case !w.IsMatrix():
			shape = shape[1:]
		}
		f.main().add(numbers("model."+w.Name, dtype.F32, shape, x))
	}
}

// TestTowerEncodedEqualsDecoded stores the matrices of a tower in every encoding and, decoded, as
// numbers. On the float path both must give the same bits. A layer that is quantized has both a
// bias and biases; rows that no group divides stay as they are.
func TestTowerEncodedEqualsDecoded(t *testing.T) {
	for _, e := range encodings() {
		if e.tolerance != 0 {
			continue // of how factors of whole matrices round, which others have no more to say about
		}
		t.Run("encoding="+e.name, func(t *testing.T) {
			coded := visionFolder(t).edit(t, wideTower)
			if strings.HasPrefix(e.name, "fp8") {
				coded.config["quantization_config"] = map[string]any{"quant_method": "fp8", "weight_block_size": []int{48, 64}}
			}
			plain := coded.clone()
			plain.main().tensors = nil
			var tensors []tensor
			count := 0
			for _, x := range coded.main().tensors {
				if !inTower(x.name) || !(coding{e, everything}).fits(&x) {
					tensors = append(tensors, x)
					plain.main().add(x)
					continue
				}
				count++
				parts, values := e.stack(t, &x)
				tensors = append(tensors, parts...)
				plain.main().add(numbers(x.name, x.typ, x.shape, values))
			}
			if coded.main().tensors = tensors; count < 9 {
				t.Fatalf("only %d matrices are encoded", count)
			}
			o := model.Options{Compute: backend.Float32}
			want := encoded(t, plain, o)
			same(t, "rows", encoded(t, coded, o), want)
			// Integer products round activations to 8 bits.
			if err := near(encoded(t, coded, model.Options{})[0], want[0], 0.05); err != nil {
				t.Errorf("integers: %v", err)
			}
		})
	}
}

// TestTowerQuantizedOnLoad is near the one that is not: matrices get 8 bits, whatever the model does.
func TestTowerQuantizedOnLoad(t *testing.T) {
	f := visionFolder(t).edit(t, wideTower)
	want := encoded(t, f, model.Options{})
	got := encoded(t, f, model.Options{Quantize: 4})
	if err := near(got[0], want[0], 0.02); err != nil {
		t.Error(err)
	}
	if slices.Equal(got[0], want[0]) {
		t.Error("nothing was quantized")
	}
}

// TestTowerThatCannotBeUsed leaves a text model, which says why.
func TestTowerThatCannotBeUsed(t *testing.T) {
	vision := func(change func(v map[string]any)) edit {
		return configure(func(_, top map[string]any) { change(top["vision_config"].(map[string]any)) })
	}
	set := func(key string, x any) edit { return vision(func(v map[string]any) { v[key] = x }) }
	drop := func(match func(name string) bool) edit {
		return func(_ *testing.T, f *folder) { f.main().take(match) }
	}
	reshape := func(suffix string, shape ...int) edit {
		return func(t *testing.T, f *folder) {
			x := f.find(t, suffix)
			*x = numbers(x.name, x.typ, shape, make([]float32, weights.Elements(shape)))
		}
	}
	for _, c := range []struct {
		name  string
		edits []edit
		words []string
	}{
		{"a tensor is missing", []edit{without("visual.blocks.2.norm2.bias")}, []string{"incomplete", "visual.blocks.2.norm2.bias"}},
		{"most are missing", []edit{drop(func(name string) bool {
			return inTower(name) && !strings.HasSuffix(name, "pos_embed.weight")
		})}, []string{"incomplete: tensor is missing: visual.patch_embed.proj.weight, visual.patch_embed.proj.bias", "more"}},
		{"another shape", []edit{reshape("blocks.1.attn.qkv.weight", 144, 40)}, []string{"blocks.1.attn.qkv.weight", "[144, 40]", "[144, 48]"}},
		{"another bias", []edit{reshape("merger.linear_fc2.bias", 63)}, []string{"merger.linear_fc2.bias", "64 numbers"}},
		{"a kernel of other order", []edit{reshape("patch_embed.proj.weight", 48, 2, 3, 16, 16)}, []string{"patch_embed.proj.weight", "[48 2 3 16 16]", "[48 3 2 16 16]", "[48 2 16 16 3]"}},
		{"a kernel of another size", []edit{reshape("patch_embed.proj.weight", 48, 3, 2, 14, 14)}, []string{"patch_embed.proj.weight", "73728 numbers"}},
		{"one tensor too many", []edit{with(some("model.visual.deepstack_merger_list.0.norm.weight"))}, []string{"1 tensors are not part", "deepstack_merger_list.0.norm.weight"}},
		{"two names for one", []edit{with(some("vision_tower.merger.norm.bias"))}, []string{"both visual.merger.norm.bias"}},
		{"no config", []edit{configure(func(_, top map[string]any) { delete(top, "vision_config") })}, []string{"no vision_config"}},
		{"deepstack", []edit{set("deepstack_visual_indexes", []int{1})}, []string{"deepstack_visual_indexes is [1]"}},
		{"activation", []edit{set("hidden_act", "quick_gelu")}, []string{`hidden_act "quick_gelu"`, "gelu_pytorch_tanh"}},
		{"channels", []edit{set("in_channels", 4), reshape("patch_embed.proj.weight", 48, 4, 2, 16, 16)}, []string{"in_channels is 4"}},
		{"heads", []edit{set("num_heads", 5)}, []string{"hidden_size 48 in 5 heads"}},
		{"odd heads", []edit{set("num_heads", 8)}, []string{"hidden_size 48 in 8 heads", "multiple of 4"}},
		{"output", []edit{set("out_hidden_size", 96)}, []string{"out_hidden_size is 96", "hidden_size of the model is 64"}},
		{"depth", []edit{set("depth", 4)}, []string{"incomplete", "visual.blocks.3.norm1.weight"}},
		{"less depth", []edit{set("depth", 2)}, []string{"12 tensors are not part", "visual.blocks.2"}},
		{"no number", []edit{set("depth", "three")}, []string{"vision_config", "not a number"}},
		{"no size", []edit{set("patch_size", 0)}, []string{"patch_size is 0"}},
		{"no object", []edit{configure(func(_, top map[string]any) { top["vision_config"] = 7 })}, []string{"vision_config", "object"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log bytes.Buffer
			f := visionFolder(t).edit(t, c.edits...)
			r := open(t, f.write(t), 1, model.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
			tower, err := r.Tower()
			if tower != nil || err == nil {
				t.Fatalf("tower %v, %v", tower, err)
			}
			checkWords(t, "error", err.Error(), c.words)
			if !strings.Contains(log.String(), "accepts text only") {
				t.Errorf("no warning: %s", log.String())
			}
			r.Feed(t, model.Span{State: r.Sequence(t), Tokens: []int32{1, 2, 3}, Want: 1})
			k := golden.Open(t, f.write(t))
			s, err := model.Survey(k)
			if err != nil || !s.Tower.Present || s.Tower.Problem == nil || s.Tower.Loaded != 0 {
				t.Errorf("a look says %+v, %v", s.Tower, err)
			}
			v, err := model.Inventory(k, weights.Whole, slog.New(slog.DiscardHandler))
			if err != nil || v.Tower != nil || len(v.Extras) == 0 {
				t.Errorf("inventory: %v", err)
			}
		})
	}
}

// TestTowerOfDense is the incomplete one of a fixture that text tests use.
func TestTowerOfDense(t *testing.T) {
	_, err := open(t, golden.Dir(t, "dense"), 1, model.Options{}).Tower()
	if err == nil || !strings.Contains(err.Error(), "missing: visual.patch_embed.proj.bias") {
		t.Error(err)
	}
}

// TestTowerIsCounted by who loads it, who looks at headers, and who takes an inventory; and costs
// nothing where it is left out.
func TestTowerIsCounted(t *testing.T) {
	dir := golden.Dir(t, "vision")
	r := open(t, dir, 1, model.Options{})
	i := towerOf(t, r).Info()
	if i.Layers != 3 || i.Width != 48 || i.Output != 64 || i.Patch != 16 || i.Temporal != 2 || i.Merge != 2 || i.PatchBytes < 4*4*48 {
		t.Errorf("%+v", i)
	}
	c := golden.Open(t, dir)
	s, err := model.Survey(c)
	if err != nil {
		t.Fatal(err)
	}
	if w := s.Tower; !w.Promised || !w.Present || w.Problem != nil || w.Layers != 3 || w.Width != 48 || w.Heads != 4 ||
		w.Patch != 16 || w.Temporal != 2 || w.Merge != 2 || w.Parameters != i.Parameters {
		t.Errorf("a look says %+v, a tower %+v", w, i)
	}
	part := s.Parts[slices.IndexFunc(s.Parts, func(p weights.Part) bool { return p.Name == "vision" })]
	if part.Tensors != 9+12*3 || part.Parameters != i.Parameters || part.Bytes != 2*i.Parameters || part.Bits != 16 || !slices.Equal(part.Encodings, []string{"bf16"}) {
		t.Errorf("part %+v", part)
	}
	v, err := model.Inventory(c, weights.Whole, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	parameters := int64(0)
	for j := range v.Tower {
		if w := &v.Tower[j]; !w.Tower() || !strings.HasPrefix(v.Converted.Name(w.Name), "vision_tower.") {
			t.Errorf("%s becomes %s", w.Name, v.Converted.Name(w.Name))
		}
		parameters += v.Tower[j].Parameters()
	}
	if parameters != i.Parameters || len(v.Extras) != 9+12*3 || slices.ContainsFunc(v.Weights, func(w weights.Weight) bool { return w.Tower() }) {
		t.Errorf("inventory: %d parameters in %d weights, %d extras", parameters, len(v.Tower), len(v.Extras))
	}
	blind := open(t, dir, 1, model.Options{NoVision: true})
	if tower, err := blind.Tower(); tower != nil || err != nil {
		t.Errorf("left out: %v, %v", tower, err)
	}
	if saved := r.Info().Bytes - blind.Info().Bytes; saved != i.Bytes || r.Info().Parameters != blind.Info().Parameters {
		t.Errorf("%d bytes less without a tower of %d", saved, i.Bytes)
	}
	textOnly := visionFolder(t)
	textOnly.main().take(inTower)
	if tower, err := open(t, textOnly.write(t), 1, model.Options{}).Tower(); tower != nil || err != nil {
		t.Errorf("without tensors: %v, %v", tower, err)
	}
}

// TestTowerTakesNothingElse than images that were prepared for it, and gives back its memory.
func TestTowerTakesNothingElse(t *testing.T) {
	r := open(t, golden.Dir(t, "vision"), 1, model.Options{})
	tower := towerOf(t, r)
	c := picture.Images()
	c.Patch = 14
	other, err := c.Prepare(&picture.Image{Width: 56, Height: 56, Pix: make([]byte, 3*56*56)}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tower.Begin([]*picture.Patches{onePicture(t), other}); err == nil || !strings.Contains(err.Error(), "image 2") {
		t.Errorf("patches of 14 pixels: %v", err)
	}
	none, err := tower.Begin(nil)
	if err != nil {
		t.Fatal(err)
	}
	if done, err := none.Step(); !done || err != nil {
		t.Errorf("no images: %v, %v", done, err)
	}
	none.Close()
	p, err := tower.Begin([]*picture.Patches{onePicture(t), onePicture(t)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Step(); err != nil {
		t.Fatal(err)
	}
	p.Close()
	p.Close()
	if _, err := p.Step(); err == nil {
		t.Error("a closed pass goes on")
	}
	defer func() {
		if fmt.Sprint(recover()) == "<nil>" {
			t.Error("rows of a closed pass were handed out")
		}
	}()
	p.Take(0)
}
