package models_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/golden"
	_ "github.com/foretoken/foretoken/internal/model/drafter"
	_ "github.com/foretoken/foretoken/internal/model/gemma"
	_ "github.com/foretoken/foretoken/internal/model/qwen35"
	"github.com/foretoken/foretoken/internal/models"
)

// link makes a folder of links to the files of another.
func link(t *testing.T, from string, to ...string) string {
	t.Helper()
	dir := filepath.Join(to...)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Type().IsRegular() {
			if err := os.Symlink(filepath.Join(from, f.Name()), filepath.Join(dir, f.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// TestFindAssistant puts assistants beside a model and into its folder: it has no tapped layers and no memory, and is found like others.
func TestFindAssistant(t *testing.T) {
	root := t.TempDir()
	path := link(t, golden.Dir(t, "gemma4_dense"), root, "gemma-4-31B-it-4bit")
	find := func(want string) {
		t.Helper()
		if got, err := models.FindDrafter(path, "gemma-4-31B-it-4bit", nil); got != want || err != nil {
			t.Errorf("found %q, %v, want %q", got, err, want)
		}
	}
	find("")
	find(link(t, golden.Dir(t, "gemma4_dense/assistant"), root, "gemma-4-31B-it-assistant"))
	find(link(t, golden.Dir(t, "gemma4_dense/assistant"), path, "assistant"))
	link(t, golden.Dir(t, "gemma4_unified/assistant"), root, "gemma-4-31B-it-4bit-assistant") // of another model
	find(filepath.Join(path, "assistant"))
}

// TestFindDrafter puts one drafter after another beside a model: each goes before those that were there.
func TestFindDrafter(t *testing.T) {
	root := t.TempDir()
	path := link(t, golden.Dir(t, "dense"), root, "Dense-4bit")
	drafters := map[string]string{}
	for _, f := range golden.Drafters(t, "") {
		drafters[f.Name] = f.Dir
	}
	find := func(want, problem string, others map[string]string) {
		t.Helper()
		got, err := models.FindDrafter(path, "Dense-4bit", others)
		if rel, _ := filepath.Rel(root, got); got != "" && rel != want || got == "" && want != "" {
			t.Errorf("found %q, %v, want %q", got, err, want)
		}
		if (err != nil) != (problem != "") || err != nil && !strings.Contains(err.Error(), problem) {
			t.Errorf("error %v, want %q", err, problem)
		}
	}
	find("", "", nil)
	link(t, drafters["dflash_swa"], root, "Other-DFlash")
	link(t, drafters["dflash_swa"], root, "Dense-4")
	find("", "", nil)
	link(t, drafters["eagle3"], root, "dense-EAGLE3")
	find("dense-EAGLE3", "", nil)
	link(t, drafters["dflash_swa"], root, "Dense-DFlash-b16")
	find("Dense-DFlash-b16", "", nil)
	find("Dense-DFlash-b16", "", map[string]string{filepath.Join(root, "Other-DFlash"): "Other-DFlash"})
	find("Other-DFlash", "", map[string]string{filepath.Join(root, "Other-DFlash"): "Dense-4bit-EAGLE3"})
	bad := filepath.Join(link(t, drafters["dflash2"], root, "Dense-DFlash2"), "config.json")
	text := string(filetest.Read(t, bad))
	if err := os.Remove(bad); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{
		`"hidden_size": 128`: `"hidden_size": 256`,
		`{`:                  `{"target_model_name_or_path": "Org/Sparse", `,
	} {
		filetest.Write(t, bad, strings.Replace(text, from, to, 1))
		find("Dense-DFlash-b16", map[bool]string{true: "made for Org/Sparse", false: "hidden_size is 256, but the model's hidden rows have 128"}[from == "{"], nil)
	}
	filetest.Write(t, bad, strings.Replace(text, "{", `{"target_model_name_or_path": "Org/Dense", `, 1))
	find("Dense-DFlash2", "", nil)
	link(t, drafters["eagle31"], root, "Dense-4bit", "drafter")
	find("Dense-4bit/drafter", "", nil)
	if got, err := models.FindDrafter(models.Tiny, models.Tiny, nil); got != "" || err != nil {
		t.Errorf("the embedded model has %q, %v", got, err)
	}
}
