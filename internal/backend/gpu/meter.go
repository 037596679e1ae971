package gpu

import (
	"sync"
	"sync/atomic"

	"github.com/foretoken/foretoken/internal/backend"
)

// Meter is the data of a backend that other goroutines may read.
type Meter struct {
	kept, recorded, replayed atomic.Int64 // passes

	mu     sync.Mutex // protects what follows, and the device from being closed while it is asked
	closed bool
}

// Note is called after a wait for the device. The clock of the passes counts recorded and replayed ones.
func (p *Passes[R]) Note() {
	p.kept.Store(int64(len(p.Known)))
	p.recorded.Store(p.Clock - p.Replayed)
	p.replayed.Store(p.Replayed)
}

// Usage completes the usage of a device, whose driver reports free memory. A lost device reports none.
func (m *Meter) Usage(u backend.Usage, memory func() (free, total int64, err error)) []backend.Usage {
	u.Recordings, u.Recorded, u.Replayed = int(m.kept.Load()), m.recorded.Load(), m.replayed.Load()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		if free, _, err := memory(); err == nil {
			u.Free = free
		}
	}
	return []backend.Usage{u}
}

// CloseDevice closes the device.
func (m *Meter) CloseDevice(device interface{ Close() error }) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return device.Close()
}
