package link

import (
	"context"
	"crypto/hmac"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/foretoken/foretoken/internal/rescue"
)

// Options say whom a node accepts.
type Options struct {
	Identity *Identity
	Leaders  []Fingerprint // keys of leaders
	Token    Token         // nil: none. A leader with it need not be among Leaders
	// Refused is told of every connection that was refused, and why, and with the address of the listener of an error of the
	// system, such as too many open files. It may be called by several goroutines.
	Refused func(from net.Addr, err error)
}

// maxPending is how many connections may be in the handshake. One more ends the oldest: a flood of
// silent ones keeps no leader out, as its handshake takes milliseconds.
const maxPending = 64

// Listener accepts connections whose other side proves who it is in Secure.
type Listener struct {
	net.Listener
	o    Options
	open bool // within this machine, and everyone there may connect

	mu      sync.Mutex
	pending []net.Conn // the oldest first
}

// Listen accepts connections on l. Without leaders and token, l must be within this machine.
func Listen(l net.Listener, o Options) (*Listener, error) {
	known := len(o.Leaders) > 0 || o.Token != nil
	if !known && !local(l.Addr()) {
		return nil, refusef("%s can be reached from other machines: name the leaders that may use the node by their fingerprints, or share a token with them", l.Addr())
	}
	if o.Refused == nil {
		o.Refused = func(net.Addr, error) {}
	}
	return &Listener{Listener: l, o: o, open: !known}, nil
}

// Accept waits for a connection, also while the system has no files for one, of which Refused is told.
func (l *Listener) Accept() (net.Conn, error) {
	for pause := time.Millisecond; ; pause = min(2*pause, time.Second) {
		c, err := l.Listener.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return c, err
		}
		l.o.Refused(l.Addr(), err)
		time.Sleep(pause)
	}
}

// Secure is the handshake on a connection that was accepted. After an error, which Refused is told, the connection is closed.
func (l *Listener) Secure(raw net.Conn) (c net.Conn, err error) {
	l.mu.Lock()
	if l.pending = append(l.pending, raw); len(l.pending) > maxPending {
		_ = l.pending[0].Close() // its handshake ends with an error
		l.pending = slices.Delete(l.pending, 0, 1)
	}
	l.mu.Unlock()
	if err = raw.SetDeadline(time.Now().Add(handshakeTime)); err == nil {
		err = rescue.Do(func() (err error) { c, err = l.greet(raw); return err })
	}
	l.mu.Lock()
	l.pending = slices.DeleteFunc(l.pending, func(c net.Conn) bool { return c == raw })
	l.mu.Unlock()
	if err == nil {
		err = raw.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = raw.Close() // the error is that of the handshake
		l.o.Refused(raw.RemoteAddr(), err)
		return nil, err
	}
	return c, nil
}

// refuse answers with a code. The error says why.
func refuse(c net.Conn, code byte, why string) error {
	return errors.Join(refusef("%s", why), (&note{code: code}).send(c))
}

// greet finds out who connects.
func (l *Listener) greet(raw net.Conn) (*Conn, error) {
	config := l.o.Identity.config()
	config.ClientAuth = tls.RequireAnyClientCert // any key: the answer to the hello says whether it is known
	c := tls.Server(raw, config)
	if err := c.HandshakeContext(context.Background()); err != nil { // the connection has a deadline
		return nil, err
	}
	leader, err := peer(c.ConnectionState())
	if err != nil {
		return nil, err
	}
	var hello note
	if err := hello.receive(c); err != nil {
		return nil, err
	}
	node, answer := l.o.Identity.print, note{code: accepted}
	proved := false
	if l.o.Token != nil && hello.code == tokenHello {
		want, err := prove(c, l.o.Token, leaderRole, leader, node)
		if err != nil {
			return nil, err
		}
		if proved = hmac.Equal(want[:], hello.proof[:]); proved {
			if answer.proof, err = prove(c, l.o.Token, nodeRole, leader, node); err != nil {
				return nil, err
			}
			answer.code = acceptedToken
		}
	}
	switch {
	case hello.code != tokenHello && hello.code != nakedHello:
		return nil, errMark
	case proved, slices.Contains(l.o.Leaders, leader), l.open && local(raw.RemoteAddr()):
		return &Conn{Conn: c, Peer: leader}, answer.send(c)
	case l.o.Token == nil:
		return nil, refuse(c, wantsLeader, fmt.Sprintf("its fingerprint %s is not that of a leader", leader))
	case hello.code == tokenHello:
		return nil, refuse(c, wrongToken, fmt.Sprintf("its token is another one; its fingerprint is %s", leader))
	}
	return nil, refuse(c, wantsToken, fmt.Sprintf("it has no token, and its fingerprint %s is not that of a leader", leader))
}
