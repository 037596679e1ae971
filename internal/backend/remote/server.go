package remote

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/rescue"
)

// Server lets a leader use a device, one leader at a time.
type Server struct {
	// Open opens the device for a leader. It is closed when the leader has gone, with all that it held.
	Open func() (backend.Backend, error)
	// Budget is how many bytes of the device a leader may use, at most 1 TiB; 0: 90 % of what is free when it comes.
	Budget int64
	// Weights finds weights here and keeps those that were sent; nil: all are sent each time.
	Weights Weights
	// Version is the program's, for messages.
	Version string
	// Log is where leaders that come and go are reported; nil: the default one.
	Log *slog.Logger
	// Silence is how long a leader may give no sign of life; 0: five seconds.
	Silence time.Duration

	current atomic.Pointer[session] // that has the device, or for which it is being opened; nil: none
}

// Status is the work of a node for its leader.
type Status struct {
	Leader   string // its address; "" without one
	Since    time.Time
	Device   string
	Budget   int64
	Used     int64 // bytes
	Passes   int64
	Found    int64 // bytes of weights that were on the node
	Received int64 // bytes of weights that the leader has sent
}

// Status is the state of the node at this moment. Any goroutine may call it.
func (s *Server) Status() Status {
	if x := s.current.Load(); x != nil {
		return x.status()
	}
	return Status{}
}

// Serve accepts leaders until ctx is done, and then returns nil once everything is closed. If the listener has a method Secure, as
// link.Listener has, connections begin with it. Serve returns an error if the listener fails, or if the device is lost: another process has to open it.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { _ = l.Close() }) // Accept then ends
	defer stop()
	var served sync.WaitGroup
	var err error
	for {
		var c net.Conn
		if c, err = l.Accept(); err != nil {
			break
		}
		served.Go(func() {
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			defer stop()
			defer c.Close() //nolint:errcheck // the peer has what it was sent
			peer := c
			if l, ok := l.(interface {
				Secure(c net.Conn) (net.Conn, error)
			}); ok {
				var err error
				if peer, err = l.Secure(c); err != nil {
					return // the listener has told it
				}
			}
			if err := rescue.Do(func() error { return s.connect(peer) }); backend.Lost(err) {
				cancel(err)
			} else if err != nil && ctx.Err() == nil {
				s.log().Warn("a connection ends", "peer", c.RemoteAddr().String(), "error", err)
			}
		})
	}
	failed := ctx.Err() == nil
	cancel(nil)
	served.Wait()
	if cause := context.Cause(ctx); backend.Lost(cause) {
		return cause
	}
	if failed {
		return err
	}
	return nil
}

func (s *Server) log() *slog.Logger { return cmp.Or(s.Log, slog.Default()) }

// connect greets a peer and serves it: as a leader, or as the pulse of one.
func (s *Server) connect(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(greeting)); err != nil {
		return err
	}
	in := newFrames(c, maxHello)
	kind, _, body, err := in.next()
	if err != nil {
		return err
	}
	var h hello
	r := coder{buf: body, reading: true}
	if h.fields(&r); kind != frameHello || h.magic != magic {
		return fmt.Errorf("%w: the peer is no leader", errFrame)
	}
	if err := cmp.Or(h.compatible(s.Version), r.err); err != nil { // the fields of another protocol may be others
		return refuseHello(c, err, false)
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		return err
	}
	if h.session != [16]byte{} {
		return s.pulse(c, in, h.session)
	}
	return s.lead(c, in)
}

// refuseHello says why a peer is not served, and whether it may try again.
func refuseHello(c net.Conn, why error, again bool) error {
	_, err := c.Write(framed(frameFail, 0, (&refusal{why.Error(), again}).fields))
	return errors.Join(why, err)
}

// lead serves a leader until it has gone.
func (s *Server) lead(c net.Conn, in frames) error {
	peer := c.RemoteAddr().String()
	if !s.current.CompareAndSwap(nil, &session{peer: peer}) {
		other := cmp.Or(s.current.Load(), &session{peer: "that is just going"})
		return refuseHello(c, fmt.Errorf("the node serves the leader at %s, and one at a time", other.peer), true)
	}
	defer s.current.Store(nil)
	b, err := s.Open()
	if err != nil {
		return refuseHello(c, fmt.Errorf("its device cannot be opened: %w", err), true)
	}
	x := newSession(b, in, c)
	x.peer, x.conn, x.weights, x.budget = peer, c, s.Weights, min(cmp.Or(s.Budget, b.FreeMemory()/10*9), maxSize)
	// Closing the connection ends serve.
	x.watch = time.AfterFunc(cmp.Or(s.Silence, silence), func() { _ = c.Close() })
	s.current.Store(x)
	s.log().Info("a leader has come", "leader", peer, "device", x.name, "memory", x.budget)
	err = rescue.Do(func() error { // the device is closed also after a panic
		if err := x.welcome(c, s.Version); err != nil {
			return err
		}
		return x.serve()
	})
	x.watch.Stop()
	st := x.status()
	s.log().Info("the leader has gone, and its memory is free", "leader", peer, "reason", err, "passes", st.Passes, "memory", st.Used,
		"weights_found", st.Found, "weights_received", st.Received)
	closing := rescue.Do(b.Close)
	switch {
	case backend.Lost(err):
		return err
	case errors.Is(err, errClosed):
		return nil
	}
	return closing // the reason was logged
}

// newSession is a session with nothing in it.
func newSession(b backend.Backend, in frames, out io.Writer) *session {
	in.most = maxFrame
	x := &session{
		b: b, in: in, out: bufio.NewWriterSize(out, 64<<10), name: b.Name(), since: time.Now(),
		handles: map[uint64]*handle{}, tables: map[uint64]*table{}, recordings: map[uint64]*recording{},
	}
	_, _ = rand.Read(x.id[:]) // never fails
	return x
}

// welcome tells a peer that it is served.
func (x *session) welcome(c net.Conn, version string) error {
	h := newHello(version)
	h.session, h.name, h.budget = x.id, x.name, int(x.budget)
	_, h.draws = x.b.(backend.Drawer)
	_, err := c.Write(framed(frameWelcome, 0, h.fields))
	return err
}

// pulse answers the pings of a leader, however long its device computes.
func (s *Server) pulse(c net.Conn, in frames, id [16]byte) error {
	x := s.current.Load()
	if x == nil || x.id != id {
		return refuseHello(c, errors.New("the session is over"), true)
	}
	defer x.conn.Close() //nolint:errcheck // ends the session
	if err := x.welcome(c, s.Version); err != nil {
		return err
	}
	for limit := cmp.Or(s.Silence, silence); ; {
		if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
			return err
		}
		kind, number, _, err := in.next()
		if err != nil || kind != framePing {
			return nil // serve reports the end of the session
		}
		x.watch.Reset(limit)
		if _, err := c.Write(framed(framePong, number, func(*coder) {})); err != nil {
			return nil
		}
	}
}
