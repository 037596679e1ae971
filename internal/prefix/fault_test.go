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

// bomb is a log whose lines with a certain text panic, as a background task panicked would.
type bomb struct {
	slog.Handler
	text   string
	faults chan string // that were logged
}

func (b *bomb) Enabled(context.Context, slog.Level) bool { return true }

func (b *bomb) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, b.text) {
		panic("blown log")
	}
	if strings.Contains(r.Message, "background task panicked") {
		b.faults <- r.Message
	}
	return nil
}

// TestDiskSurvivesPanics has the goroutines that read and write panic: who waits for them
// is told, and the disk goes on.
func TestDiskSurvivesPanics(t *testing.T) {
	dir := t.TempDir()
	for _, name := range fill(t, dir, store.DiskOptions{}, 1, 100) {
		filetest.Write(t, name, "damaged")
	}
	n := newToy(t, 1<<20)
	log := &bomb{text: "file ignored", faults: make(chan string, 10)}
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
	log = &bomb{text: "file not written", faults: make(chan string, 10)}
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
	// What was not written is no longer on the list: it is queued again.
	c.Close()
	c = n.cache(d)
	n.remember(c, story(1, 101), 100)
	c.Close()
	d.Close()
	if s := d.Stats(); s.Written == 0 || s.Written != int64(len(folder(t, dir))) || s.Queued != 0 {
		t.Errorf("%+v", s)
	}
}
