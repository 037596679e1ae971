package backend

import "time"

// Streamer is a device that can only read its memory: the reference for every kernel that
// reads weights. Benchmarks need it.
type Streamer interface {
	// NewStream reserves bytes bytes, which should be far more than any cache: only then
	// Read measures the speed of memory. The caller closes it.
	NewStream(bytes int) (Stream, error)
}

// Stream is memory to read from beginning to end.
type Stream interface {
	// Read reads everything once and returns how long it took.
	Read() time.Duration
	// Bytes is the size of the stream.
	Bytes() int
	// Close frees the memory.
	Close()
}
