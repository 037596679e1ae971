package serving

import (
	"bytes"
	"log/slog"
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
