package kvevents

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// ZMTP 3.0, the protocol of ZeroMQ over TCP, without security: RFC 23 of the ZeroMQ project. Peers
// of version 3.1 support it too.

// Flags of a frame.
const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

// Limits of a peer's messages: subscriptions and numbers.
const (
	maxFrame  = 4 << 10
	maxFrames = 8 // of a message
)

// greeting begins a connection, the same in both directions: signature, version 3.0, mechanism,
// not a server, filler.
func greeting() []byte {
	b := make([]byte, greetingSize)
	b[0], b[9], b[10] = 0xff, 0x7f, 3
	copy(b[12:], mechanism)
	return b
}

const (
	greetingSize = 64
	mechanism    = "NULL"
)

// readGreeting reads a peer's.
func readGreeting(r io.Reader) error {
	var b [greetingSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return err
	}
	if b[0] != 0xff || b[9] != 0x7f {
		return errors.New("the peer does not speak ZeroMQ")
	}
	if b[10] < 3 {
		return fmt.Errorf("version %d of the protocol, want 3", b[10])
	}
	if got := string(bytes.TrimRight(b[12:32], "\x00")); got != mechanism {
		return fmt.Errorf("security mechanism %q, want %s", got, mechanism)
	}
	return nil
}

// ready is the command that announces the type of a socket.
func ready(socket string) []byte {
	b := []byte("\x05READY\x0bSocket-Type")
	b = binary.BigEndian.AppendUint32(b, uint32(len(socket)))
	return appendFrame(nil, flagCommand, append(b, socket...))
}

// readReady reads a peer's ready command, whose socket must be one of sockets.
func readReady(r *bufio.Reader, sockets ...string) error {
	flags, body, err := readFrame(r)
	if err != nil {
		return err
	}
	body, ok := bytes.CutPrefix(body, []byte("\x05READY"))
	if flags&flagCommand == 0 || !ok {
		return errors.New("the peer is not ready")
	}
	for len(body) > 0 {
		var name, value []byte
		if name, body, ok = cut(body, 1); ok {
			value, body, ok = cut(body, 4)
		}
		if !ok {
			return errors.New("the peer's properties are cut off")
		}
		if bytes.EqualFold(name, []byte("Socket-Type")) {
			if !slices.Contains(sockets, string(value)) {
				return fmt.Errorf("the peer is a socket %.20q, want one of %q", value, sockets)
			}
			return nil
		}
	}
	return errors.New("the peer does not declare its socket type")
}

// cut splits off the bytes after a length field of size bytes.
func cut(b []byte, size int) (head, rest []byte, ok bool) {
	if len(b) < size {
		return nil, nil, false
	}
	n := uint64(0)
	for _, x := range b[:size] {
		n = n<<8 | uint64(x)
	}
	if b = b[size:]; n > uint64(len(b)) {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}

// readFrame reads a frame of at most maxFrame bytes.
func readFrame(r *bufio.Reader) (flags byte, body []byte, err error) {
	if flags, err = r.ReadByte(); err != nil {
		return 0, nil, err
	}
	if flags&^(flagMore|flagLong|flagCommand) != 0 || flags&flagCommand != 0 && flags&flagMore != 0 {
		return 0, nil, fmt.Errorf("a frame with flags %#x", flags)
	}
	var size [8]byte
	part := size[7:]
	if flags&flagLong != 0 {
		part = size[:]
	}
	if _, err = io.ReadFull(r, part); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint64(size[:])
	if n > maxFrame {
		return 0, nil, fmt.Errorf("a frame of %d bytes, want at most %d", n, maxFrame)
	}
	body = make([]byte, n)
	_, err = io.ReadFull(r, body)
	return flags, body, err
}

// readMessage reads a message, or a command, which is one frame.
func readMessage(r *bufio.Reader) (frames [][]byte, command bool, err error) {
	for {
		flags, body, err := readFrame(r)
		if err != nil {
			return nil, false, err
		}
		if flags&flagCommand != 0 {
			if len(frames) > 0 {
				return nil, false, errors.New("a command inside a message")
			}
			return [][]byte{body}, true, nil
		}
		if frames = append(frames, body); len(frames) > maxFrames {
			return nil, false, fmt.Errorf("a message of more than %d frames", maxFrames)
		}
		if flags&flagMore == 0 {
			return frames, false, nil
		}
	}
}

// appendFrame appends a frame with its length.
func appendFrame(b []byte, flags byte, body []byte) []byte {
	if len(body) < 256 {
		return append(append(b, flags, byte(len(body))), body...)
	}
	b = binary.BigEndian.AppendUint64(append(b, flags|flagLong), uint64(len(body)))
	return append(b, body...)
}

// framed is a message of frames.
func framed(frames ...[]byte) (b []byte) {
	for i, f := range frames {
		flags := byte(flagMore)
		if i == len(frames)-1 {
			flags = 0
		}
		b = appendFrame(b, flags, f)
	}
	return b
}

// pong answers a command PING of a peer, which has a time to live and a context; ok is false for
// other commands.
func pong(command []byte) (answer []byte, ok bool) {
	rest, ok := bytes.CutPrefix(command, []byte("\x04PING"))
	if !ok || len(rest) < 2 {
		return nil, false
	}
	return appendFrame(nil, flagCommand, append([]byte("\x04PONG"), rest[2:]...)), true
}
