package batch

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/foretoken/foretoken/internal/filetest"
)

// open opens a queue as a process does at its start.
func open(t *testing.T, file string) *Memory {
	t.Helper()
	m, err := OpenMemory(file, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A line that ends the process each time runs out of attempts. Lines that were finished, or given back
// before the end, are not counted.
func TestAttemptsOutliveTheProcess(t *testing.T) {
	store, file := lazyFolder(t, t.TempDir()), filepath.Join(t.TempDir(), "attempts")
	var id string
	for process := 1; process <= maxAttempts+1; process++ {
		x := newSite(t, store, newClock())
		x.queue = open(t, file)
		x.o.Queue = x.queue
		if process == 1 {
			id = x.submit(t, request("ends the process", "{}")+"\n"+request("is given back", `{"n":1}`)+"\n").ID
		}
		x.step(t)
		if process == maxAttempts+1 {
			x.work(t, "")
			x.step(t)
			b := x.status(t, id)
			if b.Status != Completed || b.Counts.Failed != 1 || b.Counts.Completed != 1 || x.calls.Load() != 1 {
				t.Errorf("%s, %+v after %d calls", b.Status, b.Counts, x.calls.Load())
			}
			break
		}
		list, err := x.queue.Fetch(t.Context(), "fingerprint of ", 2)
		if err != nil || len(list) != 2 {
			t.Fatal(list, err)
		}
		for _, d := range list {
			switch {
			case d.Hint().Line == 2 && d.Attempts() != 1, d.Hint().Line == 1 && d.Attempts() != process:
				t.Errorf("process %d: line %d has attempt %d", process, d.Hint().Line, d.Attempts())
			case d.Hint().Line == 2:
				if err := d.Return(); err != nil {
					t.Error(err)
				}
			}
		}
	}
	if left, err := os.ReadFile(file); err != nil || string(left) != "{}" {
		t.Errorf("the file has %s, %v", left, err)
	}
}

// A damaged file is reported and costs the count of attempts, nothing else.
func TestDamagedAttemptsAreReported(t *testing.T) {
	file := filepath.Join(t.TempDir(), "attempts")
	for _, text := range []string{"", "null", "{", `{"b":{"1":"x"}}`, "\xff"} {
		filetest.Write(t, file, text)
		var log bytes.Buffer
		m, err := OpenMemory(file, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(log.String(), file) {
			t.Errorf("%q: the log has %q", text, &log)
		}
		if err := m.Publish(t.Context(), []Hint{{Batch: "b", Model: "m", Line: 1}}); err != nil {
			t.Fatal(err)
		}
		if list, err := m.Fetch(t.Context(), "m", 1); err != nil || list[0].Attempts() != 1 {
			t.Errorf("%q: %v, %v", text, list, err)
		}
	}
}

// A line whose attempt cannot be saved stays in the queue.
func TestUnsavedAttemptsAreNotMade(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	m := open(t, filepath.Join(dir, "attempts"))
	if err := m.Publish(t.Context(), []Hint{{Batch: "b", Model: "m", Line: 1}}); err != nil {
		t.Fatal(err)
	}
	if list, err := m.Fetch(t.Context(), "m", 1); !errors.Is(err, os.ErrNotExist) || len(list) != 0 {
		t.Fatalf("%v, %v", list, err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	list, err := m.Fetch(context.Background(), "m", 1)
	if err != nil || list[0].Attempts() != 1 {
		t.Fatalf("%v, %v", list, err)
	}
}
