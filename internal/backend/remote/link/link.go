// Package link connects a leader with a node so that each knows whom it talks to: TLS 1.3 with keys that both
// made themselves, and either the fingerprints of the keys or a token that both share. It knows
// nothing of what is sent afterwards.
//
// Both sides have an Ed25519 key with a self-signed certificate. After the TLS handshake the leader sends a
// hello and the node answers it, 37 bytes each: a mark, a code and the proof that the side
// has the token. The proof is an HMAC over keying material of the session (RFC 5705) and both fingerprints, so
// it is worth nothing in any other session: a machine that forwards it between two of its own is
// refused. Within one machine keys need not be known.
package link

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"
)

// alpn is the protocol that both sides of a TLS connection name, which others are not to speak.
const alpn = "foretoken-node/1"

// handshakeTime bounds everything before a connection is given to its user.
const handshakeTime = 10 * time.Second

// mark begins a hello and its answer.
const mark = "ftn1"

// Codes of hellos and of answers.
const (
	nakedHello    = 'n' // the leader has no token
	tokenHello    = 't' // the leader's proof follows
	accepted      = 'a' // the node has no token
	acceptedToken = 'b' // the node's proof follows
	wantsLeader   = 'l' // the fingerprint of this leader
	wantsToken    = 'k'
	wrongToken    = 'w'
)

// note is a hello or the answer to one.
type note struct {
	code  byte
	proof [sha256.Size]byte
}

// noteBytes is the size of a note.
const noteBytes = len(mark) + 1 + sha256.Size

func (n *note) send(c net.Conn) error {
	b := make([]byte, 0, noteBytes)
	b = append(append(append(b, mark...), n.code), n.proof[:]...)
	_, err := c.Write(b)
	return err
}

// errMark is the error for bytes that are no note.
var errMark = errors.New("it does not speak the protocol of foretoken's nodes")

func (n *note) receive(r io.Reader) error {
	var b [noteBytes]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return err
	}
	if !bytes.HasPrefix(b[:], []byte(mark)) {
		return errMark
	}
	n.code = b[len(mark)]
	copy(n.proof[:], b[len(mark)+1:])
	return nil
}

// Conn is a connection whose other side has proved who it is, or is within this machine.
type Conn struct {
	net.Conn
	Peer Fingerprint // of the other side's key
}

// roles are the labels of proofs: what one side sent is not the other's.
const (
	leaderRole = "foretoken leader"
	nodeRole   = "foretoken node"
)

// prove is the proof of a role that the token is known, in one session.
func prove(c *tls.Conn, t Token, role string, leader, node Fingerprint) (p [sha256.Size]byte, err error) {
	state := c.ConnectionState()
	material, err := state.ExportKeyingMaterial("EXPORTER-foretoken-node-token", nil, sha256.Size)
	if err != nil {
		return p, fmt.Errorf("link: %w", err)
	}
	h := hmac.New(sha256.New, t)
	for _, part := range [][]byte{[]byte(role), {0}, material, leader[:], node[:]} {
		_, _ = h.Write(part) // a hash does not fail
	}
	h.Sum(p[:0])
	return p, nil
}

// config is what both sides have in common.
func (i *Identity) config() *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{i.cert},
		MinVersion:   tls.VersionTLS13,
		NextProtos:   []string{alpn},
		// A resumed session would say nothing of the keys.
		SessionTicketsDisabled: true,
		// Records of full size at once: rows are a few of them, and the ramp costs more than it gives.
		DynamicRecordSizingDisabled: true,
	}
}

// peer is the fingerprint of the other side of a handshake.
func peer(state tls.ConnectionState) (f Fingerprint, err error) {
	if state.NegotiatedProtocol != alpn {
		return f, errMark
	}
	if len(state.PeerCertificates) != 1 {
		return f, fmt.Errorf("it sent %d certificates, want one with its own key", len(state.PeerCertificates))
	}
	key, ok := state.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	if !ok {
		return f, fmt.Errorf("its key is %s, want Ed25519", state.PeerCertificates[0].PublicKeyAlgorithm)
	}
	return fingerprint(key)
}

func fingerprint(key ed25519.PublicKey) (f Fingerprint, err error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return f, fmt.Errorf("link: %w", err)
	}
	sum := sha256.Sum256(der)
	copy(f[:], sum[:])
	return f, nil
}

// local reports whether an address is within this machine.
func local(a net.Addr) bool {
	at, err := netip.ParseAddrPort(a.String())
	return err == nil && at.Addr().Unmap().IsLoopback()
}
