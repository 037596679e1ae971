package plain

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/convert"
	"github.com/foretoken/foretoken/internal/doctor"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/library"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
	"github.com/foretoken/foretoken/internal/model/network"
	"github.com/foretoken/foretoken/internal/model/weights"
	"github.com/foretoken/foretoken/internal/models/tiny"
	"github.com/foretoken/foretoken/internal/server/body"
	"github.com/foretoken/foretoken/internal/server/generate"
	"github.com/foretoken/foretoken/internal/server/generate/generatetest"
	"github.com/foretoken/foretoken/internal/server/openai"
	"github.com/foretoken/foretoken/sample"
)

const plainConfig = `{"model_type": "plain", "vocab_size": 8256, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
	"head_dim": 32, "intermediate_size": 96, "max_position_embeddings": 512, "eos_token_id": 8185}`

// write makes a folder of a model with random weights and the embedded model's texts. The output
// matrix is the embedding, so that the model likes to repeat itself.
func write(t *testing.T, config string) string {
	t.Helper()
	dir := t.TempDir()
	c, err := read([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var tensors []golden.SpecTensor
	for w := range network.Tables(c).Model {
		x := golden.SpecTensor{Name: converted(nil).Name(w.Name), Shape: []int{w.Rows, w.Cols}, Values: make([]float32, w.Parameters())}
		for i := range x.Values {
			x.Values[i] = float32(rng.NormFloat64()) / 8
			if !w.IsMatrix() {
				x.Values[i]++
			}
		}
		if w.Name == weights.OutputMatrix+".weight" {
			copy(x.Values, tensors[0].Values)
		}
		if !w.IsMatrix() {
			x.Shape = x.Shape[1:]
		}
		tensors = append(tensors, x)
	}
	golden.Write(t, dir, []byte(config), tensors)
	files := tiny.Files()
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"} {
		filetest.Write(t, filepath.Join(dir, name), files[name])
	}
	return dir
}

// answer is what a model says to a text, and the hash of all its logits.
type answer struct {
	ids    []int32
	hash   uint64
	copied int // draft tokens from n-grams
}

// say runs a model.
func say(t *testing.T, dir string, o foretoken.Options) answer {
	t.Helper()
	o.Threads, o.Context = 1, 256
	m, err := foretoken.Open(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	a, err := m.Generate(t.Context(), foretoken.Request{
		Prompt: m.TextPrompt("one two three one two three one two"), MaxTokens: 64, Sampling: &sample.Options{}, Hash: true, IgnoreEnd: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Wait(); err != nil {
		t.Fatal(err)
	}
	said := answer{hash: a.LogitsHash(), copied: a.Result.Speculation.Copied}
	for _, token := range a.Tokens {
		said.ids = append(said.ids, token.ID)
	}
	return said
}

// TestFamilyIsDraftedForByNGrams decodes with and without drafts, to the same tokens and bits.
func TestFamilyIsDraftedForByNGrams(t *testing.T) {
	dir := write(t, plainConfig)
	plain := say(t, dir, foretoken.Options{Speculation: foretoken.Speculation{Depth: foretoken.DepthOff}})
	drafted := say(t, dir, foretoken.Options{Speculation: foretoken.Speculation{Depth: 4}})
	if len(plain.ids) != 64 || plain.copied != 0 {
		t.Fatalf("%+v", plain)
	}
	if drafted.copied == 0 {
		t.Error("nothing was drafted")
	}
	if !slices.Equal(plain.ids, drafted.ids) || plain.hash != drafted.hash {
		t.Errorf("with drafts %v, without %v", drafted, plain)
	}
	_, err := foretoken.Open(t.Context(), dir, foretoken.Options{Speculation: foretoken.Speculation{Head: foretoken.HeadRequired}})
	if !errors.Is(err, foretoken.ErrNoHead) {
		t.Errorf("a head is required: %v", err)
	}
}

// TestFamilyIsServed asks for an answer over HTTP.
func TestFamilyIsServed(t *testing.T) {
	dir := write(t, plainConfig)
	library := library.New(library.Options{
		Names: func() []string { return []string{"plain"} },
		Load: func(ctx context.Context, _ string) (*foretoken.Model, error) {
			return foretoken.Open(ctx, dir, foretoken.Options{Threads: 1, Context: 256})
		},
	})
	defer func() {
		if err := library.Drain(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	mux := http.NewServeMux()
	openai.Register(body.On(mux, nil), &generate.Service{Library: library, Default: "plain"})
	site := httptest.NewServer(mux)
	defer site.Close()
	status, text := generatetest.Send(t, http.MethodPost, site.URL+"/v1/chat/completions",
		`{"messages": [{"role": "user", "content": "Hi."}], "max_tokens": 8, "ignore_eos": true}`)
	if status != http.StatusOK || !strings.Contains(text, `"completion_tokens":8`) {
		t.Errorf("status %d: %s", status, text)
	}
}

// TestFamilyIsSurveyed inspects a folder, and one that lacks a tensor.
func TestFamilyIsSurveyed(t *testing.T) {
	dir := write(t, plainConfig)
	facts := inspect(t, dir)
	if !facts.Loadable || facts.Family != "Plain, dense" || facts.Model.Parameters != 1_126_720 {
		t.Errorf("%s", facts.Table())
	}
	table := facts.Table()
	for _, line := range []string{"layers      2: 2 attention", "mtp head    none, config.json declares none", "No defects found in the files."} {
		if !strings.Contains(table, line) {
			t.Errorf("no line %q in\n%s", line, table)
		}
	}
	more := inspect(t, write(t, strings.Replace(plainConfig, `layers": 2`, `layers": 1`, 1)))
	config := strings.Replace(plainConfig, `layers": 2`, `layers": 3`, 1)
	filetest.Write(t, filepath.Join(dir, "config.json"), config)
	if less := inspect(t, dir); !more.Loadable || less.Loadable || !strings.Contains(less.Table(), "layers.2.input_layernorm.weight") {
		t.Errorf("a layer too few:\n%s", less.Table())
	}
}

func inspect(t *testing.T, dir string) *doctor.Facts {
	t.Helper()
	c := golden.Open(t, dir)
	return doctor.Inspect(c, doctor.InspectOptions{Template: func(c *checkpoint.Checkpoint) (string, string, error) {
		x, err := c.Templates()
		return x.Plain, x.Tools, err
	}})
}

// TestFamilyIsConverted writes a model anew, which says the same, and quantized, which runs.
func TestFamilyIsConverted(t *testing.T) {
	dir := write(t, plainConfig)
	c := golden.Open(t, dir)
	same, small := filepath.Join(t.TempDir(), "same"), filepath.Join(t.TempDir(), "small")
	if _, err := convert.Convert(t.Context(), c, same, convert.Options{}); err != nil {
		t.Fatal(err)
	}
	want, got := say(t, dir, foretoken.Options{}), say(t, same, foretoken.Options{})
	if !slices.Equal(got.ids, want.ids) || got.hash != want.hash {
		t.Errorf("converted %v, before %v", got, want)
	}
	eight, err := convert.ParseEncoding("8:32", convert.DefaultGroup)
	if err != nil {
		t.Fatal(err)
	}
	s, err := convert.Convert(t.Context(), c, small, convert.Options{Quantize: &eight})
	if err != nil || s.BytesOut >= s.BytesIn/3 {
		t.Errorf("%v, %+v", err, s)
	}
	if x := say(t, small, foretoken.Options{}); len(x.ids) != 64 {
		t.Errorf("%v", x)
	}
	if _, err := convert.ExtractHead(t.Context(), c, filepath.Join(t.TempDir(), "head"), convert.Options{}); err == nil {
		t.Error("a head was found")
	}
}

// TestFamilyIsFoundByItsArchitecture opens a config without a type, and refuses an unknown type.
func TestFamilyIsFoundByItsArchitecture(t *testing.T) {
	config := strings.Replace(plainConfig, `"model_type": "plain"`, `"architectures": ["PlainForCausalLM"]`, 1)
	modeltest.Open(t, write(t, config), 1, model.Options{})
	var unknown *model.UnknownError
	if _, err := model.Of([]byte(`{"model_type": "gpt2", "architectures": ["PlainForCausalLM"]}`)); !errors.As(err, &unknown) || !strings.Contains(err.Error(), "plain, qwen3_5") {
		t.Errorf("%v, want the types that are known", err)
	}
}

// TestFamilyTakesRows feeds rows of the embedding table in place of ids, to the same logits, and
// says where they are; an image's positions count.
func TestFamilyTakesRows(t *testing.T) {
	r := modeltest.OpenOn(t, backendtest.NewOpaque(backendtest.Open(t, backend.Options{Threads: 1})), write(t, plainConfig), model.Options{})
	ids := []int32{5, 900, 17, 17, 4000, 2, 33, 8}
	rows := modeltest.Embedded(t, r, ids)
	hidden := func(spans ...model.Span) []float32 {
		s := r.Sequence(t)
		var last []float32
		for _, span := range spans {
			span.State = s
			_, last = r.Feed(t, span)
		}
		return last[len(last)-r.Info().Width:]
	}
	want := hidden(model.Span{Tokens: ids})
	mixed := []int32{5, -1, -1, 17, -1, 2, 33, 8}
	inputs := []backend.Input{{At: 1, Rows: rows.RowRange(1, 3)}, {At: 4, Rows: rows.RowRange(4, 5)}}
	if got := hidden(model.Span{Tokens: mixed, Inputs: inputs}); !slices.Equal(got, want) {
		t.Error("rows give other numbers than their ids")
	}
	positions := make([][3]int32, len(ids))
	for i := range positions {
		positions[i][0] = int32(i)
	}
	if got := hidden(model.Span{Tokens: mixed, Inputs: inputs, Positions: positions}); !slices.Equal(got, want) {
		t.Error("positions that are the slots give other numbers")
	}
	for i := range positions {
		positions[i][0] = int32(max(i-2, 0))
	}
	picture := hidden(model.Span{Tokens: ids, Positions: positions})
	if slices.Equal(picture, want) {
		t.Error("positions do not count")
	}
	if got := hidden(model.Span{Tokens: ids[:5], Positions: positions[:5]}, model.Span{Tokens: ids[5:]}); !slices.Equal(got, picture) {
		t.Error("text after an image goes on elsewhere")
	}
	if _, err := r.Forward([]model.Span{{Tokens: mixed}}); err == nil {
		t.Error("rows that are not there are fed")
	}
}
