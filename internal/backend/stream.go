package backend

import "time"

// Streamer is a device that can read its memory and do nothing else: what every kernel that
// reads weights is measured against. A device that is measured has it.
type Streamer interface {
	// NewStream reserves bytes bytes, which are to be far more than any cache has: only then
	// does Read tell the speed of memory. The caller closes it.
	NewStream(bytes int) (Stream, error)
}

// Stream is memory to read from beginning to end.
type Stream interface {
	// Read reads everything once and returns how long it took.
	Read() time.Duration
	// Bytes is the size of the stream.
	Bytes() int
	// Close gives the memory back.
	Close()
}
