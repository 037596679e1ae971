package remote

import (
	"bytes"
	"io"

	"github.com/foretoken/foretoken/internal/backend"
)

// ServeFrames has a session of a device serve what a leader has sent after its greeting, and closes it. It returns the
// memory that was in use in the end.
func ServeFrames(b backend.Backend, budget int64, data []byte) (used int64) {
	x := newSession(b, newFrames(bytes.NewReader(data), maxFrame), io.Discard)
	x.budget = budget
	_ = x.serve() // that it ends is enough
	used = x.used.Load()
	_ = x.b.Close()
	return used
}
