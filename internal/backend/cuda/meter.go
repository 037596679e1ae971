package cuda

import (
	"sync"
	"sync/atomic"

	"github.com/foretoken/foretoken/internal/backend"
)

// meter is the data of a backend that other goroutines may read.
type meter struct {
	kept, recorded, replayed atomic.Int64 // passes

	mu     sync.Mutex // protects what follows, and the device from being closed while it is asked
	closed bool
}

// note is called after a wait for the stream. The clock of the passes counts recorded and
// replayed ones.
func (m *meter) note(p *passes) {
	m.kept.Store(int64(len(p.Known)))
	m.recorded.Store(p.Clock - p.replayed)
	m.replayed.Store(p.replayed)
}

// Usage implements backend.Meter.
func (b *Backend) Usage() []backend.Usage {
	m := &b.meter
	u := backend.Usage{
		Device: b.Name(), Memory: b.info.Memory, Used: b.memory.Taken(),
		Recordings: int(m.kept.Load()), Recorded: m.recorded.Load(), Replayed: m.replayed.Load(),
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		if free, _, err := b.dev.Memory(); err == nil { // a lost device reports none
			u.Free = free
		}
	}
	return []backend.Usage{u}
}

// closeDevice closes the device.
func (b *Backend) closeDevice() error {
	b.meter.mu.Lock()
	defer b.meter.mu.Unlock()
	b.meter.closed = true
	return b.dev.Close()
}
