package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
)

const (
	pulseEvery = time.Second
	silence    = 5 * time.Second  // after which the other end is gone
	greeting   = 10 * time.Second // for a peer to say who it is
	opening    = 60 * time.Second // for a node to open its device
)

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
	c.bytes(h.session[:])
	c.text(&h.name)
	c.size(&h.budget)
	c.bool(&h.draws)
}

// compatible says why the other end, which said h, cannot work with this one.
func (h *hello) compatible(version string) error {
	own := newHello(version)
	if h.protocol == own.protocol && h.arithmetic == own.arithmetic {
		return nil
	}
	return fmt.Errorf("the other end is version %q with protocol %d and arithmetic %q, this one %q with %d and %q: install the same version on both",
		h.version, h.protocol, h.arithmetic, version, own.protocol, own.arithmetic)
}

// refusal is a node's answer to a hello that it does not accept.
type refusal struct {
	text  string
	again bool // there may be another answer later
}

func (r *refusal) Error() string { return r.text }

func (r *refusal) fields(c *coder) {
	c.bool(&r.again)
	c.text(&r.text)
}

// link is the two connections to a node: one for all that is queued and its answers, and one for pings. A large transfer
// or a long pass delays no ping.
type link struct {
	work, pulse net.Conn
	in          frames
	hello       hello // of the node
	silence     time.Duration

	ctx     context.Context // is done when the link has ended
	fail    context.CancelCauseFunc
	beating sync.WaitGroup
}

// connect makes a link.
func connect(ctx context.Context, o *Options) (_ *link, err error) {
	l := &link{silence: o.Silence}
	l.ctx, l.fail = context.WithCancelCause(ctx)
	defer func() {
		if err != nil {
			l.fail(err)
		}
	}()
	h := newHello(o.Version)
	if l.work, l.in, l.hello, err = greet(ctx, o, h); err != nil {
		return nil, err
	}
	context.AfterFunc(l.ctx, func() { _ = l.work.Close() })
	if err = l.hello.compatible(o.Version); err != nil {
		return nil, &refusal{text: err.Error()}
	}
	h.session = l.hello.session
	var in frames
	if l.pulse, in, _, err = greet(ctx, o, h); err != nil {
		return nil, err
	}
	context.AfterFunc(l.ctx, func() { _ = l.pulse.Close() })
	l.beating.Go(func() { l.fail(l.beat(in)) })
	return l, nil
}

// greet opens a connection, says h and reads the node's answer.
func greet(ctx context.Context, o *Options, h hello) (c net.Conn, in frames, other hello, err error) {
	if c, err = o.Dial(ctx); err != nil {
		return nil, in, other, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() }) // what waits for it then ends
	defer stop()
	in = newFrames(c, maxHello)
	if err = c.SetDeadline(time.Now().Add(opening)); err == nil {
		_, err = c.Write(framed(frameHello, 0, h.fields))
	}
	if err == nil {
		other, err = in.welcome()
	}
	if err == nil {
		in.most, err = maxFrame, c.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = c.Close()
		return nil, in, other, err
	}
	return c, in, other, nil
}

// welcome reads a node's answer to a hello.
func (f *frames) welcome() (h hello, err error) {
	kind, _, body, err := f.next()
	if err != nil {
		return h, fmt.Errorf("no answer to the greeting: %w", err)
	}
	r := coder{buf: body, reading: true}
	switch kind {
	case frameFail:
		no := &refusal{}
		no.fields(&r)
		no.text = printable(no.text)
		return h, no
	case frameWelcome:
		h.fields(&r)
	}
	if h.magic != magic {
		return h, &refusal{text: "what listens there is no foretoken node"}
	}
	return h, nil
}

// ended is the reason for the end of a link, or nil.
func (l *link) ended() error { return context.Cause(l.ctx) }

// beat pings the node each second until the link ends.
func (l *link) beat(in frames) error {
	tick := time.NewTicker(min(pulseEvery, l.silence/5))
	defer tick.Stop()
	for number := uint64(0); ; number++ {
		err := l.pulse.SetDeadline(time.Now().Add(l.silence))
		if err == nil {
			_, err = l.pulse.Write(framed(framePing, number, func(*coder) {}))
		}
		var kind uint8
		var answered uint64
		if err == nil {
			kind, answered, _, err = in.next()
		}
		var timeout net.Error
		switch {
		case errors.As(err, &timeout) && timeout.Timeout():
			return fmt.Errorf("no sign of life for %v", l.silence)
		case err != nil:
			return fmt.Errorf("the connection has ended: %w", err)
		case kind != framePong || answered != number:
			return errFrame
		}
		select {
		case <-l.ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// printable is a text from another machine without what would move the cursor of a terminal.
func printable(s string) string {
	return string(slices.DeleteFunc([]rune(s), func(r rune) bool { return r < ' ' || r == 0x7f }))
}
