package convert

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/checkpoint"
	"github.com/foretoken/foretoken/internal/dtype"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
	"github.com/foretoken/foretoken/internal/model"
	"github.com/foretoken/foretoken/internal/model/weights"
)

// openHead opens a head for the length of a test.
func openHead(t *testing.T, path, of string) *checkpoint.Checkpoint {
	t.Helper()
	var shape []byte
	if of != "" {
		shape = golden.Open(t, of).Config()
	}
	c, err := OpenHead(path, shape)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// headless is a fixture without its head.
func headless(t *testing.T, arch string) string {
	t.Helper()
	return fixture(t, arch, func(s *stored) {
		s.take(isHead)
		s.config["text_config"].(map[string]any)["mtp_num_hidden_layers"] = 0
	}).write(t)
}

// TestHeadGoesOutAndIn extracts the head of every layout as a file and as a folder, and
// puts it into a model without one, beside its weights and into a new folder. All must be
// the model that it was.
func TestHeadGoesOutAndIn(t *testing.T) {
	want := map[string][][]float32{}
	for _, arch := range []string{"dense", "moe"} {
		want[arch] = answers(t, base(t, arch))
	}
	for i, p := range ways() {
		if strings.Contains(p.name, "model-mtp") || strings.Contains(p.name, "mtp/weights") {
			continue // found as mtp.safetensors is
		}
		out := []string{"head.safetensors", "head"}[i%2] // alternating
		t.Run(fmt.Sprintf("model=%s/source=%s/to=%s", p.arch, p.name, out), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), out)
			s, err := ExtractHead(t.Context(), openHead(t, fixture(t, p.arch, p.edits...).write(t), ""), file, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if s.HeadIn != p.head {
				t.Errorf("%d tensors of the head, want %d", s.HeadIn, p.head)
			}
			dir := headless(t, p.arch)
			head := openHead(t, file, dir)
			whole := filepath.Join(t.TempDir(), "whole")
			if _, err := InjectHead(t.Context(), golden.Open(t, dir), head, whole, Options{}); err != nil {
				t.Fatal(err)
			}
			if !slices.EqualFunc(answers(t, whole), want[p.arch], same) {
				t.Error("in a new folder: the model answers differently")
			}
			if _, err := InjectHead(t.Context(), golden.Open(t, dir), head, "", Options{}); err != nil {
				t.Fatal(err)
			}
			if !slices.EqualFunc(answers(t, dir), want[p.arch], same) {
				t.Error("beside the weights: the model answers differently")
			}
		})
	}
}

// TestExtractHeadNeedsItsShardsOnly takes a head from a folder that has only the shards of the
// head.
func TestExtractHeadNeedsItsShardsOnly(t *testing.T) {
	for _, kept := range []string{"head", "head and the first layer"} {
		s := fixture(t, "moe")
		where := map[string]string{}
		for _, x := range s.files[mainFile] {
			file := "model-00001-of-00003.safetensors"
			switch {
			case isHead(x.name):
				file = "model-00003-of-00003.safetensors"
			case strings.Contains(x.name, "layers.0."):
				file = "model-00002-of-00003.safetensors"
			}
			where[x.name] = file
			s.files[file] = append(s.files[file], x)
		}
		delete(s.files, mainFile)
		index := filetest.Encode(t, map[string]any{"weight_map": where})
		s.texts[checkpoint.IndexFile] = string(index)
		delete(s.files, "model-00001-of-00003.safetensors")
		if kept == "head" {
			delete(s.files, "model-00002-of-00003.safetensors")
		}
		file := filepath.Join(t.TempDir(), "mtp.safetensors")
		if _, err := ExtractHead(t.Context(), openHead(t, s.write(t), ""), file, Options{}); err != nil {
			t.Fatal(err)
		}
		dir := headless(t, "moe")
		if _, err := InjectHead(t.Context(), golden.Open(t, dir), openHead(t, file, dir), "", Options{}); err != nil {
			t.Fatal(err)
		}
		if !slices.EqualFunc(answers(t, dir), answers(t, base(t, "moe")), same) {
			t.Errorf("%s: the model answers differently", kept)
		}
	}
}

// TestInjectHeadRefuses heads that do not fit, and models that have one.
func TestInjectHeadRefuses(t *testing.T) {
	narrow := func(s *stored) { // half the queries
		text := s.config["text_config"].(map[string]any)
		text["num_attention_heads"] = 2
		s.each(func(x *tensor) {
			switch {
			case strings.HasSuffix(x.name, "q_proj.weight"):
				x.shape = []int{x.shape[0] / 2, x.shape[1]}
			case strings.HasSuffix(x.name, "o_proj.weight"):
				x.shape = []int{x.shape[0], x.shape[1] / 2}
			default:
				return
			}
			x.data = x.data[:len(x.data)/2]
		})
	}
	dense, other := base(t, "dense"), fixture(t, "dense", narrow).write(t)
	for _, c := range []struct {
		name, dir, head string
		want            string
	}{
		{"of another shape", headless(t, "dense"), other, "mtp.layers.0.self_attn.q_proj.weight is [256, 128], but this model needs"},
		{"with experts", headless(t, "dense"), base(t, "moe"), "with experts, but this model is without"},
		{"not there", headless(t, "dense"), headless(t, "dense"), "no multi-token-prediction head"},
		{"a second one", dense, other, "head among its weights"},
		{"a second one beside", fixture(t, "dense", beside("mtp.safetensors")).write(t), dense, "has a head already"},
	} {
		t.Run("head="+c.name, func(t *testing.T) {
			before := files(t, c.dir)
			_, err := InjectHead(t.Context(), golden.Open(t, c.dir), openHead(t, c.head, ""), "", Options{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if after := files(t, c.dir); !slices.Equal(before, after) {
				t.Errorf("the folder has %v, had %v", after, before)
			}
		})
	}
	out := filepath.Join(t.TempDir(), "out")
	_, err := InjectHead(t.Context(), golden.Open(t, dense), openHead(t, dense, ""), out, Options{})
	if !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second one in a new folder: %v", err)
	}
	if _, err := InjectHead(t.Context(), golden.Open(t, dense), openHead(t, dense, ""), out, Options{Force: true}); err != nil {
		t.Errorf("replaced in a new folder: %v", err)
	}
}

// TestInjectHeadReplacesItsOwn puts a second head where the first was put, quantized in
// another way, beside an index.
func TestInjectHeadReplacesItsOwn(t *testing.T) {
	coded, _ := converted(t, base(t, "dense"), Options{Quantize: fourBits, Head: &Encoding{Format: dtype.Affine, Bits: 5, Group: 32}})
	bare := filepath.Join(t.TempDir(), "bare")
	if _, err := RemoveHead(t.Context(), golden.Open(t, coded), bare, Options{}); err != nil {
		t.Fatal(err)
	}
	for i, source := range []string{coded, base(t, "dense")} {
		_, err := InjectHead(t.Context(), golden.Open(t, bare), openHead(t, source, ""), "", Options{Force: i > 0})
		if err != nil {
			t.Fatal(err)
		}
		want, got := effective(t, source), effective(t, bare)
		for name, v := range want {
			if strings.HasPrefix(name, "mtp.") && !same(got[name], v) {
				t.Errorf("%s differs", name)
			}
		}
		var index struct {
			Map map[string]string `json:"weight_map"`
		}
		filetest.Decode(t, filetest.Read(t, filepath.Join(bare, checkpoint.IndexFile)), &index)
		n := 0
		for _, file := range index.Map {
			if file == checkpoint.SidecarFile {
				n++
			}
		}
		if want := []int{31, 15}[i]; n != want {
			t.Errorf("the index has %d tensors of the head, want %d", n, want)
		}
	}
}

// TestRemoveHead checks that nothing of it is left, and nothing else is gone.
func TestRemoveHead(t *testing.T) {
	want := map[string]map[string][]float32{}
	for _, arch := range []string{"dense", "moe"} {
		want[arch] = effective(t, base(t, arch))
		maps.DeleteFunc(want[arch], func(name string, _ []float32) bool { return strings.HasPrefix(name, "mtp.") })
	}
	for _, p := range ways() {
		if strings.Contains(p.name, "model-mtp") || strings.Contains(p.name, "mtp/weights") {
			continue // found as mtp.safetensors is
		}
		out := filepath.Join(t.TempDir(), "out")
		s, err := RemoveHead(t.Context(), golden.Open(t, fixture(t, p.arch, p.edits...).write(t)), out, Options{})
		if err != nil {
			t.Fatalf("%s: %v", p.name, err)
		}
		c := golden.Open(t, out)
		if s.HeadOut != 0 || slices.ContainsFunc(c.Tensors(), isHead) || !strings.Contains(string(c.Config()), `"mtp_num_hidden_layers": 0`) {
			t.Errorf("%s: something is left of the head: %s", p.name, &s)
		}
		compare(t, effective(t, out), want[p.arch], nil)
		if _, err := model.Inventory(c, weights.HeadOnly, discard); !errors.Is(err, weights.ErrNoHead) {
			t.Errorf("%s: %v", p.name, err)
		}
	}
}
