package cuda

import (
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
)

var _ backend.Streamer = (*Backend)(nil)

// stream is memory that all multiprocessors read.
type stream struct {
	b     *Backend
	at    driver.Ptr
	bytes int
}

// NewStream reserves memory to read.
func (b *Backend) NewStream(bytes int) (backend.Stream, error) {
	bytes &^= 15
	at, err := b.memory.alloc(int64(bytes))
	if err != nil {
		return nil, err
	}
	if err := b.stream.Set(at, 0, int64(bytes)); err != nil {
		return nil, err
	}
	return &stream{b, at, bytes}, nil
}

// Read reads everything once and returns how long it took, the way to the device and back included.
func (s *stream) Read() time.Duration {
	b := s.b
	b.fail(b.stream.Wait())
	start := time.Now()
	b.begin()
	b.launch("rowwise.read_all", grid{x: 4 * b.info.Multiprocessors, threads: 512}, s.at, int64(s.bytes/16), b.scratch(4))
	b.fail(b.stream.Wait())
	return time.Since(start)
}

// Bytes is the size of the stream.
func (s *stream) Bytes() int { return s.bytes }

// Close gives the memory back.
func (s *stream) Close() { s.b.fail(s.b.memory.free(s.at)) }
