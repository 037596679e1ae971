package cuda

import (
	"sync"
	"sync/atomic"

	"github.com/foretoken/foretoken/internal/backend"
)

// meter is what others may know of a backend while one goroutine uses it.
type meter struct {
	kept, recorded, replayed atomic.Int64 // passes

	mu     sync.Mutex // protects what follows, and the device from being closed while it is asked
	closed bool
}

// note is called when the stream was waited for. The clock of the passes counts those that were
// recorded and those that were replayed.
func (m *meter) note(p *passes) {
	m.kept.Store(int64(len(p.known)))
	m.recorded.Store(p.clock - p.replayed)
	m.replayed.Store(p.replayed)
}

// Usage implements backend.Meter.
func (b *Backend) Usage() []backend.Usage {
	m := &b.meter
	u := backend.Usage{
		Device: b.Name(), Memory: b.info.Memory, Used: b.memory.taken.Load(),
		Recordings: int(m.kept.Load()), Recorded: m.recorded.Load(), Replayed: m.replayed.Load(),
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		if free, _, err := b.dev.Memory(); err == nil { // a lost device has none
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
