package batch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// clock is a time that tests set.
type clock struct{ at atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.at.Store(1_800_000_000)
	return c
}

func (c *clock) now() time.Time          { return time.Unix(c.at.Load(), 0) }
func (c *clock) advance(d time.Duration) { c.at.Add(int64(d / time.Second)) }

// echo answers as a server does.
func echo(calls *atomic.Int64) Run {
	return func(_ context.Context, c Call, endpoint string, request []byte) (*Result, error) {
		n := calls.Add(1)
		if strings.Contains(string(request), "refuse") {
			return &Result{Status: 400, Body: []byte(`{"error":{"message":"no"}}`)}, nil
		}
		return &Result{Status: 200, Cached: int(n % 3), Body: fmt.Appendf(nil, `{"id":%q,"created":%d,"choices":[{"text":%q}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}`,
			c.Key, c.Created.Unix(), endpoint+string(request))}, nil
	}
}

// site is a coordinator with a worker.
type site struct {
	*Coordinator
	store Store
	queue Queue
	calls atomic.Int64
	clock *clock
	run   Run
}

func newSite(t *testing.T, s Store, c *clock) *site {
	t.Helper()
	x := &site{store: s, queue: NewMemory(), clock: c}
	x.run = echo(&x.calls)
	x.Coordinator = NewCoordinator(Options{
		Store: s, Queue: x.queue, Now: c.now, Log: slog.New(slog.DiscardHandler),
		Fingerprint: func(_ context.Context, model string) (string, error) {
			if model == "unknown" {
				return "", fmt.Errorf("%w: %s", ErrModel, model)
			}
			return "fingerprint of " + model, nil
		},
	})
	made := 0
	x.id = func() string { made++; return fmt.Sprintf("%020x", made) } // the same for every site
	return x
}

// work has the worker do all that is queued for a model.
func (x *site) work(t *testing.T, model string) {
	t.Helper()
	w := &Worker{Store: x.store, Queue: x.queue, Model: "fingerprint of " + model, Run: x.run, Concurrent: 3, Log: slog.New(slog.DiscardHandler)}
	var all sync.WaitGroup
	for {
		m := x.queue.(*Memory)
		m.mu.Lock()
		waiting := len(m.models[w.Model])
		m.mu.Unlock()
		if waiting == 0 {
			break
		}
		list, err := x.queue.Fetch(t.Context(), w.Model, waiting)
		if err != nil {
			t.Fatal(err)
		}
		for i, d := range list {
			all.Go(func() { w.handle(t.Context(), d, Call{First: i == 0}) })
		}
		all.Wait()
	}
}

// file is one of n lines, of which some are malformed and some are refused.
func file(n int) string {
	var b strings.Builder
	for i := range n {
		switch i % 5 {
		case 3:
			fmt.Fprintln(&b, `{"custom_id": broken`)
		case 4:
			fmt.Fprintln(&b, request(fmt.Sprint("id-", i), `{"messages":[9,"refuse"]}`))
		default:
			fmt.Fprintln(&b, request(fmt.Sprint("id-", i), fmt.Sprintf(`{"messages":[%d]}`, i%2)))
		}
	}
	return b.String()
}

// submit begins a batch.
func (x *site) submit(t *testing.T, content string) Batch {
	t.Helper()
	f, err := x.CreateFile(t.Context(), "me", "in.jsonl", "batch", 0, strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	b, err := x.Submit(t.Context(), Submission{Owner: "me", Input: f.ID, Endpoint: chatEndpoint})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (x *site) step(t *testing.T) {
	t.Helper()
	if err := x.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (x *site) status(t *testing.T, id string) Batch {
	t.Helper()
	b, err := x.Batch(t.Context(), "me", id)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (x *site) content(t *testing.T, id string) string {
	t.Helper()
	if id == "" {
		return ""
	}
	_, r, err := x.Content(t.Context(), "me", id)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func openFolder(t *testing.T, dir string) *Folder {
	t.Helper()
	f, err := OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// lazyFolder is one for tests that turn off no real machine.
func lazyFolder(t *testing.T, dir string) *Folder {
	t.Helper()
	f := openFolder(t, dir)
	f.lazy = true
	return f
}

func TestBatchRunsFromFileToOutput(t *testing.T) {
	x := newSite(t, lazyFolder(t, t.TempDir()), newClock())
	b := x.submit(t, file(10))
	if b.Status != Validating {
		t.Errorf("a new batch is %s", b.Status)
	}
	x.step(t)
	if b = x.status(t, b.ID); b.Status != InProgress || b.Counts != (Counts{Total: 10, Failed: 2}) {
		t.Errorf("after validation: %s, %+v", b.Status, b.Counts)
	}
	x.work(t, "")
	x.step(t)
	b = x.status(t, b.ID)
	if b.Status != Completed || b.Counts != (Counts{Total: 10, Completed: 6, Failed: 4}) || b.Usage.Total != 30 {
		t.Errorf("at the end: %s, %+v, %+v", b.Status, b.Counts, b.Usage)
	}
	output, failed := x.content(t, b.Output), x.content(t, b.ErrorFile)
	if strings.Count(output, "\n") != 6 || strings.Count(failed, "\n") != 4 || !strings.Contains(failed, "line 4: ") {
		t.Errorf("output:\n%s\nerrors:\n%s", output, failed)
	}
	for key, err := range x.store.List(t.Context(), "results/") {
		t.Errorf("left in the store: %s, %v", key, err)
	}
}

func TestBatchOfAnotherIsNotThere(t *testing.T) {
	x := newSite(t, lazyFolder(t, t.TempDir()), newClock())
	b := x.submit(t, file(1))
	for _, id := range []string{b.ID, "batch_none", "../batches/" + b.ID, ""} {
		if _, err := x.Batch(t.Context(), "you", id); err == nil {
			t.Errorf("%q was shown", id)
		}
		if _, err := x.Cancel(t.Context(), "you", id); err == nil {
			t.Errorf("%q was canceled", id)
		}
	}
	if _, err := x.File(t.Context(), "you", b.Input); err == nil {
		t.Error("the file was shown")
	}
	if _, err := x.Submit(t.Context(), Submission{Owner: "you", Input: b.Input, Endpoint: chatEndpoint}); err == nil {
		t.Error("the file was used")
	}
	if list, _, err := x.Batches(t.Context(), "you", Page{}); err != nil || len(list) > 0 {
		t.Error("the batch was listed", err)
	}
}

func TestBatchFailsValidation(t *testing.T) {
	x := newSite(t, lazyFolder(t, t.TempDir()), newClock())
	b, c := x.submit(t, "hello"), x.submit(t, request("a", `{"model":"unknown"}`))
	x.step(t)
	b, c = x.status(t, b.ID), x.status(t, c.ID)
	if b.Status != Failed || b.Errors.Data[0].Code != "invalid_json_line" || b.FailedAt == 0 {
		t.Errorf("%+v", b)
	}
	if c.Status != Failed || c.Errors.Data[0].Code != "model_not_found" {
		t.Errorf("%+v", c)
	}
}

func TestBatchDeliversWhatIsDone(t *testing.T) {
	for _, cancel := range []bool{true, false} {
		x := newSite(t, lazyFolder(t, t.TempDir()), newClock())
		b := x.submit(t, file(10))
		x.step(t)
		list, err := x.queue.Fetch(t.Context(), "fingerprint of ", 2)
		if err != nil {
			t.Fatal(err)
		}
		w := &Worker{Store: x.store, Queue: x.queue, Model: "fingerprint of ", Run: x.run}
		for _, d := range list {
			w.handle(t.Context(), d, Call{})
		}
		want, missing := Cancelled, 0
		if cancel {
			x.clock.advance(pollEvery)
			x.step(t)
			before := x.status(t, b.ID).Counts
			if b, err = x.Cancel(t.Context(), "me", b.ID); err != nil || b.Status != Cancelling || b.Counts != before || before.Completed == 0 {
				t.Fatal(b.Status, b.Counts, before, err)
			}
		} else {
			x.clock.advance(DefaultWindow)
			want, missing = Expired, 4
		}
		x.step(t)
		b = x.status(t, b.ID)
		if n := b.Counts; b.Status != want || n.Completed != 2 || n.Failed != 2+missing+missing/2 {
			t.Errorf("%s, %+v, output:\n%s%s", b.Status, n, x.content(t, b.Output), x.content(t, b.ErrorFile))
		}
		if !cancel && strings.Count(x.content(t, b.ErrorFile), "batch_expired") != 6 {
			t.Error(x.content(t, b.ErrorFile))
		}
		if _, err := x.Cancel(t.Context(), "me", b.ID); !errors.Is(err, ErrOver) {
			t.Errorf("canceled again: %v", err)
		}
	}
}

// A store loses results, or damages them, when all are there and the output is not: they are made
// again, and the output is whole.
func TestLostResultsAreMadeAgain(t *testing.T) {
	for _, damage := range []bool{false, true} {
		folder := lazyFolder(t, t.TempDir())
		s := &losingStore{Store: folder}
		x := newSite(t, s, newClock())
		b := x.submit(t, file(10))
		x.step(t)
		x.work(t, "")
		made := x.calls.Load()
		s.lose = func() {
			for key, err := range folder.List(t.Context(), "results/") {
				path := filepath.Join(folder.dir, filepath.FromSlash(key))
				if err == nil && damage {
					err = os.WriteFile(path, []byte("{"), 0o600)
				} else if err == nil {
					err = os.Remove(path)
				}
				if err != nil {
					t.Fatal(err)
				}
				return // one of them
			}
		}
		for range 3 {
			_ = x.Step(t.Context()) // it may find damage
		}
		if got := x.status(t, b.ID).Status; got != InProgress {
			t.Fatalf("damage %t: the batch is %s", damage, got)
		}
		x.work(t, "")
		x.step(t)
		if b = x.status(t, b.ID); b.Status != Completed || b.Counts != (Counts{Total: 10, Completed: 6, Failed: 4}) || x.calls.Load() != made+1 {
			t.Errorf("damage %t: %s, %+v after %d computations and %d", damage, b.Status, b.Counts, made, x.calls.Load())
		}
	}
}

// losingStore does something when a batch is to be finalized, once.
type losingStore struct {
	Store
	lose func()
}

func (s *losingStore) Put(ctx context.Context, key string, data []byte, rev uint64) (uint64, error) {
	rev, err := s.Store.Put(ctx, key, data, rev)
	if lose := s.lose; lose != nil && strings.Contains(string(data), `"status":"finalizing"`) {
		s.lose = nil
		lose()
	}
	return rev, err
}

// Results of a batch that began since the batches were listed are not swept: another coordinator may
// have taken it.
func TestSweepKeepsResultsOfNewBatches(t *testing.T) {
	s := &hidingStore{Store: lazyFolder(t, t.TempDir())}
	x := newSite(t, s, newClock())
	b := x.submit(t, file(10))
	x.step(t)
	x.work(t, "")
	s.hiding = true
	if err := x.sweepBatches(t.Context(), x.clock.now()); err != nil {
		t.Fatal(err)
	}
	s.hiding = false
	x.step(t)
	if b = x.status(t, b.ID); b.Status != Completed {
		t.Errorf("the batch is %s", b.Status)
	}
}

// hidingStore does not list batches.
type hidingStore struct {
	Store
	hiding bool
}

func (s *hidingStore) List(ctx context.Context, prefix string) iter.Seq2[string, error] {
	if s.hiding && prefix == "batches/" {
		return func(func(string, error) bool) {}
	}
	return s.Store.List(ctx, prefix)
}

func TestCoordinatorPublishesWhatWasLost(t *testing.T) {
	x := newSite(t, lazyFolder(t, t.TempDir()), newClock())
	b := x.submit(t, file(10))
	x.step(t)
	if err := x.queue.Drop(t.Context(), "", b.ID); err != nil { // the queue loses all
		t.Fatal(err)
	}
	x.step(t)
	x.work(t, "")
	if n := x.calls.Load(); n != 0 {
		t.Errorf("%d calls at once", n)
	}
	x.clock.advance(reconcileEvery)
	x.step(t)
	x.work(t, "")
	x.step(t)
	if b = x.status(t, b.ID); b.Status != Completed {
		t.Errorf("%s, %+v", b.Status, b.Counts)
	}
}

func TestFilesExpire(t *testing.T) {
	x := newSite(t, lazyFolder(t, t.TempDir()), newClock())
	b := x.submit(t, file(5))
	if err := x.DeleteFile(t.Context(), "me", b.Input); !errors.Is(err, ErrInUse) {
		t.Errorf("a file in use was deleted: %v", err)
	}
	x.step(t)
	x.work(t, "")
	x.step(t)
	b = x.status(t, b.ID)
	x.clock.advance(DefaultKeep + time.Hour)
	x.step(t)
	if _, err := x.File(t.Context(), "me", b.Output); err == nil {
		t.Error("the output is still there")
	}
	if _, err := x.Batch(t.Context(), "me", b.ID); err == nil {
		t.Error("the batch is still there")
	}
	for key, err := range x.store.List(t.Context(), "content/") {
		t.Errorf("left in the store: %s, %v", key, err)
	}
}

// flaky fails one call of a store, before or after its effect.
type flaky struct {
	Store
	calls, at int
	after     bool
}

var errFlaky = errors.New("the machine has lost power")

// fail counts a call and reports whether it fails now.
func (f *flaky) fail(after bool) bool {
	if !after {
		f.calls++
	}
	return f.calls >= f.at && (f.calls > f.at || after == f.after) // from there on the machine is off
}

func (f *flaky) Create(ctx context.Context, key string, r io.Reader) error {
	if f.fail(false) {
		return errFlaky
	}
	if err := f.Store.Create(ctx, key, r); err != nil || !f.fail(true) {
		return err
	}
	return errFlaky
}

func (f *flaky) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	if f.fail(false) {
		return nil, errFlaky
	}
	return f.Store.Open(ctx, key)
}

func (f *flaky) Range(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	if f.fail(false) {
		return nil, errFlaky
	}
	return f.Store.Range(ctx, key, offset, length)
}

func (f *flaky) Put(ctx context.Context, key string, data []byte, rev uint64) (uint64, error) {
	if f.fail(false) {
		return 0, errFlaky
	}
	rev, err := f.Store.Put(ctx, key, data, rev)
	if err != nil || !f.fail(true) {
		return rev, err
	}
	return 0, errFlaky
}

func (f *flaky) Get(ctx context.Context, key string) ([]byte, uint64, error) {
	if f.fail(false) {
		return nil, 0, errFlaky
	}
	return f.Store.Get(ctx, key)
}

func (f *flaky) Delete(ctx context.Context, key string) error {
	if f.fail(false) {
		return errFlaky
	}
	if err := f.Store.Delete(ctx, key); err != nil || !f.fail(true) {
		return err
	}
	return errFlaky
}

func (f *flaky) List(ctx context.Context, prefix string) iter.Seq2[string, error] {
	if f.fail(false) {
		return func(yield func(string, error) bool) { yield("", errFlaky) }
	}
	return f.Store.List(ctx, prefix)
}
