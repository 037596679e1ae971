package convert

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/modeltest"
)

var fourBits = &Encoding{Format: dtype.Affine, Bits: 4, Group: 64}

// files lists what is in a folder.
func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestConvertInterruptedLeavesNothing cancels after each of the first parts.
func TestConvertInterruptedLeavesNothing(t *testing.T) {
	src := golden.Open(t, base(t, "dense"))
	for stop := range 5 {
		parent := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		_, err := Convert(ctx, src, filepath.Join(parent, "out"), Options{Quantize: fourBits, Progress: func(Progress) {
			if n++; n > stop {
				cancel()
			}
		}})
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("after %d parts: %v", stop, err)
		}
		if left := files(t, parent); len(left) > 0 {
			t.Errorf("after %d parts: %v is left", stop, left)
		}
	}
}

// TestConvertFailedLeavesNothing has a number in the last matrix that cannot be quantized.
func TestConvertFailedLeavesNothing(t *testing.T) {
	dir := fixture(t, "dense", func(s *stored) {
		s.each(func(x *tensor) {
			if x.name == "lm_head.weight" {
				copy(x.data[len(x.data)-2:], []byte{0xc0, 0x7f}) // NaN
			}
		})
	}).write(t)
	parent := t.TempDir()
	_, err := Convert(t.Context(), golden.Open(t, dir), filepath.Join(parent, "out"), Options{Quantize: fourBits})
	if err == nil || !strings.Contains(err.Error(), "lm_head.weight") || !strings.Contains(err.Error(), "not finite") {
		t.Errorf("error %v", err)
	}
	if left := files(t, parent); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// TestConvertReplacesModelsOnly is about existing files at the destination.
func TestConvertReplacesModelsOnly(t *testing.T) {
	src := golden.Open(t, base(t, "dense"))
	for _, c := range []struct {
		name  string
		files []string // at the destination
		force bool
		want  string // in the error
	}{
		{"empty", nil, false, ""},
		{"a model", []string{"config.json", "old.safetensors"}, false, "exists"},
		{"a model, forced", []string{"config.json", "old.safetensors", "mtp/weights.safetensors"}, true, ""},
		{"something else", []string{"letter.txt"}, false, "exists"},
		{"something else, forced", []string{"letter.txt"}, true, "other than a model"},
		{"settings of something else, forced", []string{"config.json", "letter.txt"}, true, "other than a model"},
		{"a model and more, forced", []string{"config.json", "old.safetensors", "photos/cat.jpg"}, true, "other than a model"},
	} {
		t.Run("there="+c.name, func(t *testing.T) {
			parent := t.TempDir()
			out := filepath.Join(parent, "out")
			for _, name := range append([]string{"."}, c.files...) {
				path := filepath.Join(out, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if name == "." {
					continue
				}
				filetest.Write(t, path, "")
			}
			_, err := Convert(t.Context(), src, out, Options{Force: c.force})
			if left := files(t, parent); len(left) > 1 {
				t.Errorf("%v is left", left)
			}
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v, want %q", err, c.want)
				}
				for _, name := range c.files {
					if _, err := os.Stat(filepath.Join(out, name)); err != nil {
						t.Errorf("%s is gone: %v", name, err)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, want := files(t, out), []string{"config.json", "model.safetensors", checkpoint.IndexFile}; !slices.Equal(got, want) {
				t.Errorf("the folder holds %v, want %v", got, want)
			}
		})
	}
	_, err := Convert(t.Context(), src, src.Name(), Options{Force: true})
	if err == nil || !strings.Contains(err.Error(), "is or contains the model to convert") {
		t.Errorf("onto itself: %v", err)
	}
}

// TestConvertKeepsWhatItReads has a destination that contains the source, which must not be replaced.
func TestConvertKeepsWhatItReads(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"config.json", "model.safetensors", "model.gguf", "mtp/model.safetensors"} {
		path := filepath.Join(dir, name)
		filetest.Write(t, path, "")
	}
	link := filepath.Join(t.TempDir(), "link.gguf")
	if err := os.Symlink(filepath.Join(dir, "model.gguf"), link); err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{dir, filepath.Join(dir, "model.gguf"), filepath.Join(dir, "mtp"), link} {
		if _, err := newFolder(dir, source, true); err == nil || !strings.Contains(err.Error(), "is or contains the model to convert") {
			t.Errorf("%s: error %v", source, err)
		}
	}
	for _, source := range []string{t.TempDir(), "no such model"} {
		f, err := newFolder(dir, source, true)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if err := f.finish(context.Canceled); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// TestConvertRefuses has errors that name the fault of sources and options.
func TestConvertRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		edits []edit
		o     Options
		want  string
	}{
		{"unknown tensor", []edit{func(s *stored) {
			s.add(values("model.language_model.layers.0.extra", dtype.F32, []int{1}, []float32{1}))
		}}, Options{}, "layers.0.extra"},
		{"unknown tensor of the head", []edit{func(s *stored) { s.add(values("mtp.extra", dtype.F32, []int{1}, []float32{1})) }}, Options{}, "mtp.extra"},
		{"missing tensor", []edit{func(s *stored) {
			s.take(func(n string) bool { return strings.HasSuffix(n, "layers.1.mlp.up_proj.weight") })
		}}, Options{}, "layers.1.mlp.up_proj.weight"},
		{"incomplete head", []edit{func(s *stored) { s.take(func(n string) bool { return n == "mtp.norm.weight" }) }}, Options{}, "mtp.norm.weight"},
		{"override for nothing", nil, Options{Overrides: []Override{{"layers.9.*", *fourBits}}}, "layers.9.*"},
		{"override of no encoding", nil, Options{Overrides: []Override{{"lm_head", Encoding{Format: dtype.Affine, Bits: 3, Group: 512}}}}, "groups of 512"},
		{"override that does not fit", []edit{narrow}, Options{Overrides: []Override{{"layers.*.mlp.down_proj", Encoding{Format: dtype.Affine, Bits: 3, Group: 128}}}}, "192 columns"},
		{"both ways", nil, Options{Quantize: fourBits, Dequantize: true}, "cannot be combined"},
		{"bits", nil, Options{Quantize: &Encoding{Format: dtype.Affine, Bits: 7, Group: 64}}, "7 bits"},
		{"too large for float16", []edit{func(s *stored) {
			s.each(func(x *tensor) {
				if x.name == "lm_head.weight" {
					v := x.values()
					v[0] = 1e6
					*x = values(x.name, x.typ, x.shape, v)
				}
			})
		}}, Options{Type: dtype.F16}, "too large for F16"},
	} {
		t.Run("fault="+c.name, func(t *testing.T) {
			parent := t.TempDir()
			_, err := Convert(t.Context(), golden.Open(t, fixture(t, "dense", c.edits...).write(t)), filepath.Join(parent, "out"), c.o)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if left := files(t, parent); len(left) > 0 {
				t.Errorf("%v is left", left)
			}
		})
	}
}

// narrow makes the models between layers 192 wide.
func narrow(s *stored) {
	const width = 192
	s.config["text_config"].(map[string]any)["intermediate_size"] = width
	s.each(func(x *tensor) {
		switch {
		case strings.HasSuffix(x.name, ".mlp.gate_proj.weight"), strings.HasSuffix(x.name, ".mlp.up_proj.weight"):
			x.shape = []int{width, x.shape[1]}
		case strings.HasSuffix(x.name, ".mlp.down_proj.weight"):
			x.shape = []int{x.shape[0], width}
		default:
			return
		}
		x.data = x.data[:x.shape[0]*x.shape[1]*x.typ.Size()]
	})
}

// TestConvertLeavesOddRowsWhole quantizes matrices that can be cut into groups, and lists the rest.
func TestConvertLeavesOddRowsWhole(t *testing.T) {
	dir := fixture(t, "dense", narrow).write(t)
	out, s := converted(t, dir, Options{Quantize: &Encoding{Format: dtype.Affine, Bits: 4, Group: 128}})
	if len(s.Whole) != 2 || !strings.Contains(s.String(), "2 matrices were not quantized") {
		t.Errorf("%d matrices are left whole, want the 2 of the model: %s", len(s.Whole), &s)
	}
	c := golden.Open(t, out)
	for _, name := range s.Whole {
		if x, _ := c.Look(mlxName(name)); x.Type != dtype.BF16 {
			t.Errorf("%s is %v", name, x.Type)
		}
	}
	modeltest.Open(t, out, 1, model.Options{})
}

// TestConvertShards cuts the weights into files of a size, and copies the other files.
func TestConvertShards(t *testing.T) {
	src := golden.Open(t, golden.Dir(t, "tiny"))
	out := filepath.Join(t.TempDir(), "a", "b", "out")
	s, err := Convert(t.Context(), src, out, Options{ShardSize: 6_000_000})
	if err != nil {
		t.Fatal(err)
	}
	c := golden.Open(t, out)
	if n := len(c.Files()); n != s.Files || n < 4 {
		t.Errorf("%d files, the summary says %d", n, s.Files)
	}
	for _, name := range c.Files() {
		info, err := os.Stat(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > 6_100_000 {
			t.Errorf("%s has %d bytes", name, info.Size())
		}
	}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"} {
		want, err := src.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.ReadFile(name); err != nil || string(got) != string(want) {
			t.Errorf("%s: %v, %d bytes of %d", name, err, len(got), len(want))
		}
	}
	if s.TensorsIn != s.TensorsOut || s.BytesIn != s.BytesOut || s.HeadIn != 31 || s.HeadOut != 31 {
		t.Errorf("summary %+v", s)
	}
	if info, err := os.Stat(out); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the folder: %v, %v", info.Mode(), err)
	}
}

// TestConvertWritesNestedConfigs takes a flat config in the old layout without defaults.
func TestConvertWritesNestedConfigs(t *testing.T) {
	dir := fixture(t, "dense", func(s *stored) {
		text := s.config["text_config"].(map[string]any)
		text["tie_word_embeddings"], text["model_type"] = s.config["tie_word_embeddings"], "qwen3_5_text"
		rope := text["rope_parameters"].(map[string]any)
		text["rope_theta"], text["partial_rotary_factor"] = rope["rope_theta"], rope["partial_rotary_factor"]
		for _, key := range []string{"rope_parameters", "mtp_num_hidden_layers", "full_attention_interval", "linear_conv_kernel_dim"} {
			delete(text, key)
		}
		s.config = text
		rename("model.language_model.", "model.")(s)
		s.take(func(n string) bool { return strings.HasPrefix(n, "model.visual.") })
	}).write(t)
	out, _ := converted(t, dir, Options{})
	if !slices.EqualFunc(answers(t, out), answers(t, base(t, "dense")), same) {
		t.Error("the model answers differently")
	}
	var got struct {
		Type string         `json:"model_type"`
		Text map[string]any `json:"text_config"`
	}
	filetest.Decode(t, golden.Open(t, out).Config(), &got)
	rope, _ := got.Text["rope_parameters"].(map[string]any)
	if got.Type != "qwen3_5" || got.Text["mtp_num_hidden_layers"] != 1.0 || got.Text["full_attention_interval"] != 2.0 ||
		got.Text["linear_conv_kernel_dim"] != 4.0 || rope["rope_theta"] != 10000.0 || rope["partial_rotary_factor"] != 0.25 ||
		got.Text["tie_word_embeddings"] != false {
		t.Errorf("config %s", golden.Open(t, out).Config())
	}
}

// TestConvertMemoryIsBounded quantizes a matrix of 128 MB, most of it a hole in the file,
// and measures the memory meanwhile.
func TestConvertMemoryIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("quantizes 64 million numbers")
	}
	const vocab, hidden, size = 1 << 19, 128, 1 << 27
	s := fixture(t, "dense", func(s *stored) {
		s.config["text_config"].(map[string]any)["vocab_size"] = vocab
		s.config["tie_word_embeddings"] = true
		s.take(func(n string) bool { return strings.HasSuffix(n, "embed_tokens.weight") || n == "lm_head.weight" })
	})
	dir := s.write(t)
	f, err := os.Create(filepath.Join(dir, "model-embedding.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	header, err := checkpoint.FileHeader([]checkpoint.Decl{{Name: "model.language_model.embed_tokens.weight", Type: dtype.BF16, Shape: []int{vocab, hidden}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(header); err != nil {
		t.Fatal(err)
	}
	at, err := f.Seek(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(at+size), f.Close()); err != nil {
		t.Fatal(err)
	}
	src := golden.Open(t, dir)
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	most := uint64(0)
	_, err = Convert(t.Context(), src, filepath.Join(t.TempDir(), "out"), Options{Quantize: fourBits, Threads: 2, Progress: func(Progress) {
		runtime.GC() // how much garbage there is, is the collector's business
		runtime.ReadMemStats(&now)
		most = max(most, now.HeapAlloc)
	}})
	if err != nil {
		t.Fatal(err)
	}
	if grown := int64(most) - int64(before.HeapAlloc); grown > 64<<20 {
		t.Errorf("the heap grew by %d MB for a matrix of %d MB", grown>>20, size>>20)
	}
}
