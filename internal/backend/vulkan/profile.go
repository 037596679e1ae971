package vulkan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/foretoken/foretoken/internal/backend"
	"github.com/foretoken/foretoken/internal/backend/vulkan/driver"
)

var (
	_ backend.Profiler = (*Backend)(nil)
	_ backend.Streamer = (*Backend)(nil)
)

// timed executes what a command buffer is filled with, and returns the times of its marks.
func (b *Backend) timed(marks int, fill func(c driver.Commands, clock driver.Clock)) ([]time.Duration, error) {
	clock, err := b.dev.Clock(marks)
	if err != nil {
		return nil, err
	}
	defer clock.Close()
	c, err := b.dev.Commands()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := errors.Join(b.wait(), c.Begin()); err != nil {
		return nil, err
	}
	fill(c, clock)
	if err := c.End(); err != nil {
		return nil, err
	}
	n, err := b.dev.Submit(c)
	if err = errors.Join(err, b.dev.Wait(n)); err != nil {
		return nil, err
	}
	return clock.Times()
}

// Profile runs the last pass with a mark after every operation. The distance of two marks without one between them is subtracted.
func (b *Backend) Profile(repeats int) ([]backend.Cost, error) {
	r := b.passes.Last
	if r == nil || b.passes.recording != nil || repeats < 1 {
		return nil, errors.New("vulkan: no recorded pass to profile: run a pass first, without other work in between")
	}
	took := make([][]time.Duration, len(r.ops)+1) // of each mark since the one before
	for range repeats {
		times, err := b.timed(len(r.ops)+2, func(c driver.Commands, clock driver.Clock) {
			c.Mark(clock, 0)
			c.Mark(clock, 1)
			for i := range r.ops {
				r.ops[i].record(c)
				c.Fence()
				c.Mark(clock, i+2)
			}
		})
		if err != nil {
			return nil, err
		}
		for i := range took {
			took[i] = append(took[i], times[i+1]-times[i])
		}
	}
	middle := func(list []time.Duration) time.Duration { slices.Sort(list); return list[len(list)/2] }
	apart := middle(took[0])
	var costs []backend.Cost
	for i := range r.ops {
		name := cmp.Or(r.ops[i].name, "copy")
		if shape := r.ops[i].shape; shape != [2]int{} {
			name += fmt.Sprintf(" %d×%d", shape[0], shape[1])
		}
		at := slices.IndexFunc(costs, func(c backend.Cost) bool { return c.Kernel == name })
		if at < 0 {
			at = len(costs)
			costs = append(costs, backend.Cost{Kernel: name})
		}
		costs[at].Count++
		costs[at].Seconds += max(0, middle(took[i+1])-apart).Seconds()
	}
	slices.SortStableFunc(costs, func(a, b backend.Cost) int { return cmp.Compare(b.Seconds, a.Seconds) })
	return costs, nil
}

// stream is memory that the device reads.
type stream struct {
	b     *Backend
	at    driver.Ptr
	bytes int
}

// NewStream reserves memory to read.
func (b *Backend) NewStream(bytes int) (backend.Stream, error) {
	bytes &^= 15
	at, err := b.memory.Alloc(int64(bytes))
	if err != nil {
		return nil, err
	}
	c, err := b.queue.commands(false)
	if err != nil {
		return nil, errors.Join(err, b.memory.Free(at))
	}
	c.Set(at, int64(bytes))
	return &stream{b, at, bytes}, nil
}

// Read reads everything once and returns the time of the device, without the round trip.
func (s *stream) Read() time.Duration {
	b := s.b
	b.begin()
	k, err := b.kernel("read_all")
	if err != nil {
		b.fail(err)
		return 0
	}
	const groups = 2048
	args := packed(nil, s.at, b.scratch(4), s.bytes/16)
	times, err := b.timed(2, func(c driver.Commands, clock driver.Clock) {
		c.Mark(clock, 0)
		c.Launch(k, [3]int{groups, 1, 1}, args)
		c.Mark(clock, 1)
	})
	if err != nil {
		b.fail(err)
		return 0
	}
	return times[1]
}

// Bytes is the size of the stream.
func (s *stream) Bytes() int { return s.bytes }

// Close frees the memory.
func (s *stream) Close() { s.b.fail(s.b.memory.Free(s.at)) }
