package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/dtype"
)

// drafterFiles are a head as a separate folder, whose config names its quantization.
func drafterFiles(t *testing.T, dir string) files {
	t.Helper()
	return files{
		dir + "config.json": `{"model_type": "qwen3_5_mtp", "quantization": {"group_size": 64, "bits": 4, "fc": {"group_size": 32, "bits": 4}}}`,
		dir + "model.safetensors": encode(t, map[string]string{"format": "mlx"},
			random("fc.weight", dtype.U32, 4, 8), random("fc.scales", dtype.BF16, 4, 2), random("fc.biases", dtype.BF16, 4, 2)),
	}
}

// TestOpenFindsDrafters opens drafters inside the folder of a model and beside it.
func TestOpenFindsDrafters(t *testing.T) {
	main := files{
		"model/config.json":       `{"quantization": {"group_size": 64, "bits": 8, "fc": {"group_size": 64, "bits": 8}}}`,
		"model/model.safetensors": encode(t, nil, random("x", dtype.F32, 4)),
	}
	for _, c := range []struct {
		dir, file string
		apart     bool
	}{
		{"model/mtp/", "mtp/model.safetensors", false},
		{"model-mtp/", "../model-mtp/model.safetensors", true},
	} {
		dir := main.with(drafterFiles(t, c.dir)).write(t)
		ck, err := Open(filepath.Join(dir, "model"))
		if err != nil {
			t.Fatal(err)
		}
		if len(ck.Sidecars) != 1 {
			t.Fatalf("%s: %d sidecars, want 1", c.dir, len(ck.Sidecars))
		}
		s := ck.Sidecars[0]
		if s.File != c.file || s.Apart != c.apart {
			t.Errorf("%s: sidecar %s, apart %v", c.dir, s.File, s.Apart)
		}
		// The model's config has 8 bits for a module of that name.
		if m, err := s.Matrix("fc", 4, 64); err != nil || m.Bits != 4 || m.Group != 32 {
			t.Errorf("%s: %d bits in groups of %d, %v", c.dir, m.Bits, m.Group, err)
		}
		closed(t, ck)
	}
}

// TestOpenIgnoresWhatIsNoDrafter has folders beside the model that only resemble one.
func TestOpenIgnoresWhatIsNoDrafter(t *testing.T) {
	main := files{"model/config.json": "{}", "model/model.safetensors": encode(t, nil, random("x", dtype.F32, 4))}
	for name, beside := range map[string]files{
		"a whole model":   {"model-mtp/config.json": `{"model_type": "qwen3_5"}`, "model-mtp/model.safetensors": "not read"},
		"no config":       {"model-mtp/model.safetensors": "not read"},
		"no JSON":         {"model-mtp/config.json": `model_type: qwen3_5_mtp`, "model-mtp/model.safetensors": "not read"},
		"another folder":  drafterFiles(t, "other-mtp/"),
		"without weights": {"model-mtp/config.json": `{"model_type": "qwen3_5_mtp"}`},
	} {
		ck, err := Open(filepath.Join(main.with(beside).write(t), "model"))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(ck.Sidecars) != 0 {
			t.Errorf("%s: %d sidecars", name, len(ck.Sidecars))
		}
		closed(t, ck)
	}
	damaged := main.with(files{"model-mtp/config.json": `{"model_type": "qwen3_5_mtp"}`, "model-mtp/model.safetensors": strings.Repeat("x", 99)})
	if _, err := Open(filepath.Join(damaged.write(t), "model")); err == nil || !strings.Contains(err.Error(), "model-mtp/model.safetensors") {
		t.Errorf("a damaged drafter: %v", err)
	}
}

// TestOpenPartNeedsWantedShardsOnly opens folders that were fetched in part.
func TestOpenPartNeedsWantedShardsOnly(t *testing.T) {
	f := files{
		"config.json":                  "{}",
		"model-1.safetensors":          encode(t, nil, random("a", dtype.F32, 4)),
		"model-2.safetensors":          encode(t, nil, random("mtp.b", dtype.F32, 4), random("c", dtype.F32, 4)),
		"model.safetensors.index.json": `{"weight_map":{"a":"model-1.safetensors","mtp.b":"model-2.safetensors","c":"model-2.safetensors"}}`,
	}
	head := func(name string) bool { return strings.HasPrefix(name, "mtp.") }
	dir := f.write(t)
	if err := os.Remove(filepath.Join(dir, "model-1.safetensors")); err != nil {
		t.Fatal(err)
	}
	c, err := OpenPart(dir, head)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.Tensors(), []string{"c", "mtp.b"}) {
		t.Errorf("tensors %q", c.Tensors())
	}
	closed(t, c)
	if _, err := Open(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the whole folder: %v", err)
	}
	if c, err = OpenPart(dir, func(string) bool { return false }); err != nil || len(c.Tensors()) != 0 {
		t.Errorf("nothing of it: %v", err)
	}
	closed(t, c)
	if err := os.Remove(filepath.Join(dir, "model-2.safetensors")); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenPart(dir, head); err == nil || !strings.Contains(err.Error(), "model-2.safetensors") {
		t.Errorf("without the wanted shard: %v", err)
	}
}
