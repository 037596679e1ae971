package load

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"

	"github.com/foretoken/foretoken"
	"github.com/foretoken/foretoken/cmd/foretoken/internal/console"
	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/remote"
	"github.com/foretoken/foretoken/internal/backend/remote/link"
	"github.com/foretoken/foretoken/internal/golden"
)

// serveNode serves a node on a listener until stop is called.
func serveNode(t *testing.T, raw net.Listener) (stop func()) {
	t.Helper()
	key, err := link.New()
	if err != nil {
		t.Fatal(err)
	}
	l, err := link.Listen(raw, link.Options{Identity: key})
	if err != nil {
		t.Fatal(err)
	}
	s := &remote.Server{Open: func() (backend.Backend, error) { return backend.Open("cpu", backend.Options{Threads: 1}) }, Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Serve(ctx, l) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// listen listens on this machine.
func listen(t *testing.T, at string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A node goes away while a model answers. The end of the context that the model was opened with, or closing it, ends the wait for the
// node, which is of an hour.
func TestWaitsForNodesEnd(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	for _, closes := range []bool{false, true} {
		l := listen(t, "127.0.0.1:0")
		stop, at := serveNode(t, l), l.Addr().String()
		f := NewFlags()
		if err := f.Group().Flags().Parse([]string{"--node", at, "--node-wait", "1h", "--threads", "1"}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		m, err := f.OpenWith(ctx, &console.Console{Err: io.Discard}, f.Options(), console.NewNotes(false))
		if err != nil {
			t.Fatal(err)
		}
		stop()
		l = listen(t, at)
		a, err := m.Generate(t.Context(), foretoken.Request{Prompt: &foretoken.Prompt{IDs: []int32{1, 2, 3}}, MaxTokens: 8})
		if err != nil {
			t.Fatal(err)
		}
		c, err := l.Accept() // the engine looks for the node
		if err = errors.Join(err, c.Close(), l.Close()); err != nil {
			t.Fatal(err)
		}
		if closes {
			m.Detach()
		}
		if cancel(); closes {
			err = m.Close()
		}
		if err != nil {
			t.Error(err)
		}
		for _, err = range a.Pieces() {
		}
		if err == nil {
			t.Error("the answer ends without an error")
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

// tight is a device with no memory for a layer.
type tight struct{ backend.Backend }

func (tight) FreeMemory() int64 { return 1 << 10 }

func init() {
	backend.Register(backend.Device{
		Name: "tight", Rank: -1, ISAs: func() []string { return nil }, Probe: func() []backend.Info { return []backend.Info{{}} },
		Open: func(backend.Options) (backend.Backend, error) {
			b, err := backend.Open("cpu", backend.Options{Threads: 1})
			return tight{b}, err
		},
	})
}

// A node that computes a model and its drafter, in files of their own, loses all and gets both from the leader again.
func TestLeaderSendsADrafterAgain(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	l := listen(t, "127.0.0.1:0")
	stop, at := serveNode(t, l), l.Addr().String()
	f := NewFlags()
	f.Model, f.Draft.NoSelfTest = golden.Dir(t, "tiny"), true
	f.Draft.Files = []string{golden.TinyDrafter(t).Dir}
	if err := f.Group().Flags().Parse([]string{"--node", at, "--node-wait", "1h", "--threads", "1", "--device", "tight", "--context", "64"}); err != nil {
		t.Fatal(err)
	}
	m, err := f.OpenWith(t.Context(), &console.Console{Err: io.Discard}, f.Options(), console.NewNotes(false))
	if err != nil {
		t.Fatal(err)
	}
	stop()
	stop = serveNode(t, listen(t, at))
	if _, err := m.Complete(t.Context(), foretoken.Request{Prompt: &foretoken.Prompt{IDs: []int32{1, 2, 3}}, MaxTokens: 8}); err != nil {
		t.Error(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	stop()
}
