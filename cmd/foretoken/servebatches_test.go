package main

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/server"
)

// A user without a home, as a service may have, has no folder for state. The server starts without
// batches then, and leaves the folder that it was started in alone.
func TestNoHomeMeansNoBatches(t *testing.T) {
	for _, name := range []string{"HOME", "USERPROFILE", "XDG_STATE_HOME"} {
		t.Setenv(name, "")
	}
	t.Chdir(t.TempDir())
	var log bytes.Buffer
	var o server.Options
	end, err := newServeFlags().openBatches(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), &o)
	if err != nil {
		t.Fatal(err)
	}
	end()
	if o.Batches != nil || !strings.Contains(log.String(), "set --state-dir") {
		t.Errorf("batches %v, log: %s", o.Batches, &log)
	}
	if left, err := filepath.Glob("*"); err != nil || len(left) > 0 {
		t.Errorf("the folder has %q, %v", left, err)
	}
}

// A worker keeps files of requests in a folder for temporary files, unless somebody else could have
// made it.
func TestFolderOfOthersIsRefused(t *testing.T) {
	temp := t.TempDir()
	file := filepath.Join(temp, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
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
		t.Errorf("a folder that everybody can write to: %v", err)
	}
	if err := errors.Join(os.Remove(dir), os.Symlink(t.TempDir(), dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := ownTemp(); err == nil {
		t.Error("a link to another folder is taken")
	}
}
