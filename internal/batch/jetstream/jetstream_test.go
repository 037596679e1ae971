package jetstream_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/batch"
	"github.com/foretoken/foretoken/internal/batch/batchtest"
	"github.com/foretoken/foretoken/internal/batch/jetstream"
	"github.com/foretoken/foretoken/internal/batch/jetstream/natstest"
)

// remote starts a server and connects to it.
func remote(t testing.TB, o jetstream.Options) *jetstream.Conn {
	t.Helper()
	_, o.Servers = natstest.Cluster(t, 1)
	c, err := jetstream.Dial(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestRemoteIsAQueue(t *testing.T) {
	t.Parallel()
	batchtest.Queues(t, func(t *testing.T) batch.Queue { return remote(t, jetstream.Options{}).Queue() })
}

func TestRemoteIsAStore(t *testing.T) {
	t.Parallel()
	batchtest.Stores(t, func(t *testing.T) batch.Store {
		s, err := remote(t, jetstream.Options{}).Store(t.Context(), t.TempDir(), 4<<20)
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

// Tens of thousands of results are read one by one: each is one request to the servers.
func TestReadingARecordIsOneRequest(t *testing.T) {
	t.Parallel()
	c := remote(t, jetstream.Options{})
	s, err := c.Store(t.Context(), t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "batches/a", []byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	n, err := jetstream.Asked(c, func() error {
		_, _, err := s.Get(t.Context(), "batches/a")
		return err
	})
	if err != nil || n != 1 {
		t.Errorf("%d requests, %v", n, err)
	}
}

func TestSilentWorkersLoseTheirHints(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	const wait = 2 * time.Second
	if err := batchtest.Silence(ctx, remote(t, jetstream.Options{AckWait: wait}).Queue(), wait); err != nil {
		t.Error(err)
	}
}

func TestUnreachableServersAreNamed(t *testing.T) {
	for _, x := range []struct{ server, wanted string }{
		{"nats://127.0.0.1:1", "queue nats://127.0.0.1:1: nats: no servers available"},
		{"nats://user:secret@127.0.0.1:1", "queue nats://127.0.0.1:1: nats: no servers available"},
		{"http://127.0.0.1:1", "want nats://HOST:PORT or tls://HOST:PORT"},
		{"nats://user:secret@%zz", "an address is not valid"},
	} {
		c, err := jetstream.Dial(t.Context(), jetstream.Options{Servers: []string{x.server}})
		if err == nil {
			c.Close()
			t.Fatalf("%s was reached", x.server)
		}
		if !strings.Contains(err.Error(), x.wanted) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %s", x.server, err, x.wanted)
		}
	}
}
