package link

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/foretoken/foretoken/internal/filetest"
)

// away is a listener whose connections come from another machine.
type away struct{ net.Listener }

var elsewhere = &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 7}

type fromAway struct{ net.Conn }

func (fromAway) RemoteAddr() net.Addr { return elsewhere }
func (away) Addr() net.Addr           { return elsewhere }

func (l away) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return fromAway{c}, nil
}

func newKey(t testing.TB) *Identity {
	t.Helper()
	i, err := New()
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// node listens and echoes what accepted connections send.
type node struct {
	*Listener
	at Address // without fingerprint

	mu      sync.Mutex
	refused []error
	peers   []Fingerprint
}

func listen(t testing.TB, o Options, remote bool) *node {
	t.Helper()
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{at: Address{HostPort: raw.Addr().String()}}
	o.Refused = func(_ net.Addr, err error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.refused = append(n.refused, err)
	}
	if remote {
		raw = away{raw}
	}
	if n.Listener, err = Listen(raw, o); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := n.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				c, err := n.Secure(c)
				if err != nil {
					return
				}
				n.mu.Lock()
				n.peers = append(n.peers, c.(*Conn).Peer)
				n.mu.Unlock()
				_, _ = io.Copy(c, c) // until the other side ends
				_ = c.Close()
			})
		}
	})
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		all.Wait()
	})
	return n
}

// refusals waits for the n-th refusal of a node.
func (n *node) refusals(t testing.TB, count int) []error {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Millisecond) {
		n.mu.Lock()
		list := slices.Clone(n.refused)
		n.mu.Unlock()
		if len(list) >= count {
			return list
		}
		if time.Now().After(end) {
			t.Fatalf("refused %v, want %d", list, count)
		}
	}
}

// try connects and sends something there and back.
func try(t testing.TB, d *Dialer, a Address) (Fingerprint, error) {
	t.Helper()
	c, err := d.Dial(t.Context(), a)
	if err != nil {
		return Fingerprint{}, err
	}
	defer func() { _ = c.Close() }()
	const text = "some rows"
	if _, err := io.WriteString(c, text); err != nil {
		return c.Peer, err
	}
	back := make([]byte, len(text))
	_, err = io.ReadFull(c, back)
	if string(back) != text {
		t.Errorf("%q came back", back)
	}
	return c.Peer, err
}

func TestOnlyKnownSidesConnect(t *testing.T) {
	leader, machine, stranger := newKey(t), newKey(t), newKey(t)
	token, other := Token(strings.Repeat("t", 40)), Token(strings.Repeat("o", 40))
	known := []Fingerprint{stranger.print, leader.print}
	for name, c := range map[string]struct {
		node   Options
		leader Dialer
		pinned *Identity
		near   bool // the node is within this machine
		want   string
	}{
		"fingerprints":               {Options{Leaders: known}, Dialer{leader, nil}, machine, false, ""},
		"token":                      {Options{Token: token}, Dialer{leader, token}, nil, false, ""},
		"token and fingerprint":      {Options{Token: token, Leaders: []Fingerprint{stranger.print}}, Dialer{leader, token}, machine, false, ""},
		"either is enough":           {Options{Token: token, Leaders: known}, Dialer{leader, nil}, machine, false, ""},
		"a token that is not needed": {Options{Leaders: known}, Dialer{leader, token}, machine, false, ""},
		"within the machine":         {Options{}, Dialer{leader, nil}, nil, true, ""},
		"and with a fingerprint":     {Options{}, Dialer{leader, nil}, machine, true, ""},
		"and a known leader":         {Options{Leaders: known}, Dialer{leader, nil}, nil, true, ""},
		"another leader":             {Options{Leaders: []Fingerprint{stranger.print}}, Dialer{leader, nil}, machine, false, "does not know this leader: start it with --leader " + leader.print.String()},
		"another node":               {Options{Leaders: known}, Dialer{leader, nil}, stranger, false, "its fingerprint is " + machine.print.String() + ", not " + stranger.print.String()},
		"another node with token":    {Options{Token: token}, Dialer{leader, token}, stranger, false, "its fingerprint is " + machine.print.String()},
		"another token":              {Options{Token: token}, Dialer{leader, other}, machine, false, "has another token"},
		"no token":                   {Options{Token: token}, Dialer{leader, nil}, machine, false, "asks for a token: give the file that it has with --node-token, or start it with --leader " + leader.print.String()},
		"a node without token":       {Options{Leaders: known}, Dialer{leader, token}, nil, false, "has no token: start it with the token, or give its fingerprint"},
		"unknown within the machine": {Options{Leaders: []Fingerprint{stranger.print}}, Dialer{leader, nil}, nil, true, "does not know this leader"},
		"no token there, either":     {Options{Token: token}, Dialer{leader, nil}, nil, true, "asks for a token"},
		"token, within the machine":  {Options{}, Dialer{leader, token}, nil, true, "has no token"},
	} {
		c.node.Identity = machine
		n := listen(t, c.node, !c.near)
		at := n.at
		if c.pinned != nil {
			at.Node = c.pinned.print
		}
		got, err := try(t, &c.leader, at)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want == "" && got != machine.print:
			t.Errorf("%s: the peer is %v", name, got)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, ErrRefused)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if n.mu.Lock(); len(n.peers) > 0 && got != (Fingerprint{}) && n.peers[0] != leader.print {
			t.Errorf("%s: the node talks to %v", name, n.peers[0])
		}
		n.mu.Unlock()
	}
}

func TestOtherMachinesNeedKeys(t *testing.T) {
	d := &Dialer{Identity: newKey(t)}
	for _, at := range []string{"192.0.2.1:1", "node:1", "[fd00::7]:1", "0.0.0.0:1"} {
		a, err := ParseAddress(at)
		if err == nil {
			_, err = d.Dial(t.Context(), a)
		}
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "is another machine: give the fingerprint") {
			t.Errorf("%s: %v", at, err)
		}
	}
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close() //nolint:errcheck // it was only asked for its address
	if _, err := Listen(away{raw}, Options{Identity: d.Identity}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "can be reached from other machines") {
		t.Error(err)
	}
	// A name of this machine that turns out to be another one's.
	here, there := net.Pipe()
	defer here.Close()  //nolint:errcheck // a pipe
	defer there.Close() //nolint:errcheck // a pipe
	if _, err := d.greet(t.Context(), Address{HostPort: "localhost:1"}, fromAway{here}); !errors.Is(err, ErrRefused) {
		t.Error(err)
	}
	// A node within this machine that something forwards to from elsewhere.
	n, told := &Listener{o: Options{Identity: d.Identity}, open: true}, make(chan struct{})
	go func() {
		if _, err := (&Dialer{Identity: d.Identity}).greet(t.Context(), Address{Node: d.Identity.print}, there); !errors.Is(err, ErrRefused) {
			t.Error(err)
		}
		close(told)
	}()
	if _, err := n.greet(fromAway{here}); !errors.Is(err, ErrRefused) {
		t.Error(err)
	}
	<-told
}

// A machine between a leader and a node has a key and forwards all notes. The proof that the leader
// makes for the session with it is worth nothing in its session with the node.
func TestForwardedTokenIsRefused(t *testing.T) {
	token := Token(strings.Repeat("t", 40))
	n := listen(t, Options{Identity: newKey(t), Token: token}, true)
	between, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer between.Close() //nolint:errcheck // only this test knows it
	key := newKey(t)
	seen := make(chan note, 1)
	var forwarding sync.WaitGroup
	defer forwarding.Wait()
	forwarding.Go(func() {
		raw, err := between.Accept()
		if err != nil {
			return
		}
		defer raw.Close() //nolint:errcheck // it was read to its end
		config := key.config()
		config.ClientAuth = tls.RequireAnyClientCert
		front := tls.Server(raw, config)
		config = key.config()
		config.InsecureSkipVerify = true
		back, err := tls.Dial("tcp", n.at.HostPort, config)
		if err != nil {
			t.Error(err)
			return
		}
		defer back.Close() //nolint:errcheck // it was read to its end
		var hello, answer note
		if err := errors.Join(hello.receive(front), hello.send(back), answer.receive(back), answer.send(front)); err != nil {
			t.Error(err)
		}
		seen <- hello
	})
	d := &Dialer{newKey(t), token}
	if _, err := try(t, d, Address{HostPort: between.Addr().String()}); err == nil || !strings.Contains(err.Error(), "has another token") {
		t.Errorf("through another machine: %v", err)
	}
	// Nor is it in a later session of that machine itself.
	hello := <-seen
	config := key.config()
	config.InsecureSkipVerify = true
	c, err := tls.Dial("tcp", n.at.HostPort, config)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // it was refused
	if answer, err := exchange(c, hello); err != nil || answer.code != wrongToken {
		t.Errorf("the node says %q, %v", answer.code, err)
	}
	if list := n.refusals(t, 2); !strings.Contains(list[0].Error(), "its token is another one; its fingerprint is "+key.print.String()) {
		t.Error(list)
	}
	if _, err := try(t, d, n.at); err != nil {
		t.Errorf("and directly: %v", err)
	}
}

// A node without the token answers with the proof that it was sent, or with any other.
func TestNodeHasToProveTheToken(t *testing.T) {
	key := newKey(t)
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close() //nolint:errcheck // only this test knows it
	var answering sync.WaitGroup
	defer answering.Wait()
	answering.Go(func() {
		for range 2 {
			c, err := raw.Accept()
			if err != nil {
				return
			}
			config := key.config()
			config.ClientAuth = tls.RequireAnyClientCert
			x := tls.Server(c, config)
			var hello note
			if err := hello.receive(x); err != nil {
				t.Error(err)
			}
			_ = (&note{acceptedToken, hello.proof}).send(x) // the leader may have closed it
			_ = x.Close()
		}
	})
	for _, token := range []Token{Token(strings.Repeat("t", 40)), nil} {
		d := &Dialer{newKey(t), token}
		if _, err := try(t, d, Address{raw.Addr().String(), key.print}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "does not have the token") {
			t.Errorf("token %q: %v", token, err)
		}
	}
}

func TestSilentConnectionsKeepNobodyOut(t *testing.T) {
	leader := newKey(t)
	n := listen(t, Options{Identity: newKey(t), Leaders: []Fingerprint{leader.print}}, true)
	var silent []net.Conn
	for range maxPending + 5 {
		c, err := net.Dial("tcp", n.at.HostPort)
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, c)
	}
	if _, err := try(t, &Dialer{Identity: leader}, Address{n.at.HostPort, n.o.Identity.print}); err != nil {
		t.Error(err)
	}
	n.refusals(t, 5) // the oldest were closed
	if n.mu.Lock(); len(n.peers) != 1 {
		t.Errorf("%d connections were accepted", len(n.peers))
	}
	n.mu.Unlock()
	for _, c := range silent {
		_ = c.Close()
	}
}

func TestGarbageIsRefused(t *testing.T) {
	token := Token(strings.Repeat("t", 40))
	n := listen(t, Options{Identity: newKey(t), Token: token}, true)
	for i, garbage := range []string{"", "GET / HTTP/1.1\r\nHost: a\r\n\r\n" + strings.Repeat("x", 40), mark + "x" + strings.Repeat("\x00", 32), "\x16\x03\x01\xff\xff" + strings.Repeat("\xff", 100), "\x16\x03\x01\x00\x05hello", mark} {
		c, err := net.Dial("tcp", n.at.HostPort)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, garbage) // it may have been closed
		_ = c.(*net.TCPConn).CloseWrite()
		answer, _ := io.ReadAll(c) // likewise
		if len(answer) > noteBytes {
			t.Errorf("%q: the answer has %d bytes", garbage, len(answer))
		}
		_ = c.Close()
		n.refusals(t, i+1)
	}
	// A leader that comes upon another program.
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close() //nolint:errcheck // only this test knows it
	var serving sync.WaitGroup
	defer serving.Wait()
	answers := []string{"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\nthis is another kind of server", ""}
	serving.Go(func() {
		for _, a := range answers {
			c, err := raw.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(c, make([]byte, noteBytes))
			_, _ = io.WriteString(c, a)
			_ = c.Close()
		}
	})
	a := Address{raw.Addr().String(), n.o.Identity.print}
	for _, want := range []string{"is it another program?", "closed the connection"} {
		if _, err := (&Dialer{Identity: newKey(t)}).Dial(t.Context(), a); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	raw, err := net.Listen("tcp", "127.0.0.1:0") // nothing accepts
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close() //nolint:errcheck // only this test knows it
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	for _, a := range []Address{{HostPort: raw.Addr().String()}, {raw.Addr().String(), newKey(t).print}} {
		if _, err := (&Dialer{Identity: newKey(t)}).Dial(ctx, a); err == nil || errors.Is(err, ErrRefused) {
			t.Error(err)
		}
	}
}

func TestKeyIsMadeOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "node.key")
	var all sync.WaitGroup
	var prints [4]Fingerprint
	for i := range prints {
		all.Go(func() {
			k, err := Open(path)
			if err != nil {
				t.Error(err)
				return
			}
			prints[i] = k.Fingerprint()
		})
	}
	all.Wait()
	for _, p := range prints {
		if p != prints[0] || p == (Fingerprint{}) {
			t.Errorf("%v", prints)
		}
	}
	if back, err := ParseFingerprint(strings.ToUpper(prints[0].String())); err != nil || back != prints[0] {
		t.Errorf("%v, %v", back, err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if info, e := os.Stat(path); err != nil || e != nil || len(entries) != 1 || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v, %v, %v", entries, err, info, e)
	}
	key := filetest.Read(t, path)
	for text, want := range map[string]string{"": "not one PEM block", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n": "restore the file, or delete it", string(key) + "more": "not one PEM block"} {
		filetest.Write(t, path, text)
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "can be read by other users") {
		t.Error(err)
	}
}

func TestTokensAreLongAndPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	long := strings.Repeat("k", leastToken)
	for text, want := range map[string]string{"": "32 random characters", long[1:]: "32 random characters", long + "\n" + long: "one line", long: "", "\n " + long + "\r\n": ""} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		token, err := ReadToken(path)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || err == nil && !bytes.Equal(token, []byte(long)) {
			t.Errorf("%q: %q, %v", text, token, err)
		}
	}
	filetest.Write(t, path, long)
	if err := os.Chmod(path, 0o604); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadToken(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Error(err)
	}
}

func TestAddressesAreRead(t *testing.T) {
	print := newKey(t).print
	for text, want := range map[string]string{
		"a:1": "a:1", "[::1]:7": "[::1]:7", "a:1#" + print.String(): "a:1", "": "", "a": "", ":1": "", "a:": "", "a:1#": "", "a:1#abc": "", "http://a:1": "", "u@a:1": "", "a:1#" + strings.Repeat("a", 32): "",
	} {
		a, err := ParseAddress(text)
		if (err == nil) != (want != "") || err == nil && (a.HostPort != want || (a.Node == print) != strings.Contains(text, "#")) {
			t.Errorf("%q: %+v, %v", text, a, err)
		}
	}
}

// FuzzGreet has a node read what anyone may send, in place of TLS and within it.
func FuzzGreet(f *testing.F) {
	f.Add([]byte(mark+"n"+strings.Repeat("\x00", 32)), false)
	f.Add([]byte(mark+"t"+strings.Repeat("\x00", 32)), true)
	f.Add([]byte{0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0}, false)
	leader, token := newKey(f), Token(strings.Repeat("t", 40))
	l := &Listener{o: Options{Identity: newKey(f), Token: token}}
	f.Fuzz(func(t *testing.T, sent []byte, within bool) {
		here, there := net.Pipe()
		var all sync.WaitGroup
		all.Go(func() {
			defer here.Close() //nolint:errcheck // a pipe
			c := net.Conn(here)
			if within {
				config := leader.config()
				config.InsecureSkipVerify = true
				c = tls.Client(here, config)
			}
			go func() { _, _ = io.Copy(io.Discard, c) }()
			_, _ = c.Write(sent) // it may have been refused
		})
		if c, err := l.greet(there); err == nil {
			t.Errorf("%q is accepted: %+v", sent, c)
		}
		_ = there.Close()
		all.Wait()
		if a, err := ParseAddress(string(sent)); err == nil {
			if _, _, err := net.SplitHostPort(a.HostPort); err != nil {
				t.Error(err)
			}
		}
	})
}

// full is a listener of a system without files for the first connection.
type full struct {
	net.Listener
	err error
}

func (l *full) Accept() (net.Conn, error) {
	if err := l.err; err != nil {
		l.err = nil
		return nil, err
	}
	return l.Listener.Accept()
}

// An error of the system while a connection is accepted is told, and the next connection is accepted.
func TestErrorsOfAcceptAreTold(t *testing.T) {
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var told []error
	l, err := Listen(&full{raw, errMark}, Options{Refused: func(from net.Addr, err error) {
		if told = append(told, err); from != raw.Addr() {
			t.Errorf("from %v", from)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) || len(told) != 1 || !errors.Is(told[0], errMark) {
		t.Errorf("%v, told %v", err, told)
	}
}
