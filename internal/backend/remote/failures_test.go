package remote_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/remote"
	"github.com/foretoken/foretoken/internal/dtype"
)

// Processes that are killed and stopped are in the tests of the command.

// A node that ends and starts again has what the host had written, and zeros elsewhere. Until the leader has
// restored it every call fails, with the node's name.
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
	n.Stop()
	for err = nil; err == nil; { // it may answer once more
		_, err = b.Host(gain)
	}
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
	cut.After(1 << 40)
	b := open(t, n, remote.Options{Dial: cut.Connect, Log: slog.New(slog.DiscardHandler)})
	x := vector(t, b, make([]float32, 1<<20)...)
	if read(t, b, x); n.Status().Used < 4<<20 {
		t.Fatalf("status %+v", n.Status())
	}
	cut.After(1)
	for err := error(nil); err == nil; {
		_, err = b.Host(x)
	}
	open(t, n, remote.Options{Wait: patience, OpenWait: patience}) // once it is free
	if s := n.Status(); s.Used != 0 {
		t.Errorf("status %+v", s)
	}
}

// freezing has connections of an end stand still while it is locked, as those of a process that is stopped.
type freezing struct {
	net.Listener
	sync.RWMutex
}

func (f *freezing) Accept() (net.Conn, error) {
	c, err := f.Listener.Accept()
	return &frozen{c, f}, err
}

type frozen struct {
	net.Conn
	of *freezing
}

func (c *frozen) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.of.RLock()
	defer c.of.RUnlock()
	return n, err
}

func (c *frozen) Write(p []byte) (int, error) {
	c.of.RLock()
	defer c.of.RUnlock()
	return c.Conn.Write(p)
}

// A node that is stopped for less than the limit of silence loses nothing. One that is stopped for longer is gone, and back
// once it goes on.
func TestStoppedNode(t *testing.T) {
	n := backendtest.StartNode(t, backend.Options{Threads: 1})
	n.Stop()
	l, err := net.Listen("tcp", n.Addr)
	if err != nil {
		t.Fatal(err)
	}
	ice := &freezing{Listener: l}
	n.StartOn(t, ice)
	o := remote.Options{Wait: patience, OpenWait: patience, Log: slog.New(slog.DiscardHandler)}
	o.SetSilence(time.Minute)
	patient := open(t, n, o)
	x := vector(t, patient, 1)
	patient.Fill(x, 2)
	ice.Lock()
	time.AfterFunc(20*time.Millisecond, ice.Unlock)
	if got := read(t, patient, x); got[0] != 2 {
		t.Errorf("memory is %v", got)
	}
	if err := patient.Close(); err != nil {
		t.Fatal(err)
	}
	o.SetSilence(time.Second)
	hasty := open(t, n, o)
	x = vector(t, hasty, 1)
	ice.Lock()
	for err = nil; err == nil; { // it may answer once more
		_, err = hasty.Host(x)
	}
	if !strings.Contains(err.Error(), "node desk is gone: no sign of life for 1s") {
		t.Errorf("a stopped node: %v", err)
	}
	time.AfterFunc(20*time.Millisecond, ice.Unlock)
	for again := error(nil); ; { // on a busy machine it may seem to be gone once more
		if lost, err := backend.Restore(hasty); !lost || err != nil {
			t.Fatalf("Restore: %v, %v", lost, err)
		}
		var got []float32
		if got, again = hasty.Host(x); again == nil {
			if got[0] != 1 {
				t.Errorf("memory is %v", got)
			}
			break
		}
	}
}

// A leader that is stopped is gone for its node after the limit of silence, and another can have it.
func TestStoppedLeaderLeavesNothing(t *testing.T) {
	n := backendtest.StartNode(t, backend.Options{Threads: 1})
	n.SetSilence(time.Second)
	var ice freezing
	b := open(t, n, remote.Options{Log: slog.New(slog.DiscardHandler), Dial: func(ctx context.Context) (net.Conn, error) {
		c, err := n.Dial(0)(ctx)
		return &frozen{c, &ice}, err
	}})
	read(t, b, vector(t, b, 1))
	ice.Lock()
	defer ice.Unlock()
	o := remote.Options{Wait: patience, OpenWait: patience}
	o.SetSilence(time.Second) // and its pings come often enough
	open(t, n, o)
	if s := n.Status(); s.Used != 0 {
		t.Errorf("status %+v", s)
	}
}
