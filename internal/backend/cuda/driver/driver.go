// Package driver is the little that the CUDA backend needs of a driver: devices, memory, modules,
// one launch, streams in order, graphs. Two stand behind it: NVIDIA's library, where there is a
// GPU, and for tests an interpreter of PTX (package drivertest), so that the whole backend runs
// without one. It knows nothing of tensors.
//
// Work on a stream is queued: copies read and write memory of the host at any time until
// Stream.Wait returns, and what a kernel did wrong is the error of a later call. A device that has
// failed so is lost: every later call returns the same error, and only Close is of use.
package driver

import (
	"fmt"
	"time"
)

// A Ptr is an address on a device. 0 is none.
type Ptr uint64

// Info is what is known of a device before it is opened.
type Info struct {
	Name            string
	Compute         [2]int // capability, such as 9, 0
	Memory          int64
	Multiprocessors int
	Shared          int // bytes of shared memory that a block may ask for
	Driver          int // version of CUDA that the driver knows, such as 13000
}

// MinVersion is the version of CUDA that a driver must know: the first that knows the PTX of compute
// capability 9.0 and launches that depend on one another.
const MinVersion = 11080

// Version is a version of CUDA as people write it.
func Version(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// A Driver has devices.
type Driver interface {
	// Devices are those there are, none included.
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
	// Free gives memory back when all that was queued has ended.
	Free(p Ptr) error
	// Pin returns memory of the host that copies need not bring to another place first.
	Pin(bytes int64) ([]byte, error)
	// Unpin gives back what Pin returned.
	Unpin(memory []byte) error
	// Load compiles the text of a module.
	Load(ptx string) (Module, error)
	// Stream returns a queue of its own.
	Stream() (Stream, error)
	// Event returns a mark for a stream.
	Event() (Event, error)
	// Close gives everything back, a lost device included.
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
	// AllowShared lets launches ask for bytes of dynamic shared memory, which beyond 48 KB
	// they must.
	AllowShared(bytes int) error
	// PreferShared asks for as much shared memory as a multiprocessor has, at the cost of the L1 cache.
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

	// Dependent lets the kernel begin before those before it have ended: it must not touch what they
	// write before griddepcontrol.wait. Needs compute capability 9.0.
	Dependent bool
}

// A Stream does what is queued on it one after another. One goroutine at a time may use it.
type Stream interface {
	Write(to Ptr, from []byte) error
	Read(to []byte, from Ptr) error
	Copy(to, from Ptr, bytes int64) error
	Set(to Ptr, value byte, bytes int64) error
	Launch(l Launch) error
	// Mark has the stream tell e when it comes by. In a capture that is every time the graph runs.
	Mark(e Event) error
	// Wait returns when all that was queued has ended, with the error of what failed.
	Wait() error
	// Capture records what queue queues instead of doing it. Memory of the host in copies is read
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
