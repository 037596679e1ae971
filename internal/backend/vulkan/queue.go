package vulkan

import (
	"github.com/foretoken/foretoken/internal/backend/vulkan/driver"
)

// queue records operations in command buffers, and submits each when it is full or its results are needed.
type queue struct {
	dev   driver.Device
	slots [queueSlots]slot
	at    int  // the slot that is being recorded, or is next
	open  bool // it is being recorded
	count int  // operations in it
	last  uint64
}

type slot struct {
	c         driver.Commands
	submitted uint64
}

// A device computes a command buffer while the next one is recorded.
const (
	queueSlots = 4
	queueMost  = 64 // operations of a command buffer
)

func (q *queue) init(dev driver.Device) error {
	q.dev = dev
	for i := range q.slots {
		c, err := dev.Commands()
		if err != nil {
			return err
		}
		q.slots[i].c = c
	}
	return nil
}

// commands is the command buffer for the next operation.
func (q *queue) commands() (driver.Commands, error) {
	if q.open && q.count >= queueMost {
		if err := q.flush(); err != nil {
			return nil, err
		}
	}
	s := &q.slots[q.at]
	if !q.open {
		if err := q.dev.Wait(s.submitted); err != nil {
			return nil, err
		}
		if err := s.c.Begin(); err != nil {
			return nil, err
		}
		q.open, q.count = true, 0
	}
	q.count++
	return s.c, nil
}

// flush submits what was recorded.
func (q *queue) flush() error {
	if !q.open {
		return nil
	}
	s := &q.slots[q.at]
	q.open, q.at = false, (q.at+1)%queueSlots
	if err := s.c.End(); err != nil {
		return err
	}
	n, err := q.dev.Submit(s.c)
	if err != nil {
		return err
	}
	s.submitted, q.last = n, n
	return nil
}

// wait submits what was recorded, and returns when everything has ended.
func (q *queue) wait() error {
	if err := q.flush(); err != nil {
		return err
	}
	return q.dev.Wait(q.last)
}

func (q *queue) close() error {
	err := q.wait()
	for i := range q.slots {
		if c := q.slots[i].c; c != nil {
			c.Close()
		}
	}
	return err
}
