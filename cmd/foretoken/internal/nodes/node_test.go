package nodes

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
	"github.com/foretoken/foretoken/internal/filetest"
)

// A model that was pulled while the node runs is found by the next leader.
func TestModelsAreListedForEachLeader(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("HF_HUB_CACHE", cache)
	f := &nodeFlags{}
	if list := f.models(); !slices.Equal(list, []string{load.Embedded}) {
		t.Errorf("%q", list)
	}
	commit := "0123456789abcdef0123456789abcdef01234567"
	pulled := filepath.Join(cache, "models--Org--Model", "snapshots", commit)
	filetest.Write(t, filepath.Join(pulled, "config.json"), "{}")
	filetest.Write(t, filepath.Join(pulled, "model.safetensors"), "x")
	filetest.Write(t, filepath.Join(cache, "models--Org--Model", "refs", "main"), commit)
	if list := f.models(); !slices.Equal(list, []string{load.Embedded, pulled}) {
		t.Errorf("%q", list)
	}
}
