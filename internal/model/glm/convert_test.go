package glm

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/convert"
	"github.com/foretoken/foretoken/internal/doctor"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// converts writes the checkpoint at path anew and returns the folder.
func converts(t *testing.T, path string, o convert.Options) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	if _, err := convert.Convert(t.Context(), openFolder(t, path), out, o); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestConvertChangesNothing writes releases and GGUF files in the layout of MLX, without the head's
// copies of the model's matrices, to the same bits.
func TestConvertChangesNothing(t *testing.T) {
	for _, name := range golden.GLM {
		t.Run(name, func(t *testing.T) {
			want := answers(t, golden.Dir(t, name), prompt)
			out := converts(t, golden.Dir(t, name), convert.Options{})
			same(t, "converted", answers(t, out, prompt), want)
			tensors := openFolder(t, out).Tensors()
			f := fixture(t, name)
			for _, n := range tensors {
				if strings.Contains(n, "kv_b_proj") || strings.Contains(n, ".experts.") || n == f.head()+"embed_tokens.weight" || n == f.head()+"shared_head.head.weight" {
					t.Errorf("%s was written", n)
				}
			}
			if n := f.head() + "eh_proj.weight"; !slices.Contains(tensors, n) {
				t.Errorf("no %s", n)
			}
		})
	}
	l := llama{arch: ggufLatent}
	l.words()
	path := l.convert(t, fixture(t, "glm4_moe_lite"))
	same(t, "from GGUF", answers(t, converts(t, path, convert.Options{}), prompt), answers(t, golden.Dir(t, "glm4_moe_lite"), prompt))
}

// TestConvertKeepsWhatChooses quantizes everything else: router and bias are as they were, in
// whatever type the rest is.
func TestConvertKeepsWhatChooses(t *testing.T) {
	eight, err := convert.ParseEncoding("8:32", convert.DefaultGroup)
	if err != nil {
		t.Fatal(err)
	}
	out := converts(t, golden.Dir(t, "glm4_moe_lite"), convert.Options{Quantize: &eight, Head: &eight, Type: dtype.F16})
	c := openFolder(t, out)
	for name, want := range map[string]dtype.Type{
		"model.layers.1.mlp." + biasName: dtype.F32, "model.layers.1.mlp.gate.weight": dtype.BF16,
		"model.layers.1.self_attn.unembed_out.weight": dtype.U32, "model.layers.3.eh_proj.weight": dtype.U32,
		"model.layers.1.self_attn.embed_q.weight": dtype.F16, // its rows of 16 numbers are no groups
		"model.norm.weight":                       dtype.F16,
	} {
		if x, ok := c.Look(name); !ok || x.Type != want {
			t.Errorf("%s is %v, want %v", name, x.Type, want)
		}
	}
	r := open(t, out, 1, model.Options{})
	r.Feed(t, model.Span{State: r.Sequence(t), Tokens: prompt, Want: 1})
}

// TestHeadsMove takes heads out of models, and puts them back, in every form.
func TestHeadsMove(t *testing.T) {
	for _, name := range golden.GLM {
		t.Run(name, func(t *testing.T) {
			source := golden.Dir(t, name)
			want := answers(t, source, prompt)
			bare := filepath.Join(t.TempDir(), "bare")
			if _, err := convert.RemoveHead(t.Context(), openFolder(t, source), bare, convert.Options{}); err != nil {
				t.Fatal(err)
			}
			same(t, "without its head", answers(t, bare, prompt), want[:len(prompt)])
			for _, form := range []string{"head.safetensors", "head"} {
				head := filepath.Join(t.TempDir(), form)
				if _, err := convert.ExtractHead(t.Context(), openFolder(t, source), head, convert.Options{}); err != nil {
					t.Fatal(err)
				}
				config := openFolder(t, bare).Config()
				h, err := convert.OpenHead(head, config)
				if err != nil {
					t.Fatal(err)
				}
				defer h.Close() //nolint:errcheck // read only
				out := filepath.Join(t.TempDir(), "whole")
				if _, err := convert.InjectHead(t.Context(), openFolder(t, bare), h, out, convert.Options{}); err != nil {
					t.Fatal(err)
				}
				same(t, form+" put back", answers(t, out, prompt), want)
			}
			// Beside the weights of a folder that has none.
			h, err := convert.OpenHead(source, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close() //nolint:errcheck // read only
			if _, err := convert.InjectHead(t.Context(), openFolder(t, bare), h, "", convert.Options{}); err != nil {
				t.Fatal(err)
			}
			same(t, "beside the weights", answers(t, bare, prompt), want)
			var cfg struct {
				N int `json:"num_nextn_predict_layers"`
			}
			if err := json.Unmarshal(openFolder(t, bare).Config(), &cfg); err != nil || cfg.N != 1 {
				t.Errorf("%v, %d heads are promised", err, cfg.N)
			}
		})
	}
	other := openFolder(t, golden.Dir(t, "glm4_moe_air"))
	bare := openFolder(t, fixture(t, "glm4_moe_lite", headless).write(t))
	if _, err := convert.InjectHead(t.Context(), bare, other, filepath.Join(t.TempDir(), "x"), convert.Options{}); err == nil || !strings.Contains(err.Error(), "head") {
		t.Errorf("a head of another model: %v", err)
	}
	if _, err := convert.ExtractHead(t.Context(), bare, filepath.Join(t.TempDir(), "x"), convert.Options{}); !errors.Is(err, weights.ErrNoHead) {
		t.Errorf("no head: %v", err)
	}
}

// TestExtractNeedsOnlyTheHeadsFile takes a head out of a folder that lacks the shards without a
// part of it: layer 3 is not layer 30.
func TestExtractNeedsOnlyTheHeadsFile(t *testing.T) {
	names := headNames(openFolder(t, golden.Dir(t, "glm4_moe_lite")).Config())
	for name, want := range map[string]bool{
		"model.layers.3.eh_proj.weight": true, "model.layers.3.mlp.experts.0.up_proj.weight": true, "model.layers.2.mlp.gate.weight": false,
		"language_model.model.layers.3.enorm.weight": true, "mtp.fc.weight": true, "lm_head.weight": false, "model.layers.0.self_attn.o_proj.weight": false,
	} {
		if got := names.Has(name); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// inspects is the output of inspect for a folder.
func inspects(t *testing.T, dir string) *doctor.Facts {
	t.Helper()
	return doctor.Inspect(openFolder(t, dir), doctor.InspectOptions{Template: func(c *checkpoint.Checkpoint) (string, string, error) {
		x, err := c.Templates()
		return x.Plain, x.Tools, err
	}})
}

// TestInspectKnowsTheFamily surveys a folder, and warns of a bias that was rounded.
func TestInspectKnowsTheFamily(t *testing.T) {
	facts := inspects(t, golden.Dir(t, "glm4_moe_lite"))
	table := facts.Table()
	if !strings.Contains(table, "GLM-4.7-Flash") || !facts.Model.Head.Present || facts.Model.Experts != 8 {
		t.Errorf("%s", table)
	}
	rounded := func(_ *testing.T, f *folder) {
		x := f.tensors["model.layers.2.mlp."+biasName]
		x.typ = dtype.BF16
		f.tensors["model.layers.2.mlp."+biasName] = x
	}
	facts = inspects(t, fixture(t, "glm4_moe_lite", rounded).write(t))
	if !strings.Contains(facts.Table(), "e_score_correction_bias is stored as BF16") {
		t.Errorf("%s", facts.Table())
	}
	dropped := inspects(t, fixture(t, "glm4_moe_lite", headless).write(t))
	if !strings.Contains(dropped.Table(), "head") || dropped.Model.Head.Present {
		t.Errorf("%s", dropped.Table())
	}
	if text := noHead([]byte(`{"model_type": "glm4_moe", "num_hidden_layers": 46, "num_nextn_predict_layers": 1}`)); !strings.Contains(text, "model.layers.46.*") {
		t.Errorf("%s", text)
	}
}

// TestRepairsUndoDamage damages a head as converters have, and finds the repair that gives the
// drafts of the sound one.
func TestRepairsUndoDamage(t *testing.T) {
	swap := func(_ *testing.T, f *folder) {
		x := f.tensors[f.head()+"eh_proj.weight"]
		v, n := slices.Clone(x.values), x.shape[0]
		for r := range n {
			copy(v[2*r*n:], x.values[(2*r+1)*n:(2*r+2)*n])
			copy(v[(2*r+1)*n:], x.values[2*r*n:(2*r+1)*n])
		}
		x.values = v
		f.tensors[f.head()+"eh_proj.weight"] = x
	}
	sound := answers(t, golden.Dir(t, "glm4_moe_lite"), prompt)[len(prompt):]
	r := open(t, fixture(t, "glm4_moe_lite", swap, plainly(dtype.F32)).write(t), 1, model.Options{})
	_, hidden := r.Feed(t, model.Span{State: r.Sequence(t), Tokens: prompt})
	var found []string
	for _, repair := range r.Head().(model.Repairable).Repairs() {
		h, done, err := repair.Open()
		if err != nil {
			t.Fatal(err)
		}
		rows, _ := r.FeedTo(t, h, r.Pairs(t), hidden[:(len(prompt)-1)*r.Info().Width], prompt[1:])
		near := true
		for i := range rows {
			near = near && argmax(rows[i]) == argmax(sound[i])
		}
		if near {
			found = append(found, repair.Kind)
		}
		done()
	}
	if !slices.Equal(found, []string{"fc"}) {
		t.Errorf("repairs %v give the drafts of the sound head", found)
	}
}
