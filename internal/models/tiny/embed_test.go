//go:build !noembed

package tiny_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/models/tiny"
)

// A file added to the folder but not to the table would be missing only from the
// binary, which no other test checks.
func TestFilesHoldsTheWholeFolder(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	files := tiny.Files()
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext == ".go" || ext == ".md" {
			continue
		}
		want := filetest.Read(t, e.Name())
		if got, ok := files[e.Name()]; !ok {
			t.Errorf("%s is not embedded", e.Name())
		} else if got != string(want) {
			t.Errorf("%s: embedded under the wrong name", e.Name())
		}
		delete(files, e.Name())
	}
	for name := range files {
		t.Errorf("%s is embedded but not in the folder", name)
	}
}

func TestFilesMapIsTheCallers(t *testing.T) {
	clear(tiny.Files())
	if len(tiny.Files()) == 0 {
		t.Error("clearing a returned map emptied the next one")
	}
}
