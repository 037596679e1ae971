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
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/rescue"
)

const (
	pulseEvery = time.Second
	silence    = 5 * time.Second  // after which the other end is gone
	greeting   = 10 * time.Second // for a peer to say who it is
	opening    = 60 * time.Second // for a node to open its device
	maxPending = 64               // connections that have not said who they are
)

// Server lets a leader use a device, one leader at a time.
type Server struct {
	// Open opens the device for a leader. It is closed when the leader has gone, with all that it held.
	Open func() (backend.Backend, error)
	// Budget is how many bytes of the device a leader may use; 0: 90 % of what is free when it comes.
	Budget int64
	// Weights finds weights here and keeps those that were sent; nil: all are sent each time.
	Weights Weights
	// Secure makes a secure connection of a new one, and refuses peers that may not lead; nil: all may, which is for
	// tests and for connections that are secure when they are accepted.
	Secure func(ctx context.Context, c net.Conn) (net.Conn, error)
	// Version is the program's, for messages.
	Version string
	// Log is where leaders that come and go are reported; nil: the default one.
	Log *slog.Logger

	silence time.Duration // for tests; 0: the constant

	mu      sync.Mutex // protects what follows
	current *session   // nil: there is none
	leader  string     // that has the device, or for which it is being opened
}

// Status is what a node does for its leader.
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.current; x != nil {
		return x.status()
	}
	return Status{}
}

func (x *session) status() Status {
	return Status{
		Leader: x.peer, Since: x.since, Device: x.name, Budget: x.budget, Used: x.used.Load(), Passes: x.passes.Load(),
		Found: x.found.Load(), Received: x.received.Load(),
	}
}

// Serve accepts leaders until ctx is done, and then returns nil once everything is closed. It returns an error if the
// listener fails, or if the device is lost: another process has to open it.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { _ = l.Close() }) // Accept then ends
	defer stop()
	var served sync.WaitGroup
	pending := make(chan struct{}, maxPending)
	var err error
	for {
		var c net.Conn
		if c, err = l.Accept(); err != nil {
			var temporary interface{ Temporary() bool }
			if ctx.Err() == nil && errors.As(err, &temporary) && temporary.Temporary() {
				time.Sleep(10 * time.Millisecond)
				continue
			}
			break
		}
		select {
		case pending <- struct{}{}:
		default:
			_ = c.Close() // too many at once
			continue
		}
		served.Go(func() {
			stop := context.AfterFunc(ctx, func() { _ = c.Close() })
			defer stop()
			defer c.Close() //nolint:errcheck // the peer has what it was sent
			greeted := sync.OnceFunc(func() { <-pending })
			defer greeted()
			if err := rescue.Do(func() error { return s.connect(ctx, c, greeted) }); backend.Lost(err) {
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
func (s *Server) connect(ctx context.Context, c net.Conn, greeted func()) (err error) {
	raw := c
	if err := c.SetDeadline(time.Now().Add(greeting)); err != nil {
		return err
	}
	if s.Secure != nil {
		if c, err = s.Secure(ctx, c); err != nil {
			return err
		}
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
	greeted()
	if err := cmp.Or(h.compatible(s.Version), r.err); err != nil { // the fields of another protocol may be others
		return errors.Join(err, refuseHello(c, err, false))
	}
	if err := raw.SetDeadline(time.Time{}); err != nil {
		return err
	}
	if h.session != [16]byte{} {
		return s.pulse(c, in, h.session)
	}
	return s.lead(c, in)
}

// refuseHello says why a peer is not served, and whether it may try again.
func refuseHello(c net.Conn, why error, again bool) error {
	text := why.Error()
	var w coder
	at := w.begin(frameFail, 0)
	w.bool(&again)
	w.text(&text)
	w.finish(at, 0)
	_, err := c.Write(w.buf)
	return err
}

// lead serves a leader until it has gone.
func (s *Server) lead(c net.Conn, in frames) error {
	peer := c.RemoteAddr().String()
	if other := s.claim(peer); other != "" {
		err := fmt.Errorf("the node serves the leader at %s, and one at a time", other)
		return errors.Join(err, refuseHello(c, err, true))
	}
	defer s.claim("")
	b, err := s.Open()
	if err != nil {
		return errors.Join(err, refuseHello(c, fmt.Errorf("its device cannot be opened: %w", err), true))
	}
	x := newSession(b, in, c)
	x.peer, x.conn, x.weightsOf, x.budget = peer, c, s.Weights, s.Budget
	if free := b.FreeMemory(); x.budget == 0 {
		x.budget = free / 10 * 9
	}
	_, _ = rand.Read(x.id[:]) // never fails
	// Closing the connection ends serve.
	x.watch = time.AfterFunc(cmp.Or(s.silence, silence), func() { _ = c.Close() })
	s.set(x)
	s.log().Info("a leader has come", "leader", peer, "device", x.name, "memory", x.budget)
	err = x.welcome(s.Version)
	if err == nil {
		err = x.serve()
	}
	x.watch.Stop()
	s.set(nil)
	st := x.status()
	s.log().Info("the leader has gone, and its memory is free", "leader", peer, "reason", err, "passes", st.Passes, "memory", st.Used,
		"weights_found", st.Found, "weights_received", st.Received)
	if closing := x.close(); !errors.Is(err, errClosed) && !backend.Lost(err) {
		return closing // the reason was logged
	} else if backend.Lost(err) {
		return err
	}
	return nil
}

// newSession is a session with nothing in it.
func newSession(b backend.Backend, in frames, out io.Writer) *session {
	in.most = maxFrame
	return &session{
		b: b, in: in, out: bufio.NewWriterSize(out, 64<<10), name: b.Name(), since: time.Now(),
		memory: map[uint64]*handle{}, weights: map[uint64]*handle{}, tables: map[uint64]*table{},
		recordings: map[uint64]*recording{}, streams: map[uint64]backend.Stream{},
	}
}

// claim reserves the device for a leader, or returns which other has it. "" releases it.
func (s *Server) claim(peer string) (other string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if peer != "" && s.leader != "" {
		return s.leader
	}
	s.leader = peer
	return ""
}

func (s *Server) set(x *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = x
}

// pulse answers the pings of a leader, however long its device computes.
func (s *Server) pulse(c net.Conn, in frames, id [16]byte) error {
	s.mu.Lock()
	x := s.current
	s.mu.Unlock()
	if x == nil || x.id != id {
		err := errors.New("the session is over")
		return errors.Join(err, refuseHello(c, err, true))
	}
	defer x.conn.Close() //nolint:errcheck // ends the session
	if err := x.welcomeOn(c, s.Version); err != nil {
		return err
	}
	limit := cmp.Or(s.silence, silence)
	for {
		if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
			return err
		}
		kind, number, _, err := in.next()
		if err != nil || kind != framePing {
			return nil // serve reports the end of the session
		}
		x.watch.Reset(limit)
		var w coder
		at := w.begin(framePong, number)
		memory, free := uint64(0), uint64(0)
		for _, u := range x.usage() {
			memory, free = memory+uint64(u.Memory), free+uint64(u.Free)
		}
		w.u64(&memory)
		w.u64(&free)
		w.finish(at, 0)
		if _, err := c.Write(w.buf); err != nil {
			return nil
		}
	}
}

// usage is the device's, until it is closed.
func (x *session) usage() []backend.Usage {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil
	}
	return backend.UsageOf(x.b)
}

// close ends the session and frees everything.
func (x *session) close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	return rescue.Do(func() error {
		for _, m := range x.streams {
			m.Close()
		}
		return x.b.Close()
	})
}

// magic begins every connection.
const magic = "foretoken node"

// hello is what either end says first.
type hello struct {
	magic      string
	protocol   int
	arithmetic string
	version    string
	session    [16]byte // zero of a new leader
	name       string   // of the device, of a node
	budget     int
	draws      bool
}

func newHello(version string) hello {
	return hello{magic: magic, protocol: protocol, arithmetic: backend.Arithmetic(), version: version}
}

func (h *hello) fields(c *coder) {
	c.text(&h.magic)
	c.size(&h.protocol)
	c.text(&h.arithmetic)
	c.text(&h.version)
	if !c.reading {
		c.buf = append(c.buf, h.session[:]...)
	} else if b := c.take(len(h.session)); b != nil {
		h.session = [16]byte(b)
	}
	c.text(&h.name)
	c.size(&h.budget)
	c.bool(&h.draws)
}

// compatible is why the other end, which said h, cannot work with this one.
func (h *hello) compatible(version string) error {
	if h.protocol != protocol {
		return fmt.Errorf("the other end is version %q with protocol %d, this one %q with protocol %d: install the same version on both", h.version, h.protocol, version, protocol)
	}
	if own := backend.Arithmetic(); h.arithmetic != own {
		return fmt.Errorf("the other end is version %q with arithmetic %q, this one %q with %s: install the same version on both", h.version, h.arithmetic, version, own)
	}
	return nil
}

func (x *session) welcome(version string) error { return x.welcomeOn(x.conn, version) }

func (x *session) welcomeOn(c net.Conn, version string) error {
	h := newHello(version)
	h.session, h.name, h.budget = x.id, x.name, int(x.budget)
	_, h.draws = x.b.(backend.Drawer)
	var w coder
	at := w.begin(frameWelcome, 0)
	h.fields(&w)
	w.finish(at, 0)
	_, err := c.Write(w.buf)
	return err
}
