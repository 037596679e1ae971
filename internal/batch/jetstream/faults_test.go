package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/batch"
	"github.com/foretoken/foretoken/internal/batch/jetstream"
)

func hints(n int) []batch.Hint {
	var list []batch.Hint
	for line := 1; line <= n; line++ {
		list = append(list, batch.Hint{Batch: "b", Model: "m", File: "content/f", Line: line})
	}
	return list
}

// fetch fetches exactly n hints.
func fetch(t *testing.T, q batch.Queue, n int) (list []batch.Delivery) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for len(list) < n {
		got, err := q.Fetch(ctx, "m", n-len(list))
		if err != nil {
			t.Fatalf("%d hints of %d: %v", len(list), n, err)
		}
		list = append(list, got...)
	}
	return list
}

// waitFor waits until a batch has wanted hints.
func waitFor(t *testing.T, q batch.Queue, wanted int) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		n, err := q.Outstanding(t.Context(), "m", "b")
		if err != nil || time.Since(began) > 5*time.Minute {
			t.Fatalf("%d outstanding, want %d: %v", n, wanted, err)
		}
		if n == wanted {
			return
		}
	}
}

// If another client deletes the stream, its hints are lost and the queue still works.
func TestDeletedStreamIsMadeAgain(t *testing.T) {
	c := remote(t, jetstream.Options{})
	q := c.Queue()
	if err := q.Publish(t.Context(), hints(5)); err != nil {
		t.Fatal(err)
	}
	fetch(t, q, 2)
	waiting := make(chan error, 1)
	for range 2 {
		if err := jetstream.DeleteWork(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := q.Fetch(t.Context(), "m", 1)
			waiting <- err
		}()
		if err := q.Publish(t.Context(), hints(5)); err != nil {
			t.Fatal(err)
		}
		if err := <-waiting; err != nil {
			t.Fatal(err)
		}
	}
}

func TestFullQueueSaysSo(t *testing.T) {
	q := remote(t, jetstream.Options{MaxBytes: 20_000}).Queue()
	err := q.Publish(t.Context(), hints(1000))
	if !errors.Is(err, batch.ErrFull) {
		t.Fatalf("error %v, want %v", err, batch.ErrFull)
	}
	n, err := q.Outstanding(t.Context(), "m", "b")
	if err != nil || n == 0 || n == 1000 {
		t.Fatalf("%d hints are there, %v", n, err)
	}
	for _, d := range fetch(t, q, n) {
		if err := d.Done(); err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, q, 0)
	if err := q.Publish(t.Context(), []batch.Hint{{Batch: "b", Model: "m", Line: 2000}}); err != nil {
		t.Errorf("there is room again: %v", err)
	}
}

// Foreign messages are not hints, and are not delivered again.
func TestForeignMessagesAreRemoved(t *testing.T) {
	c := remote(t, jetstream.Options{})
	q := c.Queue()
	for _, text := range []string{"", "{", `{"line": "x"}`, "\xff"} {
		if err := jetstream.PublishRaw(c, "m", "b", text); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Publish(t.Context(), hints(1)); err != nil {
		t.Fatal(err)
	}
	if d := fetch(t, q, 1)[0]; d.Hint() != hints(1)[0] {
		t.Errorf("hint %+v", d.Hint())
	} else if err := d.Done(); err != nil {
		t.Error(err)
	}
	waitFor(t, q, 0)
}

// The cache is smaller than the files that are read, and two processes share it.
func TestCacheStaysSmall(t *testing.T) {
	const size = 1 << 20
	dir := t.TempDir()
	c := remote(t, jetstream.Options{})
	var stores [2]*jetstream.Store
	for i := range stores {
		s, err := c.Store(t.Context(), dir, size)
		if err != nil {
			t.Fatal(err)
		}
		stores[i] = s
	}
	for i := range 6 {
		if err := stores[0].Create(t.Context(), fmt.Sprintf("content/%d", i), strings.NewReader(strings.Repeat(fmt.Sprint(i), 400<<10))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 24 {
		want := fmt.Sprint(i % 6)
		got, err := stores[i%2].Range(t.Context(), "content/"+want, 300<<10, 5)
		if err != nil || string(got) != strings.Repeat(want, 5) {
			t.Fatalf("part of %s: %q, %v", want, got, err)
		}
		var total int64
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil {
				t.Fatal(err)
			}
			total += info.Size()
		}
		if total > size || total == 0 {
			t.Fatalf("the cache has %d bytes, at most %d", total, size)
		}
	}
	for i := range 6 { // each is one object, and none remains
		if err := stores[1].Delete(t.Context(), fmt.Sprintf("content/%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := jetstream.Objects(t.Context(), stores[0]); n != 0 || err != nil {
		t.Errorf("%d objects are left, %v", n, err)
	}
}

// Objects from the servers are checked: a wrong file is an error, not a wrong line.
func TestWrongReferencesAreRefused(t *testing.T) {
	s, err := remote(t, jetstream.Options{}).Store(t.Context(), t.TempDir(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{`{"object":"../../etc/passwd","size":1}`, `{"object":"","size":0}`, `{`, `{"object":"a/b","size":1}`} {
		if err := jetstream.WriteReference(t.Context(), s, "content/x", ref); err != nil {
			t.Fatal(err)
		}
		if r, err := s.Open(t.Context(), "content/x"); err == nil {
			data, _ := io.ReadAll(r)
			t.Errorf("%s: %q", ref, data)
		}
	}
}

// Parts of files of a killed process are swept, and nothing else.
func TestSweepDeletesUnreferencedObjects(t *testing.T) {
	s, err := remote(t, jetstream.Options{}).Store(t.Context(), t.TempDir(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("x", 300<<10)
	for _, key := range []string{"content/a", "content/b"} {
		if err := s.Create(t.Context(), key, strings.NewReader(large)); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"content/none", "content/a", ""} { // one of these is another object's
		if err := jetstream.PutObject(t.Context(), s, key); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		before time.Time
		want   int
	}{{time.Now().Add(-time.Hour), 5}, {time.Now().Add(time.Hour), 2}, {time.Now().Add(time.Hour), 2}} {
		if err := s.Sweep(t.Context(), c.before); err != nil {
			t.Fatal(err)
		}
		if n, err := jetstream.Objects(t.Context(), s); n != c.want || err != nil {
			t.Errorf("%d objects, want %d: %v", n, c.want, err)
		}
	}
	for _, key := range []string{"content/a", "content/b"} {
		if data, err := s.Range(t.Context(), key, 0, 300<<10); err != nil || string(data) != large {
			t.Errorf("%s: %d bytes, %v", key, len(data), err)
		}
	}
}
