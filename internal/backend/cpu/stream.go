package cpu

import (
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cpu/kernel"
)

var _ backend.Streamer = (*Backend)(nil)

// stream is memory that all threads read.
type stream struct {
	b  *Backend
	op readOp
}

// NewStream reserves memory to read.
func (b *Backend) NewStream(bytes int) (backend.Stream, error) {
	data, err := mapMemory(bytes &^ (pieceBytes - 1))
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(data); i += pieceBytes {
		data[i] = 1 // an untouched page is not memory yet
	}
	return &stream{b: b, op: readOp{data}}, nil
}

// Read reads everything once and returns how long it took.
func (s *stream) Read() time.Duration {
	start := time.Now()
	s.b.pool.run(&s.op, len(s.op.b)/pieceBytes, 1)
	return time.Since(start)
}

// Bytes is the size of the stream.
func (s *stream) Bytes() int { return len(s.op.b) }

// Close frees the memory.
func (s *stream) Close() { unmapMemory(s.op.b) }

const pieceBytes = 4 << 10

// readOp reads memory in pieces.
type readOp struct{ b []byte }

func (op *readOp) part(_, from, to int) { kernel.Read(op.b[from*pieceBytes : to*pieceBytes]) }
