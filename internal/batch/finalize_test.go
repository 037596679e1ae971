package batch

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
)

// A worker may store an answer while the files of an expired batch are written. The line is still in
// exactly one of them.
func TestLateAnswerIsInOneFile(t *testing.T) {
	s := &lateStore{Store: lazyFolder(t, t.TempDir())}
	x := newSite(t, s, newClock())
	b := x.submit(t, request("a", `{"messages":[1]}`)+"\n"+request("b", `{"messages":[2]}`))
	x.step(t)
	list, err := x.queue.Fetch(t.Context(), "fingerprint of ", 2)
	if err != nil {
		t.Fatal(err)
	}
	w := &Worker{Store: x.store, Queue: x.queue, Model: "fingerprint of ", Run: x.run, Log: x.o.Log}
	w.handle(t.Context(), list[0], Call{})
	begun, release := make(chan struct{}), make(chan struct{})
	w.Run = func(ctx context.Context, c Call, endpoint string, request []byte) (*Result, error) {
		close(begun)
		<-release
		return x.run(ctx, c, endpoint, request)
	}
	var late sync.WaitGroup
	late.Go(func() { w.handle(t.Context(), list[1], Call{}) })
	<-begun
	x.clock.advance(DefaultWindow)
	s.written = func() {
		close(release)
		late.Wait()
	}
	x.step(t)
	b = x.status(t, b.ID)
	output, failed := x.content(t, b.Output), x.content(t, b.ErrorFile)
	if b.Status != Expired || b.Counts != (Counts{Total: 2, Completed: 1, Failed: 1}) || strings.Count(output, "\n") != 1 || strings.Count(failed, "batch_expired") != 1 {
		t.Errorf("%s, %+v, output:\n%s\nerrors:\n%s", b.Status, b.Counts, output, failed)
	}
}

// lateStore does something when a file of answers was written, once.
type lateStore struct {
	Store
	written func()
}

func (s *lateStore) Create(ctx context.Context, key string, r io.Reader) error {
	err := s.Store.Create(ctx, key, r)
	if written := s.written; written != nil && strings.HasPrefix(key, "content/") {
		s.written = nil
		written()
	}
	return err
}

// Two workers with the same answer do not diverge, whatever its text is.
func TestSameAnswersDoNotDiverge(t *testing.T) {
	w := &Worker{Store: lazyFolder(t, t.TempDir()), Log: slog.New(slog.DiscardHandler), Diverged: func() { t.Error("they differ") }}
	res := &Result{Status: 200, Body: []byte(`{"choices":[{"text":"<b> & more"}]}`)}
	for _, want := range []string{LineCompleted, LineFound} {
		if got, err := w.store(t.Context(), &Hint{}, "results/b/k", res); err != nil || got != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
}
