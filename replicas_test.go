// The race detector has other tests, and would compile the S3 client for nothing.
//go:build !race

package foretoken

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/prefix/s3"
	"github.com/foretoken/foretoken/internal/prefix/s3/s3test"
	"github.com/foretoken/foretoken/internal/private"
	"github.com/foretoken/foretoken/sample"
)

// replica is a process that shares its prefixes.
type replica struct {
	o   Options
	log lockedBuffer
}

// lockedBuffer is a log that several goroutines write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

func newReplica(s *s3test.Server) *replica {
	r := &replica{}
	r.o = Options{ // the first pass of a shape is not timed: no time of a token is known when the prompt is stored
		Device: "opaque", Log: slog.New(slog.NewTextHandler(&r.log, nil)), Context: 512, KVMemory: 64 << 20, Threads: 1, Speculation: Speculation{NoSelfTest: true},
	}
	r.share(s, s3test.AccessKey)
	return r
}

// share has the replica share a bucket of the server.
func (r *replica) share(s *s3test.Server, key string) {
	r.o.shared = private.Shared{Uses: 1, Open: func(ctx context.Context) (private.Store, error) {
		return s3.Open(ctx, "s3://"+s3test.Bucket+"/tiny", s3.Options{Endpoint: s.URL, AccessKey: key, SecretKey: s3test.SecretKey})
	}}
}

// said is the text of an answer, with a hash of its logits' bits.
func (h heard) said() string { return fmt.Sprintf("%s %x", h.ids, h.hash) }

// ask opens the model, asks about a prompt of a kind, and closes it.
func (r *replica) ask(t *testing.T, kind int32, salt string, more ...func(*Model)) heard {
	t.Helper()
	m, err := Open(t.Context(), Tiny, r.o)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range more {
		f(m)
	}
	prompt := &Prompt{}
	for i := range int32(3*PageTokens + 2) { // after what is stored there is little to compute, for the slowest too
		prompt.IDs = append(prompt.IDs, 300+(kind*31+i*7)%1000)
	}
	a := hear(t, m, []Request{{Prompt: prompt, MaxTokens: 4, IgnoreEnd: true, Hash: true, CacheSalt: salt, Sampling: &sample.Options{Temperature: 0.8, Seed: 3}}})
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	return a[0]
}

// TestReplicasShareTheirPrefixes: a replica with any instruction set uses the prefixes that another one
// stored, and answers with the same bits. Prefixes of different salts are separate, in all replicas alike.
func TestReplicasShareTheirPrefixes(t *testing.T) {
	s := s3test.New(t)
	alone := newReplica(s)
	alone.o.PrefixCache.Off = true
	want := alone.ask(t, 1, "")
	r := newReplica(s)
	sets := []string{""}
	for _, d := range backend.List() {
		if d.Name == "cpu" {
			all := d.Runnable()
			sets = []string{all[0], all[len(all)-1]} // the slowest finds most of the prompt
		}
	}
	for i, isa := range sets {
		r.o.ISA = isa
		got := r.ask(t, 1, "")
		if known := got.cached; (known > 0) != (i > 0) {
			t.Errorf("replica %d, %s: %d tokens known", i, isa, known)
		}
		if got.said() != want.said() {
			t.Errorf("replica %d, %s: %s, want %s", i, isa, got.said(), want.said())
		}
	}
	r.o.ISA = ""
	for i, c := range []struct {
		salt  string
		known bool
	}{{"a", false}, {"a", true}, {"b", false}, {"", true}} {
		if got := r.ask(t, 1, c.salt); (got.cached > 0) != c.known {
			t.Errorf("request %d, salt %q: %d tokens known", i, c.salt, got.cached)
		}
	}
}

// TestReplicasGoOnWithoutTheStore stops the store after the start, and damages its objects.
func TestReplicasGoOnWithoutTheStore(t *testing.T) {
	s := s3test.New(t)
	r := newReplica(s)
	want := r.ask(t, 1, "")
	for name, fault := range map[string]s3test.Fault{"unavailable": s3test.Unavailable, "truncated": s3test.Truncated, "wrong": s3test.WrongBytes} {
		r := newReplica(s)
		got := r.ask(t, 1, "", func(*Model) {
			s.Fail(func(op, _ string) s3test.Fault {
				if fault == s3test.Unavailable || op == "get" {
					return fault
				}
				return s3test.None
			})
		})
		s.Fail(nil)
		if got.cached != 0 || got.said() != want.said() {
			t.Errorf("%s: %d tokens known, %s, want %s", name, got.cached, got.said(), want.said())
		}
		if n := r.log.count("level=WARN"); n < 1 || n > 2 { // reading, and writing
			t.Errorf("%s: %d warnings", name, n)
		}
	}
	r = newReplica(s)
	r.share(s, "another")
	if _, err := Open(t.Context(), Tiny, r.o); err == nil || !strings.Contains(err.Error(), "check AWS_ACCESS_KEY_ID") {
		t.Errorf("a wrong key: %v", err)
	}
}
