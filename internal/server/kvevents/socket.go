package kvevents

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/foretoken/foretoken/internal/rescue"
)

// Limits of peers, which are untrusted.
const (
	maxPeers         = 64 // of a socket; further ones wait
	maxSubscriptions = 64
	queueMessages    = 1024 // that wait for a subscriber
	handshakeTime    = 10 * time.Second
	writeTime        = 30 * time.Second // for one message
	replayIdle       = 5 * time.Minute  // between a peer's requests
)

// Publish serves subscribers on a listener, a socket of type PUB, until the publisher is closed.
func (p *Publisher) Publish(l net.Listener) {
	p.accept(l, func(c net.Conn) error {
		r, err := shake(c, "PUB", "SUB", "XSUB")
		if err != nil {
			return err
		}
		return p.subscriber(c, r)
	})
}

// Replay serves requests for messages of this epoch, on a socket of type ROUTER, until
// the publisher is closed.
func (p *Publisher) Replay(l net.Listener) {
	p.accept(l, func(c net.Conn) error {
		r, err := shake(c, "ROUTER", "DEALER", "REQ", "ROUTER")
		if err != nil {
			return err
		}
		return p.replay(c, r)
	})
}

// accept serves the connections of a listener in the background.
func (p *Publisher) accept(l net.Listener, serve func(net.Conn) error) {
	if !p.track(l) {
		return
	}
	p.tasks.Go(func() {
		defer p.untrack(l)
		slots := make(chan struct{}, maxPeers)
		for {
			slots <- struct{}{}
			c, err := l.Accept()
			if err != nil {
				if errors.Is(err, net.ErrClosed) {
					return
				}
				p.o.Log.Warn("kv events: accept", "error", err)
				<-slots
				select {
				case <-time.After(time.Second): // as when there are too many open files
				case <-p.quit:
				}
				continue
			}
			if !p.track(c) {
				return
			}
			p.tasks.Go(func() {
				defer func() { <-slots }()
				defer p.untrack(c)
				if err := rescue.Do(func() error { return serve(c) }); err != nil {
					p.o.Log.Debug("kv events: connection ended", "peer", c.RemoteAddr().String(), "error", err)
				}
			})
		}
	})
}

// shake does the handshake of a socket of one type with a peer of others.
func shake(c net.Conn, socket string, peers ...string) (*bufio.Reader, error) {
	if err := c.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return nil, err
	}
	r := bufio.NewReaderSize(c, 2*maxFrame)
	if _, err := c.Write(greeting()); err != nil {
		return nil, err
	}
	if err := readGreeting(r); err != nil {
		return nil, err
	}
	if _, err := c.Write(ready(socket)); err != nil {
		return nil, err
	}
	if err := readReady(r, peers...); err != nil {
		return nil, err
	}
	return r, c.SetDeadline(time.Time{})
}

// peer is a subscriber.
type peer struct {
	name  string
	conn  net.Conn
	queue chan *message
	write sync.Mutex // one message at a time

	mu     sync.Mutex // protects what follows
	topics [][]byte   // prefixes of its subscriptions
}

// offer queues a message that the peer has subscribed to. It reports false if there is no space.
func (s *peer) offer(m *message) bool {
	if !s.wants(m.topic) {
		return true
	}
	select {
	case s.queue <- m:
		return true
	default:
		return false
	}
}

// abandon ends the connection.
func (s *peer) abandon() { _ = s.conn.Close() }

func (s *peer) wants(topic []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.topics, func(t []byte) bool { return bytes.HasPrefix(topic, t) })
}

// send writes bytes within a time.
func (s *peer) send(b []byte) error {
	s.write.Lock()
	defer s.write.Unlock()
	return send(s.conn, b)
}

func send(c net.Conn, b []byte) error {
	if err := c.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return err
	}
	_, err := c.Write(b)
	return err
}

// subscriber serves a peer after the handshake, until it disconnects.
func (p *Publisher) subscriber(c net.Conn, r *bufio.Reader) error {
	s := &peer{name: c.RemoteAddr().String(), conn: c, queue: make(chan *message, p.queue)}
	gone := make(chan struct{})
	defer close(gone)
	p.mu.Lock()
	p.peers[s] = struct{}{}
	p.mu.Unlock()
	p.o.Log.Info("kv events: subscribed", "peer", s.name)
	defer func() {
		p.mu.Lock()
		delete(p.peers, s)
		p.mu.Unlock()
	}()
	p.tasks.Go(func() {
		for {
			select {
			case m := <-s.queue:
				if err := s.send(framed(m.topic, m.number(), m.payload)); err != nil {
					s.abandon() // the reader ends
					return
				}
			case <-gone:
				return
			}
		}
	})
	for {
		frames, command, err := readMessage(r)
		if err != nil {
			return err
		}
		if answer, ok := pong(frames[0]); command && ok {
			err = s.send(answer)
		} else {
			err = s.subscribe(frames[0], command)
		}
		if err != nil {
			return err
		}
	}
}

// subscribe adds or removes subscriptions of a peer. In version 3.1 it is a command,
// before that a message.
func (s *peer) subscribe(body []byte, command bool) error {
	add, topic := false, body
	switch {
	case command && bytes.HasPrefix(body, []byte("\x09SUBSCRIBE")):
		add, topic = true, body[10:]
	case command && bytes.HasPrefix(body, []byte("\x06CANCEL")):
		topic = body[7:]
	case command || len(body) == 0 || body[0] > 1:
		return nil // an unknown command
	default:
		add, topic = body[0] == 1, body[1:]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !add {
		if i := slices.IndexFunc(s.topics, func(t []byte) bool { return bytes.Equal(t, topic) }); i >= 0 {
			s.topics = slices.Delete(s.topics, i, i+1)
		}
		return nil
	}
	if len(s.topics) == maxSubscriptions {
		return errors.New("too many subscriptions")
	}
	s.topics = append(s.topics, topic)
	return nil
}

// number is that of a message as it is sent.
func (m *message) number() []byte { return binary.BigEndian.AppendUint64(nil, m.seq) }

// replay answers requests of a peer after the handshake, until it disconnects. A request is the number
// to start with, after an empty frame, which precedes answers as well.
func (p *Publisher) replay(c net.Conn, r *bufio.Reader) error {
	for {
		if err := c.SetReadDeadline(time.Now().Add(replayIdle)); err != nil {
			return err
		}
		frames, command, err := readMessage(r)
		if err != nil {
			return err
		}
		if command {
			if answer, ok := pong(frames[0]); ok {
				if err := send(c, answer); err != nil {
					return err
				}
			}
			continue
		}
		if len(frames) != 2 || len(frames[0]) != 0 || len(frames[1]) != 8 {
			return errors.New("a request that is not an empty frame and a number of 8 bytes")
		}
		for _, m := range p.since(binary.BigEndian.Uint64(frames[1])) {
			if err := send(c, framed(nil, m.topic, m.number(), m.payload)); err != nil {
				return err
			}
		}
		end := bytes.Repeat([]byte{0xff}, 8) // the number -1
		if err := send(c, framed(nil, []byte("kv@"+p.o.Pod+"@"), end, nil)); err != nil {
			return err
		}
	}
}
