package batch

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/foretoken/foretoken/internal/filetest"
)

// fullStore is a store on a disk that is full at times.
type fullStore struct {
	Store
	full atomic.Bool
}

// noSpace is the error of a disk in the middle of a file.
type noSpace struct{}

func (noSpace) Read([]byte) (int, error) { return 0, errDiskFull }

func (s *fullStore) Create(ctx context.Context, key string, r io.Reader) error {
	if s.full.Load() {
		r = io.MultiReader(io.LimitReader(r, 10), noSpace{})
	}
	return s.Store.Create(ctx, key, r)
}

func (s *fullStore) Put(ctx context.Context, key string, data []byte, rev uint64) (uint64, error) {
	if s.full.Load() {
		return 0, full(errDiskFull)
	}
	return s.Store.Put(ctx, key, data, rev)
}

// A disk that is full for an hour loses nothing: new files and batches are refused, results wait for
// space, and no line is computed twice or abandoned.
func TestFullDiskLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := lazyFolder(t, t.TempDir())
		s := &fullStore{Store: folder}
		x := newSite(t, s, newClock())
		b := x.submit(t, file(20))
		x.step(t)
		s.full.Store(true)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		w := &Worker{Store: s, Queue: x.queue, Model: "fingerprint of ", Run: x.run, Concurrent: 3, Log: slog.New(slog.DiscardHandler)}
		go func() { ended <- w.Work(ctx) }()
		time.Sleep(time.Hour)
		if n := x.calls.Load(); n != 3 {
			t.Errorf("%d lines were computed, and 3 can wait for space", n)
		}
		if _, err := x.CreateFile(t.Context(), "me", "in.jsonl", "batch", 0, strings.NewReader(file(5))); !errors.Is(err, ErrFull) {
			t.Errorf("a new file: %v, want %v", err, ErrFull)
		}
		if _, err := x.Submit(t.Context(), Submission{Owner: "me", Input: b.Input, Endpoint: chatEndpoint}); !errors.Is(err, ErrFull) {
			t.Errorf("a new batch: %v, want %v", err, ErrFull)
		}
		for key, err := range folder.List(t.Context(), "content/") {
			if key != contentKey(b.Input) || err != nil {
				t.Errorf("left of a file: %s, %v", key, err)
			}
		}
		s.full.Store(false)
		time.Sleep(time.Minute)
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		x.step(t)
		if b = x.status(t, b.ID); b.Status != Completed || b.Counts != (Counts{Total: 20, Completed: 12, Failed: 8}) || x.calls.Load() != 16 {
			t.Errorf("%s, %+v after %d computations", b.Status, b.Counts, x.calls.Load())
		}
	})
}

// A model that is busy for an hour fails no line, however often its worker is stopped meanwhile: that
// is not an attempt.
func TestBusyModelFailsNoLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newSite(t, lazyFolder(t, t.TempDir()), newClock())
		b := x.submit(t, file(20))
		x.step(t)
		var busy atomic.Bool
		busy.Store(true)
		w := &Worker{Store: x.store, Queue: x.queue, Model: "fingerprint of ", Concurrent: 3, Log: slog.New(slog.DiscardHandler)}
		w.Run = func(ctx context.Context, c Call, endpoint string, request []byte) (*Result, error) {
			if busy.Load() {
				return &Result{Status: []int{429, 503}[len(request)%2], Body: []byte(`{"error":{"message":"later"}}`)}, nil
			}
			return x.run(ctx, c, endpoint, request)
		}
		for i := range 2 * maxAttempts {
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- w.Work(ctx) }()
			if i == maxAttempts {
				busy.Store(false)
			}
			time.Sleep(time.Hour / maxAttempts)
			stop()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		x.step(t)
		if b = x.status(t, b.ID); b.Status != Completed || b.Counts != (Counts{Total: 20, Completed: 12, Failed: 8}) {
			t.Errorf("%s, %+v", b.Status, b.Counts)
		}
	})
}

func TestFolderHasOneProcess(t *testing.T) {
	dir := t.TempDir()
	first := openFolder(t, dir)
	if _, err := OpenFolder(dir); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Errorf("a second one: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	openFolder(t, dir)
}

// A folder may have files of other programs, also in tmp: only files with our prefix are removed.
func TestFolderRemovesItsOwnFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, tempFolder), 0o700); err != nil {
		t.Fatal(err)
	}
	theirs, ours := filepath.Join(dir, tempFolder, "notes.txt"), filepath.Join(dir, tempFolder, tempPrefix+"1")
	for _, path := range []string{theirs, ours} {
		filetest.Write(t, path, "")
	}
	openFolder(t, dir)
	if _, err := os.Stat(theirs); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(ours); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what an earlier process left: %v", err)
	}
}
