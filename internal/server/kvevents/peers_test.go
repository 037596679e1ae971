package kvevents

import (
	"bufio"
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"
)

// TestSlowSubscribersAreDisconnected has one that does not read beside one that does.
func TestSlowSubscribersAreDisconnected(t *testing.T) {
	p, pub, _ := open(t)
	p.queue = 16
	subscribed(t, p, pub, false)
	keen := subscribed(t, p, pub, true)
	m, tokens := p.Model("a"), make([]int32, 5000*size)
	for i := range tokens {
		tokens[i] = 1 << 20
	}
	for i := int32(0); p.Stats().Slow == 0; i++ { // until the system's buffers are full as well
		tokens[0] = i
		m.Stored(append([]int32(nil), tokens...))
		p.Sync()
		if frames := keen.message(); len(frames) != 3 || len(frames[2]) < 5*len(tokens)-10 {
			t.Fatalf("%d frames", len(frames))
		}
		m.Removed(append([]int32(nil), tokens...))
		p.Sync()
		keen.message()
	}
	if s := p.Stats(); s.Slow != 1 || s.Subscribers != 1 {
		t.Errorf("%+v, want one slow subscriber and one left", s)
	}
}

// TestStrangersAreSentAway connects peers with another protocol, or another socket
// type. The publisher serves others after it.
func TestStrangersAreSentAway(t *testing.T) {
	p, pub, replay := open(t)
	hello := greeting()
	other := func(at int, b ...byte) []byte {
		x := bytes.Clone(hello)
		copy(x[at:], b)
		return x
	}
	after := func(x ...[]byte) []byte { return append(bytes.Clone(hello), bytes.Join(x, nil)...) }
	for name, data := range map[string][]byte{
		"HTTP":                 append([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), make([]byte, 64)...),
		"version 2":            other(10, 2),
		"another mechanism":    other(12, []byte("PLAIN")...),
		"not ready":            after(appendFrame(nil, 0, []byte("hello"))),
		"another command":      after(appendFrame(nil, flagCommand, []byte("\x05ERROR\x00"))),
		"another socket":       after(ready("PAIR")),
		"no socket":            after(appendFrame(nil, flagCommand, []byte("\x05READY"))),
		"properties cut off":   after(appendFrame(nil, flagCommand, []byte("\x05READY\x0bSocket-Type\x00\x00\x00\xffSUB"))),
		"a long frame":         after([]byte{flagLong, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}),
		"flags of no frame":    after([]byte{0x80, 1, 0}),
		"too many frames":      after(ready("SUB"), bytes.Repeat([]byte{flagMore, 0}, maxFrames+1)),
		"too many topics":      after(ready("SUB"), bytes.Repeat([]byte{0, 2, 1, 'x'}, maxSubscriptions+1)),
		"a command in between": after(ready("SUB"), []byte{flagMore, 0, flagCommand, 0}),
		"a strange request":    after(ready("DEALER"), []byte{0, 1, 0}),
	} {
		addr := pub
		if name == "a strange request" {
			addr = replay
		}
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		if _, err := c.Write(data); err != nil {
			t.Logf("%s: %v", name, err) // it may be gone already
		}
		if _, err := io.Copy(io.Discard, c); err != nil {
			if e, ok := err.(net.Error); ok && e.Timeout() { //nolint:errorlint // as it comes
				t.Errorf("%s: still connected", name)
			}
		}
		_ = c.Close()
	}
	subscribed(t, p, pub, false)
	p.Model("a").Stored([]int32{1, 2, 3, 4})
	p.Sync()
	if got := dial(t, replay, "DEALER").ask(0); len(got) != 2 {
		t.Errorf("%d batches after strangers, want 2", len(got))
	}
}

// TestPingIsAnswered, as peers of version 3.1 with heartbeats demand.
func TestPingIsAnswered(t *testing.T) {
	_, pub, replay := open(t)
	for addr, socket := range map[string]string{pub: "SUB", replay: "DEALER"} {
		c := dial(t, addr, socket)
		c.write([]byte("\x04\x0a\x04PING\x00\x0axyz"))
		if flags, body := c.frame(); flags != 4 || string(body) != "\x04PONGxyz" {
			t.Errorf("%s: flags %d, %q", socket, flags, body)
		}
	}
}

// TestCloseEndsEverything closes a publisher with peers in all states.
func TestCloseEndsEverything(t *testing.T) {
	p, pub, replay := open(t)
	silent, err := net.Dial("tcp", pub)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	subscribed(t, p, pub, false)
	dial(t, replay, "REQ")
	done := make(chan struct{})
	go func() { p.Close(); close(done) }()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
	p.Model("a").Stored([]int32{1, 2, 3, 4}) // too late, and harmless
	p.Sync()
	p.Close()
}

// TestNumbersAreReadBack writes numbers of all sizes, and lists with lengths around those at which their form changes.
func TestNumbersAreReadBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 10_000 {
		n := rng.Uint32() >> rng.IntN(32)
		if v, rest, err := decode(appendUint(nil, n)); err != nil || len(rest) > 0 || v != uint64(n) {
			t.Fatalf("%d: %v, %d bytes left, error %v", n, v, len(rest), err)
		}
	}
	for _, length := range []int{0, 1, 15, 16, 17, 255, 256, 9999, 65535, 65536, 69_999} {
		if v, _, err := decode(append(appendList(nil, length), make([]byte, length)...)); err != nil || len(v.([]any)) != length {
			t.Fatalf("a list of %d: %v", length, err)
		}
	}
}

// FuzzPeer reads arbitrary input of a peer, in every state of a connection.
func FuzzPeer(f *testing.F) {
	f.Add(append(greeting(), ready("SUB")...))
	f.Add(append(append(greeting(), ready("DEALER")...), 0, 2, 1, 'k', 4, 9, 4, 'P', 'I', 'N', 'G', 0, 1, 2, 3))
	f.Add([]byte{1, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bufio.NewReader(bytes.NewReader(data))
		if readGreeting(r) == nil {
			_ = readReady(r, "SUB", "DEALER")
		}
		s := &peer{}
		for _, r := range []*bufio.Reader{r, bufio.NewReader(bytes.NewReader(data))} {
			for {
				frames, command, err := readMessage(r)
				if err != nil {
					break
				}
				if len(frames) == 0 || len(frames) > maxFrames {
					t.Fatalf("%d frames", len(frames))
				}
				pong(frames[0])
				if s.subscribe(frames[0], command) != nil {
					break
				}
			}
		}
		if len(s.topics) > maxSubscriptions {
			t.Fatalf("%d subscriptions", len(s.topics))
		}
	})
}
