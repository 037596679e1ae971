package vulkan

import (
	"errors"
	"slices"

	"github.com/foretoken/foretoken/internal/backend/vulkan/driver"
)

// queue records operations in command buffers, and submits each when it is full or its results are needed.
type queue struct {
	dev  driver.Device
	open *buffer   // it is being recorded
	idle []*buffer // submitted and not kept, oldest first
	last uint64    // submission
}

// buffer is a command buffer.
type buffer struct {
	c         driver.Commands
	count     int    // operations
	submitted uint64 // last; 0: never
}

// A device computes a command buffer while the next one is recorded.
const (
	queueSlots = 4
	queueMost  = 64 // operations of a command buffer
)

// begin is an empty command buffer.
func (q *queue) begin() (*buffer, error) {
	f := new(buffer)
	var err error
	if len(q.idle) < queueSlots {
		f.c, err = q.dev.Commands()
	} else {
		f, q.idle = q.idle[0], slices.Delete(q.idle, 0, 1)
		err = q.dev.Wait(f.submitted)
	}
	if err != nil {
		return nil, err
	}
	f.count = 0
	return f, f.c.Begin()
}

// commands is the command buffer for the next operation, which waits for those before unless it runs beside them.
func (q *queue) commands(beside bool) (driver.Commands, error) {
	if q.open != nil && q.open.count >= queueMost {
		if err := q.flush(); err != nil {
			return nil, err
		}
	}
	if q.open == nil {
		f, err := q.begin()
		if err != nil {
			return nil, err
		}
		q.open = f
	}
	q.open.count++
	if !beside {
		q.open.c.Fence()
	}
	return q.open.c, nil
}

// flush submits what was recorded.
func (q *queue) flush() error {
	f := q.open
	if f == nil {
		return nil
	}
	q.open = nil
	q.idle = append(q.idle, f)
	if err := f.c.End(); err != nil {
		return err
	}
	return q.submit(f)
}

// submit has the device execute a command buffer that was recorded.
func (q *queue) submit(f *buffer) error {
	n, err := q.dev.Submit(f.c)
	if err == nil {
		f.submitted, q.last = n, n
	}
	return err
}

// wait submits what was recorded, and returns when everything has ended.
func (q *queue) wait() error {
	if err := q.flush(); err != nil {
		return err
	}
	return q.dev.Wait(q.last)
}

// close waits, and frees all command buffers that are not kept.
func (q *queue) close() error {
	err := q.wait()
	for _, f := range q.idle {
		f.c.Close()
	}
	q.idle = nil
	return errors.Join(err)
}
