package cpu

import (
	"time"

	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
)

// Stream is memory to read from beginning to end, on all threads and doing nothing else:
// what every kernel that reads weights is measured against.
type Stream struct {
	b  *Backend
	op readOp
}

// NewStream reserves bytes bytes, which are to be far more than any cache has: only then does
// Read tell the speed of memory. The caller closes it.
func (b *Backend) NewStream(bytes int) (*Stream, error) {
	data, err := mapMemory(bytes &^ (pieceBytes - 1))
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(data); i += pieceBytes {
		data[i] = 1 // an untouched page is not memory yet
	}
	return &Stream{b: b, op: readOp{data}}, nil
}

// Read reads everything once and returns how long it took.
func (s *Stream) Read() time.Duration {
	start := time.Now()
	s.b.pool.run(&s.op, len(s.op.b)/pieceBytes, 1)
	return time.Since(start)
}

// Bytes is the size of the stream.
func (s *Stream) Bytes() int { return len(s.op.b) }

// Close gives the memory back.
func (s *Stream) Close() { unmapMemory(s.op.b) }

const pieceBytes = 4 << 10

// readOp reads memory in pieces.
type readOp struct{ b []byte }

func (op *readOp) part(_, from, to int) { kernel.Read(op.b[from*pieceBytes : to*pieceBytes]) }
