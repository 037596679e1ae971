// Package driver is the part of a driver that the CUDA backend needs: devices, memory, modules,
// one launch, streams in order, graphs. It has two implementations: NVIDIA's library, with a
// GPU, and for tests an interpreter of PTX (package drivertest), so that the whole backend runs
// without one. It does not know tensors.
//
// Work on a stream is queued: copies read and write memory of the host at any time until
// Stream.Wait returns, and a fault of a kernel is the error of a later call. A device that has
// failed so is lost: every later call returns the same error, and only Close is useful.
package driver

import (
	"fmt"
	"time"
)

// A Ptr is an address on a device. 0 is null.
type Ptr uint64

// Info describes a device before it is opened.
type Info struct {
	Name            string
	Compute         [2]int // capability, such as 9, 0
	Memory          int64
	Multiprocessors int
	Shared          int // bytes of shared memory that a block may ask for
	Driver          int // version of CUDA that the driver knows, such as 13000
}

// MinVersion is the minimum version of CUDA of a driver: the first with the PTX of compute
// capability 9.0 and launches that depend on one another.
const MinVersion = 11080

// Version is a version of CUDA as people write it.
func Version(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// A Driver has devices.
type Driver interface {
	// Devices are the available ones, maybe none.
	Devices() ([]Info, error)
	// Open makes a device ready for use.
	Open(device int) (Device, error)
}

// A Device has memory and executes kernels. Its methods may be called by several goroutines.
type Device interface {
	// Memory is how much is free now, other processes considered, and how much there is.
	Memory() (free, total int64, err error)
	// Alloc returns memory with any content, aligned to 256 bytes.
	Alloc(bytes int64) (Ptr, error)
	// Free frees memory when all queued work has ended.
	Free(p Ptr) error
	// Pin returns memory of the host that copies need not bring to another place first.
	Pin(bytes int64) ([]byte, error)
	// Unpin frees the memory of Pin.
	Unpin(memory []byte) error
	// Load compiles the text of a module.
	Load(ptx string) (Module, error)
	// Stream returns a new queue.
	Stream() (Stream, error)
	// Event returns a mark for a stream.
	Event() (Event, error)
	// Close frees everything, also of a lost device.
	Close() error
}

// A Module is a text that was compiled.
type Module interface {
	// Function returns a kernel by its name.
	Function(name string) (Function, error)
	Close() error
}

// A Function is a kernel that can be launched.
type Function interface {
	Name() string
	// AllowShared lets launches use bytes of dynamic shared memory, which is required
	// beyond 48 KB.
	AllowShared(bytes int) error
	// PreferShared requests as much shared memory as a multiprocessor has, at the cost of the L1 cache.
	PreferShared() error
	// Occupancy is how many blocks of threads threads and shared bytes a multiprocessor runs at once.
	Occupancy(threads, shared int) (int, error)
}

// A Launch is a grid of blocks of a kernel.
type Launch struct {
	Function Function
	Grid     [3]int // blocks
	Block    [3]int // threads
	Shared   int    // bytes of dynamic shared memory
	Params   []byte // as C lays them out; copied by Stream.Launch

	// Dependent lets the kernel begin before earlier ones have ended: it must not touch their
	// output before griddepcontrol.wait. Needs compute capability 9.0.
	Dependent bool
}

// A Stream executes queued work in order. One goroutine at a time may use it.
type Stream interface {
	Write(to Ptr, from []byte) error
	Read(to []byte, from Ptr) error
	Copy(to, from Ptr, bytes int64) error
	Set(to Ptr, value byte, bytes int64) error
	Launch(l Launch) error
	// Mark makes the stream signal e when it reaches it. In a capture that is every time the graph runs.
	Mark(e Event) error
	// Wait returns when all queued work has ended, with its error.
	Wait() error
	// Capture records the work of queue instead of executing it. Memory of the host in copies is read
	// and written whenever the graph is launched.
	Capture(queue func() error) (Graph, error)
	Close() error
}

// An Event is a mark that a stream comes by.
type Event interface {
	// Since is the time from when before was passed to when this one was, last. Both must have been.
	Since(before Event) (time.Duration, error)
	Close() error
}

// A Graph is work that was recorded.
type Graph interface {
	// Launch queues it on the stream it was recorded from.
	Launch() error
	// Nodes is how many operations it has.
	Nodes() int
	Close() error
}
