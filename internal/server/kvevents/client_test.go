package kvevents

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"testing"
	"time"
)

// client is a peer of the tests: it has its own reading of the protocol.
type client struct {
	t *testing.T
	c net.Conn
	r *bufio.Reader
}

// patience is the time limit for expected messages.
const patience = 5 * time.Minute

// dial connects a socket of a type to a listener.
func dial(t *testing.T, addr, socket string) *client {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	x := &client{t, c, bufio.NewReader(c)}
	x.deadline()
	hello := make([]byte, 64)
	hello[0], hello[9], hello[10], hello[11] = 0xff, 0x7f, 3, 1
	copy(hello[12:], "NULL")
	x.write(hello)
	got := make([]byte, 64)
	x.full(got)
	if got[0] != 0xff || got[9] != 0x7f || got[10] != 3 || string(got[12:16]) != "NULL" || got[32] != 0 {
		t.Fatalf("greeting %q", got)
	}
	x.write(append([]byte{4, byte(22 + len(socket))}, "\x05READY\x0bSocket-Type\x00\x00\x00"+string(byte(len(socket)))+socket...))
	flags, body := x.frame()
	if flags != 4 || string(body[:6]) != "\x05READY" {
		t.Fatalf("flags %d, command %q", flags, body)
	}
	return x
}

func (x *client) deadline() { _ = x.c.SetDeadline(time.Now().Add(patience)) }

func (x *client) write(b []byte) {
	x.t.Helper()
	if _, err := x.c.Write(b); err != nil {
		x.t.Fatal(err)
	}
}

func (x *client) full(b []byte) {
	x.t.Helper()
	if _, err := io.ReadFull(x.r, b); err != nil {
		x.t.Fatal(err)
	}
}

func (x *client) frame() (flags byte, body []byte) {
	x.t.Helper()
	var head [2]byte
	x.full(head[:])
	n := uint64(head[1])
	if head[0]&2 != 0 {
		var rest [7]byte
		x.full(rest[:])
		n = binary.BigEndian.Uint64(append(head[1:], rest[:]...))
	}
	body = make([]byte, n)
	x.full(body)
	return head[0] &^ 2, body
}

// message reads the frames of a message.
func (x *client) message() (frames [][]byte) {
	x.t.Helper()
	x.deadline()
	for {
		flags, body := x.frame()
		if frames = append(frames, body); flags == 0 {
			return frames
		}
		if flags != 1 {
			x.t.Fatalf("flags %d in a message", flags)
		}
	}
}

// subscribe subscribes to a topic, by version 3.0 or 3.1.
func (x *client) subscribe(topic string, command bool) {
	x.t.Helper()
	if command {
		x.write(append([]byte{4, byte(10 + len(topic))}, "\x09SUBSCRIBE"+topic...))
	} else {
		x.write(append([]byte{0, byte(1 + len(topic)), 1}, topic...))
	}
}

// ask requests a replay, and returns its messages without the end mark.
func (x *client) ask(from uint64) (list [][][]byte) {
	x.t.Helper()
	x.write(append([]byte{1, 0, 0, 8}, binary.BigEndian.AppendUint64(nil, from)...))
	for {
		frames := x.message()
		if len(frames) != 4 || len(frames[0]) != 0 {
			x.t.Fatalf("an answer of %d frames, %q", len(frames), frames)
		}
		if frames = frames[1:]; len(frames[2]) == 0 {
			if binary.BigEndian.Uint64(frames[1]) != math.MaxUint64 {
				x.t.Fatalf("the last answer has number %x", frames[1])
			}
			return list
		}
		list = append(list, frames)
	}
}

// decode is MessagePack as numbers, texts, lists and maps.
func decode(b []byte) (v any, rest []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("cut off: %v", p)
		}
	}()
	v, rest = decodeValue(b)
	return v, rest, nil
}

func decodeValue(b []byte) (any, []byte) {
	be := binary.BigEndian
	c, b := b[0], b[1:]
	switch {
	case c < 0x80:
		return uint64(c), b
	case c < 0x90:
		m := map[string]any{}
		for range c & 15 {
			var k, v any
			k, b = decodeValue(b)
			v, b = decodeValue(b)
			m[k.(string)] = v
		}
		return m, b
	case c < 0xa0:
		return decodeList(b, int(c&15))
	case c < 0xc0:
		return string(b[:c&31]), b[c&31:]
	}
	switch c {
	case 0xc0:
		return nil, b
	case 0xcb:
		return math.Float64frombits(be.Uint64(b)), b[8:]
	case 0xcc:
		return uint64(b[0]), b[1:]
	case 0xcd:
		return uint64(be.Uint16(b)), b[2:]
	case 0xce:
		return uint64(be.Uint32(b)), b[4:]
	case 0xcf:
		return be.Uint64(b), b[8:]
	case 0xd9:
		return string(b[1 : 1+b[0]]), b[1+b[0]:]
	case 0xdc:
		return decodeList(b[2:], int(be.Uint16(b)))
	case 0xdd:
		return decodeList(b[4:], int(be.Uint32(b)))
	}
	panic(fmt.Sprintf("%#x begins no value", c))
}

func decodeList(b []byte, n int) (any, []byte) {
	list := make([]any, n)
	for i := range list {
		list[i], b = decodeValue(b)
	}
	return list, b
}
