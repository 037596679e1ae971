package batch

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Memory is a Queue in the memory of a process, for work that this process does itself.
type Memory struct {
	mu      sync.Mutex                 // protects what follows
	models  map[string][]*hinted       // that wait, in order
	known   map[string]map[int]*hinted // of a batch, by line: those that nobody has finished
	changed chan struct{}              // closed when hints were added
}

// hinted is a hint with what became of it.
type hinted struct {
	Hint
	attempts int
}

// NewMemory returns an empty queue.
func NewMemory() *Memory {
	return &Memory{models: map[string][]*hinted{}, known: map[string]map[int]*hinted{}, changed: make(chan struct{})}
}

// Publish implements Queue.
func (m *Memory) Publish(_ context.Context, hints []Hint) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range hints {
		lines := m.known[h.Batch]
		if lines == nil {
			lines = map[int]*hinted{}
			m.known[h.Batch] = lines
		}
		if lines[h.Line] == nil {
			x := &hinted{Hint: h}
			lines[h.Line] = x
			m.models[h.Model] = append(m.models[h.Model], x)
		}
	}
	m.wake()
	return nil
}

// wake tells those who wait that there may be hints; mu is held.
func (m *Memory) wake() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// Fetch implements Queue.
func (m *Memory) Fetch(ctx context.Context, model string, n int) ([]Delivery, error) {
	for {
		m.mu.Lock()
		var list []Delivery
		for waiting := m.models[model]; len(waiting) > 0 && len(list) < n; waiting = waiting[1:] {
			m.models[model] = waiting[1:]
			waiting[0].attempts++
			list = append(list, &memoryDelivery{m, waiting[0], waiting[0].attempts})
		}
		changed := m.changed
		m.mu.Unlock()
		if len(list) > 0 {
			return list, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Outstanding implements Queue.
func (m *Memory) Outstanding(_ context.Context, _, batch string) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.known[batch]), nil
}

// Drop implements Queue.
func (m *Memory) Drop(_ context.Context, _, batch string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, batch)
	for model, waiting := range m.models {
		m.models[model] = slices.DeleteFunc(waiting, func(x *hinted) bool { return x.Batch == batch })
	}
	return nil
}

// memoryDelivery is a hint of a Memory. Who has it is in the same process, so it is never given to
// another.
type memoryDelivery struct {
	m        *Memory
	x        *hinted
	attempts int
}

func (d *memoryDelivery) Hint() Hint     { return d.x.Hint }
func (d *memoryDelivery) Attempts() int  { return d.attempts }
func (d *memoryDelivery) Working() error { return nil }

// Done implements Delivery.
func (d *memoryDelivery) Done() error {
	d.m.mu.Lock()
	defer d.m.mu.Unlock()
	if lines := d.m.known[d.x.Batch]; lines[d.x.Line] == d.x {
		if delete(lines, d.x.Line); len(lines) == 0 {
			delete(d.m.known, d.x.Batch)
		}
	}
	return nil
}

// Later implements Delivery.
func (d *memoryDelivery) Later(after time.Duration) error {
	again := func() {
		d.m.mu.Lock()
		defer d.m.mu.Unlock()
		if d.m.known[d.x.Batch][d.x.Line] == d.x {
			d.m.models[d.x.Model] = append(d.m.models[d.x.Model], d.x)
			d.m.wake()
		}
	}
	if after <= 0 {
		again()
	} else {
		time.AfterFunc(after, again)
	}
	return nil
}

// Return implements Delivery.
func (d *memoryDelivery) Return() error {
	d.m.mu.Lock()
	d.x.attempts--
	d.m.mu.Unlock()
	return d.Later(0)
}

var _ Queue = (*Memory)(nil)
