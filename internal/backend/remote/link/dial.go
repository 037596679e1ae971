package link

import (
	"context"
	"crypto/hmac"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"
)

// Address is where a node listens, with the fingerprint of its key if that is known.
type Address struct {
	HostPort string
	Node     Fingerprint // the zero one: not known
}

// ParseAddress reads HOST:PORT or HOST:PORT#FINGERPRINT.
func ParseAddress(text string) (a Address, err error) {
	at, print, pinned := strings.Cut(text, "#")
	host, port, err := net.SplitHostPort(at)
	if err != nil || host == "" || port == "" || strings.ContainsAny(at, " \t\r\n/@") {
		return a, fmt.Errorf("node %q: want HOST:PORT or HOST:PORT#FINGERPRINT; the port is 7070 unless --listen of the node names another", text)
	}
	a.HostPort = at
	if pinned {
		if a.Node, err = ParseFingerprint(print); err != nil {
			return a, fmt.Errorf("node %s: %w", at, err)
		}
	}
	return a, nil
}

// String is the address without the fingerprint, for people.
func (a Address) String() string { return a.HostPort }

// Local reports whether the address names this machine.
func (a Address) Local() bool {
	host, _, err := net.SplitHostPort(a.HostPort)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// Dialer is a leader's side of connections.
type Dialer struct {
	Identity *Identity
	Token    Token // nil: none
}

// ErrRefused is wrapped by errors that another attempt does not end: someone has to change something.
var ErrRefused = errors.New("refused")

// refusedError is an error of the handshake that wraps ErrRefused.
type refusedError struct{ why string }

func (r *refusedError) Error() string        { return r.why }
func (r *refusedError) Is(target error) bool { return target == ErrRefused }

// Permanent marks an error that waiting does not end.
func (r *refusedError) Permanent() {}

func refusef(format string, args ...any) error { return &refusedError{fmt.Sprintf(format, args...)} }

// Check refuses addresses that cannot be connected to safely.
func (d *Dialer) Check(a Address) error {
	if d.trusting(a) && !a.Local() {
		return refusef("node %s is another machine: give the fingerprint that it prints at its start, %s#FINGERPRINT, or --node-token with a token that both share", a, a)
	}
	return nil
}

// trusting reports whether nothing is known that a handshake could check.
func (d *Dialer) trusting(a Address) bool { return a.Node == Fingerprint{} && d.Token == nil }

// Dial connects to a node and makes sure that it is the one meant. Errors do not name the node.
func (d *Dialer) Dial(ctx context.Context, a Address) (_ *Conn, err error) {
	if err := d.Check(a); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	var dialer net.Dialer
	raw, err := dialer.DialContext(ctx, "tcp", a.HostPort)
	if err != nil {
		return nil, fmt.Errorf("it cannot be reached: start 'foretoken node' there, or check the address: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) }) // ends what waits
	defer func() {
		if !stop() && err == nil { // it was canceled at the last moment
			err = ctx.Err()
		}
		if err != nil {
			_ = raw.Close() // the error is that of the handshake
		}
	}()
	return d.greet(ctx, a, raw)
}

// exchange sends a hello and reads its answer.
func exchange(c net.Conn, hello note) (answer note, err error) {
	if err := hello.send(c); err != nil {
		return answer, err
	}
	return answer, answer.receive(c)
}

// greet is the handshake.
func (d *Dialer) greet(ctx context.Context, a Address, raw net.Conn) (*Conn, error) {
	if d.trusting(a) && !local(raw.RemoteAddr()) {
		return nil, refusef("it is at %s, which is another machine: give its fingerprint, %s#FINGERPRINT, or a token that both share", raw.RemoteAddr(), a)
	}
	config := d.Identity.config()
	config.InsecureSkipVerify = true // the key is compared below, there are no names
	var node Fingerprint
	config.VerifyConnection = func(state tls.ConnectionState) (err error) {
		if node, err = peer(state); err != nil {
			return refusef("%v", err)
		}
		if pinned := a.Node != (Fingerprint{}); pinned && node != a.Node {
			return refusef("its fingerprint is %s, not %s: if it has a new key, compare this with what it prints at its start and give the new one; otherwise another machine answers there", node, a.Node)
		}
		return nil
	}
	c := tls.Client(raw, config)
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, explain(err)
	}
	hello := note{code: nakedHello}
	if d.Token != nil {
		p, err := prove(c, d.Token, leaderRole, d.Identity.print, node)
		if err != nil {
			return nil, err
		}
		hello = note{tokenHello, p}
	}
	answer, err := exchange(c, hello)
	if err != nil {
		return nil, explain(err)
	}
	switch answer.code {
	case accepted:
		if a.Node == (Fingerprint{}) && d.Token != nil {
			return nil, refusef("it has no token: start it with the token, or give its fingerprint, %s#FINGERPRINT, after comparing %s with what it prints at its start", a, node)
		}
	case acceptedToken:
		want, err := prove(c, d.Token, nodeRole, d.Identity.print, node)
		if err != nil {
			return nil, err
		}
		if d.Token == nil || !hmac.Equal(want[:], answer.proof[:]) {
			return nil, refusef("it does not have the token: give both the same file")
		}
	default:
		return nil, d.refused(answer.code)
	}
	return &Conn{Conn: c, Peer: node}, nil
}

// refused is the error for an answer that is not accepted.
func (d *Dialer) refused(code byte) error {
	switch code {
	case wantsLeader:
		return refusef("it does not know this leader: start it with --leader %s, or give both the same token", d.Identity.print)
	case wantsToken:
		return refusef("it asks for a token: give the file that it has with --node-token, or start it with --leader %s", d.Identity.print)
	case wrongToken:
		return refusef("it has another token: give both the same file")
	}
	return errMark
}

// explain says what an error of the handshake means.
func explain(err error) error {
	var r *refusedError
	var header tls.RecordHeaderError
	switch {
	case errors.As(err, &r):
		return r
	case errors.Is(err, errMark), errors.As(err, &header):
		return refusef("%v: is it another program?", errMark)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return errors.New("it closed the connection in the handshake: its log says why")
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("it did not answer the handshake within %v", handshakeTime)
	}
	return err
}
