package main

import (
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/internal/models/tiny"
)

// On a terminal there are bars, and Ctrl-C leaves them there; removing asks.
func TestPullOnATerminal(t *testing.T) {
	hold := make(chan struct{})
	serveHub(t, map[string]map[string]string{"Org/Tiny": tiny.Files()}, func(r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "model-00002-of-00002.safetensors") {
			select {
			case <-hold:
			case <-r.Context().Done():
			}
		}
	})
	m := startTerminal(t, "pull", "Org/Tiny")
	m.expect("Org/Tiny at 0123456789ab: 11 files, " + console.ByteText(tinySize()))
	m.expect("config.json, ")
	m.expect("model-00002-of-00002.safetensors |  ")
	m.press(keyInterrupt)
	m.expect("run the same command to resume")
	if code := m.end(); code != exitInterrupted {
		t.Errorf("after Ctrl-C: exit code %d", code)
	}
	close(hold)
	m = startTerminal(t, "pull", "Org/Tiny")
	m.expect("100 %, ")
	m.expect("/models--Org--Tiny/snapshots/" + pulledCommit)
	if code := m.end(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	m = startTerminal(t, "rm", "Org/Tiny")
	m.expect("? [y/N] ")
	if err := m.program.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := m.end(); code != -1 { // the signal's
		t.Errorf("told to end where it asks: exit code %d", code)
	}
	for _, c := range []struct {
		keys, says string
		code       int
	}{
		{keyEnter, "nothing was removed", exitError},
		{"yes" + keyEnter, "removed Org/Tiny, ", exitOK},
	} {
		m = startTerminal(t, "rm", "Org/Tiny")
		m.expect("Remove Org/Tiny, " + console.ByteText(tinySize()))
		m.expect("from " + os.Getenv("HF_HUB_CACHE") + "? [y/N] ")
		m.press(c.keys)
		m.expect(c.says)
		if code := m.end(); code != c.code {
			t.Errorf("%q: exit code %d", c.keys, code)
		}
	}
}
