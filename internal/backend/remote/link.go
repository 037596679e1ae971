package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// link is the two connections to a node: one for all that is queued and its answers, and one that asks each second whether
// the node is there. A large transfer or a long pass delays none of these.
type link struct {
	work, pulse net.Conn
	in          frames
	hello       hello // of the node
	silence     time.Duration

	memory, free atomic.Int64 // of the device, as the node has told last

	mu      sync.Mutex
	cause   error // why the link has ended; nil: it has not
	over    chan struct{}
	beating sync.WaitGroup
	stop    func() bool // of the watch of the device's context
}

// refusal is an error of a node's greeting.
type refusal struct {
	text  string
	again bool // it may be another answer later
}

func (r *refusal) Error() string { return r.text }

// connect makes a link.
func connect(ctx context.Context, o *Options) (_ *link, err error) {
	l := &link{over: make(chan struct{}), silence: o.silence}
	defer func() {
		if err != nil {
			l.fail(err)
		}
	}()
	h := newHello(o.Version)
	if l.work, l.in, l.hello, err = greet(ctx, o, h); err != nil {
		return nil, err
	}
	if err = l.hello.compatible(o.Version); err != nil {
		return nil, &refusal{text: err.Error()}
	}
	h.session = l.hello.session
	var in frames
	if l.pulse, in, _, err = greet(ctx, o, h); err != nil {
		return nil, err
	}
	l.beating.Go(func() { l.beat(in) })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stop = context.AfterFunc(ctx, func() { l.fail(ctx.Err()) })
	return l, nil
}

// greet opens a connection and reads the node's answer to h.
func greet(ctx context.Context, o *Options, h hello) (_ net.Conn, in frames, other hello, err error) {
	c, err := o.Dial(ctx)
	if err != nil {
		return nil, in, other, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() }) // what waits for it then ends
	defer stop()
	if in, other, err = hear(c, h); err != nil {
		_ = c.Close()
		return nil, in, other, err
	}
	return c, in, other, nil
}

// hear says h and reads the answer.
func hear(c net.Conn, h hello) (in frames, other hello, err error) {
	var w coder
	at := w.begin(frameHello, 0)
	h.fields(&w)
	w.finish(at, 0)
	if err = c.SetDeadline(time.Now().Add(opening)); err == nil {
		_, err = c.Write(w.buf)
	}
	if err != nil {
		return in, other, err
	}
	in = newFrames(c, maxHello)
	kind, _, body, err := in.next()
	if err != nil {
		return in, other, fmt.Errorf("no answer to the greeting: %w", err)
	}
	r := coder{buf: body, reading: true}
	switch kind {
	case frameFail:
		no := &refusal{}
		r.bool(&no.again)
		r.text(&no.text)
		no.text = printable(no.text)
		return in, other, no
	case frameWelcome:
		other.fields(&r)
	}
	if other.magic != magic {
		return in, other, &refusal{text: "what listens there is no foretoken node"}
	}
	in.most = maxFrame
	return in, other, c.SetDeadline(time.Time{})
}

// fail ends a link.
func (l *link) fail(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		return
	}
	l.cause = cause
	close(l.over)
	if l.stop != nil {
		l.stop()
	}
	for _, c := range []net.Conn{l.work, l.pulse} {
		if c != nil {
			_ = c.Close()
		}
	}
}

// ended is why a link has ended, or nil.
func (l *link) ended() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// beat asks the node each second whether it is there.
func (l *link) beat(in frames) {
	tick := time.NewTicker(min(pulseEvery, l.silence/5))
	defer tick.Stop()
	for number := uint64(0); ; number++ {
		var w coder
		w.finish(w.begin(framePing, number), 0)
		err := l.pulse.SetDeadline(time.Now().Add(l.silence))
		if err == nil {
			_, err = l.pulse.Write(w.buf)
		}
		kind, answered, body, failed := uint8(0), uint64(0), []byte(nil), error(nil)
		if err == nil {
			kind, answered, body, failed = in.next()
			err = failed
		}
		var timeout net.Error
		switch {
		case errors.As(err, &timeout) && timeout.Timeout():
			err = fmt.Errorf("no sign of life for %v", l.silence)
		case err != nil:
			err = fmt.Errorf("the connection has ended: %w", err)
		case kind != framePong || answered != number:
			err = errFrame
		}
		if err != nil {
			l.fail(err)
			return
		}
		r := coder{buf: body, reading: true}
		var memory, free int
		r.size(&memory)
		r.size(&free)
		l.memory.Store(int64(memory))
		l.free.Store(int64(free))
		select {
		case <-l.over:
			return
		case <-tick.C:
		}
	}
}

// printable is a text from another machine without what would move the cursor of a terminal.
func printable(s string) string {
	return string(slices.DeleteFunc([]rune(s), func(r rune) bool { return r < ' ' || r == 0x7f }))
}
