package batch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

// Memory is a Queue in the memory of a process, for work that this process does itself. Its hints are
// lost when the process ends; the coordinator of the next one finds the lines without a result and
// publishes them again.
type Memory struct {
	file string // keeps tried; "": nothing is kept

	mu      sync.Mutex               // protects what follows
	models  map[string][]*Hint       // waiting hints, in order
	known   map[string]map[int]*Hint // unfinished hints of a batch, by line
	tried   map[string]map[int]int   // deliveries of unfinished hints of a batch, by line
	changed chan struct{}            // closed when hints were added
}

// NewMemory returns an empty queue that keeps no file.
func NewMemory() *Memory {
	return &Memory{models: map[string][]*Hint{}, known: map[string]map[int]*Hint{}, tried: map[string]map[int]int{}, changed: make(chan struct{})}
}

// OpenMemory returns an empty queue that keeps the number of attempts at unfinished lines in a file, so
// that a line that ends the process each time runs out of attempts. The file is not synced: losing it
// costs further attempts. A damaged file is logged and replaced.
func OpenMemory(file string, log *slog.Logger) (*Memory, error) {
	m := NewMemory()
	m.file = file
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &m.tried); err != nil || m.tried == nil {
		log.Warn("batch: the file with the attempts at unfinished lines is damaged: attempts are counted from 0", "file", file, "error", err)
		m.tried = map[string]map[int]int{}
	}
	return m, nil
}

// count adds n to the attempts at a line; mu is held.
func (m *Memory) count(h *Hint, n int) {
	lines := m.tried[h.Batch]
	if lines == nil {
		lines = map[int]int{}
		m.tried[h.Batch] = lines
	}
	if lines[h.Line] += n; lines[h.Line] <= 0 {
		if delete(lines, h.Line); len(lines) == 0 {
			delete(m.tried, h.Batch)
		}
	}
}

// save writes the attempts to the file; mu is held.
func (m *Memory) save() error {
	if m.file == "" {
		return nil
	}
	data, err := json.Marshal(m.tried)
	if err == nil {
		err = os.WriteFile(m.file+".new", data, 0o600)
	}
	if err == nil {
		err = os.Rename(m.file+".new", m.file)
	}
	return full(err)
}

// Publish implements Queue.
func (m *Memory) Publish(_ context.Context, hints []Hint) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range hints {
		lines := m.known[h.Batch]
		if lines == nil {
			lines = map[int]*Hint{}
			m.known[h.Batch] = lines
		}
		if lines[h.Line] == nil {
			lines[h.Line] = &h
			m.models[h.Model] = append(m.models[h.Model], &h)
		}
	}
	m.wake()
	return nil
}

// wake wakes goroutines that wait for hints; mu is held.
func (m *Memory) wake() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// Fetch implements Queue.
func (m *Memory) Fetch(ctx context.Context, model string, n int) ([]Delivery, error) {
	for {
		m.mu.Lock()
		list, err := m.take(model, n)
		changed := m.changed
		m.mu.Unlock()
		if err != nil || len(list) > 0 {
			return list, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// take delivers up to n waiting hints of a model; mu is held. If their attempts cannot be
// saved, they stay.
func (m *Memory) take(model string, n int) (list []Delivery, err error) {
	waiting := m.models[model]
	taken := waiting[:min(n, len(waiting))]
	if len(taken) == 0 {
		return nil, nil
	}
	for _, h := range taken {
		m.count(h, 1)
		list = append(list, &memoryDelivery{m, h, m.tried[h.Batch][h.Line]})
	}
	if err := m.save(); err != nil {
		for _, h := range taken {
			m.count(h, -1)
		}
		return nil, fmt.Errorf("saving the attempts at lines: %w", err)
	}
	m.models[model] = waiting[len(taken):]
	clear(taken) // the rest of the list keeps their array
	return list, nil
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
		m.models[model] = slices.DeleteFunc(waiting, func(h *Hint) bool { return h.Batch == batch })
	}
	if m.tried[batch] == nil {
		return nil
	}
	delete(m.tried, batch)
	return m.save()
}

// memoryDelivery is a hint of a Memory. Its worker is in the same process, so it is never
// reassigned.
type memoryDelivery struct {
	m        *Memory
	hint     *Hint
	attempts int
}

func (d *memoryDelivery) Hint() Hint     { return *d.hint }
func (d *memoryDelivery) Attempts() int  { return d.attempts }
func (d *memoryDelivery) Working() error { return nil }

// Done implements Delivery.
func (d *memoryDelivery) Done() error {
	d.m.mu.Lock()
	defer d.m.mu.Unlock()
	if !d.known() {
		return nil
	}
	lines := d.m.known[d.hint.Batch]
	if delete(lines, d.hint.Line); len(lines) == 0 {
		delete(d.m.known, d.hint.Batch)
	}
	d.m.count(d.hint, -d.attempts)
	return d.m.save()
}

// known reports whether the hint is still in the queue; mu is held.
func (d *memoryDelivery) known() bool { return d.m.known[d.hint.Batch][d.hint.Line] == d.hint }

// Later implements Delivery.
func (d *memoryDelivery) Later(after time.Duration) error {
	again := func() {
		d.m.mu.Lock()
		defer d.m.mu.Unlock()
		if d.known() {
			d.m.models[d.hint.Model] = append(d.m.models[d.hint.Model], d.hint)
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
	var err error
	d.m.mu.Lock()
	if d.known() {
		d.m.count(d.hint, -1)
		err = d.m.save()
	}
	d.m.mu.Unlock()
	return errors.Join(err, d.Later(0))
}

var _ Queue = (*Memory)(nil)
