package serving

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/flags"
	"github.com/foretoken/foretoken/internal/filetest"
)

func TestServedModelsHaveNames(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "My-Model")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f := newServeFlags()
	f.models = flags.Texts{dir, "tiny"}
	f.aliases = flags.Texts{"gpt-4o", "small=tiny", "mine=My-Model"}
	f.pinned = flags.Texts{"tiny"}
	list, aliases, err := f.served()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 2 || list[0].Name != "My-Model" || list[0].Path != dir || list[1].Name != "tiny" || list[0].Pinned || !list[1].Pinned {
		t.Errorf("models %+v", list)
	}
	if want := map[string]string{"gpt-4o": "My-Model", "small": "tiny", "mine": "My-Model"}; !maps.Equal(aliases, want) {
		t.Errorf("aliases %v, want %v", aliases, want)
	}
}

// A model of the hub has no short name if a folder has that name.
func TestServedModelsKeepTheirNames(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("HF_HUB_CACHE", cache)
	pulled := filepath.Join(cache, "models--Org--My-Model", "snapshots", "0123456789abcdef0123456789abcdef01234567")
	dir := filepath.Join(t.TempDir(), "My-Model")
	for _, folder := range []string{pulled, dir} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	filetest.Write(t, filepath.Join(pulled, "model.safetensors"), "")
	f := newServeFlags()
	f.models = flags.Texts{"Org/My-Model", dir}
	list, aliases, err := f.served()
	if err != nil || len(list) != 2 || list[0].Name != "Org/My-Model" || list[1].Name != "My-Model" || len(aliases) > 0 {
		t.Errorf("models %+v, aliases %v, %v", list, aliases, err)
	}
}
