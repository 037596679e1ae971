package drivertest

import (
	"errors"
	"time"

	"github.com/foretoken/foretoken/internal/backend/cuda/driver"
)

// event is when a stream came by, last.
type event struct {
	d      *device
	at     time.Time
	closed bool
}

func (d *device) Event() (driver.Event, error) {
	end, err := d.begin("cuEventCreate")
	if err != nil {
		return nil, err
	}
	defer end()
	return &event{d: d}, nil
}

func (s *stream) Mark(e driver.Event) error {
	const call = "cuEventRecordWithFlags"
	x, ok := e.(*event)
	if !ok || x.d != s.d {
		return &driver.Error{Call: call, Code: driver.InvalidHandle}
	}
	return s.push(call, nil, func() error {
		if x.closed {
			return errors.New("a mark that was closed")
		}
		x.at = time.Now()
		return nil
	})
}

func (e *event) Since(before driver.Event) (time.Duration, error) {
	const call = "cuEventElapsedTime"
	end, err := e.d.begin(call)
	if err != nil {
		return 0, err
	}
	defer end()
	x, ok := before.(*event)
	if !ok || x.d != e.d || x.at.IsZero() || e.at.IsZero() {
		return 0, &driver.Error{Call: call, Code: driver.InvalidHandle}
	}
	return e.at.Sub(x.at), nil
}

func (e *event) Close() error {
	end, err := e.d.begin("cuEventDestroy")
	if err != nil {
		return err
	}
	defer end()
	e.closed = true
	return nil
}
