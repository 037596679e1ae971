package prefix

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/prefix/store"
)

// panicking is a log that panics at lines with a text.
type panicking struct {
	slog.Handler
	text   string
	faults chan string // that were logged
}

func (b *panicking) Enabled(context.Context, slog.Level) bool { return true }

func (b *panicking) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, b.text) {
		panic("log")
	}
	if strings.Contains(r.Message, "background task panicked") {
		b.faults <- r.Message
	}
	return nil
}

// TestDiskSurvivesPanics has reads and writes panic in the background: waiting requests continue, and the disk works.
func TestDiskSurvivesPanics(t *testing.T) {
	dir := t.TempDir()
	for _, name := range fill(t, dir, store.DiskOptions{}, 1, 100) {
		filetest.Write(t, name, "damaged")
	}
	n := newToy(t, 1<<20)
	log := &panicking{text: "file ignored", faults: make(chan string, 10)}
	d := openDisk(t, dir, store.DiskOptions{Log: slog.New(log)})
	c := n.cache(d)
	if got := fetched(c, story(0, 101)); got != 0 {
		t.Errorf("%d tokens of damaged files", got)
	}
	c.Close()
	d.Close()
	if len(log.faults) != 1 {
		t.Errorf("%d faults logged, want 1", len(log.faults))
	}

	dir = t.TempDir()
	log = &panicking{text: "file not written", faults: make(chan string, 10)}
	d = openDisk(t, dir, store.DiskOptions{Log: slog.New(log)})
	c = n.cache(d)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	n.remember(c, story(1, 101), 100)
	<-log.faults
	await(t, d)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	// Files that were not written are queued again.
	c.Close()
	c = n.cache(d)
	n.remember(c, story(1, 101), 100)
	c.Close()
	d.Close()
	if s := d.Stats(); s.Written == 0 || s.Written != int64(len(folder(t, dir))) || s.Queued != 0 {
		t.Errorf("%+v", s)
	}
}
