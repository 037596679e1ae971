package remote

import (
	"bytes"
	"io"
	"time"

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

// SetSilence sets how long an end may give no sign of life.
func (o *Options) SetSilence(d time.Duration) { o.silence = d }

// SetSilence sets how long an end may give no sign of life.
func (s *Server) SetSilence(d time.Duration) { s.silence = d }
