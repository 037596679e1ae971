package batches

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
)

// A worker keeps files of requests in a folder for temporary files, unless another user could have
// created it.
func TestFolderOfOthersIsRefused(t *testing.T) {
	temp := t.TempDir()
	file := filetest.Write(t, filepath.Join(temp, "file"), "")
	t.Setenv("TMPDIR", file)
	if _, err := ownTemp(); err == nil || !strings.Contains(err.Error(), "--state-dir") {
		t.Errorf("without a folder for temporary files: %v", err)
	}
	t.Setenv("TMPDIR", temp)
	dir, err := ownTemp()
	if err != nil || filepath.Dir(dir) != temp {
		t.Fatal(dir, err)
	}
	if again, err := ownTemp(); again != dir || err != nil {
		t.Fatal(again, err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := ownTemp(); err == nil || !strings.Contains(err.Error(), "--state-dir") {
		t.Errorf("a world-writable folder: %v", err)
	}
	if err := errors.Join(os.Remove(dir), os.Symlink(t.TempDir(), dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := ownTemp(); err == nil {
		t.Error("a link to another folder is taken")
	}
}
