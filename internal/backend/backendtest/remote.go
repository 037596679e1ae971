package backendtest

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/remote"
)

// Node is a node in this process, with the processor as its device.
type Node struct {
	remote.Server
	Addr   string
	cancel context.CancelFunc
	done   chan struct{}
}

// StartNode starts a node, which the test ends.
func StartNode(tb testing.TB, o backend.Options) *Node {
	tb.Helper()
	n := &Node{}
	n.Open = func() (backend.Backend, error) { return backend.Open("cpu", o) }
	n.Log, n.Silence = slog.New(slog.DiscardHandler), time.Hour
	n.Start(tb, "127.0.0.1:0")
	tb.Cleanup(n.Stop)
	return n
}

// Start has a node listen.
func (n *Node) Start(tb testing.TB, addr string) {
	tb.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	if n.Addr == "" { // leaders may be connecting
		n.Addr = l.Addr().String()
	}
	n.StartOn(tb, l)
}

// StartOn has a node accept leaders on a listener.
func (n *Node) StartOn(tb testing.TB, l net.Listener) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel, n.done = cancel, make(chan struct{})
	go func() {
		defer close(n.done)
		if err := n.Serve(ctx, l); err != nil {
			tb.Error(err)
		}
	}()
}

// Stop ends a node, and its leader's session with it.
func (n *Node) Stop() {
	n.cancel()
	<-n.done
}

// Dial connects to the node, by connections that delay what they receive.
func (n *Node) Dial(delay time.Duration) func(ctx context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", n.Addr)
		if err != nil || delay == 0 {
			return c, err
		}
		var fixed atomic.Int64
		fixed.Store(int64(delay))
		return Late(c, &fixed), nil
	}
}

// Remote is the device of a node of its own. The test closes both.
func Remote(tb testing.TB, o backend.Options, how remote.Options) backend.Backend {
	tb.Helper()
	if how.Dial == nil {
		n := StartNode(tb, o)
		how.Name, how.Dial = n.Addr, n.Dial(0)
	}
	how.Silence = time.Hour // a busy machine loses no connection
	b, err := remote.Open(context.Background(), how)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := b.Close(); err != nil {
			tb.Error(err)
		}
	})
	return b
}

// Cut is connections that end after a number of bytes, wherever that is in a frame, or behind a number of frames of the leader.
type Cut struct {
	Dial   func(ctx context.Context) (net.Conn, error)
	Frames bool         // frames are counted in place of bytes
	Left   atomic.Int64 // bytes or frames of all connections until one of them ends, which happens once
}

// Connect is Dial with connections that end.
func (c *Cut) Connect(ctx context.Context) (net.Conn, error) {
	conn, err := c.Dial(ctx)
	return &cutConn{Conn: conn, of: c}, err
}

type cutConn struct {
	net.Conn
	of   *Cut
	head []byte // the beginning of a frame of the leader
	rest int    // bytes of a frame that were not sent
}

// pass counts bytes, and reports how many of n may pass and whether the connection ends then.
func (c *cutConn) pass(n int) (int, bool) {
	if c.of.Frames {
		return n, false
	}
	if left := c.of.Left.Add(-int64(n)); left <= 0 && left > -int64(n) {
		return n + int(left), true
	}
	return n, false
}

// whole is pass for frames that are sent.
func (c *cutConn) whole(p []byte) (int, bool) {
	for at := 0; at < len(p); {
		if c.rest == 0 {
			c.head = append(c.head, p[at])
			if at++; len(c.head) < 4 {
				continue
			}
			c.rest, c.head = int(binary.LittleEndian.Uint32(c.head)), nil
		}
		n := min(c.rest, len(p)-at)
		at += n
		if c.rest -= n; c.rest == 0 && c.of.Left.Add(-1) == 0 {
			return at, true
		}
	}
	return len(p), false
}

func (c *cutConn) Write(p []byte) (int, error) {
	n, ends := c.pass(len(p))
	if c.of.Frames {
		n, ends = c.whole(p)
	}
	if !ends {
		return c.Conn.Write(p)
	}
	n, _ = c.Conn.Write(p[:n])
	return n, errors.Join(net.ErrClosed, c.Close())
}

func (c *cutConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if passed, ends := c.pass(n); ends {
		return passed, errors.Join(net.ErrClosed, c.Close())
	}
	return n, err
}

// lateConn delays what is sent and received, each by the same time.
type lateConn struct {
	net.Conn
	delay *atomic.Int64
	in    *io.PipeReader
	out   chan piece
}

type piece struct {
	b  []byte
	at time.Time
}

// Late delays what passes a connection, by nanoseconds. What is on its way does not wait for what went before.
func Late(c net.Conn, delay *atomic.Int64) net.Conn {
	r, w := io.Pipe()
	l := &lateConn{Conn: c, delay: delay, in: r, out: make(chan piece, 1<<12)}
	arriving := make(chan piece, 1<<12)
	go func() {
		defer close(arriving)
		for {
			b := make([]byte, 1<<16)
			n, err := c.Read(b)
			if n > 0 {
				arriving <- piece{b[:n], time.Now().Add(time.Duration(delay.Load()))}
			}
			if err != nil {
				return
			}
		}
	}()
	deliver := func(from chan piece, to io.Writer) {
		for p := range from {
			for wait := time.Until(p.at); wait > 0; wait = time.Until(p.at) {
				if wait > 200*time.Microsecond { // a sleep lasts longer than it is asked to
					time.Sleep(wait - 150*time.Microsecond)
				}
			}
			if _, err := to.Write(p.b); err != nil {
				break
			}
		}
	}
	go func() {
		deliver(arriving, w)
		_ = w.CloseWithError(io.EOF)
		_ = c.Close()
		for range arriving { // the reader must not wait
		}
	}()
	go deliver(l.out, c)
	return l
}

func (l *lateConn) Read(p []byte) (int, error) { return l.in.Read(p) }

func (l *lateConn) Write(p []byte) (n int, err error) {
	l.out <- piece{append([]byte(nil), p...), time.Now().Add(time.Duration(l.delay.Load()))}
	return len(p), nil
}
