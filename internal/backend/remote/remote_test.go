package remote_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/backendtest"
	"github.com/foretoken/foretoken/internal/backend/remote"
	"github.com/foretoken/foretoken/internal/backend/remote/link"
	"github.com/foretoken/foretoken/internal/dtype"
)

func TestConformance(t *testing.T) {
	backendtest.Brief(t).Run(t, backendtest.Remote(t, backend.Options{Threads: 1}, remote.Options{}))
}

// Some of the suite over a slow connection: what crosses is in order.
func TestConformanceWithDelay(t *testing.T) {
	n := backendtest.StartNode(t, backend.Options{Threads: 1})
	b := backendtest.Remote(t, backend.Options{}, remote.Options{Dial: n.Dial(100 * time.Microsecond)})
	backendtest.Brief(t).Only("Copy", "DeltaNet", "Pass").Run(t, b)
}

// secured is a node over TLS, and how it is reached.
func secured(t *testing.T) (*backendtest.Node, remote.Options) {
	t.Helper()
	key, err := link.New()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	token := link.Token(strings.Repeat("t", 40))
	l, err := link.Listen(raw, link.Options{Identity: key, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	n := &backendtest.Node{Addr: raw.Addr().String()}
	n.Open = func() (backend.Backend, error) { return backend.Open("cpu", backend.Options{Threads: 1}) }
	n.Log = slog.New(slog.DiscardHandler)
	n.StartOn(t, l)
	t.Cleanup(n.Stop)
	leader, at := link.Dialer{Identity: key, Token: token}, link.Address{HostPort: n.Addr, Node: key.Fingerprint()}
	return n, remote.Options{Name: "desk", Dial: func(ctx context.Context) (net.Conn, error) {
		c, err := leader.Dial(ctx, at)
		if err == nil && c.Peer != at.Node {
			t.Error("a connection without TLS")
		}
		return c, err
	}}
}

// A part of the suite over TLS: frames of all sizes cross. The long version has all of it.
func TestConformanceOverTLS(t *testing.T) {
	s := backendtest.Brief(t)
	if !long {
		s = s.Only("Host", "Load", "Top", "Attend", "DeltaNet", "Pass")
	}
	n, o := secured(t)
	s.Run(t, open(t, n, o))
}

// changing is a connection that replaces texts in what is sent and received.
type changing struct {
	net.Conn
	sent, received *strings.Replacer
}

func (c changing) Write(p []byte) (int, error) {
	_, err := io.WriteString(c.Conn, c.sent.Replace(string(p)))
	return len(p), err
}

func (c changing) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	copy(p, c.received.Replace(string(p[:n])))
	return n, err
}

// A leader and a node of which one has another arithmetic refuse each other, without waiting, and say what to do.
func TestOtherArithmeticIsRefused(t *testing.T) {
	own := backend.Arithmetic()
	other := strings.NewReplacer(own, strings.Repeat("9", len(own)))
	for i, c := range []changing{{sent: other, received: strings.NewReplacer()}, {sent: strings.NewReplacer(), received: other}} {
		n := backendtest.StartNode(t, backend.Options{Threads: 1})
		_, err := remote.Open(t.Context(), remote.Options{Name: "desk", Version: "v1.2", OpenWait: time.Hour, Dial: func(ctx context.Context) (net.Conn, error) {
			conn, err := n.Dial(0)(ctx)
			return changing{conn, c.sent, c.received}, err
		}})
		for _, part := range []string{"node desk: the other end is version", "9999", own, "install the same version on both"} {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("case %d: %v, want %q", i, err, part)
			}
		}
		if s := n.Status(); i == 0 && s.Leader != "" { // in the other case, it ends a moment later
			t.Errorf("the node serves %+v", s)
		}
	}
}

// open opens the device of a node.
func open(t *testing.T, n *backendtest.Node, o remote.Options) backend.Backend {
	t.Helper()
	if o.Dial == nil {
		o.Dial = n.Dial(0)
	}
	o.Name, o.Silence = "desk", cmp.Or(o.Silence, time.Hour)
	b, err := remote.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// vector is a row of numbers in memory of a device.
func vector(t *testing.T, b backend.Backend, numbers ...float32) backend.Tensor {
	t.Helper()
	x, err := b.Alloc(dtype.F32, 1, len(numbers))
	if err == nil {
		err = b.Write(x, numbers)
	}
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// read is the numbers of a tensor.
func read(t *testing.T, b backend.Backend, x backend.Tensor) []float32 {
	t.Helper()
	list, err := b.Host(x)
	if err != nil {
		t.Fatal(err)
	}
	return append([]float32(nil), list...)
}

// patience is the time limit for expected events. Only a fault takes that long, however busy the machine is.
const patience = 5 * time.Minute

// gained waits until no more goroutines run than before. Those of closed connections end by themselves.
func gained(t *testing.T, before int) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if runtime.NumGoroutine() <= before {
			return
		}
	}
	all := make([]byte, 1<<16)
	t.Errorf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, all[:runtime.Stack(all, true)])
}

func TestSecondLeaderIsRefused(t *testing.T) {
	n, o := secured(t)
	first := open(t, n, o)
	_, err := remote.Open(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "node desk: the node serves the leader at 127.0.0.1:") {
		t.Errorf("the second leader: %v", err)
	}
	if x := read(t, first, vector(t, first, 1, 2)); x[1] != 2 {
		t.Errorf("the first leader reads %v", x)
	}
	if s := n.Status(); s.Leader == "" || s.Budget == 0 {
		t.Errorf("status %+v", s)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	o.OpenWait = patience
	second := open(t, n, o) // once the first has gone
	if x := read(t, second, vector(t, second, 3)); x[0] != 3 {
		t.Errorf("the second leader reads %v", x)
	}
}

// A leader waits for a node that starts after it, and an end of its context ends the wait.
func TestLeaderWaitsForNode(t *testing.T) {
	n := backendtest.StartNode(t, backend.Options{Threads: 1})
	n.Stop()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := remote.Open(ctx, remote.Options{Name: "desk", Dial: n.Dial(0), OpenWait: time.Hour}); err == nil || !strings.Contains(err.Error(), "node desk: ") {
		t.Errorf("without a node: %v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		open(t, n, remote.Options{Wait: patience, OpenWait: patience})
	}()
	n.Start(t, n.Addr)
	<-done
}

// countOpen counts the devices of a node that are open.
func countOpen(n *backendtest.Node) *atomic.Int64 {
	var opened atomic.Int64
	device := n.Open
	n.Open = func() (backend.Backend, error) {
		b, err := device()
		opened.Add(1)
		return closing{b, &opened}, err
	}
	return &opened
}

// Nothing is left of sessions on either end, however they end.
func TestSessionsLeaveNothing(t *testing.T) {
	n := backendtest.StartNode(t, backend.Options{Threads: 1})
	opened := countOpen(n)
	before := runtime.NumGoroutine()
	for range 3 {
		b := open(t, n, remote.Options{Wait: patience, OpenWait: patience})
		x := vector(t, b, 1)
		read(t, b, x)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Host(x); err == nil {
			t.Error("a closed device answers")
		}
	}
	gained(t, before)
	if x := opened.Load(); x != 0 {
		t.Errorf("%d devices are open", x)
	}
}

// A node with more memory than frames can say gives a leader 1 TiB. A session that cannot begin leaves no device open.
func TestBudgetsOfAnySize(t *testing.T) {
	n := backendtest.StartNode(t, backend.Options{Threads: 1})
	opened := countOpen(n)
	n.Budget = 2 << 40
	b := open(t, n, remote.Options{})
	if free := b.FreeMemory(); free != 1<<40 {
		t.Errorf("%d bytes are free", free)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	n.Stop()
	n.Budget = -1
	n.Start(t, n.Addr)
	if _, err := remote.Open(t.Context(), remote.Options{Name: "desk", Dial: n.Dial(0)}); err == nil {
		t.Error("a node without a budget serves a leader")
	}
	n.Stop()
	if x := opened.Load(); x != 0 {
		t.Errorf("%d devices are open", x)
	}
}

// closing counts devices that are open.
type closing struct {
	backend.Backend
	open *atomic.Int64
}

func (c closing) Close() error {
	c.open.Add(-1)
	return c.Backend.Close()
}

// Peers that are no leaders are refused, and nothing of it reaches the leader that is there.
func TestGarbageIsRefused(t *testing.T) {
	n := backendtest.StartNode(t, backend.Options{Threads: 1})
	b := open(t, n, remote.Options{})
	x := vector(t, b, 4, 5)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 20 {
		c, err := net.Dial("tcp", n.Addr)
		if err != nil {
			t.Fatal(err)
		}
		data := make([]byte, 1+rng.IntN(300))
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		if i%2 == 0 && len(data) > 8 { // a length that is allowed
			copy(data, []byte{byte(len(data) - 4), byte((len(data) - 4) >> 8), 0, 0, 1})
		}
		_, _ = c.Write(data)
		_ = c.(*net.TCPConn).CloseWrite()
		answer, _ := io.ReadAll(c)
		if bytes.Contains(answer, []byte("cpu ")) {
			t.Errorf("a node welcomes %x", data)
		}
		_ = c.Close()
	}
	if got := read(t, b, x); got[0] != 4 || got[1] != 5 {
		t.Errorf("the leader reads %v", got)
	}
}

// A matrix whose lists have other lengths than its shape has no digest: zeros in their place would be another matrix.
func TestWrongLengthHasNoDigest(t *testing.T) {
	for _, n := range []int{1, 59, 61} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.HasPrefix(got, "remote: a part of a matrix with ") {
					t.Errorf("%d bytes: %s", n, got)
				}
			}()
			remote.DigestOf(&dtype.Matrix{Rows: 3, Cols: 5, Type: dtype.F32, Data: make([]byte, n)})
		}()
	}
}

// The leader counts its memory without the node, and the node refuses more than its budget whatever is sent.
func TestMemoryIsWithinBudget(t *testing.T) {
	n := backendtest.StartNode(t, backend.Options{Threads: 1})
	n.Budget = 1 << 20
	b := open(t, n, remote.Options{})
	if _, err := b.Alloc(dtype.F32, 1<<10, 1<<10); err == nil || !strings.Contains(err.Error(), "node desk: 4.2 MB are needed, 1.0 of the 1.0 MB") {
		t.Errorf("too much memory: %v", err)
	}
	m := dtype.Matrix{Rows: 1 << 10, Cols: 1 << 10, Type: dtype.F32, Data: make([]byte, 4<<20)}
	if _, err := b.Load(backend.Int8, m); err == nil || !strings.Contains(err.Error(), "node desk: 4194304 bytes are needed, 1048576 of the 1048576") {
		t.Errorf("too large a weight: %v", err)
	}
	x, err := b.Alloc(dtype.F32, 1<<9, 1<<8)
	if err != nil {
		t.Fatal(err)
	}
	if free := b.FreeMemory(); free != 1<<19 {
		t.Errorf("%d bytes are free", free)
	}
	b.Free(x)
	if free := b.FreeMemory(); free != 1<<20 {
		t.Errorf("%d bytes are free in the end", free)
	}
}

// An error of queued work comes out of the next call that waits, once, and the device continues.
func TestErrorsOfNodeAreReported(t *testing.T) {
	n := backendtest.StartNode(t, backend.Options{Threads: 1})
	device := n.Open
	var below *backendtest.Opaque
	n.Open = func() (backend.Backend, error) {
		b, err := device()
		below = backendtest.NewOpaque(b)
		return below, err
	}
	b := open(t, n, remote.Options{})
	if _, ok := b.(backend.Drawer); !ok {
		t.Error("a node that draws is no drawer")
	}
	x := vector(t, b, 1, 2)
	read(t, b, x)
	below.Break(errors.New("out of order"))
	b.Fill(x, 3)
	if _, err := b.Host(x); err == nil || err.Error() != "node desk: out of order" || backend.Lost(err) {
		t.Errorf("an operation that failed: %v", err)
	}
	if lost, err := backend.Restore(b); lost || err != nil {
		t.Errorf("Restore: %v, %v", lost, err)
	}
	if got := read(t, b, x); got[0] != 1 {
		t.Errorf("afterwards: %v", got)
	}
}
