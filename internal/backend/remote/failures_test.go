package remote_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/remote"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Processes that are killed and stopped are in the tests of the command.

// A node that ends and starts again has what the host had written, and zeros elsewhere. The leader is told of the end, and until it has
// restored the node every call fails, with the node's name.
func TestNodeIsRestored(t *testing.T) {
	n, own := backendtest.StartNode(t, backend.Options{Threads: 1}), matrices{}
	b := open(t, n, remote.Options{Wait: patience, Weights: own, Log: slog.New(slog.DiscardHandler)})
	m := dtype.Matrix{Rows: 16, Cols: 2, Type: dtype.F32, Data: make([]byte, 16*2*4)}
	m.Data[3] = 0x40 // 2 in the first place
	own[remote.DigestOf(&m)] = m
	w, err := b.Load(backend.Float32, m)
	if err != nil {
		t.Fatal(err)
	}
	gain, other, out := vector(t, b, 3, 4), vector(t, b, 5, 6), vector(t, b, make([]float32, 16)...)
	b.Fill(other, 7)
	product := func() []float32 {
		b.Pass(backend.Pass{Of: t}, func() { b.MatMul(gain, backend.Product{Dst: out, W: w}) })
		return read(t, b, out)
	}
	if got := product(); got[0] != 6 {
		t.Fatalf("the product is %v", got)
	}
	gone := make(chan struct{})
	backend.WhenLost(t.Context(), b, func() { close(gone) })
	n.Stop()
	<-gone // without a call
	if _, again := b.Host(gain); again == nil || backend.Lost(again) || !strings.Contains(again.Error(), "node desk is gone: ") {
		t.Errorf("without a node: %v", again)
	}
	if _, err := b.Load(backend.Float32, m); err == nil {
		t.Error("a weight is loaded without a node")
	}
	n.Start(t, n.Addr)
	if lost, err := backend.Restore(b); !lost || err != nil {
		t.Fatalf("Restore: %v, %v", lost, err)
	}
	if x, y := read(t, b, gain), read(t, b, other); x[0] != 3 || x[1] != 4 || y[0] != 0 || y[1] != 0 {
		t.Errorf("memory is %v and %v", x, y)
	}
	if got := product(); got[0] != 6 {
		t.Errorf("the product is %v", got)
	}
}

// matrices are found by their digests.
type matrices map[remote.Digest]dtype.Matrix

func (k matrices) Find(d remote.Digest, _ *dtype.Matrix) (dtype.Matrix, bool, error) {
	m, ok := k[d]
	return m, ok, nil
}

func (k matrices) Keep(d remote.Digest, m *dtype.Matrix) { k[d] = *m }

// A node that comes back without a weight, which the leader has no copy of either, is lost with a sentence that says so.
func TestNodeWithoutWeightsIsLost(t *testing.T) {
	n := backendtest.StartNode(t, backend.Options{Threads: 1})
	b := open(t, n, remote.Options{Wait: patience, OpenWait: patience, Log: slog.New(slog.DiscardHandler)})
	if _, err := b.Load(backend.Int8, dtype.Matrix{Rows: 3, Cols: 5, Type: dtype.F32, Data: make([]byte, 60)}); err != nil {
		t.Fatal(err)
	}
	x := vector(t, b, 1)
	n.Stop()
	n.Start(t, n.Addr)
	if _, err := b.Host(x); err == nil {
		t.Error("memory of a session before is read")
	}
	_, err := backend.Restore(b)
	if err == nil || !backend.Lost(err) || !strings.Contains(err.Error(), "node desk: it has lost a weight of 3×5") {
		t.Errorf("Restore: %v", err)
	}
	if _, err := b.Alloc(dtype.F32, 1, 1); !backend.Lost(err) {
		t.Errorf("Alloc: %v", err)
	}
}

// A leader whose connections end leaves nothing on the node.
func TestLeaderLeavesNothing(t *testing.T) {
	n := backendtest.StartNode(t, backend.Options{Threads: 1})
	cut := &backendtest.Cut{Dial: n.Dial(0)}
	cut.Left.Store(1 << 40)
	b := open(t, n, remote.Options{Dial: cut.Connect, Log: slog.New(slog.DiscardHandler)})
	x := vector(t, b, make([]float32, 1<<20)...)
	if read(t, b, x); n.Status().Used < 4<<20 {
		t.Fatalf("status %+v", n.Status())
	}
	cut.Left.Store(1)
	for err := error(nil); err == nil; {
		_, err = b.Host(x)
	}
	open(t, n, remote.Options{Wait: patience, OpenWait: patience}) // once it is free
	if s := n.Status(); s.Used != 0 {
		t.Errorf("status %+v", s)
	}
}

// pipes is a listener in memory. In a bubble, time goes on only while nothing computes and nothing is sent.
type pipes struct {
	to   chan net.Conn
	over chan struct{}
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "desk"} }

func (p *pipes) Close() error {
	close(p.over)
	return nil
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.to:
		return c, nil
	case <-p.over:
		return nil, net.ErrClosed
	}
}

func (p *pipes) dial(context.Context) (net.Conn, error) {
	a, b := net.Pipe()
	p.to <- b
	return a, nil
}

// frozen is a connection of an end that stands still until a time, as one of a process that is stopped.
type frozen struct {
	net.Conn
	until *atomic.Int64
}

func (c frozen) wait() { time.Sleep(time.Until(time.Unix(0, c.until.Load()))) }

func (c frozen) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.wait()
	return n, err
}

func (c frozen) Write(p []byte) (int, error) {
	c.wait()
	return c.Conn.Write(p)
}

// stopping is a node and a leader of which one is stopped for a time.
type stopping struct {
	node         *backendtest.Node
	of           pipes
	leader, desk atomic.Int64 // they are stopped until then
}

func newStopping(t *testing.T) *stopping {
	t.Helper()
	s := &stopping{of: pipes{make(chan net.Conn), make(chan struct{})}, node: &backendtest.Node{}}
	s.node.Open = func() (backend.Backend, error) { return backend.Open("cpu", backend.Options{Threads: 1}) }
	s.node.Log = slog.New(slog.DiscardHandler)
	s.node.StartOn(t, s)
	t.Cleanup(s.node.Stop)
	return s
}

func (s *stopping) Addr() net.Addr { return s.of.Addr() }
func (s *stopping) Close() error   { return s.of.Close() }

func (s *stopping) Accept() (net.Conn, error) {
	c, err := s.of.Accept()
	return frozen{c, &s.desk}, err
}

func (s *stopping) dial(ctx context.Context) (net.Conn, error) {
	c, err := s.of.dial(ctx)
	return frozen{c, &s.leader}, err
}

func stop(end *atomic.Int64, d time.Duration) { end.Store(time.Now().Add(d).UnixNano()) }

// A node that is stopped for three seconds loses nothing. One that is stopped for thirty is gone after five, and back once it goes on.
func TestStoppedNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStopping(t)
		s.node.Silence = time.Hour // what is stopped has no clock
		b := open(t, s.node, remote.Options{Dial: s.dial, Silence: 5 * time.Second, Wait: patience, Log: slog.New(slog.DiscardHandler)})
		x := vector(t, b, 1)
		for wait := range 10 { // pings are at other times before the stop
			time.Sleep(time.Duration(wait) * 100 * time.Millisecond)
			b.Fill(x, float32(wait))
			stop(&s.desk, 3*time.Second)
			if got := read(t, b, x); got[0] != float32(wait) {
				t.Errorf("memory is %v", got)
			}
		}
		y := vector(t, b, 1)
		read(t, b, y)
		time.Sleep(time.Second) // pings are answered
		began := time.Now()
		stop(&s.desk, 30*time.Second)
		if _, err := b.Host(x); err == nil || !strings.Contains(err.Error(), "node desk is gone: no sign of life for 5s") {
			t.Errorf("a stopped node: %v", err)
		}
		if d := time.Since(began); d < 4*time.Second || d > 6*time.Second {
			t.Errorf("it is gone after %v", d)
		}
		if lost, err := backend.Restore(b); !lost || err != nil {
			t.Fatalf("Restore: %v, %v", lost, err)
		}
		if d := time.Since(began); d < 30*time.Second || d > 32*time.Second {
			t.Errorf("it is back after %v", d)
		}
		if x, y := read(t, b, x), read(t, b, y); x[0] != 0 || y[0] != 1 {
			t.Errorf("memory is %v and %v", x, y)
		}
	})
}

// A leader that is stopped is gone for its node after five seconds, and another can have it.
func TestStoppedLeaderLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStopping(t)
		b := open(t, s.node, remote.Options{Dial: s.dial, Silence: 5 * time.Second, Log: slog.New(slog.DiscardHandler)})
		read(t, b, vector(t, b, 1))
		time.Sleep(10*time.Second + time.Millisecond) // a ping was a moment ago
		synctest.Wait()
		stop(&s.leader, 30*time.Second)
		if time.Sleep(4 * time.Second); s.node.Status().Used == 0 {
			t.Error("a leader is gone too soon")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if status := s.node.Status(); status != (remote.Status{}) {
			t.Errorf("status %+v", status)
		}
		second := open(t, s.node, remote.Options{Dial: s.of.dial, Log: slog.New(slog.DiscardHandler)})
		if x := read(t, second, vector(t, second, 3)); x[0] != 3 {
			t.Errorf("the second leader reads %v", x)
		}
	})
}
