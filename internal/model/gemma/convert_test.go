package gemma

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/convert"
	"github.com/foretoken/foretoken/internal/doctor"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// converts writes the checkpoint at path anew and returns the folder. Only tensors of towers are reported as left out.
func converts(t *testing.T, path string, o convert.Options) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	c := openFolder(t, path)
	s, err := convert.Convert(t.Context(), c, out, o)
	if err != nil {
		t.Fatal(err)
	}
	towers := 0
	for _, n := range c.Tensors() {
		if strings.Contains(n, "vision") || strings.Contains(n, "audio") {
			towers++
		}
	}
	if s.LeftOut != towers {
		t.Errorf("%s: %d of %d tensors of towers left out", path, s.LeftOut, towers)
	}
	return out
}

// TestConvertChangesNothing writes releases, folders of text alone and GGUF files in the layout of MLX, to the same bits.
func TestConvertChangesNothing(t *testing.T) {
	for _, name := range golden.Gemma {
		t.Run(name, func(t *testing.T) {
			want := answers(t, golden.Dir(t, name), prompt)
			edits := []edit{otherParts}
			if name == "gemma4_ple" {
				edits = append(edits, surplus)
			}
			out := converts(t, fixture(t, name, edits...).write(t), convert.Options{})
			same(t, "converted", answers(t, out, prompt), want)
			for _, n := range openFolder(t, out).Tensors() {
				if !strings.HasPrefix(n, "language_model.model.") || strings.Contains(n, "gate_up_proj") || strings.Contains(n, "layers.7.self_attn.k_proj") {
					t.Errorf("%s was written", n)
				}
			}
			same(t, "text alone", answers(t, converts(t, fixture(t, name, textOnly).write(t), convert.Options{}), prompt), want)
			var l llama
			l.words(0)
			same(t, "from GGUF", answers(t, converts(t, l.convert(t, fixture(t, name)), convert.Options{}), prompt), want)
		})
	}
}

// TestConvertKeepsWhatChooses quantizes everything else: the router has 8 bits, and its gain and the experts' factors are as they
// were. A model that is quantized again has the bits of the converted one.
func TestConvertKeepsWhatChooses(t *testing.T) {
	four, err := convert.ParseEncoding("4:32", convert.DefaultGroup)
	if err != nil {
		t.Fatal(err)
	}
	const p = "language_model.model."
	out := converts(t, golden.Dir(t, "gemma4_moe"), convert.Options{Quantize: &four, Type: dtype.F16})
	c := openFolder(t, out)
	for name, want := range map[string]dtype.Type{
		"layers.1.router.proj.scales": dtype.F16, "layers.1.router.scale": dtype.BF16, "layers.1.router.per_expert_scale": dtype.BF16,
		"layers.1.layer_scalar": dtype.F16, "layers.1.experts.switch_glu.up_proj.weight": dtype.U32, "norm.weight": dtype.F16,
	} {
		if x, ok := c.Look(p + name); !ok || x.Type != want {
			t.Errorf("%s is %v, want %v", name, x.Type, want)
		}
	}
	if m, err := c.LookMatrix(p+"layers.1.router.proj", 8, 64); err != nil || m.ElementBits() != 8 {
		t.Errorf("%v, the router has %d bits", err, m.ElementBits())
	}
	out = converts(t, golden.Dir(t, "gemma4_ple"), convert.Options{Quantize: &four})
	c = openFolder(t, out)
	if x, ok := c.Look(p + tableName + ".weight"); !ok || x.Type != dtype.U32 {
		t.Errorf("the table of layer embeddings is %v", x.Type)
	}
	r := open(t, out, 1, model.Options{})
	r.Feed(t, model.Span{State: r.Sequence(t), Tokens: prompt, Want: 1})
}

// TestThereIsNoHead says so where heads are moved.
func TestThereIsNoHead(t *testing.T) {
	c := openFolder(t, golden.Dir(t, "gemma4_unified"))
	if _, err := convert.ExtractHead(t.Context(), c, filepath.Join(t.TempDir(), "x"), convert.Options{}); !errors.Is(err, weights.ErrNoHead) {
		t.Errorf("%v", err)
	}
	if text := noHead(nil); !strings.Contains(text, "assistants") {
		t.Errorf("%s", text)
	}
}

// TestInspectKnowsTheFamily surveys a folder: the table of layer embeddings takes no memory, and what is not read is no part.
func TestInspectKnowsTheFamily(t *testing.T) {
	path := fixture(t, "gemma4_ple", surplus, otherParts).write(t)
	facts := doctor.Inspect(openFolder(t, path), doctor.InspectOptions{Template: func(c *checkpoint.Checkpoint) (string, string, error) {
		x, err := c.Templates()
		return x.Plain, x.Tools, err
	}})
	table := facts.Table()
	for _, words := range []string{"Gemma 4", "layer table", "8 attention; KV cache of 33 tokens in 3, of all tokens in 1, that of other"} {
		if !strings.Contains(table, words) {
			t.Errorf("no %q: %s", words, table)
		}
	}
	bare := openFolder(t, golden.Dir(t, "gemma4_ple"))
	s, err := model.Survey(bare)
	if err != nil {
		t.Fatal(err)
	}
	if s.Loaded != facts.Model.Loaded || s.Parameters != facts.Model.Parameters || s.Parameters-s.Active != 128*128 {
		t.Errorf("%d bytes and %d of %d parameters, with more tensors %d and %d", s.Loaded, s.Active, s.Parameters, facts.Model.Loaded, facts.Model.Parameters)
	}
	i := slices.IndexFunc(facts.Model.Parts, func(p weights.Part) bool { return p.Name == "vision" })
	if i < 0 || facts.Model.Parts[i].Tensors != 6 {
		t.Errorf("%+v", facts.Model.Parts)
	}
	r := open(t, path, 1, model.Options{Compute: backend.Float32})
	if r.Info().Bytes > 2*s.Loaded {
		t.Errorf("%d bytes are loaded, the survey has %d", r.Info().Bytes, s.Loaded)
	}
	if _, err := r.Tower(); err == nil || !strings.Contains(err.Error(), "Gemma 4 are not supported") {
		t.Errorf("the tower: %v", err)
	}
}

// TestTheFileMayBeClosed looks rows up after the checkpoint was closed, and gives the file back with the model.
func TestTheFileMayBeClosed(t *testing.T) {
	want := answers(t, golden.Dir(t, "gemma4_ple"), prompt)
	c, err := checkpoint.Open(fixture(t, "gemma4_ple").write(t))
	if err != nil {
		t.Fatal(err)
	}
	b := backendtest.Open(t, backend.Options{Threads: 1})
	m, err := model.Open(c, b, model.Options{Compute: backend.Float32})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	r := rigOf(t, m, b)
	got, _ := r.Answers(t, prompt)
	same(t, "logits", got, want)
}

// TestConvertTellsOfDrafters converts a model with an assistant in its folder, which stays behind.
func TestConvertTellsOfDrafters(t *testing.T) {
	var log bytes.Buffer
	out := filepath.Join(t.TempDir(), "out")
	o := convert.Options{Log: slog.New(slog.NewTextHandler(&log, nil))}
	dir := fixture(t, "gemma4_dense").write(t)
	if err := os.Mkdir(filepath.Join(dir, "assistant"), 0o700); err != nil {
		t.Fatal(err)
	}
	filetest.Write(t, filepath.Join(dir, "assistant", "config.json"), []byte("{}"))
	if _, err := convert.Convert(t.Context(), openFolder(t, dir), out, o); err != nil {
		t.Fatal(err)
	}
	if want := "convert it to " + filepath.Join(out, "assistant"); !strings.Contains(log.String(), want) {
		t.Errorf("no %q in %s", want, &log)
	}
}
