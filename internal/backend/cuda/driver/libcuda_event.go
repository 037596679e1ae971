//go:build cuda && (linux || windows)

package driver

import (
	"time"
	"unsafe"
)

// event is a mark of the library.
type event struct {
	d      *gpu
	handle uintptr
}

// recordExternal makes a mark of a capture one that is passed whenever the graph runs.
const recordExternal = 1

func (d *gpu) Event() (Event, error) {
	handle := new(uintptr)
	if err := d.do("cuEventCreate", uintptr(unsafe.Pointer(handle)), 0); err != nil {
		return nil, err
	}
	return &event{d, *handle}, nil
}

func (s *stream) Mark(e Event) error {
	const call = "cuEventRecordWithFlags"
	x, ok := e.(*event)
	if !ok || x.d != s.d {
		return &Error{Call: call, Code: InvalidHandle}
	}
	flags := uintptr(0)
	if s.capturing {
		flags = recordExternal
	}
	return s.do(call, x.handle, s.handle, flags, 0)
}

func (e *event) Since(before Event) (time.Duration, error) {
	const call = "cuEventElapsedTime"
	x, ok := before.(*event)
	if !ok || x.d != e.d {
		return 0, &Error{Call: call, Code: InvalidHandle}
	}
	milliseconds := new(float32)
	err := e.d.do(call, uintptr(unsafe.Pointer(milliseconds)), x.handle, e.handle)
	return time.Duration(float64(*milliseconds) * float64(time.Millisecond)), err
}

func (e *event) Close() error { return e.d.do("cuEventDestroy", e.handle) }
