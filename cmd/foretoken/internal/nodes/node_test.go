package nodes

import (
	"bytes"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/foretoken/foretoken/cmd/foretoken/internal/load"
	"github.com/foretoken/foretoken/internal/backend/remote"
	"github.com/foretoken/foretoken/internal/filetest"
	"github.com/foretoken/foretoken/internal/node"
)

// A model that was pulled while the node runs is found by the next leader.
func TestModelsAreListedForEachLeader(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("HF_HUB_CACHE", cache)
	f := &nodeFlags{}
	if list := f.models(); !slices.Equal(list, []string{load.Embedded}) {
		t.Errorf("%q", list)
	}
	commit := "0123456789abcdef0123456789abcdef01234567"
	pulled := filepath.Join(cache, "models--Org--Model", "snapshots", commit)
	filetest.Write(t, filepath.Join(pulled, "config.json"), "{}")
	filetest.Write(t, filepath.Join(pulled, "model.safetensors"), "x")
	filetest.Write(t, filepath.Join(cache, "models--Org--Model", "refs", "main"), commit)
	if list := f.models(); !slices.Equal(list, []string{load.Embedded, pulled}) {
		t.Errorf("%q", list)
	}
}

// A matrix that takes long to arrive is progress, and the node says what it holds when no more comes.
func TestNodeSaysWhatItReceives(t *testing.T) {
	weights, err := node.OpenWeights(node.WeightOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	w := watch{lender: &lender{log: slog.New(slog.NewTextHandler(&log, nil)), weights: weights}, read: 500}
	since := time.Unix(1, 0)
	for i, c := range []struct {
		received, passes, read int64
		said                   string
	}{
		{0, 0, 700, ""},
		{1000, 0, 2_000_500, "receiving weights\" leader=a received_bytes=2000000"},
		{1000, 0, 9_000_500, "received_bytes=9000000"},
		{5000, 0, 9_000_600, ""}, // it is complete
		{5000, 0, 9_000_700, "holds a part of a model"},
		{5000, 0, 9_000_800, ""},
		{5000, 7, 11_000_000, ""}, // rows of passes
	} {
		log.Reset()
		w.look(remote.Status{Leader: "a", Since: since, Received: c.received, Passes: c.passes}, c.read)
		if got := log.String(); !strings.Contains(got, c.said) || (got == "") != (c.said == "") {
			t.Errorf("look %d: %q, want %q", i, got, c.said)
		}
	}
	w.look(remote.Status{}, 11_000_000)
	log.Reset()
	w.look(remote.Status{Leader: "b", Since: since.Add(1), Received: 5000}, 12_000_000)
	if !strings.Contains(log.String(), "received_bytes=1000000") {
		t.Errorf("the next leader: %s", &log)
	}
}

func TestNodeCountsWhatItReads(t *testing.T) {
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close() //nolint:errcheck // of no interest
	x := &lender{}
	c, err := net.Dial("tcp", raw.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("abc")); err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // of no interest
	s, err := metered{raw, &x.read}.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // of no interest
	if n, err := s.Read(make([]byte, 3)); err != nil || x.read.Load() != int64(n) || n == 0 {
		t.Errorf("%d bytes, %d are counted: %v", n, x.read.Load(), err)
	}
}
