package qwen35

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
)

// layout is a way to store a model.
type layout struct {
	name  string
	edits []edit
}

// layouts are the ways any model may be stored. Norms are float32 throughout: 1+w is
// then rounded once whether the file or the loader adds it, so all layouts must give the
// same bits.
func layouts() []layout {
	list := []layout{
		{"shards", []edit{sharded(3, "")}},
		{"shards with the head in its own", []edit{sharded(2, "model-00003-of-00003.safetensors")}},
		{"shards with the head in an indexed mtp.safetensors", []edit{sharded(2, "mtp.safetensors")}},
		{"raw with metadata", []edit{metadata(mainFile, "pt")}},
		{"vision", []edit{towerTensors}},
		{"text only", []edit{flat, rename(released, "model.")}},
		{"bare prefix", []edit{flat, rename(released, "")}},
		{"prefix language_model", []edit{rename(released, "language_model.")}},
		{"prefix language_model.model", []edit{rename(released, "language_model.model.")}},
		{"prefix model.language_model.model", []edit{rename(released, "model.language_model.model.")}},
		{"output language_model.lm_head", []edit{rename("lm_head.", "language_model.lm_head.")}},
		{"output model.lm_head", []edit{rename("lm_head.", "model.lm_head.")}},
		{"output model.language_model.lm_head", []edit{rename("lm_head.", released+"lm_head.")}},
		{"head model.mtp", []edit{rename("mtp.", "model.mtp.")}},
		{"head language_model.mtp", []edit{rename("mtp.", "language_model.mtp.")}},
		{"head model.language_model.mtp", []edit{rename("mtp.", released+"mtp.")}},
		{"head language_model.model.mtp", []edit{rename("mtp.", "language_model.model.mtp.")}},
		{"converted", []edit{mlx}},
		{"converted with vision", []edit{mlx, towerTensors}},
		{"converted, unmarked", []edit{mlx, metadata(mainFile, "")}},
		{"converted and marked, raw convolution shape", []edit{shifted(everything), mlxNames, metadata(mainFile, "mlx")}},
		{"converted, unmarked, raw head inside", []edit{mlx, metadata(mainFile, ""), unshifted(inHead)}},
		{"convolution of two dimensions", []edit{convShape(2)}},
		{"old exponents", []edit{with(numbers(released+"layers.3.self_attn.rotary_emb.inv_freq", dtype.F32, []int{2}, []float32{1, 2}))}},
		{"fused projections", []edit{qwen3Next}},
	}
	return slices.Concat(list, sidecarLayouts(), configLayouts())
}

// sidecarLayouts have the head in a file of its own.
func sidecarLayouts() []layout {
	const gamma = `{"artifact_schema_version": 1, "rmsnorm_weight_format": "mlx_gamma"}`
	const inFolder = "mtp/weights.safetensors"
	return []layout{
		{"raw mtp.safetensors", []edit{sidecar("mtp.safetensors")}},
		{"converted mtp.safetensors by a raw model", []edit{shifted(inHead), sidecar("mtp.safetensors")}},
		{"marked mtp.safetensors by a raw model", []edit{shifted(inHead), sidecar("mtp.safetensors"), metadata("mtp.safetensors", "mlx")}},
		{"raw mtp.safetensors by a converted model", []edit{mlx, unshifted(inHead), sidecar("mtp.safetensors")}},
		{"converted mtp.safetensors by a converted model", []edit{mlx, sidecar("mtp.safetensors")}},
		{"mtp.safetensors with vision", []edit{sidecar("mtp.safetensors"), func(_ *testing.T, f *folder) {
			f.files["mtp.safetensors"].add(some("model.visual.blocks.0.norm1.weight"))
		}}},
		{"model-mtp.safetensors", []edit{sidecar("model-mtp.safetensors")}},
		{"model-mtp.safetensors, long names", []edit{rename("mtp.", "language_model.mtp."), sidecar("model-mtp.safetensors")}},
		{"model-mtp.safetensors beside an index", []edit{sidecar("model-mtp.safetensors"), sharded(2, "")}},
		{"mtp folder with manifest", []edit{shifted(inHead), sidecar(inFolder), manifest(gamma)}},
		{"mtp folder with manifest by a converted model", []edit{mlx, sidecar(inFolder), manifest(gamma)}},
		{"mtp folder without manifest", []edit{sidecar(inFolder)}},
		{"mtp folder with a manifest that says nothing", []edit{sidecar(inFolder), manifest("{}")}},
		{"split drafter", []edit{shifted(inHead), sidecar(inFolder), rename("mtp.", ""), metadata(inFolder, "mlx")}},
		{"head inside and beside", []edit{otherHead("mtp.safetensors")}},
		{"two heads beside", []edit{otherHead("model-mtp.safetensors"), sidecar("mtp.safetensors")}},
	}
}

// configLayouts say the same in other words.
func configLayouts() []layout {
	return []layout{
		{"head promised under its other name", []edit{configure(func(text, _ map[string]any) {
			delete(text, "mtp_num_hidden_layers")
			text["num_nextn_predict_layers"] = 1
		})}},
		{"head promised at the top", []edit{configure(func(text, top map[string]any) {
			delete(text, "mtp_num_hidden_layers")
			top["num_nextn_predict_layers"] = 1
		})}},
		{"head not promised", []edit{configure(func(text, _ map[string]any) { delete(text, "mtp_num_hidden_layers") })}},
		{"old place of the rotation", []edit{configure(func(text, _ map[string]any) {
			r := text["rope_parameters"].(map[string]any)
			text["rope_theta"], text["partial_rotary_factor"] = r["rope_theta"], r["partial_rotary_factor"]
			text["rope_scaling"] = map[string]any{"type": "default", "mrope_section": []int{1, 1, 0}}
			delete(text, "rope_parameters")
		})}},
		{"no rope_scaling", []edit{configure(func(text, _ map[string]any) {
			r := text["rope_parameters"].(map[string]any)
			text["rope_theta"], text["partial_rotary_factor"] = r["rope_theta"], r["partial_rotary_factor"]
			text["rope_scaling"] = nil
			delete(text, "rope_parameters")
		})}},
		{"layer types", []edit{configure(func(text, _ map[string]any) {
			const linear = "linear_attention"
			text["layer_types"] = []string{linear, linear, linear, "full_attention"}
			text["full_attention_interval"] = 7 // the list counts
		})}},
		{"layer types null", []edit{configure(func(text, _ map[string]any) { text["layer_types"] = nil })}},
		{"tie in the text config", []edit{configure(func(text, top map[string]any) {
			delete(top, "tie_word_embeddings")
			text["tie_word_embeddings"] = false
		})}},
		{"later fields", []edit{configure(func(text, top map[string]any) {
			text["output_gate_type"], text["mamba_ssm_dtype"], text["mlp_only_layers"] = "swish", "float32", []int{}
			text["mtp_use_dedicated_embeddings"], text["mtp_hidden_state_mode"] = false, "post_norm"
			top["vision_config"], top["image_token_id"] = map[string]any{"depth": 27}, 248056
		})}},
	}
}

// expertLayouts are the ways experts may be stored, in model and head independently.
func expertLayouts() []layout {
	ways := []layout{{"fused", nil}, {"separate", []edit{separateExperts}}, {"switch", []edit{switchExperts}}}
	list := make([]layout, 0, 2*len(ways)*len(ways))
	for _, base := range ways {
		for _, head := range ways {
			name := fmt.Sprintf("experts %s, of the head %s", base.name, head.name)
			raw := []edit{in(released, base.edits...), in("mtp.", head.edits...)}
			list = append(list, layout{name, raw}, layout{name + ", converted", append(slices.Clone(raw), mlx)})
		}
	}
	return list
}

// TestOpenLayoutsAreOneModel stores the models of the specification in every layout.
// The loaded models must agree in every bit of their logits.
func TestOpenLayoutsAreOneModel(t *testing.T) {
	for _, c := range golden.SpecCases() {
		want := answers(t, c.Config.Checkpoint(t), golden.SpecPrompt)
		list := layouts()
		if c.Config.Experts > 0 {
			list = append(list, expertLayouts()...)
		}
		for _, l := range list {
			t.Run(fmt.Sprintf("model=%s/layout=%s", c.Config.Name, l.name), func(t *testing.T) {
				dir := specFolder(t, c.Config, l.edits...).write(t)
				same(t, "logits", answers(t, dir, golden.SpecPrompt), want)
			})
		}
	}
}

// TestOpenUsesEveryTensor changes the stored tensors one by one. Each must change the
// answer, or equal answers would prove nothing of it.
func TestOpenUsesEveryTensor(t *testing.T) {
	for _, c := range golden.SpecCases()[2:] {
		want := answers(t, c.Config.Checkpoint(t), golden.SpecPrompt)
		for _, x := range c.Config.Tensors() {
			dir := specFolder(t, c.Config, change(x.Name, func(x *tensor) {
				v := x.values()
				for i := range v {
					v[i] += float32(0.1 * float64(i%3+1))
				}
				x.set(v)
			})).write(t)
			if equal(answers(t, dir, golden.SpecPrompt), want) {
				t.Errorf("%s: %s does not matter", c.Config.Name, x.Name)
			}
		}
	}
}

// equal reports whether two lists of rows agree in every bit.
func equal(a, b [][]float32) bool {
	return slices.EqualFunc(a, b, func(x, y []float32) bool {
		return slices.EqualFunc(x, y, func(p, q float32) bool { return math.Float32bits(p) == math.Float32bits(q) })
	})
}

// TestOpenTied holds a tied model, with and without an output matrix that must be
// ignored, against an untied one whose output matrix is the embedding.
func TestOpenTied(t *testing.T) {
	tie := configure(func(_, top map[string]any) { top["tie_word_embeddings"] = true })
	for _, c := range golden.SpecCases() {
		embedding := specFolder(t, c.Config).find(t, "embed_tokens.weight").values()
		copied := change("lm_head.weight", func(x *tensor) { x.set(embedding) })
		want := answers(t, specFolder(t, c.Config, copied).write(t), golden.SpecPrompt)
		for _, l := range []layout{
			{"absent", []edit{tie, without("lm_head.weight")}},
			{"ignored", []edit{tie}},
			{"ignored as language_model.lm_head", []edit{tie, rename("lm_head.", "language_model.lm_head.")}},
			{"ignored as model.lm_head", []edit{tie, rename("lm_head.", "model.lm_head.")}},
			{"text config says so", []edit{without("lm_head.weight"), configure(func(text, top map[string]any) {
				delete(top, "tie_word_embeddings")
				text["tie_word_embeddings"] = true
			})}},
			{"top config counts", []edit{tie, configure(func(text, _ map[string]any) { text["tie_word_embeddings"] = false })}},
			{"converted", []edit{tie, mlx}},
		} {
			t.Run(fmt.Sprintf("model=%s/layout=%s", c.Config.Name, l.name), func(t *testing.T) {
				same(t, "logits", answers(t, specFolder(t, c.Config, l.edits...).write(t), golden.SpecPrompt), want)
			})
		}
	}
}

// TestOpenTypesAreOneModel stores numbers that all three types hold exactly in mixtures
// of them.
func TestOpenTypesAreOneModel(t *testing.T) {
	types := []dtype.Type{dtype.F32, dtype.BF16, dtype.F16}
	for _, c := range golden.SpecCases() {
		want := answers(t, specFolder(t, c.Config, rounded).write(t), golden.SpecPrompt)
		mixes := map[string]func(i int, name string) dtype.Type{
			"bf16": func(int, string) dtype.Type { return dtype.BF16 },
			"f16":  func(int, string) dtype.Type { return dtype.F16 },
			"bf16, decay in f32": func(_ int, name string) dtype.Type {
				if strings.HasSuffix(name, "A_log") || strings.HasSuffix(name, "dt_bias") || strings.HasSuffix(name, "norm.weight") {
					return dtype.F32
				}
				return dtype.BF16
			},
		}
		for shift := range types {
			mixes[fmt.Sprintf("mix %d", shift)] = func(i int, _ string) dtype.Type { return types[(i+shift)%len(types)] }
		}
		for name, mix := range mixes {
			t.Run(fmt.Sprintf("model=%s/types=%s", c.Config.Name, name), func(t *testing.T) {
				dir := specFolder(t, c.Config, rounded, retyped(mix)).write(t)
				same(t, "logits", answers(t, dir, golden.SpecPrompt), want)
			})
		}
	}
}

// rounded rounds all numbers to 6 bits of mantissa and no less than 2⁻⁹, which F32, BF16
// and F16 hold exactly.
func rounded(_ *testing.T, f *folder) {
	f.each(func(x *tensor) {
		v := x.values()
		for i := range v {
			v[i] = float32(math.Round(float64(v[i])*512) / 512)
			v[i] = math.Float32frombits(math.Float32bits(v[i]) &^ (1<<18 - 1))
		}
		x.set(v)
	})
}

// retyped stores tensors in other types, which must hold their numbers.
func retyped(typ func(i int, name string) dtype.Type) edit {
	return func(t *testing.T, f *folder) {
		t.Helper()
		i := 0
		f.each(func(x *tensor) {
			v := x.values()
			*x = numbers(x.name, typ(i, x.name), x.shape, v)
			if !slices.Equal(x.values(), v) {
				t.Fatalf("%s does not fit %v", x.name, x.typ)
			}
			i++
		})
	}
}

// TestOpenWarnsOfASecondHead checks that the head inside the main weights wins, and that
// the other is spoken of.
func TestOpenWarnsOfASecondHead(t *testing.T) {
	for _, file := range []string{"mtp.safetensors", "model-mtp.safetensors", "mtp/weights.safetensors"} {
		c := golden.SpecCases()[0].Config
		dir := specFolder(t, c, otherHead(file)).write(t)
		var log strings.Builder
		o := model.Options{Compute: backend.Float32, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))}
		open(t, dir, 1, o)
		if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), file) {
			t.Errorf("%d warnings, want one that names %s: %s", lines, file, log.String())
		}
	}
}

// unshifted takes the matching norms back to their raw form. Subtracting one from a gain
// between a half and two is exact, so the loader gets the same gain back.
func unshifted(match func(name string) bool) edit {
	return func(_ *testing.T, f *folder) {
		f.each(func(x *tensor) {
			if !isOffsetNorm(x.name) || !match(x.name) {
				return
			}
			v := x.values()
			for i := range v {
				v[i]--
			}
			x.set(v)
		})
	}
}

// otherHead puts a head with other numbers beside the one inside.
func otherHead(file string) edit {
	return func(_ *testing.T, f *folder) {
		w := &weightFile{}
		for _, x := range f.main().tensors {
			if inHead(x.name) {
				v := x.values()
				for i := range v {
					v[i] = -v[i]
				}
				w.add(numbers(x.name, x.typ, x.shape, v))
			}
		}
		f.files[file] = w
	}
}

// qwen3Next stores the model as that older family does: the projections of the linear
// layers together, grouped by key head, and every expert on its own.
func qwen3Next(t *testing.T, f *folder) {
	f.edit(t, flat, separateExperts, rename(released, "model."))
	f.config["model_type"] = "qwen3_next"
	number := func(name string) int { return int(f.config[name].(float64)) }
	groups := number("linear_num_key_heads")
	dk := number("linear_key_head_dim")
	r := number("linear_num_value_heads") / groups
	dv := r * number("linear_value_head_dim")
	const suffix = "in_proj_qkv.weight"
	for _, qkv := range f.main().take(func(name string) bool { return strings.HasSuffix(name, suffix) }) {
		p := strings.TrimSuffix(qkv.name, "qkv.weight")
		rows := map[string][]tensor{"qkv": qkv.rows(1)}
		for _, name := range []string{"z", "b", "a"} {
			x := f.main().take(func(s string) bool { return s == p+name+".weight" })
			rows[name] = x[0].rows(1)
		}
		var qkvz, ba []tensor
		keys, values := rows["qkv"][groups*dk:], rows["qkv"][2*groups*dk:]
		for m := range groups {
			qkvz = append(qkvz, rows["qkv"][m*dk:(m+1)*dk]...)
			qkvz = append(qkvz, keys[m*dk:(m+1)*dk]...)
			qkvz = append(qkvz, values[m*dv:(m+1)*dv]...)
			qkvz = append(qkvz, rows["z"][m*dv:(m+1)*dv]...)
			ba = append(ba, rows["b"][m*r:(m+1)*r]...)
			ba = append(ba, rows["a"][m*r:(m+1)*r]...)
		}
		f.main().add(joined(p+"qkvz.weight", qkvz), joined(p+"ba.weight", ba))
	}
}

// joined is one matrix of rows.
func joined(name string, rows []tensor) tensor {
	x := stacked(name, rows)
	x.shape = append([]int{len(rows)}, rows[0].shape[1:]...)
	return x
}
